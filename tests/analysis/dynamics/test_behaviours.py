"""Behaviours of several layers together, on lives whose two layers each hide half of what goes on."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from analysis.dynamics.behaviours import (
    Behaviours,
    by_layer,
    find_behaviours,
    measures,
    pairs_of,
    points_in,
    space_of,
    trajectories,
)
from analysis.dynamics.tracks import Tracks
from tests.command import assert_refuses
from tests.planted_tracks import tracks_of

LIVES, TICKS, BOUT, SKIPPED = 12, 60, 20, 6
LENGTHS = [TICKS] * LIVES
AGENT, WORLD = "lstm_hidden", "world_hidden"


@pytest.fixture(scope="module")
def truth() -> np.ndarray:
    """One of four behaviours in each bout of 20 ticks: the agent's is its half, the world's its parity."""
    random = np.random.default_rng(0)
    bouts = np.stack([random.permutation(4)[: TICKS // BOUT] for _ in range(LIVES)])
    return np.repeat(bouts.ravel(), BOUT)


@pytest.fixture(scope="module")
def planted(truth: np.ndarray) -> Tracks:
    return planted_tracks(truth, units=(4, 90))


def planted_tracks(truth: np.ndarray, units: tuple[int, int]) -> Tracks:
    """The agent knows whether the behaviour is 2 or 3, the world whether it is odd; the rest is noise."""
    random = np.random.default_rng(1)
    layers = {}
    for name, known, count in ((AGENT, truth >= 2, units[0]), (WORLD, truth % 2 == 1, units[1])):
        held = np.where(known, 3.0, -3.0)[:, None] * random.uniform(0.5, 1, count)
        layers[name] = held + random.normal(0, 0.3, (len(truth), count))
    nothing = np.empty((len(truth), 0))
    return tracks_of(nothing, nothing, LENGTHS, layers[AGENT], layers)


def steady(tracks: Tracks) -> np.ndarray:
    """Ticks whose whole trajectory lies in one bout."""
    return tracks.place % BOUT >= SKIPPED


def found_in(tracks: Tracks, layers: list[str], count: int) -> Behaviours:
    return find_behaviours(tracks, space_of(tracks, layers, {}), count, 2, 0)


def test_only_both_layers_together_separate_four_behaviours(planted: Tracks, truth: np.ndarray) -> None:
    kept = steady(planted)
    together = found_in(planted, [AGENT, WORLD], 12).label[kept]
    purest = sum(np.bincount(truth[kept][together == one]).max() for one in np.unique(together))
    assert purest / kept.sum() > 0.99
    for layer, own in ((AGENT, truth >= 2), (WORLD, truth % 2 == 1)):
        alone = found_in(planted, [layer], 12).label[kept]
        assert sum(np.bincount(own[kept][alone == one]).max() for one in np.unique(alone)) / kept.sum() > 0.99
        assert sum(np.bincount(truth[kept][alone == one]).max() for one in np.unique(alone)) / kept.sum() < 0.75
        assert measures(together, truth[kept])[0] > measures(alone, truth[kept])[0] + 0.15


@pytest.mark.parametrize("units", [(4, 90), (90, 4), (20, 20)])
def test_layers_weigh_the_same_however_many_units_they_have(truth: np.ndarray, units: tuple[int, int]) -> None:
    tracks = planted_tracks(truth, units)
    space = space_of(tracks, [AGENT, WORLD], {})
    _, moving = trajectories(tracks, points_in(space, tracks.records.activations))
    assert by_layer(space, moving.var(axis=0)) == pytest.approx([1, 1])
    result = find_behaviours(tracks, space, 4, 2, 0)
    assert ((result.kept > 0.5) & (result.kept <= 1 + 1e-9)).all()


def test_one_layer_alone_is_not_rescaled(planted: Tracks) -> None:
    space = space_of(planted, [AGENT], {})
    own = planted.records.activations[AGENT]
    np.testing.assert_allclose(points_in(space, {AGENT: own}), (own - own.mean(axis=0)) / own.std(axis=0))


def test_a_layer_that_never_moves_is_refused(planted: Tracks) -> None:
    still = tracks_of(planted.state, planted.read, LENGTHS, activations={"still": np.ones((len(planted), 3))})
    assert_refuses("still is the same in all ticks", space_of, still, ["still"], {})


def labelled(label: np.ndarray) -> Behaviours:
    return Behaviours(label, 1.0, np.zeros(1), np.zeros(1), np.ones(1))


def test_agreement_stands_beside_that_with_labels_of_other_lives(planted: Tracks, truth: np.ndarray) -> None:
    random = np.random.default_rng(2)
    unrelated = np.repeat(random.integers(0, 3, LIVES * TICKS // 5), 5)
    label = np.where(planted.place >= SKIPPED, truth, -1)
    of = {"all": truth, "half": truth // 2, "none": unrelated}
    result = {name: labelled(np.where(label >= 0, own, -1)) for name, own in of.items()}
    rows = {(pair.one, pair.other): pair for pair in pairs_of(result, planted, 99, 0)}
    assert set(rows) == {("all", "half"), ("all", "none"), ("half", "none")}
    half, none = rows["all", "half"], rows["all", "none"]
    inside = label >= 0
    assert half.ticks == inside.sum() == LIVES * (TICKS - SKIPPED)
    assert half.rand == pytest.approx(adjusted_rand_score(truth[inside], truth[inside] // 2))
    assert 0.6 < half.information < 0.7 and half.information > half.dealt_information_high + 0.2
    assert none.information < 1.5 * none.dealt_information_high and abs(none.dealt_rand) < 0.05
    assert half.dealt_information <= half.dealt_information_high and half.dealt_rand <= half.dealt_rand_high
    assert measures(truth, 3 - truth) == pytest.approx((1, 1)), "the same division agrees fully"


def test_lives_of_one_behaviour_each_agree_more_than_with_other_lives(planted: Tracks) -> None:
    of_life = planted.lives.index % 3
    there = np.where(planted.place >= SKIPPED, of_life, -1)
    result = {name: labelled(there) for name in ("one", "other")}
    (row,) = pairs_of(result, planted, 99, 0)
    assert row.information == row.rand == pytest.approx(1) and row.dealt_information < 0.5 and row.dealt_rand < 0.3
