"""The training curves of a run as one picture, drawn only from its metrics.jsonl."""

import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter

from common.figure_settings import figure_settings, save_figure
from common.files import read_json_lines, write_bytes
from common.user_error import UserError

MOST_POINTS = 300
"""Maximum number of points; longer runs are drawn as means over consecutive updates."""
FEWEST_TO_SMOOTH = 30
"""Number of points from which a thick line shows the rolling mean, over a twentieth of them."""
MOST_EVENTS = 6
"""Number of kinds of events drawn, the most frequent ones."""

# Petroff 2021, "Accessible color sequences for data visualization", arXiv:2107.02270.
_COLOURS = matplotlib.color_sequences["petroff10"]
_DOTS_AN_INCH = 100
_INCHES_A_ROW, _HEADING_INCHES, _LEGEND_INCHES = 3.0, 1.0, 1.0
_GREY = "#c4c4c4"
_THIN, _FAINT = 0.8, 0.4
_LETTERS_IN_TITLE = 150
_CAUSES = ("starved", "dehydrated", "starved_and_dehydrated", "killed_by_player", "killed_by_npc")
_FOG = "fog"  # in worlds that have it
_PHASES = ("environment", "inference", "copying", "learning")
_TASK = {"lives/task_progress": "mean progress", "lives/task_completed": "share of lives that completed it"}
_STANDING = {
    "lives/level": "highest skill level", "lives/gold": "gold", "lives/players_killed": "players killed",
}  # fmt: skip
_RC = {
    "font.size": 9, "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25,
    "legend.fontsize": 8, "legend.frameon": False, "lines.linewidth": 1.5,
}  # fmt: skip


