"""Settings are refused or lead to folders of their own, and a summary's text matches its numbers."""

import dataclasses
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from activation_store.selection import ALL_RECORDS
from analysis.clusters.dataset import Dataset
from analysis.clusters.settings import AnalysisSettings
from analysis.clusters.summarise import ClusterStatistics, repeat_without, summarise
from analysis.clusters.summary import Summary
from analysis.clusters.summary_text import as_text, verdict_lines
from analysis.clusters.verdict import describe, verdict
from analysis.features import FEATURE_NAMES, FEATURES, features_named
from analysis.features.registry import EXTENDED_FEATURES
from analysis.labels import largest_first
from analysis.lives import lives_of
from analysis.statistics.stability import Stability
from common import command_line
from common.number_text import format_p
from tests.command import assert_refuses
from tests.planted import FIGHTING, Planted, planted_dump, planted_metadata
from tests.planted_summary import FAST, METHOD, planted_dataset, planted_summary, statistics_of

PLANTED = planted_dump(agents=12, episodes=4, ticks=60)
RECORDS = len(PLANTED.records)
CASES = {
    "normal": PLANTED.behaviour, "one cluster": np.where(PLANTED.behaviour == 1, 0, -1),
    "one cluster of everything": np.zeros(RECORDS, np.int64), "100 clusters": np.arange(RECORDS) % 101 - 1,
    "only noise": np.full(RECORDS, -1), "one record each": np.where(np.arange(RECORDS) < 2, np.arange(RECORDS), -1),
}  # fmt: skip


@pytest.fixture(scope="module")
def summary() -> Summary:
    return planted_summary(PLANTED, largest_first(PLANTED.behaviour))


def fighters(summary: Summary):
    """The cluster of those who attack most."""
    return max(summary.clusters, key=lambda cluster: cluster.effects[FEATURE_NAMES.index("is_attacking")].mean)


def test_the_planted_behaviour_survives_and_is_what_the_cluster_is_about(summary: Summary) -> None:
    cluster = fighters(summary)
    assert cluster.share == pytest.approx(np.mean(PLANTED.behaviour == FIGHTING), abs=0.01)
    assert cluster.description.startswith("is_attacking more often (100% against 0%)")
    survivors = {effect.name for effect in cluster.surviving}
    assert "is_attacking" in survivors and not survivors & {"self_gold", "n_visible_npcs", "n_inventory_items"}
    assert cluster.flagged == ()
    attacking = next(effect for effect in cluster.effects if effect.name == "is_attacking")
    assert attacking.q < 1e-3 and attacking.d_complement_low > 1
    assert attacking.episodes_agreeing == attacking.episodes == 4
    assert cluster.persistence.same > cluster.persistence.chance_in_life + 0.2


def test_the_verdict_comes_first_and_says_it_all_and_counts_of_claims_add_up(summary: Summary) -> None:
    text = as_text(summary)
    assert text.startswith("Verdict\n")
    joined = " ".join(text.split("\n\n")[0].split())
    for sentence in summary.verdict:
        assert " ".join(sentence.split()) in joined
    assert f"3 clusters hold {summary.coverage:.1%}" in joined
    assert joined.startswith("Verdict With 4 episodes the tests cannot tell a cluster's behaviour from what happened")
    assert "Projection stability: stable (embedded anew: adjusted Rand index with other seeds on 100 records" in joined
    assert "records 0.90 (0.90 to 0.90; a Gaussian 0.30 to 0.50), with other lives 0.90 (0.85 to 0.95; a" in joined
    assert "Gaussian 0.20 to 0.30)); Clustering stability: stable (" in joined
    given_time = f"{summary.surviving_given_time} survive correction given tick and age, {summary.surviving} without"
    assert given_time in joined and "With 80% power this dump could have found a difference of d = " in joined
    assert "they resample the 4 episodes whole" in joined and "No confound is flagged" in joined
    assert "nan" not in text
    assert max(len(line) for line in text.splitlines() if line.startswith("  Cluster")) <= 120
    effects = [effect for cluster in summary.clusters for effect in cluster.effects]
    assert summary.tested + summary.untested == len(effects) == 3 * len(FEATURES)
    assert summary.surviving == sum(effect.survives for effect in effects)
    for effect in effects:
        assert bool(effect.untested) == math.isnan(effect.p)
        if effect.survives:
            assert effect.q <= summary.method.level and effect.d_complement_low * effect.d_complement_high > 0
            difference = effect.mean - effect.complement_mean
            assert effect.difference_low - 1e-9 <= difference <= effect.difference_high + 1e-9
            assert effect.d_complement_low <= effect.d_complement <= effect.d_complement_high
            assert effect.d_baseline_low < effect.d_baseline < effect.d_baseline_high


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "100 clusters")) for name in CASES]
)
def test_every_case_is_plain_json_and_text(name: str) -> None:
    labels = largest_first(CASES[name])
    summary = planted_summary(PLANTED, labels)
    content = orjson.loads(orjson.dumps(summary.to_json()))
    assert content["coverage"] + content["noise_share"] == pytest.approx(1)
    assert len(content["clusters"]) == labels.max() + 1
    text = as_text(summary)
    assert ("No cluster was found" in text) == (labels.max() < 0)
    assert " nan" not in text and "[nan" not in text

    def numbers(value: object) -> list[float]:
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list):
            return [number for inner in value for number in numbers(inner)]
        return [value] if isinstance(value, float) else []

    assert np.isfinite(numbers(content)).all()


