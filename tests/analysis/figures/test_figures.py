"""Figures are drawn in all cases without warnings, and all their text stays inside the picture."""

import dataclasses
import itertools
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.text import Text

from analysis.clusters.blindness import Blindness
from analysis.clusters.components import ComponentReport, principal_components, report_components
from analysis.clusters.dataset import Dataset
from analysis.clusters.figures import (
    cluster_features,
    feature_scatter,
    metric_scatter,
    pair_panels,
    pca_feature_correlations,
    pca_feature_profiles,
    plane_scatter,
)
from analysis.clusters.projection import Projection
from analysis.dynamics.figures import correlations_and_jacobians, flow
from analysis.evaluation.held_out_tasks import CATEGORIES
from analysis.evaluation.results import read_results
from analysis.evaluation.scores import PolicyScores, gather, score
from analysis.evaluation.tables import score_summary
from analysis.features import EXTENDED_FEATURES, FEATURE_NAMES, FEATURES, feature_matrix
from analysis.figures.points import PointsPanel, draw_clusters, draw_values
from analysis.figures.style import NOISE_COLOUR, category_colour, cluster_colour, cluster_marker, new_figure, title
from analysis.labels import largest_first
from analysis.lives import lives_of, rolling_mean
from analysis.statistics.inference import Inference
from analysis.statistics.resampling import Bootstrap
from common.number_text import format_number
from tests.planted import planted_dump
from tests.planted_results import as_original, play, write
from tests.planted_summary import planted_dataset, planted_summary

PLANTED = planted_dump(agents=4, episodes=2, ticks=60)
RECORDS = len(PLANTED.records)
CASES = {
    "normal": PLANTED.behaviour, "one cluster": np.where(PLANTED.behaviour == 1, 0, -1),
    "27 clusters": np.arange(RECORDS) % 28 - 1, "100 clusters": np.arange(RECORDS) % 101 - 1,
    "only noise": np.full(RECORDS, -1),
}  # fmt: skip
SIXTEEN_FEATURES = EXTENDED_FEATURES[:16]
LONG = "a_policy_with_a_rather_long_name_and_$dollars$_200M_seed_7"
HEADING = f"{LONG}, action_decoder"


def texts(figure: Figure) -> list[str]:
    """Draw the figure, check that no text is cut off, and return its texts."""
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
    """Return tick labels that exist but are not drawn, because their ticks are outside the axes."""
    labels = []
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        beyond = [tick for tick in axis.get_major_ticks() if not low <= tick.get_loc() <= high]
        labels += [label for tick in beyond for label in (tick.label1, tick.label2)]
    return labels


def plane(labels: np.ndarray) -> Projection:
    rng = np.random.default_rng(0)
    points = rng.uniform(-20, 20, (labels.max() + 2, 2))[labels] + rng.normal(size=(RECORDS, 2))
    return Projection("umap", points, ("UMAP 1", "UMAP 2"))


@pytest.mark.parametrize("case", CASES)
def test_plane_scatter(case: str) -> None:
    labels = largest_first(CASES[case])
    written = texts(plane_scatter(plane(labels), labels, HEADING, "the UMAP plane"))
    clusters = labels.max() + 1
    numbers = [text for text in written if text.isdigit()]
    assert set(numbers) <= {str(cluster) for cluster in range(clusters)} and len(set(numbers)) == len(numbers)
    assert len(numbers) == clusters or (clusters > 10 and len(numbers) > 10 and "0" in numbers)
    assert f"noise ({np.mean(labels == -1):.1%})" in written
    if clusters == 0:
        assert any("no cluster found" in text for text in written)


@pytest.mark.parametrize("case", [case for case in CASES if case != "27 clusters"])
def test_cluster_features(case: str) -> None:
    clusters = planted_summary(PLANTED, largest_first(CASES[case])).clusters
    written = texts(cluster_features(clusters, HEADING))
    if not clusters:
        assert any("No cluster was found" in text for text in written)
        return
    shown = clusters[:60]
    assert set(FEATURE_NAMES) <= set(written)
    assert sum(text.startswith("cluster ") for text in written) == len(shown)
    values = Counter(format_number(effect.d_baseline) for item in shown for effect in item.effects)
    assert values <= Counter(written)


def test_metric_scatter() -> None:
    features = feature_matrix(PLANTED.records, PLANTED.metadata)
    features[:, 0] = 7
    features[:, 1] = 0
    features[3, 1] = 1
    features[:, 2] = np.arange(len(features))
    rolled = rolling_mean(features, lives_of(PLANTED.records))
    written = texts(metric_scatter(plane(PLANTED.behaviour), rolled, 5, HEADING))
    assert set(FEATURE_NAMES) <= set(written)
    assert written.count("always 7") == 1 and not any(text == "always 0" for text in written)
    assert written.count("points, 1st to 99th percentile") == 3


