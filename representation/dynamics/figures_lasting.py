"""Figures of how long things last: changes of components, observations, and the flow towards fixed points."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from analysis.figures.style import cluster_colour, new_figure, style, title
from representation.dynamics.followed_edits import KINDS, Compared
from representation.dynamics.lasting_stage import HeldInput, Persisting
from representation.dynamics.memory_use import means_over_lives
from representation.dynamics.results import Motion, States
from representation.dynamics.update import Update

_SHOWN_TICKS = 32
_CELLS = 16
_FAINTEST = 1e-9


def half_lives(found: Persisting, states: States) -> Figure:
    """Draw what is left of a change of each independent component, and their half-lives."""
    names = states.decompositions["ica"].names
    with style():
        figure = new_figure(11.0, 4.8)
        curves, bars = figure.subplots(1, 2, width_ratios=(1.2, 1))
        for number, each in enumerate(found.lasting):
            curves.plot(each.left[: _SHOWN_TICKS + 1], color=cluster_colour(number), linewidth=1)
        curves.axhline(0.5, color="#888888", linewidth=0.8, linestyle=":")
        curves.set(xlabel="ticks after the change", ylabel="share of the distance left", ylim=(0, None))
        values = [each.half_life for each in found.lasting]
        place = np.arange(len(values))
        middle = np.array([each.value for each in values])
        low, high = (np.array([getattr(each, name) for each in values]) for name in ("low", "high"))
        known = np.isfinite(middle) & np.isfinite(high)
        bars.errorbar(
            middle[known], place[known], xerr=[middle[known] - low[known], high[known] - middle[known]], fmt="o",
            color="#33475b", markersize=4, linewidth=1,
        )  # fmt: skip
        bars.set_yticks(place, names)
        bars.invert_yaxis()
        bars.set(xlabel="half-life (ticks)", xlim=(0, None))
        text = "What is left of a component raised by one standard deviation in one tick, inputs held as recorded"
        figure.suptitle(title(states.data.heading, text, 100))
    return figure


def memory_length_figure(found: Persisting, heading: str) -> Figure | None:
    """Draw how much an observation some ticks ago still matters; None if it was not measured."""
    length = found.length
    if length is None:
        return None
    with style():
        figure = new_figure(10.0, 4.6)
        panels = figure.subplots(1, 2)
        for axes, values, whole, text in (
            (panels[0], length.divergence, length.whole[:, 0], "KL of the actions (nats)"),
            (panels[1], length.value, length.whole[:, 1], "|change of the value|"),
        ):
            mean = np.maximum(values.mean(axis=0), _FAINTEST)
            low, high = np.quantile(means_over_lives(values, length.life), [0.025, 0.975], axis=0)
            axes.fill_between(
                length.ticks, np.maximum(low, _FAINTEST), np.maximum(high, _FAINTEST), alpha=0.25, color="#3f90da",
                linewidth=0,
            )  # fmt: skip
            axes.plot(length.ticks, mean, marker=".", color="#3f90da", label="one observation replaced")
            axes.axhline(whole.mean(), color="#bd1f01", linestyle="--", label="the whole memory replaced")
            axes.set(xscale="log", yscale="log", xlabel="ticks ago", ylabel=text)
            axes.set_xticks(length.ticks, [str(each) for each in length.ticks], fontsize=7)
            axes.minorticks_off()
            axes.legend(loc="lower left")
        text = "A decision once the observation that many ticks ago is replaced by another life's"
        figure.suptitle(title(heading, text, 90))
    return figure


def flow(found: Persisting, motion: Motion, states: States, update: Update) -> Figure:
    """Draw where the layer moves in one tick with held input, and the fixed points, in the plane of two components."""
    axes_of = states.decompositions["pca"].axes.read_outs[:2]
    own = update.place(states.data.layer)

    def plane(state: np.ndarray) -> np.ndarray:
        return states.scale.z(state[:, own]) @ axes_of.T

    columns = min(3, len(found.held))
    rows = -(-len(found.held) // columns)
    with style():
        figure = new_figure(4.2 * columns, 4.0 * rows + 0.8)
        panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
        recorded = plane(motion.tracks.state[:: max(1, len(motion.tracks) // 3000)])
        for axes, held in zip(panels, found.held, strict=False):
            axes.scatter(*recorded.T, s=1, c="#e3e6ea", linewidths=0)
            before, after = plane(held.starts), plane(held.after)
            moved = after - before
            axes.quiver(*before.T, *moved.T, angles="xy", scale_units="xy", scale=1, width=0.004, color="#33475b")
            _draw_points(axes, held, plane(held.points.state))
            axes.set_title(held.name)
        for axes in panels[len(found.held) :]:
            axes.set_visible(False)
        for axes in panels:
            axes.set(xlabel="pc_1", ylabel="pc_2")
        text = "Arrows: one tick with held input, from recorded states. Dot: stable point, ring: unstable, x: slow"
        figure.suptitle(title(states.data.heading, text, 110))
    return figure


def followed_edits(compared: Sequence[Compared], heading: str) -> Figure:
    """Draw what is left of the edits of interventions, as measured in the running game and as computed."""
    kinds = [kind for kind in KINDS if any(kind in each.computed for each in compared)]
    with style():
        figure = new_figure(5.2 * len(kinds), 4.4)
        for axes, kind in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
            for number, each in enumerate(compared):
                if kind not in each.computed or kind not in each.edit.left:
                    continue
                colour = cluster_colour(number)
                name = f"{each.edit.direction.name}, dose {each.edit.dose:+g}"
                axes.plot(each.computed[kind].left[: _SHOWN_TICKS + 1], color=colour, label=name)
                axes.plot(each.edit.left[kind][: _SHOWN_TICKS + 1], color=colour, linestyle="--")
            axes.axhline(0.5, color="#888888", linewidth=0.8, linestyle=":")
            axes.set(
                xlabel="ticks after the edit", ylabel=f"share of the distance of {kind} states left", ylim=(0, None)
            )
            axes.legend(loc="upper right")
        text = "Edits in a single tick: computed with inputs held (solid), measured in the running game (dashed)"
        figure.suptitle(title(heading, text, 100))
    return figure


def _draw_points(axes: object, held: HeldInput, where: np.ndarray) -> None:
    fixed, stable = held.points.fixed, held.points.unstable == 0
    for kept, look in (
        (fixed & stable, {"marker": "o", "c": "#bd1f01"}),
        (fixed & ~stable, {"marker": "o", "facecolors": "none", "edgecolors": "#bd1f01"}),
        (~fixed, {"marker": "x", "c": "#bd1f01"}),
    ):
        axes.scatter(*where[kept].T, s=45, zorder=3, **look)  # type: ignore[attr-defined]
