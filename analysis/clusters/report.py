"""One self-contained page that reports a run's results: verdict, figures, tables, and how to reproduce them."""

import math
import shlex
from pathlib import Path
from typing import Any

from analysis.clusters.summary import SAME_CLUSTER
from analysis.clusters.summary_text import format_interval, format_p, format_share
from analysis.figures.style import cluster_colour
from analysis.pages.pages import environment, picture, style_of
from analysis.runs.run_folder import RUN_FILE
from common.files import read_json, visible
from common.number_text import format_number

_PLANES = {
    "umap": "UMAP",
    "tsne": "t-SNE",
    "pca": "two principal components",
    "semantic": "a linear map fitted along with the codes",
}
_DISTANCES = {
    "umap": "It keeps neighbourhoods, not distances or densities: gaps and areas mean little.",
    "tsne": "It keeps neighbourhoods, not distances or densities: gaps, sizes and areas of islands mean little.",
    "semantic": "It is a linear map of the state, so straight lines stay straight; what it leaves out is not visible.",
    "pca": "It keeps distances as far as two components do: the rest of the variance is not visible.",
}
SUMMARY_FILE = "summary.json"
EXPLORER_FILE = "explorer.html"
TREE_FILE = "dendrogram_explorer.html"
_POSITIONAL = "dump"
_OUTPUT = "output_dir"
_RESULTS = Path("analysis_results")
_ANEW = Path("analysis_results_again")
"""A folder can hold only one run, so the command that repeats a run writes to another folder."""


Caption = tuple[str, str, str]
"""A figure's title, its description for readers who cannot see it, and how to read it."""


def _of_plane(kind: str) -> dict[str, Caption]:
    plane, distances = _PLANES[kind], _DISTANCES[kind]
    return {
        f"{kind}_scatter.png": (
            "The clusters",
            f"Scatter of all records kept in a plane made by {plane}, coloured by cluster; noise is grey.",
            f"Each point is the hidden state of one agent at one tick. {distances} After eight clusters the colours "
            "come again in darker and then in lighter shades, with another marker.",
        ),
        f"{kind}_metric_scatter.png": (
            "What agents were doing",
            f"The plane once per feature, coloured by the feature's mean around that time (plane made by {plane}).",
            "Yellow is high and dark blue is low. A feature that characterises a cluster should change where the "
            "cluster ends; one that changes smoothly across the whole plane does not characterise any cluster.",
        ),
    }


CAPTIONS: dict[str, Caption] = {
    **_of_plane("umap"),
    **_of_plane("tsne"),
    **_of_plane("pca"),
    **_of_plane("semantic"),
    "cluster_features.png": (
        "How clusters differ",
        "Heat map of Cohen's d, one row per cluster and one column per feature.",
        "Blue is lower and red is higher than in random windows of lives, in standard deviations of records. Size is "
        "not certainty: the tables below show which differences survive correction.",
    ),
    "cluster_choices.png": (
        "What agents choose, and where things are",
        "Heat map of the share of each option, one row per cluster and one column per option of a categorical feature.",
        "Numbers are percentages of a cluster's records; colours are differences from the first row, all records. "
        "Frames mark what survives correction given tick and age: without one, a large difference of a small cluster "
        "may be chance.",
    ),
    "pca_pairs.png": (
        "Principal components",
        "Scatters of the first principal components of the activations, in pairs, coloured by cluster.",
        "Clusters that overlap in every pair differ in later components, or not along straight lines at all.",
    ),
    "pca_feature_correlations.png": (
        "Components and features",
        "Pearson's r of each principal component with each feature, and bars of the features' R² from all of them.",
        "R² is cross-validated over whole lives: 0 is no better than the mean. Records of a life resemble each other, "
        "so a single r says little about how sure it is.",
    ),
    "pca_feature_profiles.png": (
        "Features along components",
        "Scatter and binned means of each feature along the three components that it correlates with most.",
        "A line that rises and falls again is a relation that r misses.",
    ),
    "pca_choices.png": (
        "Components and choices",
        "Heat map of eta-square, the share of each principal component's variance that lies between the options.",
        "A dot marks what survives correction given tick and age.",
    ),
    "feature_scatter.png": (
        "Features in pairs",
        "Scatters of every pair of features, coloured by cluster.",
        "If two features are correlated, a cluster that differs in one will also differ in the other.",
    ),
    "umap_pairs.png": (
        "UMAP in more dimensions",
        "Scatters of consecutive dimensions of an embedding in more than two dimensions, coloured by cluster.",
        "Clusters that form one island in every panel are not artefacts of the projection onto a plane.",
    ),
}
"""Captions by file name, in the order of the report."""


_HERE = Path(__file__).parent


def report_html(folder: Path) -> str:
    """Return the report of a run as HTML, from its run.json, summary.json and figures alone.

    Raises:
        UserError: one of the files cannot be read.
    """
    pages = environment(_HERE, trim=True)
    pages.filters |= {
        "number": lambda value: format_number(_nan_if_none(value)),
        "signed": lambda value: format_number(_nan_if_none(value), sign=True),
        "p": lambda value: format_p(_nan_if_none(value)),
        "share": lambda value: format_share(_nan_if_none(value)),
        "short": lambda value: "n/a" if value is None else f"{value:g}",
        "count": lambda value: f"{value:,}",
        "colour": cluster_colour,
        "by_size": lambda effects: sorted(effects, key=lambda effect: -abs(effect["d_complement"] or 0)),
    }
    run: Any = read_json(folder / RUN_FILE)
    return pages.get_template("report.html").render(
        name=folder.resolve().name,
        run=run,
        summary=read_json(folder / SUMMARY_FILE),
        figures=_figures(folder),
        tree=TREE_FILE if (folder / TREE_FILE).exists() else None,
        explorer=EXPLORER_FILE,
        explorer_is_there=(folder / EXPLORER_FILE).exists(),
        explore_command=shlex.join(["python", "explore.py", str(_RESULTS / folder.name)]),
        command=command_of(run["arguments"], run.get("script", "analyze_activations.py")),
        not_repeated=_OUTPUT,
        same_cluster=SAME_CLUSTER,
        interval=lambda low, high: format_interval(_nan_if_none(low), _nan_if_none(high)),
        style=style_of("document"),
    )


def command_of(arguments: dict[str, Any], script: str = "analyze_activations.py") -> str:
    """Return the command line that repeats a run in another folder, ready for a shell.

    The run's location is left out, so that the same analysis gives the same page anywhere.
    """
    words = ["python", *script.split(), str(arguments.get(_POSITIONAL, ""))]
    for name, value in arguments.items():
        if name == _POSITIONAL or value is None or value is False or value == "":
            continue
        value = _ANEW if name == _OUTPUT else value
        words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return shlex.join(words)


def _nan_if_none(value: float | None) -> float:
    return math.nan if value is None else value


def _figures(folder: Path) -> list[dict[str, Any]]:
    order = list(CAPTIONS)
    names = [path.name for path in visible(folder, "*.png")]
    names.sort(key=lambda name: (order.index(name) if name in order else len(order), name))
    captions = (CAPTIONS.get(name, (name, f"Figure {name}.", "")) for name in names)
    return [
        {"name": name, "title": title, "shows": shows, "reading": reading, "uri": picture(folder / name)}
        for name, (title, shows, reading) in zip(names, captions, strict=True)
    ]
