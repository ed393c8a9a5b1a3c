"""The command line of intervene.py: several edits, negative doses, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

import intervene
from analysis.interventions.edits.edit_options import separate_edits
from analysis.interventions.play.experiment import When, body_condition
from common.user_error import UserError
from tests.command import assert_refuses

COLUMNS = ("id", "row", "col", "health", "food", "water")
ONE_BY_ONE = ("--edit", "collapse", "--direction", "a,b", "--directions", "d", "--one-by-one")


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    (tmp_path / "kit.safetensors").touch()
    return tmp_path


def parse(policies: Path, *arguments: str):
    return intervene.parse(["-p", "kit", "--policies-dir", str(policies), *arguments])


def test_each_edit_has_its_own_options(policies: Path) -> None:
    options = parse(
        policies, "--edit", "steer", "--direction", "a", "--dose", "-4,-2,0,2.5", "--directions", "d.safetensors",
        "--edit", "swap", "--from", "b", "--to", "c", "--change", "-n", "4", "--edit", "clear", "--every=3",
    )  # fmt: skip
    assert [edit.edit for edit in options.edits] == ["steer", "swap", "clear"]
    assert options.edits[0].doses == (-4, -2, 0, 2.5)
    assert (options.edits[1].names, options.edits[1].change) == (("b", "c"), True)
    assert (options.edits[2].every, options.episodes) == (3, 4)
    assert str(options.folder) == "interventions/kit-steer-a-swap-b-c-change-clear"


def test_layers_can_be_erased_together_and_each_edit_has_its_own_donors(policies: Path) -> None:
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


def test_without_a_second_edit_nothing_is_separated() -> None:
    arguments = ["-p", "x", "--edit", "clear", "--every", "2"]
    assert separate_edits(arguments) == (arguments, [])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-p", "kat", "--edit", "clear"), "kat"),
        (("--edit", "collapse"), "needs --direction"),
        (("--edit", "collapse", "--direction", "a"), "--directions names no file"),
        (("--edit", "steer", "--direction", "a", "--directions", "d"), "--dose"),
        (("--edit", "steer", "--direction", "a", "--dose", "much", "--directions", "d"), "comma-separated numbers"),
        (("--edit", "steer", "--direction", "a", "--dose", "1,nan", "--directions", "d"), "finite"),
        (("--edit", "steer", "--direction", "a", "--dose", "1,1.0", "--directions", "d"), "twice"),
        (("--edit", "swap", "--from", "a", "--to", "a", "--directions", "d"), "two different directions"),
        (("--edit", "clear", "--dose", "1"), "--dose does nothing"),
        (("--edit", "clear", "--one-by-one"), "one --edit collapse or interchange"),
        (("--edit", "collapse", "--direction", "a", "--directions", "d", "--one-by-one"), "at least two different"),
        (("--edit", "collapse", "--direction", "a,a", "--directions", "d", "--one-by-one"), "at least two different"),
        ((*ONE_BY_ONE, "--follow", "3"), "--follow"),
        ((*ONE_BY_ONE, "--record", "all"), "--record works with a single edit"),
        ((*ONE_BY_ONE, "--edit", "clear"), "one --edit collapse or interchange"),
        (("--edit", "erase"), "needs --variable"),
        (("--edit", "erase", "--variable", "tick,tick"), "names a variable twice"),
        (("--edit", "erase", "--variable", "tick", "--layer", "lstm_hiden"), "did you mean lstm_hidden"),
        (("--edit", "erase", "--variable", "tick", "--change"), "--change does nothing"),
        (("--edit", "erase", "--variable", "tick", "--direction", "a"), "--direction does nothing"),
        (("--edit", "clear", "--variable", "tick"), "--variable does nothing"),
        (("--edit", "freeze", "--layer", "lstm_cell"), "--layer does nothing"),
        (("--edit", "erase", "--variable", "tick", "--edit", "erase", "--variable", "self_food"), "two edits erase"),
        (("--edit", "freeze", "--every", "2"), "--every does nothing"),
        (("--edit", "clear", "--along", "covariance"), "--along does nothing"),
        (("--edit", "collapse", "--direction", "a", "--change", "--along", "covariance"), "--along does nothing"),
        (("--edit", "freeze", "--follow", "4"), "--follow does nothing"),
        (("--edit", "clear", "--follow", "-1"), "--follow is -1"),
        (("--edit", "clear", "--every", "0"), "--every is 0"),
        (("--edit", "transplant"), "needs --donor"),
        (("--edit", "transplant", "--donor", "self_food", "--every", "0"), "--every is 0"),
        (("--edit", "transplant", "--donor", "self_food", "--direction", "a"), "--direction does nothing"),
        (("--edit", "interchange", "--donor", "self_food"), "needs --direction"),
        (("--edit", "interchange", "--direction", "a", "--directions", "d"), "needs --donor"),
        (("--edit", "interchange", "--direction", "a", "--donor", "self_food"), "--directions names no file"),
        (("--edit", "interchange", "--direction", "a", "--donor", "self_food", "--change"), "--change does nothing"),
        (("--edit", "clear", "--donor", "self_food"), "--donor does nothing"),
        (("--edit", "clear", "--share", "0"), "--share is 0"),
        (("--edit", "clear", "--share", "1.5"), "--share is 1.5"),
        (("--edit", "clear", "--record", "lstm_hiden"), "did you mean lstm_hidden"),
        (("--edit", "clear", "-n", "1"), "--episodes is 1"),
        (("--edit", "clear", "--controls", "-1"), "--controls is -1"),
        (("--edit", "splice"), "--edit splice needs --features"),
        (("--edit", "clear", "--while", "feature_1 > 2"), "needs --features"),
        (("--edit", "clear", "--features", "f"), "--features does nothing here"),
        (("--edit", "collapse", "--direction", "feature_1", "--change", "--features", "f"), "--change does nothing"),
        (("--edit", "interchange", "--direction", "feature_1", "--donor", "tick", "--features", "f"), "--directions"),
        (("--edit", "splice", "--direction", "feature_1", "--features", "f"), "--direction does nothing"),
    ],
)
def test_bad_input_is_refused(policies: Path, arguments: tuple[str, ...], message: str) -> None:
    assert_refuses(message, parse, policies, *arguments)


def test_conditions_and_ticks() -> None:
    rows = np.array([[1, 0, 0, 90, 25, 30], [2, 0, 0, 90, 30, 30]])
    hungry = body_condition("self_food<30", COLUMNS)
    assert hungry(rows, COLUMNS, 0, None).tolist() == [True, False]
    assert body_condition("tick >= 5", COLUMNS)(rows, COLUMNS, 4, None).tolist() == [False, False]
    when = When(2, 4, hungry)
    assert [when.now(rows, COLUMNS, tick, None).any() for tick in range(6)] == [False, False, True, True, False, False]


@pytest.mark.parametrize(
    ("text", "message"),
    [("self_food", "must be a feature"), ("self_fodo < 3", "did you mean self_food"), ("self_food < many", "must be")],
)
def test_conditions_that_make_no_sense_are_refused(text: str, message: str) -> None:
    assert_refuses(message, body_condition, text, COLUMNS)


@pytest.mark.parametrize(("first", "until"), [(-1, None), (5, 5), (5, 2)])
def test_ticks_that_make_no_sense_are_refused(first: int, until: int | None) -> None:
    with pytest.raises(UserError):
        When(first, until)


def test_where_a_run_is_written(policies: Path) -> None:
    """-o alone is the run's folder, as before there was a --name."""
    given = ([], ["--name", "mine"], ["-o", "there", "--name", "mine"], ["-o", "there/mine"])
    folders = [parse(policies, "--edit", "clear", *words).folder.as_posix() for words in given]
    assert folders == ["interventions/kit-clear", "interventions/mine", "there/mine", "there/mine"]
