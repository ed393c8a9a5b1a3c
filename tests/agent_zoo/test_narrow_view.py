"""A narrowed observation of the real small world holds what is near, as it was, and nothing else."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from agent_zoo.observation import ObservationLayout, PackedObservation, legal_options, pack, packed_options
from agent_zoo.observation_masking import ObservationMask, options_in_game

RADII = (1, 2, 3, 5, 6)
TARGETS = ("Attack.Target", "Give.Target", "GiveGold.Target")
ATTACK_REACH = 3


@pytest.fixture(scope="module")
def whole(seen: np.ndarray, layout: ObservationLayout) -> PackedObservation:
    return pack(seen, layout)


def mask(radius: int, **others: object) -> ObservationMask:
    return ObservationMask.of({"view_radius": radius, **others})


def legal_of(observation: PackedObservation, layout: ObservationLayout) -> dict[str, np.ndarray]:
    parts = legal_options(observation, layout).split([head.size for head in layout.heads], dim=1)
    return {head.name: part.numpy() for head, part in zip(layout.heads, parts, strict=True)}


def rows_of(observation: PackedObservation) -> list[np.ndarray]:
    """The entity rows of each agent."""
    return np.split(observation.entity.values.numpy(), observation.entity.starts.numpy()[1:])


@pytest.mark.parametrize("radius", RADII)
def test_what_is_near_stays_and_what_is_far_is_gone(whole: PackedObservation, layout, radius: int) -> None:
    narrow = mask(radius).apply(whole, layout)
    side = layout.view_side
    far = np.abs(np.indices((side, side)) - side // 2).max(axis=0).ravel() > radius
    assert (narrow.material.numpy()[:, far] == 0).all() and (whole.material.numpy()[:, far] != 0).any()
    assert np.array_equal(narrow.material.numpy()[:, ~far], whole.material.numpy()[:, ~far])
    row, col = (layout.entity_columns.index(name) for name in ("row", "col"))
    lost = 0
    for centre, before, after in zip(whole.centre.numpy(), rows_of(whole), rows_of(narrow), strict=True):
        near = [entity for entity in before if max(abs(entity[[row, col]] - centre)) <= radius]
        assert np.array_equal(after, near)
        lost += len(before) - len(after)
    assert lost > 0 and (narrow.entity.counts >= 1).all(), "every agent sees itself"
    for name in ("centre", "agent_id", "tick", "task"):
        assert torch.equal(getattr(narrow, name), getattr(whole, name))
    for table in ("inventory", "market"):
        assert torch.equal(getattr(narrow, table).values, getattr(whole, table).values)


@pytest.mark.parametrize("radius", RADII)
def test_options_are_those_of_the_game_that_point_at_what_is_near(
    whole: PackedObservation, layout, radius: int
) -> None:
    narrow = mask(radius).apply(whole, layout)
    places = mask(radius).game_rows(whole, layout)
    assert places is not None
    before, after = legal_of(whole, layout), legal_of(narrow, layout)
    offered = dict.fromkeys(TARGETS, 0)
    for name, legal in after.items():
        if name not in TARGETS:
            assert np.array_equal(legal, before[name]), name
            continue
        for agent, (count, start) in enumerate(
            zip(narrow.entity.counts.tolist(), narrow.entity.starts.tolist(), strict=True)
        ):
            own = places[start : start + count].numpy()
            assert np.array_equal(legal[agent, :count], before[name][agent, own])
            assert not legal[agent, count:-1].any()
            assert legal[agent, -1] == (before[name][agent, -1] or not legal[agent, :-1].any())
            offered[name] += legal[agent, :count].sum()
    assert offered["Give.Target"] + offered["Attack.Target"] > 0
    if radius >= ATTACK_REACH:
        assert after["Attack.Target"].sum() == before["Attack.Target"].sum() > len(whole) / 2


@pytest.mark.parametrize("radius", RADII)
def test_an_option_points_at_the_same_entity_in_the_game(whole: PackedObservation, layout, radius: int) -> None:
    narrow, places = mask(radius).apply(whole, layout), mask(radius).game_rows(whole, layout)
    assert places is not None
    random = np.random.default_rng(radius)
    noops = [head.noop for head in layout.heads]
    chosen = torch.tensor([[head.noop or 0 for head in layout.heads]] * len(whole))
    pointing = torch.from_numpy(random.random(len(whole)) < 0.8)
    drawn = torch.from_numpy(random.integers(narrow.entity.counts.numpy()))
    column = [head.name for head in layout.heads].index("Attack.Target")
    chosen[pointing, column] = drawn[pointing]
    meant = options_in_game(chosen, layout.heads, narrow.entity, places)
    others = [place for place in range(len(noops)) if place != column]
    assert torch.equal(meant[:, others], chosen[:, others]) and (meant[~pointing, column] == noops[column]).all()
    shown, real = rows_of(narrow), rows_of(whole)
    for agent in pointing.nonzero().ravel().tolist():
        assert np.array_equal(shown[agent][chosen[agent, column]], real[agent][meant[agent, column]])
    assert (meant != chosen).any()


def test_the_full_view_is_the_observation_and_a_narrow_one_goes_with_hidden_positions(
    whole: PackedObservation, layout
) -> None:
    assert mask(7) == ObservationMask() == ObservationMask.of({})
    assert mask(7).apply(whole, layout) is whole and mask(7).game_rows(whole, layout) is None
    assert torch.equal(packed_options(legal_options(whole, layout)), whole.legal)
    hidden = {"mask_intrinsics": "strict", "relative_position": True}
    both, narrow = mask(3, **hidden), mask(3)
    one = both.apply(whole, layout)
    for other in (both.apply(one, layout), ObservationMask.of(hidden).apply(narrow.apply(whole, layout), layout)):
        assert torch.equal(one.entity.values, other.entity.values) and torch.equal(one.legal, other.legal)
        assert torch.equal(one.material, other.material) and torch.equal(one.entity.counts, other.entity.counts)
    assert replace(both, view_radius=7) == ObservationMask.of(hidden)


def test_a_view_can_be_whole_at_first_and_narrow_from_a_tick_on(whole: PackedObservation, layout) -> None:
    """Agents of the same batch may be in different ticks."""
    tick = torch.arange(len(whole), dtype=whole.tick.dtype) % 5
    mixed, late = replace(whole, tick=tick), mask(2, narrow_from=3)
    narrow, always = late.apply(mixed, layout), mask(2).apply(mixed, layout)
    places, all_places = late.game_rows(mixed, layout), mask(2).game_rows(mixed, layout)
    assert places is not None and all_places is not None
    own = zip(narrow.entity.starts.tolist(), narrow.entity.counts.tolist(), strict=True)
    theirs = zip(always.entity.starts.tolist(), always.entity.counts.tolist(), strict=True)
    legal = [legal_options(one, layout) for one in (narrow, always, mixed)]
    for agent, ((start, count), (other_start, other_count)) in enumerate(zip(own, theirs, strict=True)):
        is_narrow = bool(tick[agent] >= 3)
        expected = always if is_narrow else mixed
        assert torch.equal(narrow.material[agent], expected.material[agent])
        assert np.array_equal(rows_of(narrow)[agent], rows_of(expected)[agent])
        assert torch.equal(legal[0][agent], legal[1 if is_narrow else 2][agent])
        kept = all_places[other_start : other_start + other_count].tolist() if is_narrow else list(range(count))
        assert places[start : start + count].tolist() == kept
    assert mask(7, narrow_from=3) == ObservationMask()