@pytest.mark.parametrize("dimensions", [2, 5, 70])
def test_pair_panels(dimensions: int) -> None:
    labels = largest_first(CASES["27 clusters"]) if dimensions == 5 else None
    points = np.random.default_rng(0).normal(size=(RECORDS, dimensions))
    names = [f"dimension {i + 1}" for i in range(dimensions)]
    figure = pair_panels(points, names, labels, HEADING)
    written = texts(figure)
    drawn = min(dimensions, 60)
    assert {name for name in names if name in written} == set(names[:drawn])
    assert sum(bool(axes.get_xlabel()) for axes in figure.axes) == -(-drawn // 2)
    assert any("the first 60 of 70 dimensions" in text for text in written) == (dimensions == 70)
    assert any(text.startswith("noise (") for text in written) == (labels is not None)


@pytest.mark.slow
def test_feature_scatter_draws_every_pair_and_says_what_it_leaves_out() -> None:
    metadata = dataclasses.replace(PLANTED.metadata, environment={"map_size": 64})
    features = feature_matrix(PLANTED.records, metadata, SIXTEEN_FEATURES)
    figure = feature_scatter(features, SIXTEEN_FEATURES, largest_first(PLANTED.behaviour), 5, HEADING)
    written = texts(figure)
    assert len(figure.axes) == 91  # a pair has one panel, not two
    assert "the first 14 of 16 features" in figure.get_suptitle()
    names = [feature.name for feature in SIXTEEN_FEATURES[:14]]
    across = [axes.get_xlabel().replace("\n", "").split("(")[0] for axes in figure.axes if axes.get_xlabel()]
    upwards = [axes.get_ylabel().replace("\n", "").split("(")[0] for axes in figure.axes if axes.get_ylabel()]
    assert (across, upwards) == (names[:-1], names[1:])
    assert any(text.startswith("noise (") for text in written)


def test_a_panel_of_the_triangle_shows_the_pair_that_its_edges_name() -> None:
    """Each feature has a unique value, which identifies the two features of every panel."""
    values = np.tile(np.arange(4.0), (9, 1))
    figure = feature_scatter(values, FEATURES[:4], None, 5, HEADING)
    texts(figure)
    column = {axes.get_position().x0: axes.get_xlabel() for axes in figure.axes if axes.get_xlabel()}
    row = {axes.get_position().y0: axes.get_ylabel() for axes in figure.axes if axes.get_ylabel()}
    shown = set()
    for axes in figure.axes:
        x, y = (int(value) for value in axes.collections[-1].get_offsets()[0])
        place = axes.get_position()
        names = [label.replace("\n", "").split("(")[0] for label in (column[place.x0], row[place.y0])]
        assert names == [FEATURE_NAMES[x], FEATURE_NAMES[y]]
        shown.add((x, y))
    assert shown == {(x, y) for y in range(4) for x in range(y)}
    assert len(feature_scatter(np.ones((5, 2)), FEATURES[:2], None, 5, HEADING).axes) == 1, "two features, one panel"


NOT_MEASURED = Blindness("the first components", 0, (), 0, "life", 0, (), "not asked")


def component_report() -> tuple[ComponentReport, np.ndarray, Dataset]:
    """Of the planted dump, with one feature held constant."""
    data = planted_dataset(PLANTED)
    data.values[:, 2] = 7.0
    components = principal_components(data.activations)
    scores = components.scores(data.activations, 5)
    return report_components(components, scores, data, NOT_MEASURED, Inference(bootstraps=99)), scores, data


def test_components_say_whether_lives_or_episodes_were_left_out_and_resampled() -> None:
    report, scores, data = component_report()
    assert len(np.unique(data.records.episode)) < 4 and report.lives == report.units > 4
    assert f"cross-validated over {report.units} whole lives" in report.as_text()
    split = dataclasses.replace(data, records=dataclasses.replace(data.records, episode=data.lives.index % 4))
    settings = Inference(bootstraps=99)
    report = report_components(principal_components(data.activations), scores, split, NOT_MEASURED, settings)
    assert "cross-validated over 4 whole episodes" in report.as_text() and "bootstrap over episodes" in report.as_text()
    written = " ".join(texts(pca_feature_correlations(report, HEADING)))
    assert "cross-validated by episode" in written and "on episodes left out of the fit" in " ".join(written.split())


def test_pca_feature_correlations_and_profiles() -> None:
    report, *_ = component_report()
    written = texts(pca_feature_correlations(report, HEADING))
    assert set(FEATURE_NAMES) <= set(written)
    cells = [f"{abs(value):.2f}".lstrip("0") for value in report.r[:, 0]]
    assert all(any(text.lstrip("-") == cell for text in written) for cell in cells)
    assert written.count("–") == 5 and written.count("n/a") == 1
    assert f"{report.r2[0, 0]:.2f}" in written
    lines = report.as_text().splitlines()
    assert sum("never changes" in line and "n/a" in line for line in lines) == 1 and "nan" not in report.as_text()
    rng = np.random.default_rng(0)
    report = ComponentReport(
        FEATURE_NAMES, np.arange(14), (), np.full(200, 0.005), rng.uniform(-1, 1, (200, 14)),
        np.full((3, 14), np.nan), 1, "life", 1, NOT_MEASURED,
    )  # fmt: skip
    written = texts(pca_feature_correlations(report, HEADING))
    assert written.count("n/a") == 14 and any("the first 30 of 200 components" in text for text in written)
    report, scores, data = component_report()
    written = texts(pca_feature_profiles(report, scores, data))
    drawn = [text for text in written if text.startswith("PC ")]
    assert len(drawn) == 13 * 3
    for feature in (0, 13):
        for component in report.strongest(feature):
            assert f"PC {component + 1}  (r = {report.r[component, feature]:+.2f})" in drawn
    assert any("always 7" in text for text in written)


def test_crowded_points_become_cells_of_clusters_and_of_means() -> None:
    """Two clusters overlap in the middle, where one has twice as many points; noise covers everything."""
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0], [10, 0], [5, 5], [5, 5]])
    truth = np.repeat([0, 1, 0, 1], [20_000, 20_000, 20_000, 10_000])
    points = np.repeat(centres, [20_000, 20_000, 20_000, 10_000], axis=0) + rng.normal(size=(70_000, 2)) * 0.2
    labels = np.where(rng.random(70_000) < 0.2, -1, truth)
    panel = PointsPanel(new_figure(3, 3).add_subplot(), 3, 3)
    assert panel.crowded(len(points))
    draw_clusters(panel, points, labels)
    (image,) = panel.axes.images
    for place, cluster in ((centres[0], 0), (centres[1], 1), (centres[2], 0)):
        np.testing.assert_allclose(pixel(image, place)[:3], to_rgb(cluster_colour(cluster)), atol=0.01)
        assert pixel(image, place)[3] > 0.8
    assert pixel(image, (0.0, 5.0))[3] == 0
    points = np.repeat([[0.0, 0], [1, 0], [1, 1]], 20_000, axis=0)
    values = np.concatenate([np.full(20_000, 1.0), np.tile([2.0, 4.0], 10_000), np.full(20_000, 5.0)])
    panel = PointsPanel(new_figure(3, 3).add_subplot(), 3, 3)
    colours, extend, limits = draw_values(panel, points, values)
    (image,) = panel.axes.images
    assert (extend, limits) == ("both", "1st to 99th percentile")
    assert (colours.norm.vmin, colours.norm.vmax) == pytest.approx((1, 5), abs=0.1)
    for place, mean in (((0, 0), 1.0), ((1, 0), 3.0), ((1, 1), 5.0)):
        np.testing.assert_allclose(pixel(image, place)[:3], colours.to_rgba(mean)[:3], atol=0.02)
    assert pixel(image, (0, 1))[3] == 0


