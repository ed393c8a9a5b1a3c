"""A recording's projected size depends only on the groups of episodes that have ended."""

from reinforcement_learning.play.contest import Group
from reinforcement_learning.play.terminal import Tally, projection

FIRST, SECOND = Group(1, (0, 1)), Group(1, (2, 3))


def test_nothing_is_projected_before_a_group_has_ended() -> None:
    tally = Tally()
    tally.add_records(FIRST, 100, 100)
    tally.finish_episode(FIRST)  # the shorter one of two
    recorded = tally.recorded(20, 2000)
    assert recorded.expected_records(6) is None
    assert (recorded.episodes, recorded.records, recorded.record_bytes) == (1, 100, 100.0)


def test_what_runs_is_not_counted_as_ended() -> None:
    tally = Tally()
    for group, records in ((FIRST, 100), (SECOND, 30), (FIRST, 140)):
        tally.add_records(group, records, records)
    for group in (FIRST, FIRST, SECOND):
        tally.finish_episode(group)
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


def test_no_fewer_are_expected_than_there_are() -> None:
    tally = Tally()
    tally.add_records(FIRST, 10, 10)
    tally.finish_episode(FIRST)
    tally.finish_episode(FIRST)
    tally.add_records(SECOND, 90, 90)
    assert tally.recorded(10, 1).expected_records(4) == 100


def test_records_that_are_stored_already_count_for_the_length_of_their_group_only() -> None:
    tally = Tally()
    tally.add_records(FIRST, 100, 0)
    tally.finish_episode(FIRST)
    tally.finish_episode(FIRST)
    recorded = tally.recorded(0, 0)
    assert recorded.records == 0 and recorded.expected_records(2) == 100
    assert "0.00 GB" in projection(recorded, episodes=2, seconds=1)