@pytest.mark.parametrize("kept", ["one life", "one tick", "two lives"])
def test_too_little_data_gives_nulls_with_a_reason(kept: str) -> None:
    lives = lives_of(PLANTED.records)
    chosen = {"one life": lives.index == 3, "two lives": lives.index < 2, "one tick": PLANTED.records.tick == 5}[kept]
    few = Planted(PLANTED.records.take(chosen), PLANTED.metadata, PLANTED.behaviour[chosen])
    summary = planted_summary(few, largest_first(few.behaviour))
    effects = [effect for cluster in summary.clusters for effect in cluster.effects]
    assert effects and all(math.isnan(effect.p) and "lives do both" in effect.untested for effect in effects)
    assert summary.surviving == 0
    assert all(cluster.description == "no feature that survives correction" for cluster in summary.clusters)
    assert "could not be tested" in as_text(summary)
    for confound in summary.confounds:
        assert confound.reason or math.isfinite(confound.share)
    verdicts = " ".join(summary.verdict)
    assert ("is unknown: there are fewer than 6 lives" in verdicts) == (kept != "one tick")
    assert ("No confound is flagged" in verdicts) == (kept == "one tick")
    if kept == "one life":
        assert "There are no intervals" in verdicts and "Intervals generalise" not in verdicts
        assert summary.stability.reason == "one life cannot be resampled"
        assert all(math.isnan(effect.d_complement_low) for effect in effects)


def summarised(data: Dataset, labels: np.ndarray, statistics: ClusterStatistics, **more: Any) -> Summary:
    """A summary of clusters that were not embedded anew."""
    never = Stability((), 0, (), reason="not tried")
    return summarise(data, labels, statistics, never, subsample=ALL_RECORDS, components={0.5: 1}, **more)


def test_a_flag_and_a_weak_clustering_are_said_out_loud() -> None:
    early = largest_first(np.where(PLANTED.records.tick < 6, 0, -1))
    summary = planted_summary(PLANTED, early)
    assert "tick" in summary.clusters[0].flagged
    assert any("but it marks tick" in sentence for sentence in summary.verdict)
    assert any("Confounds are flagged: tick (cluster 0)" in sentence for sentence in summary.verdict)
    for part in ("over_seeds", "over_embeddings"):
        shaky = dataclasses.replace(summary, stability=dataclasses.replace(summary.stability, **{part: (0.1, 0.3)}))
        assert any("Projection stability: UNSTABLE" in line for line in verdict(shaky))


def test_clusters_are_stable_only_beyond_those_of_a_gaussian(summary: Summary) -> None:
    """However high the index: the run's own are .9 with other seeds and other lives."""
    beyond = "NOT BEYOND A GAUSSIAN"
    for part, reached, words in (
        ("over_seeds", (0.7, 0.9, 0.8), f"Projection stability: {beyond}"),
        ("over_lives", (0.5, 0.9), f"Projection stability: {beyond}"),
        ("over_seeds", (0.7, 0.8, 0.6), "Projection stability: stable"),
        ("over_bootstraps", (1.0, 0.9, 1.0, 1.0), f"Clustering stability: {beyond}"),
    ):
        gaussian = dataclasses.replace(summary.stability.gaussian, **{part: reached})
        output = dataclasses.replace(summary, stability=dataclasses.replace(summary.stability, gaussian=gaussian))
        assert any(words in line for line in verdict(output))


