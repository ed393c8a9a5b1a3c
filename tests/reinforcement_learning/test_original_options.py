"""Options of the original repository's scripts: understood, or answered with the one to use."""

import re
from pathlib import Path

import pytest

import evaluate
import train
from reinforcement_learning.run_settings import ORIGINAL_TRAIN
from tests.command import ROOT, assert_refused, assert_refuses, python, run_here

EVALUATE = ("evaluate.py", "policies", "pvp")


def test_every_replacement_is_an_option_and_no_option_of_ours_is_refused(tmp_path: Path) -> None:
    shown = python(ROOT / "train.py", "--help", folder=tmp_path).stdout  # as shown elsewhere than in the project
    options = set(re.findall(r"--[a-z][a-z.-]+", shown))
    for replacement in ORIGINAL_TRAIN.values():
        if replacement.startswith("--"):
            assert replacement.split()[0] in options, replacement
    assert not ORIGINAL_TRAIN.keys() & options


@pytest.mark.parametrize("written", ["--train.ent-coef", "--train.ent_coef", "--train.ent-coef=0.1"])
def test_an_option_of_the_original_is_answered_with_ours(written: str) -> None:
    assert_refuses(r"--train\.ent-coef .*; use --train\.entropy-coefficient$", train.parse, [written, "0.1"])


def test_names_and_numbers_that_the_original_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = train.parse(["--exp-name", "mine", "--eval-model-path", "mine/", "--task-to-assign", "3", "--no-track"])
    assert (parsed.name, parsed.policies_dir, parsed.settings.task.only) == ("mine", Path("mine"), "3")
    settings = train.parse(["--train.target-kl", "0.02", "--wandb.group", "g", "--env.death-fog-tick", "9"]).settings
    assert (settings.train.target_kl, settings.wandb.group, settings.env.death_fog_tick) == (0.02, "g", 9)
    assert not train.parse(["--train.no-clip-value"]).settings.train.clip_value
    monkeypatch.setattr("sys.argv", ["evaluate.py", "policies", "pvp", "--num-episode", "3", "--repeat", "2"])
    parsed = evaluate.command_line.parse(evaluate.Arguments, "")
    assert (parsed.episodes, parsed.repeats) == (3, 2)


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        (("train.py", "--train.compile"), ("leave it out", "not compiled")),
        ((*EVALUATE, "--debug"), ("--env.map-size",)),
        ((*EVALUATE, "--task-file", "held.pkl"), ("--task-file held.pkl", "never opened", "63 held-out tasks")),
        ((*EVALUATE, "-t", "held.pkl"), ("--task held.pkl", "never opened")),
        ((*EVALUATE, "--save-file-prefix", "eval_pve"), ("use eval_pvp",)),
        ((*EVALUATE, "--save-file-prefix", "a/b"), ("cannot begin a file's name",)),
    ],
)
def test_what_has_no_meaning_here_is_refused(command: tuple[str, ...], parts: tuple[str, ...]) -> None:
    assert_refused(run_here(*command), *parts)
