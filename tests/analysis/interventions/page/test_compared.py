"""Where two replays of an episode first differ: planted differences are found, at their tick and in their agents."""

from dataclasses import replace

import numpy as np

from analysis.interventions.page.page import compare, first_difference
from analysis.replays.replay import Replay
from tests.command import assert_refuses

DRAWN = (2, 7)
TICK = 6


def changed(replay: Replay, column: str, tick: int, agents: tuple[int, ...]) -> Replay:
    """The replay with a larger number in one column of some agents, from a tick on."""
    table = getattr(replay.players, column).copy()
    table[tick:, np.isin(replay.players.ids, agents)] += 1
    return replace(replay, players=replace(replay.players, **{column: table}))


def cut(replay: Replay, ticks: int) -> Replay:
    """The first ticks of a replay."""
    players, npcs = (
        replace(case, **{n: t[:ticks] for n, t in vars(case).items() if n not in ("ids", "names")})
        for case in (replay.players, replay.npcs)
    )
    return replace(replay, harvested=replay.harvested[:ticks], players=players, npcs=npcs)


def test_equal_replays_never_differ(replay: Replay) -> None:
    compared = compare(replay, replay, DRAWN)
    assert compared.first_tick is None and (compared.first == -1).all() and not any(compared.differs)
    assert compared.ids[compared.drawn].tolist() == list(DRAWN)
    assert first_difference(compared).startswith("The two episodes are equal")


def test_a_difference_is_found_at_its_tick_and_in_its_agents(replay: Replay) -> None:
    edited = changed(changed(replay, "food", TICK, (7, 9)), "row", TICK, (9,))
    compared = compare(replay, changed(edited, "gold", TICK + 4, (3,)), DRAWN)
    first = dict(zip(compared.ids.tolist(), compared.first.tolist(), strict=True))
    assert first == {number: TICK if number in (7, 9) else TICK + 4 if number == 3 else -1 for number in first}
    assert first_difference(compared) == (
        f"The two episodes first differ at tick {TICK}, in agent 7 (edited; food) and agent 9 (place, food). "
        "Before that, all 16 agents are in the same place and state in both."
    )
    text = first_difference(compare(replay, changed(replay, "health", 0, tuple(first)), DRAWN))  # many are counted
    assert "agent 1 (health), agent 2 (edited; health)," in text and text.endswith("and 11 more.")


def test_inventories_are_compared_by_what_they_hold(replay: Replay) -> None:
    """Their numbers depend on the order in which a replay's inventories first occurred."""
    last = len(replay.inventories) - 1
    assert last > 0
    players = replace(replay.players, inventory=last - replay.players.inventory)
    reordered = replace(replay, inventories=replay.inventories[::-1], players=players)
    assert compare(replay, reordered, DRAWN).first_tick is None


def test_the_shorter_replay_is_continued_without_anyone(replay: Replay) -> None:
    compared = compare(cut(replay, 20), replay, DRAWN)
    assert compared.ends == (19, replay.ticks - 1)
    assert compared.unedited.ticks == compared.edited.ticks == replay.ticks
    assert compare(replay, replay, DRAWN, ticks=replay.ticks + 3).edited.ticks == replay.ticks + 3
    assert not compared.unedited.players.present[20:].any() and not compared.unedited.npcs.present[20:].any()
    there = replay.players.present[20]
    assert (compared.first[there] == 20).all()
    assert compared.differs[int(np.flatnonzero(there)[0])] == ("alive or dead",)


def test_replays_of_something_else_are_refused(replay: Replay) -> None:
    other_map = replace(replay, tiles=replay.tiles[::-1])
    other_names = replace(replay, players=replace(replay.players, names=replay.players.names[::-1]))
    for other in (other_map, other_names):
        assert_refuses("not of the same episode", compare, replay, other, DRAWN)
    assert_refuses("of another run", compare, replay, replay, (2, 99))