def test_small_shares_and_clusters_that_dissolve_are_put_into_words(summary: Summary) -> None:
    cluster = summary.clusters[1]
    tick = dataclasses.replace(cluster.confounds[0], name="tick", q=0.01, excess=0.08, flagged=False)
    output = dataclasses.replace(cluster, confounds=(tick, *cluster.confounds[1:]))
    drifting = dataclasses.replace(summary, clusters=(summary.clusters[0], output, *summary.clusters[2:]))
    (line,) = [line for line in verdict(drifting) if line.startswith("Below the flag")]
    assert line.startswith("Below the flag, but more than chance: tick (cluster 1, 8.0%)")
    assert not any("Not found again" in line for line in summary.verdict)
    # The adjusted Rand index is dominated by the large clusters.
    lost = (*summary.clusters[:-1], dataclasses.replace(summary.clusters[-1], jaccard=0.3))
    lines = verdict(dataclasses.replace(summary, clusters=lost))
    assert any("Not found again in the same embedding: cluster 2 (overlap below 0.5)." in line for line in lines)


def test_many_clusters_six_episodes_and_constants_are_told_as_they_are() -> None:
    many = planted_summary(PLANTED, np.arange(RECORDS) % 20)
    assert any(line.startswith("Cluster 12 and smaller ones") for line in many.verdict)
    assert "smaller ones" not in verdict_lines(many) and "\n20 clusters hold" in verdict_lines(many)
    planted = planted_dump(agents=6, episodes=6, ticks=40)
    summary = planted_summary(planted, largest_first(planted.behaviour))
    assert summary.method.episodes_shifted and not any("cannot tell a cluster" in line for line in summary.verdict)
    attacking = {effect.name: effect for effect in fighters(summary).effects}["is_attacking"]
    assert attacking.survives and attacking.survives_given_time
    data = planted_dataset(PLANTED)
    data.values[:, 2] = 0.1
    labels = largest_first(PLANTED.behaviour)
    for cluster in summarised(data, labels, statistics_of(data, labels)).clusters:
        effect = cluster.effects[2]
        assert effect.d_complement == effect.d_baseline == 0 and math.isnan(effect.p) and not effect.survives


def test_descriptions_leave_out_what_is_small_did_not_survive_or_only_tick_and_age_explain(summary: Summary) -> None:
    effects = fighters(summary).effects
    explained = tuple(dataclasses.replace(effect, survives_given_time=False) for effect in effects)
    assert describe(explained, FEATURES).startswith("no feature that survives given tick and age; without them is_att")
    small = tuple(dataclasses.replace(effect, d_complement=0.05) for effect in effects)
    assert describe(small, FEATURES) == "small differences only (|d| below 0.2)"
    none = tuple(dataclasses.replace(effect, survives=False) for effect in effects)
    assert describe(none, FEATURES) == "no feature that survives correction"
    effect = dataclasses.replace(
        fighters(summary).effects[0], survives=True, survives_given_time=True, mean=1023.6, complement_mean=51.25,
        d_complement=1.0,
    )  # fmt: skip
    assert describe([effect], FEATURES[:1]).endswith("higher (1,024 against 51.2)")
    sizes = [abs(effect.d_complement) for effect in fighters(summary).strongest]
    assert sizes == sorted((abs(effect.d_complement) for effect in fighters(summary).effects), reverse=True)[:5]
    (everything,) = planted_summary(PLANTED, CASES["one cluster of everything"]).clusters
    assert len(everything.strongest) == 5
    moves = as_text(planted_summary(PLANTED, CASES["one cluster of everything"], features_named(("move",))))
    assert "nan" not in moves and "overall): n/a points from the rest" in moves
    assert [format_p(value) for value in (0.0123, 0.0009, 1.0, float("nan"))] == ["0.012", "<0.001", "1.000", "n/a"]