def test_a_crowded_plane_is_drawn_whole_and_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    points = np.random.default_rng(0).uniform([0, 0], [30, 10], (80_000, 2))
    labels = np.arange(80_000) % 4 - 1
    figure = plane_scatter(Projection("umap", points, ("UMAP 1", "UMAP 2")), labels, HEADING, "the UMAP plane")
    texts(figure)
    axes = figure.axes[0]
    assert axes.images and caplog.records == []
    for (low, high), side in ((axes.get_xlim(), points[:, 0]), (axes.get_ylim(), points[:, 1])):
        assert low < side.min() and high > side.max()


def pixel(image: AxesImage, place: tuple[float, float] | np.ndarray) -> np.ndarray:
    """The colour of an image at a position in data units."""
    left, right, bottom, top = image.get_extent()
    rows, columns = image.get_array().shape[:2]
    column, row = (place[0] - left) / (right - left) * columns, (place[1] - bottom) / (top - bottom) * rows
    return np.asarray(image.get_array())[int(row), int(column)]


def test_values_are_coloured_from_dark_to_light_and_outliers_are_announced() -> None:
    """A row of increasing values: the lowest is dark, the highest light, and both stand out from the panel."""
    values = np.arange(1000.0)
    values[0], values[-1] = -1e6, 1e6
    figure = new_figure(3, 3)
    panel = PointsPanel(figure.add_subplot(), 3, 3)
    colours, extend, limits = draw_values(panel, np.stack([values, values], axis=1), values)
    assert (extend, limits) == ("both", "1st to 99th percentile")
    assert 9 < colours.norm.vmin < 11 and 988 < colours.norm.vmax < 990
    (drawn,) = panel.axes.collections
    light = drawn.get_facecolors()[:, :3].mean(axis=1)
    assert light[0] < light[500] < light[-1] and (drawn.get_facecolors()[:, 3] == 1).all()
    ground = np.array(panel.axes.get_facecolor()[:3])
    assert (np.abs(drawn.get_facecolors()[:, :3] - ground).max(axis=1) > 0.2).all()
    _, *rare = draw_values(panel, np.stack([values, values], axis=1), (values > 998).astype(float))
    assert rare == ["neither", "lowest to highest"]


