"""Forest plots of a study: one number in every training, its mean over them, and that of a control."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.style import cluster_colour, new_figure, style, wrapped
from analysis.findings.results import Results, number, number_or_nan
from analysis.findings.study_file import Forest, Study, TableRow

_CONTROL = "#8a8f98"
_INCHES_A_LINE, _INCHES_AROUND, _WIDTH = 0.2, 1.3, 8.0
_LETTERS = 95


Line = tuple[str, list[float], dict[str, object]]
"""A row of the plot: its label, a value and the ends of its interval, NaN if there is none, and how they look."""


def draw_forest(forest: Forest, study: Study, results: Results) -> Figure:
    """Draw each group's trainings with intervals over episodes, and means over them with intervals over trainings.

    Raises:
        UserError: a number is missing.
    """
    groups = {
        name: _lines(forest, pattern, study, results, cluster_colour(place))
        for place, (name, pattern) in enumerate(forest.groups.items())
    }
    count = sum(map(len, groups.values())) + len(groups)
    with style():
        figure = new_figure(_WIDTH, _INCHES_AROUND + _INCHES_A_LINE * count)
        axes = figure.subplots()
        _draw(axes, list(groups.values()))
        axes.axvline(0, color="#33475b", linewidth=0.8, zorder=0)
        axes.set_xlabel(wrapped(forest.axis, _LETTERS))
        figure.suptitle(wrapped(forest.title, _LETTERS))
    return figure


def _lines(forest: Forest, pattern: str, study: Study, results: Results, colour: str) -> list[Line]:
    """Return the rows of a group: trainings, their mean, and the mean of the control."""
    dots: dict[str, object] = {"color": colour, "fmt": "o", "markersize": 4, "linewidth": 1}
    diamonds: dict[str, object] = {"color": colour, "fmt": "D", "markersize": 6, "linewidth": 2}
    stages = [stage.name for stage in study.named(pattern)]
    own = [results.values(TableRow(stage, forest.file, forest.where)) for stage in stages]
    lines: list[Line] = [
        (_policy(stage), [number(values, "value"), *(number_or_nan(values, end) for end in ("low", "high"))], dots)
        for stage, values in zip(stages, own, strict=True)
    ]
    labels = {"value": "mean of the trainings"}
    if forest.control:
        labels[forest.control] = f"control: {forest.control.removesuffix('_value').replace('_', ' ')}"
    over = results.values(TableRow(pattern, forest.file, forest.where), list(labels))
    for column, label in labels.items():
        look = diamonds if column == "value" else {**diamonds, "color": _CONTROL}
        ends = [number_or_nan(over, f"{column}.{end}") for end in ("low", "high")]
        lines.append((label, [number(over, f"{column}.mean"), *ends], look))
    return lines


def _policy(stage: str) -> str:
    """Return a stage's name without what comes before the policy's: clear_masked_s2 to masked_s2."""
    return stage.partition("_")[2] or stage


def _draw(axes: Axes, groups: list[list[Line]]) -> None:
    """Draw groups of rows from the top, with a gap between them."""
    place, places, labels = 0, [], []
    for lines in groups:
        for label, (value, low, high), look in lines:
            reach = np.array([[value - low], [high - value]])
            axes.errorbar([value], [place], xerr=reach, **look)  # type: ignore[arg-type]
            places.append(place)
            labels.append(label)
            place += 1
        place += 1
    axes.set_yticks(places, labels)
    axes.set_ylim(place - 1, -1)
