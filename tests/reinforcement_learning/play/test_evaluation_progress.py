"""Progress of an evaluation counts ticks, so that it moves before the first group of episodes has ended."""

import pytest

from reinforcement_learning.play.contest import Group
from reinforcement_learning.play.policy_pool import EpisodeLives
from reinforcement_learning.play.terminal import evaluation_progress

GROUPS = [Group(1, (0, 1)), Group(2, (0, 1))]


def test_ticks_are_counted_and_an_ended_group_counts_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[tuple[float, float | None, str]] = []

    class Kept:
        def __enter__(self) -> object:
            return lambda done, total=None, detail="": reports.append((done, total, detail))

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr("reinforcement_learning.play.terminal.progress", lambda *_: Kept())
    with evaluation_progress("A, B", GROUPS, 100) as show:
        show(GROUPS[0], 16)
        show(GROUPS[1], 16)
        show(GROUPS[1], -16)  # its worker was lost
        show(GROUPS[0], [EpisodeLives(0, ()), EpisodeLives(1, ())])
    assert [done for done, _, _ in reports] == [0, 16, 32, 16, 100]
    assert {total for _, total, _ in reports} == {200} and reports[-1][2] == "2 of 4 episodes finished"
