"""Seeds of the worlds that commands play."""

from dataclasses import fields

import evaluate
import extract_activations
from analysis.findings.stage_commands import DEFAULT_SEEDS, seeds_of
from analysis.interventions.play.request import RunOptions


def played(command: str) -> set[str]:
    return set(seeds_of({"stage": command}, {})["stage"])


def test_every_repeat_plays_a_seed_of_its_own() -> None:
    assert played("evaluate.py x pvp --seed 3 -r 4") == {"3", "4", "5", "6"}
    assert played("evaluate.py x pvp --repeats=2") == {"1", "2"}
    assert played("extract_activations.py pve -p a -s 3") == {"3"}


def test_the_default_seed_is_a_number_like_any_other() -> None:
    options = {
        "intervene.py": RunOptions,
        "extract_activations.py": extract_activations.Arguments,
        "evaluate.py": evaluate.Arguments,
    }
    for script, of in options.items():
        (default,) = (each.default for each in fields(of) if each.name == "seed")
        assert DEFAULT_SEEDS[script] == default
        assert played(f"{script} x") == played(f"{script} x --seed {default}") == {str(default)}
