"""Ways to divide states, and the axes between their groups, on states with planted groups."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from activation_store.directions import Source
from analysis.codes.leaderboard import found_again, group_axes
from analysis.codes.partitions import Partition, partitions, trajectories
from analysis.dynamics.behaviours import STEPS
from analysis.lives import Lives
from analysis.statistics.surrogate import gaussian_surrogate

UNITS, GROUPS, TICKS, LIVES = 32, 4, 40, 15
RANDOM = np.random.default_rng(3)
WAYS = {each.short: each for each in partitions(GROUPS)}
SOURCE = Source("cluster axis", "run", "dump", "policy", None)


def whole_lives() -> Lives:
    """Lives one after the other, every tick of each."""
    starts = np.arange(LIVES) * TICKS
    return Lives(np.repeat(np.arange(LIVES), TICKS), np.arange(LIVES * TICKS), starts, np.full(LIVES, TICKS))


@pytest.fixture(scope="module")
def planted() -> tuple[np.ndarray, np.ndarray]:
    """States of groups far apart that switch every ten ticks, and the groups."""
    group = RANDOM.permutation(np.arange(LIVES * TICKS // 10) % GROUPS).repeat(10)
    centres = RANDOM.normal(scale=5, size=(GROUPS, UNITS))
    return (centres[group] + RANDOM.normal(size=(len(group), UNITS))).astype(np.float32), group


@pytest.mark.parametrize(
    "way", [each for each in WAYS.values() if not each.of_trajectories], ids=lambda each: each.short
)
def test_planted_groups_are_found_in_states_and_in_new_ones(
    way: Partition, planted: tuple[np.ndarray, np.ndarray]
) -> None:
    states, group = planted
    labels_of = way.fit(states, whole_lives(), 0)
    label = labels_of(states)
    again = labels_of(states + RANDOM.normal(scale=0.1, size=states.shape).astype(np.float32))
    for group_of_label in (group[label == each] for each in np.unique(label)):  # groups may be divided, not mixed
        assert (group_of_label == np.bincount(group_of_label).argmax()).mean() > 0.95
    assert adjusted_rand_score(label, again) > 0.8


def test_behaviours_are_groups_of_motion_that_single_states_do_not_show() -> None:
    """Lives go up or down one unit, from places drawn at random: a state does not say which way, its path does."""
    way = RANDOM.integers(2, size=LIVES)
    steps = np.tile(np.arange(TICKS, dtype=np.float64), (LIVES, 1)) * np.where(way, 1, -1)[:, None]
    states = RANDOM.normal(scale=0.05, size=(LIVES * TICKS, UNITS))
    states[:, 0] += (steps + RANDOM.normal(scale=20, size=(LIVES, 1))).ravel()
    paths = trajectories(states.astype(np.float32), whole_lives())
    old = np.tile(np.arange(TICKS), LIVES) >= max(STEPS)
    motion = paths[:, UNITS * len(STEPS)] / np.abs(paths[old, UNITS * len(STEPS)]).mean()
    assert ((motion[old] > 0) == (way.repeat(TICKS)[old] == 1)).all()
    assert not paths[::TICKS, UNITS:].any(), "at the first tick of a life there are no differences"


def test_behaviours_are_found_in_trajectories(planted: tuple[np.ndarray, np.ndarray]) -> None:
    states, group = planted
    paths = trajectories(states, whole_lives())
    settled = np.tile(np.arange(TICKS) % 10 >= max(STEPS), LIVES)  # no change of groups within the differences
    index = np.arange(len(states)).reshape(LIVES, TICKS)[:, settled[:TICKS]]
    lives = Lives(
        np.repeat(np.arange(LIVES), index.shape[1]), np.arange(index.size), np.arange(LIVES) * index.shape[1],
        np.full(LIVES, index.shape[1]),
    )  # fmt: skip
    still = paths[index.ravel()]
    label = WAYS["behaviours"].fit(still, lives, 0)(still.copy())
    assert adjusted_rand_score(label, group[index.ravel()]) > 0.9


def test_axes_span_what_separates_the_groups(planted: tuple[np.ndarray, np.ndarray]) -> None:
    states, group = planted
    found = group_axes(states, group, "kmeans", "lstm_hidden", whole_lives(), 2, SOURCE)
    assert [each.name for each in found] == ["kmeans_1", "kmeans_2", "kmeans_3"]
    read = np.stack([each.read_out(states) for each in found], axis=1)
    between = np.array([read[group == each].mean(axis=0) for each in range(GROUPS)])
    assert between.std(axis=0).min() > 2, "each axis separates groups"
    outside = states - read @ np.stack([each.weight for each in found])
    assert np.ptp([outside[group == each].mean(axis=0) for each in range(GROUPS)], axis=0).max() < 0.5
    assert [next(each.faults(), None) for each in found] == [None] * 3


def test_two_groups_have_one_axis_and_one_group_none(planted: tuple[np.ndarray, np.ndarray]) -> None:
    states, group = planted
    two, one = (group > 0).astype(np.int64), np.zeros(len(group), np.int64)
    assert len(group_axes(states, two, "codes", "lstm_hidden", whole_lives(), 2, SOURCE)) == 1
    assert group_axes(states, one, "codes", "lstm_hidden", whole_lives(), 2, SOURCE) == []


def test_groups_are_found_again_and_so_are_parts_of_a_gaussian(planted: tuple[np.ndarray, np.ndarray]) -> None:
    """Which is why the agreement of a Gaussian stands beside that of the states."""
    states, group = planted
    lives, fit = whole_lives(), WAYS["kmeans"].fit
    drawn = gaussian_surrogate(states, lives, np.random.default_rng(0))
    own, gaussian = (found_again(fit, of, lives, 0) for of in (states, drawn))
    for measure in ("seeds", "halves"):
        assert adjusted_rand_score(*own[measure]) > 0.95 and adjusted_rand_score(own[measure][0], group) > 0.95
    assert adjusted_rand_score(*gaussian["seeds"]) > 0.5 and adjusted_rand_score(gaussian["seeds"][0], group) < 0.2