@dataclass(frozen=True)
class Curves:
    """The metrics of a run at U points of its training."""

    steps: np.ndarray  # agent-steps trained, (U,) float64
    values: dict[str, np.ndarray]  # name of a metric -> (U,) float64, NaN where it was not reported
    updates_a_point: int  # updates averaged in each point; 1 in a short run

    @property
    def window(self) -> int:
        """Window of the smoothed line in points; 1 in a run too short to smooth."""
        points = len(self.steps)
        return points // 20 // 2 * 2 + 3 if points >= FEWEST_TO_SMOOTH else 1

    def of(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return agent-steps and values where the metric was reported."""
        values = self.values.get(name, np.full(len(self.steps), np.nan))
        known = np.isfinite(values)
        return self.steps[known], values[known]


def draw_curves(metrics_file: Path, png: Path) -> None:
    """Draw a run's metrics so far, and write the picture atomically (UserError: they are missing or damaged)."""
    curves = read_curves(metrics_file)
    picture = io.BytesIO()
    save_figure(figure_of(curves, metrics_file.parent.name), picture, _DOTS_AN_INCH)
    write_bytes(png, picture.getvalue())


@figure_settings(_RC)
def figure_of(curves: Curves, name: str) -> Figure:
    """Draw all panels; `name` is the run's."""
    panels = _PANELS + (_CODEBOOK_PANELS if "semantic/perplexity" in curves.values else ())
    rows = len(panels) // 5
    height = _INCHES_A_ROW * rows + _HEADING_INCHES + _LEGEND_INCHES
    figure = Figure(figsize=(20, height), dpi=_DOTS_AN_INCH)
    # A layout that adapts to all labels would take two thirds of the time, and this is drawn with every checkpoint.
    grid = figure.subplots(rows, 5, gridspec_kw={
        "left": 0.045, "right": 0.905, "wspace": 0.3, "hspace": 0.4, "bottom": _LEGEND_INCHES / height,
        "top": 1 - _HEADING_INCHES / height,
    })  # fmt: skip
    for axes, (title, draw) in zip(grid.flat, panels, strict=True):
        axes.set_title(title)
        draw(axes, curves)
        if not axes.has_data():
            axes.set_yticks([])
            axes.text(0.5, 0.5, "nothing reported yet", transform=axes.transAxes, ha="center", color="grey")
        axes.set_xlim(0, 1.01 * curves.steps[-1])
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlabel("agent-steps")
    run = textwrap.fill(name, _LETTERS_IN_TITLE).replace("$", r"\$")
    figure.suptitle(f"{run}: {curves.steps[-1]:,.0f} agent-steps", fontsize=13)
    together, window = curves.updates_a_point, curves.window
    point = "one update" if together == 1 else f"mean of {together} updates"
    lines = [Line2D([], [], color="black", linewidth=_THIN, alpha=_FAINT if window > 1 else 1, label=point)]
    if window > 1:
        lines.append(Line2D([], [], color="black", label=f"rolling mean of {together * window} updates"))
    figure.legend(handles=lines, loc="lower center", ncols=2, fontsize=10)
    return figure


def read_curves(metrics_file: Path) -> Curves:
    """Read a run's metrics without a last line that was cut off (UserError: they are missing or damaged)."""
    updates = read_json_lines(metrics_file)
    if not updates:
        raise UserError(f"{metrics_file} holds no update yet")
    names = sorted({name for update in updates for name in update})
    try:
        table = np.array([[update.get(name, np.nan) for name in names] for update in updates], dtype=np.float64)
        steps = table[:, names.index("agent_steps")]
    except (TypeError, ValueError):
        raise UserError(f"{metrics_file} is damaged: a line holds no numbers, or none has agent_steps") from None
    together = -(-len(updates) // MOST_POINTS)
    starts = np.arange(0, len(updates), together)
    known = np.isfinite(table)
    count = np.add.reduceat(known, starts, axis=0, dtype=np.int64)  # (U, names)
    total = np.add.reduceat(np.where(known, table, 0), starts, axis=0)
    mean = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    last = np.append(starts[1:], len(updates)) - 1
    values = {name: mean[:, column] for column, name in enumerate(names)}
    return Curves(steps[last], values, together)


def _line(axes: Axes, curves: Curves, name: str, label: str | None = None, colour: int = 0, style: str = "-") -> None:
    steps, values = curves.of(name)
    if not len(steps):
        return
    if curves.window == 1:
        axes.plot(steps, values, style, color=_COLOURS[colour], label=label, marker="o", markersize=3)
        return
    axes.plot(steps, values, color=_COLOURS[colour], linewidth=_THIN, alpha=_FAINT)
    axes.plot(steps, rolling_mean(values, curves.window), style, color=_COLOURS[colour], label=label)


def rolling_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Return the mean of the `window` values around each, (U,); at the ends, of the values that exist."""
    window = min(window, 2 * len(values) - 1)
    ones = np.ones(window)
    reach = window // 2
    total = np.convolve(values, ones)[reach : reach + len(values)]
    return total / np.convolve(np.ones(len(values)), ones)[reach : reach + len(values)]


def _legend(axes: Axes, at_side: bool = False) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if handles and at_side:  # in the order in which shares are stacked
        axes.legend(handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=1)
    elif handles:
        axes.legend(loc="best")


def _single(name: str, unit: str, from_zero: bool = False) -> Callable[[Axes, Curves], None]:

    def draw(axes: Axes, curves: Curves) -> None:
        _line(axes, curves, name)
        axes.set_ylabel(unit)
        if from_zero:
            axes.set_ylim(bottom=0)

    return draw


def _shares(axes: Axes, curves: Curves, prefix: str, parts: Sequence[str], unit: str, rest: str | None = None) -> None:
    """Stack shares, each of which applies to the agent-steps since the previous point."""
    known = np.isfinite([curves.values.get(prefix + part, np.full(len(curves.steps), np.nan)) for part in parts])
    reported = known.all(axis=0)
    if reported.any():
        shares = np.array([curves.values[prefix + part][reported] for part in parts])  # (parts, U)
        colours = [_COLOURS[number] for number in range(len(parts))]
        labels = [part.replace("_", " ").replace("npc", "NPC") for part in parts]
        if rest:
            shares = np.vstack([shares, np.clip(1 - shares.sum(axis=0), 0, None)])
            colours, labels = [*colours, _GREY], [*labels, rest]
        steps = curves.steps[reported]
        from_start = np.append(0.0, steps), np.hstack([shares[:, :1], shares])
        axes.stackplot(*from_start, labels=labels, colors=colours, step="pre")
        _legend(axes, at_side=True)
    axes.set_ylabel(unit)
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1))


def _deaths(axes: Axes, curves: Curves) -> None:
    causes, of_fog = list(_CAUSES), curves.values.get(f"death/{_FOG}")
    if of_fog is not None:  # earlier runs reported it only where any agent died of it
        causes.append(_FOG)
        never = np.isnan(of_fog) & np.isfinite(curves.values[f"death/{causes[0]}"])
        curves = replace(curves, values={**curves.values, f"death/{_FOG}": np.where(never, 0.0, of_fog)})
    _shares(axes, curves, "death/", causes, "share of deaths")


def _lines(
    axes: Axes, curves: Curves, names: Mapping[str, str], unit: str, styles: Sequence[str] = ("-", "--")
) -> None:
    """Draw several metrics, name -> label in the legend."""
    for number, (name, style) in enumerate(zip(names, styles, strict=True)):
        _line(axes, curves, name, names[name], number, style)
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0)
    _legend(axes)


def _life_length(axes: Axes, curves: Curves) -> None:
    steps, lower = curves.of("lives/ticks_lower_quartile")
    _, upper = curves.of("lives/ticks_upper_quartile")
    if len(steps):
        axes.fill_between(steps, lower, upper, color=_COLOURS[0], alpha=0.2, linewidth=0, label="middle half of lives")
    _lines(axes, curves, {"lives/ticks_median": "median", "lives/ticks": "mean"}, "ticks")


def _events(axes: Axes, curves: Curves) -> None:
    kinds = [name for name in curves.values if name.startswith("events/") and np.nanmax(curves.of(name)[1]) > 0]
    kinds.sort(key=lambda name: -float(np.mean(curves.of(name)[1])))
    for number, name in reversed(list(enumerate(kinds[:MOST_EVENTS]))):  # the legend's order is reversed
        _line(axes, curves, name, name.removeprefix("events/").replace("_", " ").lower(), colour=number)
    axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("a life, mean (linear below 1)")
    _legend(axes, at_side=True)


def _change(axes: Axes, curves: Curves) -> None:
    _line(axes, curves, "loss/approximate_kl", "KL divergence (nats)")
    _line(axes, curves, "loss/clip_fraction", "share of decisions clipped", colour=1, style="--")
    if any((curves.of(name)[1] > 0).any() for name in ("loss/approximate_kl", "loss/clip_fraction")):
        axes.set_yscale("log", nonpositive="mask")  # not if nothing changed: zero has no logarithm
    axes.set_ylabel("an update")
    _legend(axes)


# Three rows of five; the last column holds panels with a legend at the side.
_PANELS: tuple[tuple[str, Callable[[Axes, Curves], None]], ...] = (
    ("Life length", _life_length),
    ("Reward", _single("lives/total_reward", "sum over a life, mean")),
    ("Task", partial(_lines, names=_TASK, unit="share")),
    ("Standing", partial(_lines, names=_STANDING, unit="at the end of a life, mean", styles=("-", "-", "-"))),
    ("Causes of death", _deaths),
    ("Policy loss", _single("loss/policy", "clipped surrogate, negated")),
    ("Value loss", _single("loss/value", "half the squared error", from_zero=True)),
    ("Entropy", _single("loss/entropy", "nats, all heads together")),
    ("Explained variance", _single("loss/explained_variance", "of the returns, 1 is all")),
    ("Events", _events),
    ("Change of the policy", _change),
    ("Gradient norm", _single("loss/gradient_norm", "before clipping", from_zero=True)),
    ("Learning rate", _single("learning_rate", "of the optimizer", from_zero=True)),
    ("Speed", _single("agent_steps_per_second", "agent-steps/s", from_zero=True)),
    ("Where the time goes", partial(_shares, prefix="time/", parts=_PHASES, unit="share of time", rest="other")),
)

_CODEBOOK_PANELS: tuple[tuple[str, Callable[[Axes, Curves], None]], ...] = (
    ("Codes in use", _single("semantic/perplexity", "perplexity", from_zero=True)),
    ("Pairwise loss", _single("loss/semantic_pairwise", "before its weight")),
    ("Quantisation loss", _single("loss/semantic_quantisation", "before its weight", from_zero=True)),
    ("Weight of the semantic losses", _single("semantic/weight", "0 to 1", from_zero=True)),
    ("Restarted codes", _single("semantic/restarted_codes", "an update", from_zero=True)),
)
