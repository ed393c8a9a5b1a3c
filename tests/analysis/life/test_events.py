"""Events inferred from records equal the engine's own log of real episodes."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from nmmo.lib.event_code import EventCode
from nmmo.systems import item

from activation_store.reader import read_dump, read_metadata
from activation_store.schema import DumpMetadata, Records
from analysis.life.events import (
    ATE,
    DIED,
    DRANK,
    EVENT_KINDS,
    HIT,
    KILLED,
    LEVELLED_UP,
    TRADED,
    WAS_HIT,
    LifeEvents,
    life_events,
)
from analysis.lives import lives_of, previous_tick
from tests.hand_made_lives import HandMade, hand_made
from tests.witness import Key, Witness, keys

Row = dict[str, int]


@pytest.fixture(scope="module")
def records(witnessed: tuple[Path, Witness]) -> Records:
    return read_dump(witnessed[0], layers=[], leave_out=["tile"])


@pytest.fixture(scope="module")
def metadata(witnessed: tuple[Path, Witness]) -> DumpMetadata:
    return read_metadata(witnessed[0])


@pytest.fixture(scope="module")
def events(records: Records, metadata: DumpMetadata) -> LifeEvents:
    return life_events(records, metadata)


def happened(records: Records, log: dict[Key, list[Row]], is_it: Callable[[Row], bool]) -> set[int]:
    """Records in whose previous tick the engine logged such an event for their agent."""
    before = previous_tick(records, lives_of(records))
    names = keys(records)
    return {i for i in range(len(records)) if before[i] >= 0 and any(map(is_it, log[names[before[i]]]))}


def found(events: LifeEvents, kind: int, words: str = "") -> set[int]:
    """Records with such an event whose detail matches a pattern."""
    pairs = zip(events.record.tolist(), events.kind.tolist(), events.detail, strict=True)
    return {record for record, of, detail in pairs if of == kind and re.match(words, detail)}


def is_event(*codes: int) -> Callable[[Row], bool]:
    return lambda row: row["event"] in codes


def had_ration(row: Row) -> bool:
    return row["event"] == EventCode.CONSUME_ITEM and row["type"] == item.Ration.ITEM_TYPE_ID


MEALS_AND_BLOWS: dict[int, Callable[[Row], bool]] = {
    ATE: lambda row: row["event"] == EventCode.EAT_FOOD or had_ration(row),
    DRANK: lambda row: row["event"] == EventCode.DRINK_WATER or had_ration(row), HIT: is_event(EventCode.SCORE_HIT),
    KILLED: is_event(EventCode.PLAYER_KILL), LEVELLED_UP: is_event(EventCode.LEVEL_UP),
}  # fmt: skip


@pytest.mark.parametrize("kind", MEALS_AND_BLOWS, ids=lambda kind: EVENT_KINDS[kind])
def test_events_are_those_that_the_engine_logged(
    kind: int, events: LifeEvents, records: Records, witnessed: tuple[Path, Witness]
) -> None:
    # The witness gives agents levels in their first tick.
    gifted = set(np.flatnonzero(records.tick <= 1).tolist()) if kind == LEVELLED_UP else set()
    logged = happened(records, witnessed[1].log, MEALS_AND_BLOWS[kind]) - gifted
    assert found(events, kind) - gifted == logged and len(logged) >= 3


def test_whoever_was_hit_lost_health_by_the_engines_count(events: LifeEvents, records: Records) -> None:
    before = previous_tick(records, lives_of(records))
    received = records.column("truth/damage_received")
    hurt = {i for i in np.flatnonzero(before >= 0).tolist() if received[i] > received[before[i]]}
    assert found(events, WAS_HIT) == hurt and len(hurt) > 50
    blows = [detail for detail, kind in zip(events.detail, events.kind, strict=True) if kind == WAS_HIT]
    assert all(re.fullmatch(r"\d+ damage, by (agent \d+|an NPC|someone who is gone)", blow) for blow in blows)


def test_trades_are_those_that_the_engine_logged_but_for_a_few_in_one_tick(
    events: LifeEvents, records: Records, witnessed: tuple[Path, Witness]
) -> None:
    """The witness's agents trade at random, several times per tick: a gift may hide the income of a sale."""
    for words, code in (
        ("bought", EventCode.BUY_ITEM), ("sold", EventCode.EARN_GOLD), ("gave an item", EventCode.GIVE_ITEM),
        (r"gave \d+ gold", EventCode.GIVE_GOLD),
    ):  # fmt: skip
        logged, printed = happened(records, witnessed[1].log, is_event(code)), found(events, TRADED, words)
        assert len(printed - logged) <= 0.03 * len(printed), words
        assert len(printed & logged) >= 0.8 * len(logged) and len(logged) >= 8, words


def test_deaths_and_their_causes(
    events: LifeEvents, records: Records, metadata: DumpMetadata, witnessed: tuple[Path, Witness]
) -> None:
    """All deaths except those in the recording's last tick, which no record shows; killers are the engine's."""
    witness = witnessed[1]
    end = metadata.environment["horizon"] - 1
    died = {i for i, key in enumerate(keys(records)) if key in witness.deaths and records.tick[i] < end}
    assert found(events, DIED) == died and len(died) > 10
    killer = {}
    for (episode, step, agent), rows in witness.log.items():
        killer |= {(episode, step, row["target_ent"]): agent for row in rows if row["event"] == EventCode.PLAYER_KILL}
    names = keys(records)
    for record, kind, cause in zip(events.record.tolist(), events.kind.tolist(), events.detail, strict=True):
        if kind == DIED:
            by = killer.get(names[record])
            assert (f"agent {by}" in cause) if by else "agent" not in cause, (names[record], cause, by)
    causes = {cause for cause, kind in zip(events.detail, events.kind, strict=True) if kind == DIED}
    assert {"hunger and thirst", "struck by an NPC"} <= causes and any("agent" in cause for cause in causes)


def test_without_some_counts_or_ticks_no_kill_is_missed(
    events: LifeEvents, records: Records, metadata: DumpMetadata
) -> None:
    bare = life_events(replace(records, columns={}), metadata)
    assert found(bare, KILLED) >= found(events, KILLED) and len(found(bare, KILLED)) <= len(found(bare, HIT)) / 2
    thinned = records.take(records.tick % 2 == 0)
    assert set(life_events(thinned, metadata).kind.tolist()) <= {DIED}


def test_hits_of_simulated_lives_are_told_by_the_clock_of_the_game() -> None:
    """A life that begins in tick 200 counts ticks from 0. Whom it hit has the id of its tile, so none are gone."""
    others = {0: [(1113, 0, 9, 10)], 1: [(1114, 0, 9, 11)], 2: [], 3: []}
    clocks = {"time_alive": [200, 201, 202, 203], "latest_combat_tick": [0, 201, 202, 202]}
    recorded, metadata = hand_made([HandMade([9] * 4, [9] * 4, own=clocks, others=others, attacks={0: 0, 1: 0})])
    simulated = replace(metadata, origin="simulated", world_model_sha256="0" * 64)
    events = life_events(recorded, simulated)
    assert found(events, HIT) == {1, 2} and not found(events, KILLED)
    own = {name: [0] * 4 for name in clocks}  # a policy without clocks
    bare, _ = hand_made([HandMade([9] * 4, [9] * 4, own=own, others=others, attacks={0: 0, 1: 0})])
    assert not found(life_events(bare, simulated), HIT)
