"""Principal components, directions and residuals on planted values, and the meter of blindness to what is hidden."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from activation_store.directions import Direction
from activation_store.reader import read_dump
from activation_store.selection import Subsample
from analysis.clusters import listed
from analysis.clusters.blindness import Blindness
from analysis.clusters.components import (
    binned_profile,
    cluster_directions,
    component_directions,
    pca_feature_r2,
    pearson_r,
    principal_components,
)
from analysis.clusters.dataset import Dataset, check_activations
from analysis.clusters.listed import BEHAVIOUR, STATE, Listed, blindness, next_ticks, read_listed
from analysis.clusters.summarise import residual_variables, residualize
from analysis.clusters.summary_text import as_text
from analysis.clusters.verdict import verdict
from analysis.features import EXTENDED_FEATURES
from analysis.features.body import later
from analysis.features.observed import Observed
from analysis.labels import NOISE
from analysis.lives import lives_of
from analysis.statistics.inference import Inference
from tests.command import assert_refuses
from tests.planted import Planted, planted_dump, write_planted
from tests.planted_lives import make_lives, smooth
from tests.planted_summary import planted_dataset, planted_summary


def test_components_and_scores_of_known_variance_and_of_fewer_records_than_units() -> None:
    rng = np.random.default_rng(0)
    centred = rng.normal(size=(4000, 6)) * np.sqrt([60.0, 25.0, 10.0, 3.0, 1.5, 0.5])
    activations = (100 + centred).astype(np.float32)
    components = principal_components(activations)
    for measured in (components, principal_components(centred)):
        assert measured.needed_for((0.5, 0.9, 0.99)) == {0.5: 1, 0.9: 3, 0.99: 5}
    scores = components.scores(activations, 3)
    np.testing.assert_allclose(np.abs(np.diag(components.directions)[:3]), 1, atol=0.01)
    left = activations - activations.mean(axis=0)
    np.testing.assert_allclose(scores, left @ components.directions[:3].T, atol=1e-3)
    np.testing.assert_allclose(scores.var(axis=0), [60, 25, 10], rtol=0.1)
    few = rng.normal(size=(5, 40)).astype(np.float32)
    components = principal_components(few)
    assert components.directions.shape == (5, 40) and components.scores(few, 4).shape == (5, 4)


def test_pearson_r_is_that_of_scipy() -> None:
    rng = np.random.default_rng(1)
    scores, features = rng.normal(size=(50, 3)), rng.normal(size=(50, 4)) + 1e6
    features[:, 1] += 5 * scores[:, 2]
    features[:, 3] = 0.1
    r = pearson_r(scores, features)
    expected = [[stats.pearsonr(s, f).statistic for f in features.T[:3]] for s in scores.T]
    np.testing.assert_allclose(r[:, :3], expected, atol=1e-9)
    assert r[2, 1] > 0.9 and np.isnan(r[:, 3]).all()


def test_profile_follows_the_feature_and_of_one_life_has_no_interval() -> None:
    rng = np.random.default_rng(5)
    lives = make_lives([40] * 50)
    score = rng.normal(size=2000)
    place, mean, low, high = binned_profile(score, score**2, lives)
    assert len(mean) == 20
    np.testing.assert_allclose(mean[1:-1], place[1:-1] ** 2, atol=0.05)
    assert (np.diff(place) > 0).all() and ((low < mean) & (mean < high)).all()
    _, mean, low, _ = binned_profile(np.arange(9.0), np.arange(9.0), make_lives([9]))
    assert len(mean) == 9 and np.isnan(low).all()


@pytest.mark.parametrize(("lives", "bins", "least"), [(40, 4, 0.88), (4, 1, 0.91)])
def test_intervals_of_a_profile_count_lives_not_records(lives: int, bins: int, least: float) -> None:
    """Each life has its own level, so its 50 records carry no more information than one; 95% intervals mostly cover."""
    index, held = make_lives([50] * lives).index, []
    for seed in range(400 // lives + 90):
        rng = np.random.default_rng(seed)
        noise = 0.1 * rng.normal(size=50 * lives)
        score, feature = rng.normal(size=50 * lives), rng.normal(size=lives)[index] + noise
        *_, low, high = binned_profile(score, feature, make_lives([50] * lives), bins=bins)
        held.append((low < 0) & (high > 0))
    assert least < np.mean(held) < 0.99


LENGTHS = [30] * 40


def test_planted_shares_are_recovered_within_their_intervals() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(1200, 4))
    noise = rng.normal(size=(1200, 3))
    features = np.column_stack([scores @ [1, 1, 0, 0], scores[:, 2], scores[:, 0] * 0]) + noise * [1, 2, 1]
    r2, low, high = pca_feature_r2(scores, features, make_lives(LENGTHS).index)
    for value, truth in zip(r2, (2 / 3, 1 / 5, 0), strict=True):
        assert value == pytest.approx(truth, abs=0.06)
    assert (low < r2).all() and (r2 < high).all()
    scores, features = np.random.default_rng(0).normal(size=(60, 2)), np.full((60, 2), 0.3)
    features[:, 1] = np.arange(60)
    value, _, _ = pca_feature_r2(scores, features, make_lives([30, 30]).index)
    assert np.isnan(value[0]) and np.isfinite(value[1])
    assert np.isnan(pca_feature_r2(scores, features, make_lives([60]).index)).all()


def test_what_only_marks_a_life_does_not_count() -> None:
    """If nothing changes within lives, a fit holds in the sample but not for other lives."""
    rng = np.random.default_rng(0)
    lives = make_lives(LENGTHS)
    scores = rng.normal(size=(40, 20))[lives.index] + 0.01 * rng.normal(size=(1200, 20))
    feature = rng.normal(size=40)[lives.index][:, None]
    design = np.column_stack([np.ones(1200), scores])
    fitted = design @ np.linalg.lstsq(design, feature, rcond=None)[0]
    in_sample = 1 - ((feature - fitted) ** 2).sum() / ((feature - feature.mean()) ** 2).sum()
    assert in_sample > 0.3 and pca_feature_r2(scores, feature, lives.index)[0] < 0.1


def test_intervals_cover_at_their_rate() -> None:
    covered = []
    for run in range(100):
        rng = np.random.default_rng([1, run])
        scores = np.concatenate([smooth(rng, 30, 3) for _ in range(40)])
        noise = np.concatenate([smooth(rng, 30, 1) for _ in range(40)])
        _, low, high = pca_feature_r2(scores, scores[:, :1] + noise, make_lives(LENGTHS).index)
        covered.append(low[0] <= 0.5 <= high[0])
    assert 0.88 <= np.mean(covered) <= 1.0


LAYER = "action_decoder"


@pytest.fixture(scope="module")
def data() -> Dataset:
    return planted_dataset(planted_dump(agents=6, episodes=3, ticks=40))


def named(measured: list[Direction], data: Dataset) -> dict[str, Direction]:
    for item in measured:
        assert (item.layer, item.records, item.lives, item.episodes) == (LAYER, len(data), len(data.lives), 3)
        assert item.source.run == "run" and item.source.dump == "dump" and item.source.policy == "planted"
        assert next(item.faults(), None) is None
        value = item.read_out(data.activations)
        assert item.mean == pytest.approx(value.mean()) and item.spread == pytest.approx(value.std())
    return {item.name: item for item in measured}


def test_a_cluster_reads_one_at_its_mean_and_zero_at_that_of_the_rest(data: Dataset) -> None:
    labels = np.arange(len(data)) % 3 + NOISE  # arbitrary: two clusters and noise
    result = named(list(cluster_directions(data, labels, "run", "dump")), data)
    assert list(result) == ["cluster_0", "cluster_1"]
    for number, item in enumerate(result.values()):
        assert item.source.kind == "cluster difference"
        inside = labels == number
        value = item.read_out(data.activations)
        assert (value[inside].mean(), value[~inside].mean()) == pytest.approx((1, 0), abs=1e-5)
        # One unit of the read-out, along the weight, is the whole difference.
        step = item.weight / (item.weight @ item.weight)
        difference = data.activations[inside].mean(axis=0) - data.activations[~inside].mean(axis=0)
        np.testing.assert_allclose(step, difference, rtol=1e-3, atol=1e-5)
    assert not list(cluster_directions(data, np.zeros(len(data), int), "run", "dump"))
    assert not list(cluster_directions(data, np.full(len(data), NOISE), "run", "dump"))


def test_components_read_their_scores(data: Dataset) -> None:
    components = principal_components(data.activations)
    result = named(list(component_directions(data, components, "run", "dump")), data)
    assert len(result) == components.needed_for((0.99,))[0.99] and next(iter(result)) == "component_1"
    scores = components.scores(data.activations, len(result))
    for column, item in enumerate(result.values()):
        assert item.source.kind == "principal component"
        np.testing.assert_allclose(item.read_out(data.activations), scores[:, column], atol=1e-4)
        assert item.mean == pytest.approx(0, abs=1e-5) and item.weight @ item.weight == pytest.approx(1)


def test_courses_and_categories_of_variables_are_removed_and_the_rest_stays() -> None:
    rng = np.random.default_rng(0)
    tick = rng.integers(0, 1000, 3000)
    course = np.column_stack([tick / 300, np.sin(tick / 150), (tick / 1000) ** 3])
    rest = 0.1 * rng.normal(size=course.shape)
    left, removed = residualize((course + rest).astype(np.float32), {"tick": tick})
    assert np.corrcoef(left.ravel(), rest.ravel())[0, 1] > 0.97
    assert removed == pytest.approx(course.var(0).sum() / (course + rest).var(0).sum(), abs=0.02)
    rng = np.random.default_rng(1)
    episode, health = rng.integers(0, 30, 500), rng.normal(size=500)
    values = np.column_stack([rng.normal(size=30)[episode], 3 * health])
    left, removed = residualize(values, {"episode": episode, "self_health": health, "agent": episode})
    assert np.abs(left).max() < 1e-4 and removed == pytest.approx(1)
    values = np.random.default_rng(2).normal(size=(50, 3))
    left, removed = residualize(values, {"tick": np.full(50, 7)})
    np.testing.assert_allclose(left, values - values.mean(axis=0), atol=1e-6)
    assert removed == pytest.approx(0, abs=1e-9)
    assert residualize(np.ones((5, 2)), {"tick": np.arange(5)})[1] == 0


def test_variables_come_from_the_records_and_the_features() -> None:
    records = planted_dump(agents=3, episodes=2, ticks=20).records
    lives = lives_of(records)
    health = np.arange(len(records))
    result = residual_variables(["tick", "age", "row", "self_health"], records, lives, {"self_health": health})
    assert list(result) == ["tick", "age", "row", "self_health"]
    np.testing.assert_array_equal(result["age"], result["tick"])  # planted lives begin at tick 0
    np.testing.assert_array_equal(result["row"], records.tile[:, 112, 0])
    np.testing.assert_array_equal(result["self_health"], health)
    message = "--residualize tik: there is no such variable; did you mean tick"
    assert_refuses(message, residual_variables, ["tik"], records, lives, {})


RECORDS = planted_dump(agents=3, episodes=1, ticks=10).records


def test_activations_that_are_not_finite_or_overflow_are_refused_and_named() -> None:
    own = RECORDS.activations[LAYER]
    check_activations(RECORDS, LAYER)
    for value in (np.nan, np.inf, -np.inf):
        activations = own.copy()
        activations[[5, 9], 3] = value
        message = rf"in 2 of {len(RECORDS)} records, first of agent {RECORDS.agent_id[5]} at step {RECORDS.step[5]}:"
        assert_refuses(message, check_activations, replace(RECORDS, activations={LAYER: activations}), LAYER)
    check_activations(replace(RECORDS, activations={LAYER: own / np.abs(own).max() * 1e17}), LAYER)
    too_large = replace(RECORDS, activations={LAYER: own / np.abs(own).max() * 1e20})
    assert_refuses(r"holds 1e\+20, so that squared distances overflow", check_activations, too_large, LAYER)


FAST = Inference(bootstraps=99)
EVERY = Subsample(2, skip_first=1)


def deciding(seed: int, in_gold: bool) -> tuple[Planted, np.ndarray]:
    """Plant a number of each record, drawn anew at every tick, that is the direction of the next tick's move.

    Args:
        in_gold: whether the agent's gold, which is a feature, is that number.

    Returns:
        The dump and the number, (B,) int64.
    """
    planted = planted_dump(seed, agents=8, episodes=3, ticks=50)
    records, metadata = planted.records, planted.metadata
    rng = np.random.default_rng(seed)
    number = rng.integers(0, 4, len(records))
    seen = Observed(records, metadata)
    action, entity = records.action.copy(), records.entity.values.copy()
    order, lives = seen.lives.order, seen.lives
    follows = np.diff(lives.index_in_order) == 0
    heads = [head.name for head in metadata.action_heads]
    action[order[1:][follows], heads.index("Move.Direction")] = number[order[:-1][follows]]
    if in_gold:
        entity[seen.own_rows, metadata.entity_columns.index("gold")] = number
    units = (5 * (number[:, None] == np.arange(16)) + rng.normal(size=(len(records), 16))).astype(np.float32)
    rows, layers = replace(records.entity, values=entity), {"action_decoder": units}
    return replace(planted, records=replace(records, action=action, entity=rows, activations=layers)), number


def dataset(planted: Planted, folder: Path) -> Dataset:
    """Write a planted dump, and read what an analysis keeps of it."""
    write_planted(folder, planted)
    return planted_dataset(replace(planted, records=read_dump(folder, subsample=EVERY)))


def read(data: Dataset, folder: Path) -> Listed:
    return read_listed(folder, EVERY, data, 0, lambda share: None)


def numbers_of(planted: Planted, number: np.ndarray, data: Dataset) -> np.ndarray:
    """Return the planted number of each record kept."""
    of = dict(zip(zip(planted.records.step, planted.records.env_id, strict=True), number, strict=True))
    return np.array([of[key] for key in zip(data.records.step, data.records.env_id, strict=True)])


Told = tuple[Dataset, np.ndarray, Listed]
"""What an analysis keeps of a planted dump, the planted number of each record, and what the list of features tells."""


def told(folder: Path, in_gold: bool) -> Told:
    planted, number = deciding(0, in_gold)
    data = dataset(planted, folder)
    return data, numbers_of(planted, number, data), read(data, folder)


def meter(data: Dataset, labels: np.ndarray, there: Listed) -> Blindness:
    return blindness(there, data, principal_components(data.activations), "clusters", labels, FAST)


def test_what_no_feature_holds_says_that_the_list_is_too_short(tmp_path: Path) -> None:
    """And so do the verdict and the text of a summary."""
    hidden = told(tmp_path / "dump", in_gold=False)
    result = meter(*hidden)
    behaviour, state = result.measures
    assert (behaviour.about, state.about) == (BEHAVIOUR, STATE)
    move = next(part for part in behaviour.parts if part.name == "Move.Direction")
    assert move.studied > 0.8 and move.listed < 0.1 and behaviour.uncovered > 0.8
    first, second, last = result.sentences
    assert first.startswith(f"In lives held out, clusters tell {behaviour.studied:.1%} (")
    assert f"variance of {BEHAVIOUR}; all {result.features} listed features together cover " in first
    assert STATE in second
    assert last.startswith("The list of features is too short: ")
    assert f"of what clusters tell about {BEHAVIOUR} (most of all Move.Direction) and " in last
    assert "are in none of them" in last
    assert any("Move.Direction" in line and f"{move.studied:.1%}" in line for line in result.table)
    planted = planted_dump()
    summary = replace(planted_summary(planted, planted.behaviour), blindness=result)
    assert any(sentence.startswith("The list of features is too short") for sentence in verdict(summary))
    assert "Move.Direction" in as_text(summary) and "nan" not in as_text(summary)
    output = summary.to_json()["blindness"]
    assert [measure["about"] for measure in output["measures"]] == [BEHAVIOUR, STATE]
    data, number, there = hidden
    result = meter(data, np.random.default_rng(5).permutation(number), there)
    assert not any(measure.reliable for measure in result.measures) and len(result.sentences) == 2
    assert all("is not reliably more than nothing" in sentence for sentence in result.sentences)
    data, _, there = hidden
    components = principal_components(data.activations)
    scores = components.scores(data.activations, 16)
    result = blindness(there, data, components, "the first 16 components", scores, FAST)
    assert result.measures[0].uncovered > 0.7 and result.measures[1].studied > 0.99
    assert "listed features together cover" in result.sentences[1] and "tell" not in result.sentences[1]


def test_clusters_of_a_listed_feature_are_covered(tmp_path: Path) -> None:
    result = meter(*told(tmp_path / "dump", in_gold=True))
    assert result.features + len(result.left_out) == len(EXTENDED_FEATURES) and "self_gold" not in result.left_out
    assert "distance_to_centre" in result.left_out and "distance_to_centre" in result.table[-1]  # no size of the map
    assert all(measure.reliable and measure.uncovered < 0.1 for measure in result.measures)
    assert len(result.sentences) == 2 and "too short" not in " ".join(result.sentences)


def test_too_few_lives_and_a_missing_tick_give_a_reason(tmp_path: Path) -> None:
    planted, number = deciding(0, in_gold=False)
    records = planted.records
    few = records.agent_id <= 1  # three lives
    torn = ~((records.tick == 10) & (records.agent_id == 3))
    missing = "agent 3 in episode 0 has no record of the tick before 11"
    for kept, reason in ((few, "fewer than 6 lives"), (torn, missing)):
        part = replace(planted, records=records.take(kept))
        data = dataset(part, tmp_path / str(kept.sum()))
        labels = numbers_of(part, number[kept], data)
        there = read(data, tmp_path / str(kept.sum()))
        result = meter(data, labels, there)
        assert not result.measures and not result.table and reason in result.reason
        (sentence,) = result.sentences
        assert sentence == f"Whether the listed features cover what clusters tell is unknown: {result.reason}."


def test_of_many_records_whole_lives_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, number, everything = told(tmp_path / "dump", in_gold=False)
    monkeypatch.setattr(listed, "MOST_RECORDS", 200)
    some = read(data, tmp_path / "dump")
    lives = data.lives.index
    assert 150 < some.kept.sum() < 240 < everything.kept.sum()
    both = np.isin(lives, lives[some.kept]) & everything.kept
    np.testing.assert_array_equal(some.kept, both)
    again, moves = both[everything.kept], some.behaviour["Move.Direction"]
    np.testing.assert_array_equal(some.values, everything.values[again])
    np.testing.assert_array_equal(moves, everything.behaviour["Move.Direction"][again])
    np.testing.assert_array_equal(moves.argmax(axis=1), number[some.kept])


def test_behaviour_ahead_is_computed_as_by_hand_within_lives() -> None:
    planted = planted_dump(agents=3, episodes=1, ticks=40)
    records, metadata = planted.records, planted.metadata
    seen = Observed(records, metadata)
    place = np.flatnonzero(records.tick < 5)
    parts = next_ticks(seen, place)
    heads = [head.name for head in metadata.action_heads]
    health = seen.own("health").astype(int)
    for row, now in enumerate(place):
        mine = records.agent_id == records.agent_id[now]
        (after,) = np.flatnonzero(mine & (records.tick == records.tick[now] + 1))
        (ahead,) = np.flatnonzero(mine & (records.tick == records.tick[now] + 10))
        chosen = records.action[after, heads.index("Move.Direction")]
        options = np.unique(later(records.action[:, heads.index("Move.Direction")], seen.lives, 1)[place])
        np.testing.assert_array_equal(parts["Move.Direction"][row], options == chosen)
        assert parts["change of health"][row, 0] == health[ahead] - health[now]
    assert "Sell.Price" not in parts  # 99 options and no no-op
    assert "displacement" not in parts  # nobody of this dump moves
    assert not math.isnan(parts["change of food"].sum())
    lives = make_lives([4, 3], seed=1)
    values = np.empty(7, np.int64)
    values[lives.order] = [0, 1, 2, 3, 10, 11, 12]
    assert later(values, lives, 1)[lives.order].tolist() == [1, 2, 3, 3, 11, 12, 12]
    assert later(values, lives, 10)[lives.order].tolist() == [3, 3, 3, 3, 12, 12, 12]
