"""Figures draw in every case, warn of nothing, and keep all their text inside the picture."""

import dataclasses
import warnings

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from analysis.clustering import largest_first
from analysis.confounds import confound_evenness
from analysis.effect_sizes import effect_sizes
from analysis.features import EXTENDED_FEATURES, FEATURE_NAMES, feature_matrix
from analysis.figures.cluster_features import cluster_features
from analysis.figures.metric_scatter import metric_scatter
from analysis.figures.plane_scatter import plane_scatter
from analysis.figures.style import cluster_colour, cluster_marker
from analysis.lives import lives_of, rolling_mean
from analysis.projection import Projection
from analysis.summary import as_text, summarise
from tests.planted import planted_dump

PLANTED = planted_dump(agents=4, episodes=2, ticks=60)
RECORDS = len(PLANTED.records)
CASES = {
    "normal": PLANTED.behaviour,
    "one cluster": np.where(PLANTED.behaviour == 1, 0, -1),
    "27 clusters": np.arange(RECORDS) % 28 - 1,
    "100 clusters": np.arange(RECORDS) % 101 - 1,
    "only noise": np.full(RECORDS, -1),
}
HEADING = "a_policy_with_a_rather_long_name_and_$dollars$_200M_seed_7, action_decoder"


@pytest.fixture(params=list(CASES), ids=list(CASES))
def labels(request: pytest.FixtureRequest) -> np.ndarray:
    return largest_first(CASES[request.param])


@pytest.fixture(autouse=True)
def no_warnings() -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def texts(figure: Figure) -> list[str]:
    """Draw the figure, check that no text is cut off, and return what is written."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    written = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    for text in written:
        box = text.get_window_extent(renderer)
        assert box.x0 >= -1 and box.y0 >= -1, text
        assert box.x1 <= figure.bbox.x1 + 1 and box.y1 <= figure.bbox.y1 + 1, text
    return [text.get_text() for text in written]


def plane(labels: np.ndarray) -> Projection:
    rng = np.random.default_rng(0)
    points = rng.uniform(-20, 20, (labels.max() + 2, 2))[labels] + rng.normal(size=(RECORDS, 2))
    return Projection("umap", points, ("UMAP 1", "UMAP 2"))


def summary_of(labels: np.ndarray):
    lives = lives_of(PLANTED.records)
    effects = effect_sizes(feature_matrix(PLANTED.records, PLANTED.metadata), labels, lives, seed=0, draws=5)
    spread = confound_evenness(PLANTED.records, lives, labels)
    return summarise(
        PLANTED.records, PLANTED.metadata, lives, labels, effects, spread,
        layer="action_decoder", subsample=1, components={0.5: 1},
    )  # fmt: skip


def test_plane_scatter(labels: np.ndarray) -> None:
    written = texts(plane_scatter(plane(labels), labels, HEADING, "the UMAP plane"))
    clusters = labels.max() + 1
    numbers = [text for text in written if text.isdigit()]
    assert set(numbers) <= {str(cluster) for cluster in range(clusters)} and len(set(numbers)) == len(numbers)
    assert len(numbers) == clusters or (clusters > 10 and len(numbers) > 10 and "0" in numbers)
    assert f"noise ({np.mean(labels == -1):.1%})" in written
    if clusters == 0:
        assert any("no cluster found" in text for text in written)


def test_cluster_features(labels: np.ndarray) -> None:
    clusters = summary_of(labels).clusters
    written = texts(cluster_features(clusters, HEADING))
    if not clusters:
        assert any("No cluster was found" in text for text in written)
        return
    shown = clusters[:60]
    assert set(FEATURE_NAMES) <= set(written)
    assert sum(text.startswith("cluster ") for text in written) == len(shown)
    values = [f"{effect.d_baseline:.2f}".replace("-0.00", "0.00") for each in shown for effect in each.effects]
    assert sorted(values) == sorted(text for text in written if text in set(values))


def test_metric_scatter(labels: np.ndarray) -> None:
    features = feature_matrix(PLANTED.records, PLANTED.metadata)
    features[:, 0] = 7
    features[:, 1] = 0
    features[3, 1] = 1
    rolled = rolling_mean(features, lives_of(PLANTED.records))
    written = texts(metric_scatter(plane(labels), rolled, 5, HEADING))
    assert all(any(text.startswith(f"{name} (") for text in written) for name in FEATURE_NAMES)
    assert written.count("always 7") == 1 and not any(text == "always 0" for text in written)


def test_all_features_can_be_drawn_and_read() -> None:
    """A hundred features stand in several bands and panels, each under its own name."""
    labels, lives = largest_first(PLANTED.behaviour), lives_of(PLANTED.records)
    metadata = dataclasses.replace(PLANTED.metadata, environment={"map_size": 64})
    features = feature_matrix(PLANTED.records, metadata, EXTENDED_FEATURES)
    summary = summarise(
        PLANTED.records, metadata, lives, labels, effect_sizes(features, labels, lives, seed=0, draws=2),
        confound_evenness(PLANTED.records, lives, labels),
        layer="action_decoder", subsample=1, components={0.5: 1}, features=EXTENDED_FEATURES,
    )  # fmt: skip
    names = [feature.name for feature in EXTENDED_FEATURES]
    figure = cluster_features(summary.clusters, HEADING)
    written = texts(figure)
    assert [text for text in written if text in names] == names
    assert sum(text.startswith("cluster ") for text in written) == 4 * len(summary.clusters)
    assert figure.get_figwidth() < 20
    rolled = rolling_mean(features, lives)
    panels = metric_scatter(plane(labels), rolled, 5, HEADING, EXTENDED_FEATURES).axes
    titles = [axes.get_title().split(" (")[0] for axes in panels if axes.get_title()]
    assert titles == names


def test_summary_of_every_case_is_plain_json_and_text(labels: np.ndarray) -> None:
    summary = summary_of(labels)
    content = summary.to_json()
    assert content["coverage"] + content["noise_share"] == pytest.approx(1)
    assert len(content["clusters"]) == labels.max() + 1

    def numbers(value: object) -> list[float]:
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list):
            return [number for inner in value for number in numbers(inner)]
        return [value] if isinstance(value, float) else []

    assert np.isfinite(numbers(content)).all()
    assert ("No cluster was found" in as_text(summary)) == (labels.max() < 0)


def test_clusters_look_different() -> None:
    assert len({(cluster_colour(cluster), cluster_marker(cluster)) for cluster in range(80)}) == 80
