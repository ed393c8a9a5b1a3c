"""Figures of a run of sparse autoencoders."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from analysis.figures.style import cluster_colour, new_figure, style
from analysis.sparse.attribution import Attributions
from analysis.sparse.report import ScoreRow
from analysis.sparse.stability import Stability
from analysis.sparse.training import Epoch

_ROW = 0.27
_BINS = np.linspace(-6, 0, 49)


def training_curves(curves: Mapping[str, Sequence[Epoch]]) -> Figure:
    """Draw what each autoencoder left unexplained, and its dead features, against states seen."""
    with style():
        figure = new_figure(9, 3.6)
        left, right = figure.subplots(1, 2)
        for number, (name, epochs) in enumerate(curves.items()):
            seen = [epoch.states for epoch in epochs]
            look = {"color": cluster_colour(number), "marker": "o", "markersize": 3, "linewidth": 1}
            left.plot(seen, [epoch.unexplained for epoch in epochs], label=name, **look)
            right.plot(seen, [epoch.dead for epoch in epochs], label=name, **look)
        left.set(yscale="log", xlabel="states seen in training", ylabel="share of the variance not explained")
        right.set(xlabel="states seen in training", ylabel="dead features")
        right.set_ylim(bottom=0)
        left.set_title("Reconstruction of training states")
        right.set_title("Features not active for long")
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
        return figure


def density_histogram(densities: Mapping[str, np.ndarray]) -> Figure:
    """Draw how many features of each autoencoder are active how often."""
    with style():
        figure = new_figure(7, 1.2 + 1.3 * len(densities))
        panels = figure.subplots(len(densities), 1, sharex=True, squeeze=False)[:, 0]
        for number, (panel, (name, density)) in enumerate(zip(panels, densities.items(), strict=True)):
            alive = density[density > 0]
            panel.hist(np.log10(alive), bins=list(_BINS), color=cluster_colour(number))
            panel.set_title(f"{name}: {len(alive):,} of {len(density):,} features are ever active", loc="left")
            panel.set_ylabel("features")
        panels[-1].set_xlabel("share of the test states in which a feature is active")
        panels[-1].set_xticks(range(-6, 1), [f"$10^{{{power}}}$" for power in range(-6, 1)])
        return figure


def scores(rows: Sequence[ScoreRow]) -> Figure:
    """Draw what every dictionary leaves unexplained, and what splicing it in changes, with 95% intervals."""
    spliced = any(math.isfinite(row.kl) for row in rows)
    panels = [("unexplained", "share of the variance not explained")]
    panels += [("kl", "KL of the actions, nats"), ("value", "difference of the value")] if spliced else []
    with style():
        figure = new_figure(4.2 + 2.6 * len(panels), 1.2 + _ROW * len(rows))
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        kinds = list(dict.fromkeys(row.kind for row in rows))
        for axis, (name, label) in zip(axes, panels, strict=True):
            for place, row in enumerate(rows):
                value = getattr(row, name)
                if not math.isfinite(value):
                    continue
                ends = [getattr(row, f"{name}_{end}") for end in ("low", "high")]
                colour = cluster_colour(kinds.index(row.kind))
                axis.plot(value, place, "o", color=colour, markersize=5)
                axis.plot(ends, [place, place], color=colour, linewidth=1.5)
            axis.set(xscale="log", xlabel=label)
            axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axis.xaxis.set_minor_formatter(NullFormatter())
            axis.grid(axis="x", alpha=0.3)
        axes[0].set_yticks(range(len(rows)), [row.name for row in rows])
        axes[0].set_ylim(len(rows) - 0.5, -0.5)
        figure.suptitle("Reconstruction of states that no dictionary was fitted to")
        return figure


def stability_histogram(stabilities: Mapping[str, Stability]) -> Figure:
    """Draw the cosines of features with their partners in another seed's autoencoder, and those on a Gaussian."""
    bins = list(np.linspace(-0.2, 1, 61))
    with style():
        figure = new_figure(7, 1.2 + 1.5 * len(stabilities))
        panels = figure.subplots(len(stabilities), 1, sharex=True, squeeze=False)[:, 0]
        for number, (panel, (name, stability)) in enumerate(zip(panels, stabilities.items(), strict=True)):
            panel.hist(stability.cosine, bins=bins, color=cluster_colour(number), label="these states")
            panel.hist(stability.floor, bins=bins, histtype="step", color="black", label="a Gaussian like them")
            panel.set_title(f"{name}: {stability.stable:.0%} above the Gaussian", loc="left")
            panel.legend(loc="upper left")
            panel.set_ylabel("features")
        panels[-1].set_xlabel("cosine with the partner in the autoencoder with another seed")
        return figure


def attribution_scatter(attributions: Attributions) -> Figure:
    """Draw measured against predicted changes for every feature taken out of a recorded tick."""
    with style():
        figure = new_figure(8, 4)
        labels = ("value", "log-probability of the action, nats")
        for output, (axis, label) in enumerate(zip(figure.subplots(1, 2), labels, strict=True)):
            predicted, measured = attributions.predicted[output], attributions.measured[output]
            estimate = attributions.correlation(output)
            axis.scatter(predicted, measured, s=4, alpha=0.4, color=cluster_colour(output), linewidths=0)
            ends = [min(predicted.min(), measured.min()), max(predicted.max(), measured.max())]
            axis.plot(ends, ends, color="#888888", linewidth=0.8)
            axis.set(xlabel="predicted: gradient times activation", ylabel="measured")
            axis.set_title(f"{label}\nr {estimate.value:.3f} ({estimate.low:.3f} to {estimate.high:.3f})")
        return figure