def test_long_names_are_wrapped_and_clusters_and_categories_look_different() -> None:
    name = "_".join(["policy"] * 40) + "$"
    lines = title(name, "what it is", 30).split("\n")
    assert all(len(line) <= 31 for line in lines) and lines[-1] == "what it is"
    assert "".join(lines[:-1]) == name.replace("$", r"\$") and all(line.endswith("_") for line in lines[:-2])
    assert title("a_name", "short text", 30) == "a_name\nshort text"
    assert len({(cluster_colour(cluster), cluster_marker(cluster)) for cluster in range(80)}) == 80
    assert len({category_colour(place) for place in range(len(CATEGORIES))}) == len(CATEGORIES)
    # By their distance in CIELAB, where 2.3 is the smallest difference that most people see.
    lab = [_lab(cluster_colour(cluster)) for cluster in range(24)]
    apart = [np.linalg.norm(one - other) for one, other in itertools.combinations([*lab, _lab(NOISE_COLOUR)], 2)]
    assert min(apart) > 10


@pytest.mark.parametrize("values", [np.zeros(9_000), np.arange(9_000) % 2, np.r_[np.zeros(8_999), 1e9]])
@pytest.mark.parametrize("inches", [1, 9])
def test_points_of_few_or_wild_values_are_all_drawn(values: np.ndarray, inches: int) -> None:
    figure, points = new_figure(3, 3), np.stack([values, np.zeros(9_000)], axis=1)
    axes = figure.add_subplot()
    draw_clusters(PointsPanel(axes, inches, inches), points, np.arange(9_000) % 3 - 1)
    texts(figure)
    left, right = axes.get_xlim()
    assert left < values.min() and values.max() < right
    if inches == 1:  # crowded: a cell for each place
        filled = np.asarray(axes.images[0].get_array())[..., 3] > 0
        assert filled.sum() == len(np.unique(values)) and not axes.collections
    else:
        offsets = [np.asarray(markers.get_offsets()) for markers in axes.collections]
        assert sorted(np.concatenate(offsets)[:, 0]) == sorted(values)


@pytest.mark.slow
def test_all_features_can_be_drawn_and_read() -> None:
    """A hundred quantities are drawn in several bands and panels, each with its own name."""
    quantities = [feature for feature in EXTENDED_FEATURES if not feature.choice]
    labels, lives = largest_first(PLANTED.behaviour), lives_of(PLANTED.records)
    metadata = dataclasses.replace(PLANTED.metadata, environment={"map_size": 64})
    features = feature_matrix(PLANTED.records, metadata, quantities)
    summary = planted_summary(dataclasses.replace(PLANTED, metadata=metadata), labels, EXTENDED_FEATURES)
    names = [feature.name for feature in quantities]
    figure = cluster_features(summary.clusters, HEADING)
    written = texts(figure)
    assert [text for text in written if text in names] == names
    assert sum(text.startswith("cluster ") for text in written) == 4 * len(summary.clusters)
    assert figure.get_figwidth() < 20
    panels = metric_scatter(plane(labels), rolling_mean(features, lives), 5, HEADING, quantities).axes
    assert [axes.get_title() for axes in panels if axes.get_title()] == names


