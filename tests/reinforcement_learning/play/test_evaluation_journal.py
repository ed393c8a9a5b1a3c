"""The journal of an evaluation: damage costs the episodes from the damaged line on, and is never taken for results."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from reinforcement_learning.game.life import Life
from reinforcement_learning.play.evaluation_results import EvaluationJournal
from reinforcement_learning.play.policy_pool import EpisodeLives
from tests.command import assert_refuses
from tests.fuzz import as_pipe, flip

MADE_BY = {"kit": {"seed": 1, "episodes": 9}, "yao": {"seed": 1, "episodes": 9}}
GROUPS = ((0, 1, 2, 3), (4, 5, 6, 7), (8,))


def episode(number: int, tasks: Sequence[str] = ("task",) * 6) -> EpisodeLives:
    """Two policies with three lives each, at these tasks."""
    random = np.random.default_rng(number)
    lives = [
        Life(agent, int(random.integers(1, 999)), 0.0, True, None, task, random.random(), False, 1, 0, 0, {})
        for agent, task in enumerate(tasks)
    ]
    return EpisodeLives(number, (tuple(lives[:3]), tuple(lives[3:])))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal of three groups of episodes."""
    journal = EvaluationJournal(tmp_path / "journal", MADE_BY)
    for group in GROUPS:
        journal.add([episode(number) for number in group])
    return journal.path


def test_what_was_added_is_read_again_unless_it_was_played_in_another_way(path: Path) -> None:
    journal = EvaluationJournal(path, MADE_BY)
    assert sorted(journal.played) == list(range(9)) and journal.damage is None
    lives = journal.played[5].lives["yao"]
    assert lives.ticks == [life.ticks for life in episode(5).lives[1]]
    assert lives.progress == [life.task_progress for life in episode(5).lives[1]]
    before = path.read_bytes()
    assert_refuses("another way", EvaluationJournal, path, {**MADE_BY, "yao": {"seed": 2, "episodes": 9}})
    assert path.read_bytes() == before
    as_pipe(path)
    assert_refuses("is not a plain file", EvaluationJournal, path, MADE_BY)


def test_every_flipped_bit_costs_the_episodes_from_its_line_on(path: Path) -> None:
    whole = path.read_bytes()
    kept = [[], [], [0, 1, 2, 3], [0, 1, 2, 3, 4, 5, 6, 7]]
    random = np.random.default_rng(0)
    for place in random.choice(len(whole) - 1, 200, replace=False):
        line = whole[:place].count(b"\n")
        flip(path, place, 1 << int(random.integers(8)), whole)
        journal = EvaluationJournal(path, MADE_BY)
        assert sorted(journal.played) == kept[line], place
        assert journal.damage == f"{path} is damaged from line {line + 1} on: what it held there is played again"
        for group in GROUPS:
            if group[0] not in journal.played:
                journal.add([episode(number) for number in group])
        assert path.read_bytes() == whole, "what is played again takes the place of what was damaged"


def test_a_last_line_that_was_cut_short_is_no_damage(path: Path) -> None:
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        journal = EvaluationJournal(path, MADE_BY)
        assert sorted(journal.played) == [
            n for group in GROUPS[: max(0, whole[:length].count(b"\n") - 1)] for n in group
        ]
        assert journal.damage is None


def test_lines_of_earlier_versions_are_played_again(path: Path) -> None:
    path.write_bytes(b'{"kit": {}, "yao": {}}\n[{"number": 0, "lives": {}}]\n')
    journal = EvaluationJournal(path, MADE_BY)
    assert not journal.played and journal.damage and "line 1" in journal.damage
