"""A recording is projected from groups of episodes that have ended; an evaluation counts its ticks."""

from collections.abc import Sequence

import pytest

from reinforcement_learning.play.contest import Group
from reinforcement_learning.play.evaluation import evaluation_progress
from reinforcement_learning.play.extraction import Tally, projection
from reinforcement_learning.play.policy_pool import EpisodeLives

FIRST, SECOND = Group(1, (0, 1)), Group(1, (2, 3))


def tally_of(records: Sequence[tuple[Group, int]], ended: Sequence[Group], written: int | None = None) -> Tally:
    """Count records of groups, all of them written unless another number is given, and each episode that ended."""
    tally = Tally()
    for group, count in records:
        tally.add_records(group, count, count if written is None else written)
    for group in ended:
        tally.finish_episode(group)
    return tally


def test_a_group_counts_once_it_has_ended_and_no_fewer_are_expected_than_there_are() -> None:
    recorded = tally_of([(FIRST, 100)], [FIRST]).recorded(20, 2000)  # the shorter one of two has ended
    assert recorded.expected_records(6) is None
    assert (recorded.episodes, recorded.records, recorded.record_bytes) == (1, 100, 100.0)
    assert tally_of([(FIRST, 10), (SECOND, 90)], [FIRST, FIRST]).recorded(10, 1).expected_records(4) == 100
    recorded = tally_of([(FIRST, 100)], [FIRST, FIRST], written=0).recorded(0, 0)
    assert recorded.records == 0 and recorded.expected_records(2) == 100
    assert "0.00 GB" in projection(recorded, episodes=2, seconds=1)


def test_what_runs_is_not_counted_as_ended() -> None:
    tally = tally_of([(FIRST, 100), (SECOND, 30), (FIRST, 140)], [FIRST, FIRST, SECOND])
    recorded = tally.recorded(250, 250_000_000)
    assert recorded.records == 270 and recorded.expected_records(6) == 720
    output = projection(recorded, episodes=6, seconds=540)
    assert output.startswith("3 of 6 episodes are finished") and "about 720 records, 0.72 GB" in output
    assert "about 15 more minutes" in output  # 450 records more, at 270 in 9 minutes


def test_ticks_count_until_their_group_ends() -> None:
    tally = Tally()
    tally.add_records(FIRST, 50, 50, tick=10)
    tally.add_records(SECOND, 30, 30, tick=4)
    assert tally.recorded(0, 0).ticks == 2 * 10 + 2 * 4
    tally.finish_episode(FIRST)
    tally.finish_episode(FIRST)
    assert (tally.recorded(0, 0).ticks, tally.recorded(0, 0).ended_episodes) == (2 * 4, 2)
    tally.start_over(SECOND, 30)
    assert tally.recorded(0, 0).ticks == 0


def test_episodes_in_turn_count_one_after_the_other() -> None:
    """Not as if all had come as far as the first: then the progress of a world with 33 of them ends with that one."""
    tally, world = Tally(), Group(1, (0, 6, 12), in_turn=True)
    seen = []
    for _ in world.numbers:
        for tick in range(5):
            tally.add_records(world, 10, 10, tick)
            seen.append(tally.recorded(0, 0).ticks)
        tally.finish_episode(world)
    assert seen == [0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 8, 9, 10, 11, 12]
    tally.start_over(world, 150)
    assert tally.recorded(0, 0).ticks == 0


def test_ticks_are_counted_and_an_ended_group_counts_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that progress of an evaluation moves before the first group of episodes has ended."""
    reports: list[tuple[float, float | None, str]] = []

    class Kept:
        def __enter__(self) -> object:
            return lambda done, total=None, detail="": reports.append((done, total, detail))

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr("reinforcement_learning.play.evaluation.progress", lambda *_: Kept())
    with evaluation_progress("A, B", [FIRST, SECOND], 100) as show:
        show(FIRST, 16)
        show(SECOND, 16)
        show(SECOND, -16)  # its worker was lost
        show(FIRST, [EpisodeLives(0, ()), EpisodeLives(1, ())])
    assert [done for done, _, _ in reports] == [0, 16, 32, 16, 100]
    assert {total for _, total, _ in reports} == {200} and reports[-1][2] == "2 of 4 episodes finished"
