"""Figures draw in every case, warn of nothing, and keep all their text inside the picture."""

import dataclasses
import warnings
from collections import Counter

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from analysis.clustering import largest_first
from analysis.features import EXTENDED_FEATURES, FEATURE_NAMES, feature_matrix
from analysis.figures.cluster_features import cluster_features
from analysis.figures.metric_scatter import metric_scatter
from analysis.figures.plane_scatter import plane_scatter
from analysis.figures.style import cluster_colour, cluster_marker
from analysis.lives import lives_of, rolling_mean
from analysis.projection import Projection
from analysis.summary import format_number
from tests.planted import planted_dump
from tests.planted_summary import planted_summary

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
    beyond = set(map(id, ticks_beyond_axes(figure)))
    shown = [text for text in figure.findobj(Text) if text.get_visible() and id(text) not in beyond]
    written = [text for text in shown if text.get_text().strip()]
    for text in written:
        box = text.get_window_extent(renderer)
        assert box.x0 >= -1 and box.y0 >= -1, text
        assert box.x1 <= figure.bbox.x1 + 1 and box.y1 <= figure.bbox.y1 + 1, text
    return [text.get_text() for text in written]


def ticks_beyond_axes(figure: Figure) -> list[Text]:
    """Return tick labels that exist and are not drawn, for their ticks are outside what the axes show."""
    axes = [axis for each in figure.axes for axis in (each.xaxis, each.yaxis)]
    ticks = [(axis, tick) for axis in axes for tick in axis.get_major_ticks()]
    return [
        label
        for axis, tick in ticks
        if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
        for label in (tick.label1, tick.label2)
    ]


def plane(labels: np.ndarray) -> Projection:
    rng = np.random.default_rng(0)
    points = rng.uniform(-20, 20, (labels.max() + 2, 2))[labels] + rng.normal(size=(RECORDS, 2))
    return Projection("umap", points, ("UMAP 1", "UMAP 2"))


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
    clusters = planted_summary(PLANTED, labels).clusters
    written = texts(cluster_features(clusters, HEADING))
    if not clusters:
        assert any("No cluster was found" in text for text in written)
        return
    shown = clusters[:60]
    assert set(FEATURE_NAMES) <= set(written)
    assert sum(text.startswith("cluster ") for text in written) == len(shown)
    values = Counter(format_number(effect.d_baseline) for each in shown for effect in each.effects)
    assert values <= Counter(written)


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
    summary = planted_summary(dataclasses.replace(PLANTED, metadata=metadata), labels, EXTENDED_FEATURES)
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


def test_clusters_look_different() -> None:
    assert len({(cluster_colour(cluster), cluster_marker(cluster)) for cluster in range(80)}) == 80
