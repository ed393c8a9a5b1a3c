"""What is hidden from a policy must not reach it in another way, in the real small world."""

import copy
from collections.abc import Iterator
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from agent_zoo.observation import PackedObservation, PackedRows, pack
from agent_zoo.observation_masking import ObservationMask
from reinforcement_learning.game.environment import make_environment, observation_layout
from reinforcement_learning.settings import EnvironmentSettings
from tests.conftest import AGENT

OWN = ObservationMask.of({"mask_intrinsics": "own"})
STRICT = ObservationMask.of({"mask_intrinsics": "strict", "relative_position": True})
FULL = ObservationMask()
SUBJECT = 3
TICKS = 12


@pytest.fixture(scope="module")
def twins(small_world: EnvironmentSettings, task, maps) -> tuple:
    """Two worlds that play the same episode, without NPCs, so that only the changed body differs."""
    env = replace(small_world, num_npcs=0)
    return tuple(make_environment(AGENT, env, task, maps) for _ in range(2))


def ticks(twins: tuple, vital: str, value: int) -> Iterator[list[np.ndarray]]:
    """Change the subject's body in the second of two equal worlds, and yield the subject's observations in both.

    Nobody moves. Ends before the subject dies in either.
    """
    layout = observation_layout(twins[0])
    still = np.array([[head.noop or 0 for head in layout.heads]] * len(twins[0].possible_agents))
    for world in twins:
        world.reset(seed=11)
        for _ in range(3):
            world.step(still)
    getattr(twins[1].env.game.realm.players[SUBJECT].resources, vital).update(value)
    for _ in range(TICKS):
        for world in twins:
            world.step(still)
        if not all(SUBJECT in world.env.game.realm.players for world in twins):
            return
        yield [copy.deepcopy(world.obs.view(world.obs_dtype)[SUBJECT - 1 : SUBJECT, 0]) for world in twins]


def differences(one: PackedObservation, other: PackedObservation) -> set[str]:
    """Return the parts in which two observations differ, columns of entities by number."""
    result = set()
    for part in fields(PackedObservation):
        a, b = getattr(one, part.name), getattr(other, part.name)
        if not isinstance(a, PackedRows):
            result |= {part.name} if not torch.equal(a, b) else set()
        elif not torch.equal(a.counts, b.counts):
            result.add(part.name)
        else:
            result |= {f"{part.name} {column}" for column in (a.values != b.values).any(0).nonzero().ravel().tolist()}
    return result


@pytest.mark.parametrize("vital", ["health", "food", "water"])
@pytest.mark.parametrize("value", [3, 40, 77])
def test_a_body_that_is_withheld_shows_nowhere_else(twins: tuple, vital: str, value: int) -> None:
    layout = observation_layout(twins[0])
    shown = {f"entity {layout.entity_columns.index(name)}" for name in ("health", "food", "water")}
    seen_fully: set[str] = set()
    for pair in ticks(twins, vital, value):
        one, other = (pack(item, layout) for item in pair)
        seen_fully |= differences(one, other)
        for mask in (OWN, STRICT):
            assert differences(mask.apply(one, layout), mask.apply(other, layout)) == set()
    assert seen_fully and seen_fully <= shown, "the change must show where nothing is withheld, and only there"


@pytest.fixture(scope="module")
def played(twins: tuple, seen: np.ndarray) -> PackedObservation:
    return pack(seen, observation_layout(twins[0]))


def own(observation: PackedObservation) -> torch.Tensor:
    rows = observation.entity
    return rows.values[rows.values[:, 0] == observation.agent_id[rows.owner]]


def test_only_what_is_named_is_withheld(played: PackedObservation, layout) -> None:
    column = layout.entity_columns.index
    limited = OWN.apply(played, layout)
    body = [column(name) for name in ("health", "food", "water")]
    assert (own(played)[:, body] > 0).any(0).all() and (own(limited)[:, body] == 0).all()
    assert differences(played, limited) == {f"entity {item}" for item in body}
    others = played.entity.values[:, 0] != played.agent_id[played.entity.owner]
    assert torch.equal(played.entity.values[others], limited.entity.values[others])


def test_strict_hides_every_clock_and_positions_are_those_relative_to_the_agent(
    played: PackedObservation, layout
) -> None:
    limited = ObservationMask.of({"mask_intrinsics": "strict"}).apply(played, layout)
    clocks = [layout.entity_columns.index(name) for name in ("time_alive", "latest_combat_tick")]
    assert (played.entity.values[:, clocks] > 0).any()
    assert (limited.entity.values[:, clocks] == 0).all() and (limited.tick == 0).all()
    limited = ObservationMask.of({"relative_position": True}).apply(played, layout)
    places = [layout.entity_columns.index(name) for name in ("row", "col")]
    assert (own(limited)[:, places] == 0).all() and (limited.centre == 0).all()
    apart = played.entity.values[:, places] - own(played)[:, places][played.entity.owner]
    assert torch.equal(limited.entity.values[:, places], apart) and apart.abs().max() > 1
    assert differences(played, limited) == {"centre", *(f"entity {place}" for place in places)}


@pytest.mark.parametrize("mask", [OWN, STRICT])
def test_nothing_is_withheld_twice(played: PackedObservation, layout, mask: ObservationMask) -> None:
    before = copy.deepcopy(played)
    once = mask.apply(played, layout)
    assert differences(once, mask.apply(once, layout)) == set()
    assert differences(before, played) == set()
    assert FULL.apply(played, layout) is played
