"""The command line of intervene.py: several edits, negative doses, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

import intervene
from analysis.interventions.edits.edit_options import separate_edits
from analysis.interventions.play.experiment import When, body_condition
from tests.command import assert_refuses

COLUMNS = ("id", "row", "col", "health", "food", "water")


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    (tmp_path / "kit.safetensors").touch()
    return tmp_path


def parse(policies: Path, *arguments: str):
    return intervene.parse(["-p", "kit", "--policies-dir", str(policies), *arguments])


def test_each_edit_has_its_own_options_and_donors_and_a_run_its_folder(policies: Path) -> None:
    options = parse(
        policies, "--edit", "steer", "--direction", "a", "--dose", "-4,-2,0,2.5", "--directions", "d.safetensors",
        "--edit", "swap", "--from", "b", "--to", "c", "--change", "-n", "4", "--edit", "clear", "--every=3",
    )  # fmt: skip
    assert [edit.edit for edit in options.edits] == ["steer", "swap", "clear"]
    assert options.edits[0].doses == (-4, -2, 0, 2.5)
    assert (options.edits[1].names, options.edits[1].change) == (("b", "c"), True)
    assert (options.edits[2].every, options.episodes) == (3, 4)
    assert str(options.folder) == "interventions/kit-steer-a-swap-b-c-change-clear"
    erase = ("--edit", "erase", "--variable")
    options = parse(policies, *erase, "tick, self_food", *erase, "tick", "--layer", "lstm_cell")
    assert [(edit.erased_layer, edit.variables) for edit in options.edits] == [
        ("lstm_hidden", ("tick", "self_food")), ("lstm_cell", ("tick",)),
    ]  # fmt: skip
    assert str(options.folder) == "interventions/kit-erase-tick-self_food-lstm_hidden-erase-tick-lstm_cell"
    options = parse(
        policies, "--edit", "transplant", "--donor", "self_food", "--every", "16",
        "--edit", "interchange", "--direction", "a", "--donor", "self_water", "--directions", "d.safetensors",
    )  # fmt: skip
    assert [(edit.donor, edit.every) for edit in options.edits] == [("self_food", 16), ("self_water", 1)]
    assert str(options.folder) == "interventions/kit-transplant-self_food-interchange-a-self_water"
    # -o alone is the run's folder, as before there was a --name.
    given = ([], ["--name", "mine"], ["-o", "there", "--name", "mine"], ["-o", "there/mine"])
    folders = [parse(policies, "--edit", "clear", *words).folder.as_posix() for words in given]
    assert folders == ["interventions/kit-clear", "interventions/mine", "there/mine", "there/mine"]
    arguments = ["-p", "x", "--edit", "clear", "--every", "2"]
    assert separate_edits(arguments) == (arguments, [])


REFUSED = {
    "collapse": "needs --direction", "collapse --direction a": "--directions names no file",
    "steer --direction a --directions d": "--dose",
    "steer --direction a --dose much --directions d": "comma-separated numbers",
    "steer --direction a --dose 1,nan --directions d": "finite",
    "steer --direction a --dose 1,1.0 --directions d": "twice",
    "swap --from a --to a --directions d": "two different directions", "clear --dose 1": "--dose does nothing",
    "clear --one-by-one": "one --edit collapse or interchange",
    "collapse --direction a --directions d --one-by-one": "at least two different",
    "collapse --direction a,b --directions d --one-by-one --follow 3": "--follow",
    "collapse --direction a,b --directions d --one-by-one --record all": "--record works with a single edit",
    "collapse --direction a,b --directions d --one-by-one --edit clear": "one --edit collapse or interchange",
    "erase": "needs --variable", "erase --variable tick,tick": "names a variable twice",
    "erase --variable tick --layer lstm_hiden": "did you mean lstm_hidden",
    "erase --variable tick --change": "--change does nothing", "clear --variable tick": "--variable does nothing",
    "erase --variable tick --direction a": "--direction does nothing", "freeze --every 2": "--every does nothing",
    "erase --variable tick --edit erase --variable self_food": "two edits erase",
    "freeze --layer lstm_cell": "--layer does nothing",
    "clear --along covariance": "--along does nothing", "freeze --follow 4": "--follow does nothing",
    "collapse --direction a --change --along covariance": "--along does nothing", "clear --follow -1": "--follow is -1",
    "clear --every 0": "--every is 0", "transplant": "needs --donor",
    "interchange --direction a --directions d": "needs --donor",
    "interchange --direction a --donor self_food --change": "--change does nothing",
    "clear --donor self_food": "--donor does nothing", "clear --share 0": "--share is 0",
    "clear --share 1.5": "--share is 1.5", "clear --record lstm_hiden": "did you mean lstm_hidden",
    "clear -n 1": "--episodes is 1",
    "clear --controls -1": "--controls is -1", "splice": "--edit splice needs --features",
    "clear --features f": "--features does nothing here",
    "collapse --direction feature_1 --change --features f": "--change does nothing",
    "interchange --direction feature_1 --donor tick --features f": "--directions",
    "splice --direction feature_1 --features f": "--direction does nothing",
}  # fmt: skip


def test_bad_input_is_refused(policies: Path) -> None:
    for words, message in REFUSED.items():
        assert_refuses(message, parse, policies, "--edit", *words.split())
    assert_refuses("kat", parse, policies, "-p", "kat", "--edit", "clear")
    assert_refuses("needs --features", parse, policies, "--edit", "clear", "--while", "feature_1 > 2")


def test_conditions_and_ticks_hold_as_written_or_are_refused() -> None:
    rows = np.array([[1, 0, 0, 90, 25, 30], [2, 0, 0, 90, 30, 30]])
    hungry = body_condition("self_food<30", COLUMNS)
    assert hungry(rows, COLUMNS, 0, None).tolist() == [True, False]
    assert body_condition("tick >= 5", COLUMNS)(rows, COLUMNS, 4, None).tolist() == [False, False]
    when = When(2, 4, hungry)
    assert [when.now(rows, COLUMNS, tick, None).any() for tick in range(6)] == [False, False, True, True, False, False]
    for text, message in (
        ("self_food", "must be a feature"),
        ("self_fodo < 3", "did you mean self_food"),
        ("self_food < many", "must be"),
    ):
        assert_refuses(message, body_condition, text, COLUMNS)
    for first, until in ((-1, None), (5, 5), (5, 2)):
        assert_refuses("--", When, first, until)