def _lab(colour: str) -> np.ndarray:
    """CIELAB coordinates of a colour in sRGB, for the white point D65 (CIE 15:2004), (3,)."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]] @ linear
    x, y, z = np.cbrt(xyz / [0.9505, 1, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def planted(folder: Path, policies: int, modes: tuple[str, ...], original: bool = False) -> list[PolicyScores]:
    rng = np.random.default_rng(0)
    names = [LONG, *(f"policy {number}" for number in range(1, policies))]
    skills = {name: 0.0 if number else 0.9 for number, name in enumerate(names)}
    bootstrap = Bootstrap(resamples=100)
    runs = []
    for mode in modes:
        played = play(skills, 4, 63, rng, tasks_in_turn=True)
        file = write(folder, f"eval_{mode}_1.json", as_original(played) if original else played)
        runs += read_results(file)
    return [score(results, bootstrap) for results in gather(runs)]


@pytest.mark.parametrize("policies", [1, 2, 30])
@pytest.mark.parametrize("modes", [("pvp",), ("pvp", "pve")], ids=["one mode", "both modes"])
def test_score_summary(policies: int, modes: tuple[str, ...], tmp_path: Path) -> None:
    scores = planted(tmp_path, policies, modes)
    written = texts(score_summary(scores, 0.9))
    assert set(CATEGORIES) | {"mean", "median"} <= set(written)
    assert any("90% intervals" in text for text in written)
    assert [text.split(":")[0] for text in written if text[:4] in ("pvp:", "pve:")] == list(modes)
    values = [f"{item.weighted_score.value:.1f}" for item in scores]
    assert all(written.count(value) >= values.count(value) for value in values)
    assert written.count(LONG.replace("$", r"\$")) == len(modes)


def test_missing_intervals_are_told(tmp_path: Path) -> None:
    alone = planted(tmp_path, 2, ("pvp",), original=True)
    assert any("no intervals" in text for text in texts(score_summary(alone, 0.95)))
    mixed = alone + planted(tmp_path, 2, ("pve",))
    assert any("where one is missing" in text for text in texts(score_summary(mixed, 0.95)))


BEHAVIOURS, LAGS = 4, 5


@pytest.mark.parametrize(("components", "with_effects"), [(2, False), (16, True), (64, True), (64, False)])
def test_components_are_named_and_the_heading_is_whole(components: int, with_effects: bool) -> None:
    names = [f"ic_{number + 1}" for number in range(components)]
    jacobians = np.random.default_rng(2).normal(size=(40, LAGS, components, components))
    effects: Any = SimpleNamespace(jacobian_records=np.arange(40), jacobians=jacobians) if with_effects else None
    r = np.random.default_rng(1).uniform(-1, 1, (BEHAVIOURS, LAGS, components, components))
    behaviours = SimpleNamespace(label=np.arange(40) % BEHAVIOURS, count=BEHAVIOURS)
    motion: Any = SimpleNamespace(behaviours=behaviours, r=r, q=np.abs(r))
    shown = texts(correlations_and_jacobians(motion, effects, names, HEADING))
    assert names[0] in shown and names[1 if components < 20 else 4] in shown
    assert sum(name in names for name in set(shown)) <= 20 and "earlier" in shown and "later" in shown


def test_every_panel_of_fixed_points_has_numbers_on_both_axes() -> None:
    rng = np.random.default_rng(3)

    def held() -> Any:
        known = {"fixed": np.array([True, False]), "unstable": np.zeros(2, int)}
        return SimpleNamespace(state=rng.normal(size=(2, 2)), read=np.zeros(2), **known)

    axes_of = SimpleNamespace(read_outs=np.eye(2))
    states: Any = SimpleNamespace(
        decompositions={"pca": axes_of}, data=SimpleNamespace(layer="lstm_cell", heading=HEADING),
        scale=SimpleNamespace(z=lambda state: state),
    )  # fmt: skip
    tracks: Any = type("Tracks", (), {"state": rng.normal(size=(50, 2)), "__len__": lambda self: 50})()
    persisting: Any = SimpleNamespace(
        starts=rng.normal(size=(9, 2)), held={f"mean of behaviour {number}": held() for number in range(5)}
    )  # fmt: skip
    update: Any = type("Still", (), {"place": lambda self, layer: slice(None), "__call__": lambda self, s, _: s})()
    figure = flow(persisting, SimpleNamespace(tracks=tracks), states, update)
    texts(figure)
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert len(panels) == 5
    for axes in panels:
        for ticks in (axes.xaxis.get_major_ticks(), axes.yaxis.get_major_ticks()):
            assert any(tick.label1.get_visible() and tick.label1.get_text() for tick in ticks)