@pytest.mark.slow
def test_regressing_out_what_made_the_clusters_leaves_other_clusters() -> None:
    """The first two units depend only on the tick: without it, nothing is left of these clusters."""
    tick = PLANTED.records.tick
    activations = np.random.default_rng(0).normal(size=(RECORDS, 16)).astype(np.float32)
    activations[:, 0] += 0.5 * tick
    records = dataclasses.replace(PLANTED.records, activations={"action_decoder": activations})
    data = planted_dataset(dataclasses.replace(PLANTED, records=records))
    labels = largest_first(tick // 20)
    plain = statistics_of(data, labels)
    _, _, again = repeat_without(["tick"], data, labels, plain, METHOD, FAST)
    assert again.variance_removed > 0.7 and again.adjusted_rand < 0.2
    ticks = [claim for claim in again.claims if claim.feature == "tick"]
    assert ticks and not any(claim.survives for claim in again.claims if claim.feature == "tick")
    summary = summarised(data, labels, plain, residualized=again)
    assert any("Without tick, which removes" in sentence for sentence in summary.verdict)
    assert "Without tick (" in as_text(summary) and summary.to_json()["residualized"]["claims"]


@pytest.mark.slow
def test_regressing_out_what_has_no_part_in_them_leaves_them_as_they_are() -> None:
    data = planted_dataset(PLANTED)
    labels = METHOD.cluster(METHOD.embed(data.activations, seed=0))
    _, _, again = repeat_without(["tick", "self_gold"], data, labels, statistics_of(data, labels), METHOD, FAST)
    assert again.variance_removed < 0.05 and again.adjusted_rand > 0.7
    attacking = [claim for claim in again.claims if claim.feature == "is_attacking"]
    assert attacking and all(claim.survives and claim.overlap > 0.7 for claim in attacking)


def test_a_difference_is_not_found_again_in_another_cluster() -> None:
    """Random quarters of each behaviour are not clusters: any cluster found overlaps each by at most a quarter."""
    data = planted_dataset(PLANTED)
    labels = largest_first(4 * PLANTED.behaviour + np.random.default_rng(0).integers(0, 4, RECORDS))
    _, _, again = repeat_without(["self_gold"], data, labels, statistics_of(data, labels), METHOD, FAST)
    claims = [claim for claim in again.claims if claim.feature == "is_attacking"]
    assert claims and all(0 < claim.overlap < 0.5 and abs(claim.d_after) > 0.5 for claim in claims)
    assert not any(claim.survives for claim in claims)
    summary = summarised(data, labels, statistics_of(data, labels), residualized=again)
    assert "and 0 of the" in summary.verdict[-1] and "no cluster like it" in as_text(summary)


DEFAULTS = AnalysisSettings(Path("data/NAME"))
METADATA = replace(planted_metadata(), records=1000, lives=10)


def test_both_spellings_mean_the_same() -> None:
    dashes = [
        "hdbscan-min-cluster", "20", "cluster-before-umap", "pre-cluster-dims", "8", "umap-pairs", "umap-pairs-dims",
        "4",
    ]  # fmt: skip
    words = ["x", *(word if word.isdigit() else f"--{word}" for word in dashes)]
    underlined = ["x", *(word.replace("-", "_").replace("__", "--", 1) for word in words[1:])]
    first, second = (command_line.parse(AnalysisSettings, "", args=given) for given in (words, underlined))
    assert first == second
    assert first.hdbscan_min_cluster == 20 and first.cluster_before_umap and first.umap_pairs_dims == 4


CHANGES = [
    {"subsample": 3}, {"skip_first": 0}, {"layer": "lstm_cell"}, {"features": "tick,self_food"}, {"projection": "tsne"},
    {"projection": "pca"}, {"umap_neighbors": 16}, {"umap_min_dist": 0.2}, {"hdbscan_min_cluster": 16},
    {"hdbscan_min_samples": 6}, {"cluster_before_umap": True}, {"cluster_before_umap": True, "pre_cluster_dims": 9},
    {"cluster_before_umap": True, "metric_only": True}, {"feature_scatter": True}, {"umap_pairs": True},
    {"umap_pairs": True, "umap_pairs_dims": 4}, {"dendrogram_explorer": True}, {"seed": 7}, {"tsne_perplexity": 9.0},
    {"permutations": 499}, {"bootstraps": 499}, {"confidence": 0.9}, {"residualize": "tick,age"},
]  # fmt: skip


def test_other_settings_go_to_another_folder_if_they_work() -> None:
    folders = [DEFAULTS.run_folder, *(replace(DEFAULTS, **change).run_folder for change in CHANGES)]
    assert folders[0] == Path("analysis_results/NAME-sub10-c15")
    assert len(set(folders)) == len(folders)
    assert all(len(folder.name) < 200 for folder in folders)
    every = ",".join(feature.name for feature in EXTENDED_FEATURES)
    assert len(replace(DEFAULTS, features=every, residualize=every).run_folder.name) < 200
    for change in CHANGES:
        settings = replace(DEFAULTS, **change)
        settings.check()
        if settings.layer == DEFAULTS.layer:
            replace(settings, pre_cluster_dims=8).check_against(METADATA)


OUT_OF_RANGE: dict[str, tuple[float, ...]] = {
    "subsample": (0,), "max_records": (999,), "skip_first": (-1,), "hdbscan_min_cluster": (1,), "umap_neighbors": (1,),
    "hdbscan_min_samples": (0,), "umap_min_dist": (1.5, float("nan")), "tsne_perplexity": (0.5, float("inf")),
    "pre_cluster_dims": (1,), "umap_pairs_dims": (1, 101), "seed": (-1,), "permutations": (50,), "bootstraps": (-1,),
    "confidence": (95.0,),
}  # fmt: skip


def test_what_cannot_work_is_refused() -> None:
    for name, values in OUT_OF_RANGE.items():
        for value in values:
            message = f"--{name.replace('_', '-')} is {value}: must be "
            assert_refuses(message, replace(DEFAULTS, **{name: value}).check)  # type: ignore[arg-type]
    nothing = replace(DEFAULTS, metric_only=True)
    assert_refuses("--metric-only leaves nothing to show: add", nothing.check)
    assert_refuses("--dendrogram-explorer has no tree", replace(nothing, dendrogram_explorer=True).check)
    for change, message in (
        ({"layer": "nothing"}, "holds no layer 'nothing', only: action_decoder"),
        ({"cluster_before_umap": True, "pre_cluster_dims": 17}, "--pre-cluster-dims is 17: layer .* has 16 units only"),
        ({"subsample": 1000}, "--subsample 1000 keeps at most 11 of .*, two clusters of .* needs 30"),
        ({"hdbscan_min_cluster": 500}, "--hdbscan-min-cluster 500 needs 1000"),
        ({"hdbscan_min_samples": 110}, "--hdbscan-min-samples 110 needs 111"),
        ({"umap_neighbors": 110}, "--umap-neighbors 110 needs 111"),
        ({"projection": "tsne", "tsne_perplexity": 110.0}, "--tsne-perplexity 110 needs 112"),
        ({"umap_pairs": True, "umap_pairs_dims": 100, "subsample": 20, "umap_neighbors": 5}, "-dims 100 needs 102"),
    ):
        assert_refuses(message, replace(DEFAULTS, **change).check_against, METADATA)  # type: ignore[arg-type]
    for change, message in (
        ({"features": "tick,life_fraction"}, "there is no feature 'life_fraction'"),
        ({"features": ","}, "no features given"),
        ({"features": "tick", "feature_scatter": True}, "needs two features or more"),
        ({"residualize": "tick,tok"}, "--residualize tok: there is no such variable"),
    ):
        assert_refuses(message, replace(DEFAULTS, **change).choose_features, METADATA)  # type: ignore[arg-type]
    both = replace(DEFAULTS, features="tick, self_food").choose_features(METADATA)
    assert [feature.name for feature in both] == ["tick", "self_food"]


def test_options_without_effect_are_told_and_few_records_may_be_enough() -> None:
    assert DEFAULTS.without_effect() == []
    (pairs,) = replace(DEFAULTS, umap_pairs_dims=4).without_effect()
    (before,) = replace(DEFAULTS, pre_cluster_dims=4).without_effect()
    assert pairs == "no effect without --umap-pairs: --umap-pairs-dims"
    assert before == "no effect without --cluster-before-umap: --pre-cluster-dims"
    metric = replace(DEFAULTS, metric_only=True, umap_pairs=True, hdbscan_min_cluster=20, umap_neighbors=20)
    assert metric.without_effect() == ["no effect with --metric-only: --hdbscan-min-cluster"]
    intervals = replace(DEFAULTS, metric_only=True, umap_pairs=True, bootstraps=99, confidence=0.9)
    assert intervals.without_effect() == ["no effect without clusters and components: --bootstraps, --confidence"]
    tests = replace(DEFAULTS, metric_only=True, cluster_before_umap=True, permutations=99)
    assert tests.without_effect() == [], "components are tested too"
    assert replace(intervals, cluster_before_umap=True).without_effect() == []
    pca = replace(DEFAULTS, projection="pca", umap_min_dist=0.5, tsne_perplexity=5.0)
    assert len(pca.without_effect()) == 2
    scattered = replace(DEFAULTS, metric_only=True, feature_scatter=True)
    scattered.check_enough(2)
    assert_refuses("any output needs 2", scattered.check_enough, 1)
    replace(DEFAULTS, projection="pca", umap_neighbors=5000).check_against(METADATA)
