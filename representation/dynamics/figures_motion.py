"""Figures of consecutive states: trajectories, correlations beside Jacobians, and spectra."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.style import EFFECT_MAP, NOISE_COLOUR, cluster_colour, new_figure, style, title
from representation.dynamics.agreement import mean_jacobians
from representation.dynamics.jacobians import time_constants
from representation.dynamics.results import LEVEL, Effects, Motion, States

_LIVES_SHOWN, _TICKS_SHOWN, _BEHAVIOURS_SHOWN = 6, 100, 3
_LAGS = (1, 4)


def trajectories(motion: Motion, states: States) -> Figure:
    """Draw the end of the longest lives in the plane of the first two principal components, coloured by behaviour."""
    axes_of = states.decompositions["pca"].axes.read_outs[:2]
    points = states.scale.z(motion.tracks.layer) @ axes_of.T
    lives = motion.tracks.lives
    label = motion.behaviours.label
    longest = np.argsort(-lives.lengths, kind="stable")[:_LIVES_SHOWN]
    with style():
        figure = new_figure(11.0, 7.6)
        panels = figure.subplots(2, 3, sharex=True, sharey=True).ravel()
        for axes, life in zip(panels, longest, strict=False):
            end = lives.starts[life] + lives.lengths[life]
            own = lives.order[max(lives.starts[life], end - _TICKS_SHOWN) : end]
            axes.scatter(*points[:: max(1, len(points) // 4000)].T, s=1, c="#e3e6ea", linewidths=0)
            axes.plot(*points[own].T, color="#9aa4af", linewidth=0.5)
            colours = [cluster_colour(each) if each >= 0 else NOISE_COLOUR for each in label[own]]
            axes.scatter(*points[own].T, s=5, c=colours, linewidths=0, zorder=2)
            axes.plot(*points[own[0]], marker="o", color="black", markersize=5, fillstyle="none")
            axes.plot(*points[own[-1]], marker="x", color="black", markersize=6)
            records = motion.tracks.records
            axes.set_title(f"agent {records.agent_id[own[0]]}, episode {records.episode[own[0]]}")
        for axes in panels[3:]:
            axes.set_xlabel("pc_1")
        for axes in panels[::3]:
            axes.set_ylabel("pc_2")
        text = f"The last {_TICKS_SHOWN} ticks of the longest lives, from o to x, coloured by behaviour"
        figure.suptitle(title(states.data.heading, text, 100))
    return figure


def correlations_and_jacobians(motion: Motion, effects: Effects | None, heading: str) -> Figure:
    """Draw lagged correlations, beside mean Jacobians if there are any, for the largest behaviours."""
    means = None
    if effects is not None:
        label = motion.behaviours.label[effects.jacobian_records]
        means = mean_jacobians(effects.jacobians, label, motion.behaviours.count)
    shown = range(min(_BEHAVIOURS_SHOWN, motion.behaviours.count))
    lags = [lag for lag in _LAGS if lag < motion.correlations.r.shape[1]]
    beside = 1 if means is None else 2
    with style():
        figure = new_figure(3.1 * beside * len(lags) + 1, 3.1 * len(shown) + 1)
        panels = figure.subplots(len(shown), beside * len(lags), squeeze=False)
        for row, number in enumerate(shown):
            for column, lag in enumerate(lags):
                left = panels[row, beside * column]
                r, q = motion.correlations.r[number, lag], motion.correlations.q[number, lag]
                image = left.imshow(r, cmap=EFFECT_MAP, vmin=-1, vmax=1)
                left.scatter(*np.nonzero(q < LEVEL)[::-1], s=2, c="black", linewidths=0)
                left.set_title(f"behaviour {number}, lag {lag}: correlation", fontsize=8)
                figure.colorbar(image, ax=left, shrink=0.7)
                if means is not None:
                    _draw_mean(panels[row, beside * column + 1], means[number, lag])
        for axes in panels.ravel():
            axes.set(xticks=[], yticks=[])
        panels[-1, 0].set(xlabel="independent component, earlier", ylabel="later")
        text = "Correlation of later with earlier components (a dot: q < 0.05)"
        text += "" if means is None else ", and how the later ones would change"
        figure.suptitle(title(heading, text, 100))
    return figure


def _draw_mean(axes: Axes, mean: np.ndarray) -> None:
    far = float(np.nanmax(np.abs(mean))) if np.isfinite(mean).any() else 1.0
    image = axes.imshow(mean, cmap=EFFECT_MAP, vmin=-far, vmax=far)
    axes.set_title("mean Jacobian", fontsize=8)
    axes.figure.colorbar(image, ax=axes, shrink=0.7)


def agreement(effects: Effects, heading: str) -> Figure:
    """Draw how often both have the same sign, by lag, one line for each behaviour."""
    with style():
        figure = new_figure(8.0, 5.0)
        axes = figure.subplots()
        for number in sorted({row.behaviour for row in effects.agreement}):
            rows = [row for row in effects.agreement if row.behaviour == number]
            lag = [row.lag for row in rows]
            axes.plot(lag, [row.share for row in rows], color=cluster_colour(number), linewidth=1, marker=".")
        lags = sorted({row.lag for row in effects.agreement})
        for name, dashes, colour in (
            ("shuffled_behaviours", "--", "#333333"), ("shuffled_components", ":", "#333333"),
        ):  # fmt: skip
            means = [np.nanmean([getattr(row, name) for row in effects.agreement if row.lag == lag]) for lag in lags]
            told = {"shuffled_behaviours": "behaviours dealt at random", "shuffled_components": "components renamed"}
            axes.plot(lags, means, dashes, color=colour, label=told[name])
        axes.set(xlabel="lag (ticks)", ylabel="share of pairs with the same sign", ylim=(0, 1))
        axes.axhline(0.5, color="#dddddd", linewidth=0.8, zorder=0)
        axes.legend(loc="lower left")
        text = "Signs of lagged correlations and of Jacobians, one line for each behaviour"
        figure.suptitle(title(heading, text, 80))
    return figure


def spectrum(effects: Effects, heading: str) -> Figure:
    """Draw the eigenvalues of the one-tick Jacobian, and the time constants of the largest ones."""
    values = effects.eigenvalues
    with style():
        figure = new_figure(11.0, 5.2)
        plane, slow = figure.subplots(1, 2)
        around = np.linspace(0, 2 * np.pi, 200)
        plane.plot(np.cos(around), np.sin(around), color="#888888", linewidth=0.8)
        flat = values.ravel()
        plane.scatter(flat.real, flat.imag, s=2, alpha=0.15, linewidths=0, color="#33475b")
        marks = [mode.eigenvalue for mode in effects.modes]
        plane.scatter(np.real(marks), np.imag(marks), s=28, facecolors="none", edgecolors="#bd1f01",
                      label="modes of the layer's mean Jacobian")  # fmt: skip
        plane.set(xlabel="real part", ylabel="imaginary part", aspect="equal")
        plane.legend(loc="lower left")
        rank = np.arange(1, min(30, values.shape[1]) + 1)
        constants = time_constants(np.abs(values[:, : len(rank)]))
        low, middle, high = np.quantile(np.where(np.isfinite(constants), constants, 1e6), [0.1, 0.5, 0.9], axis=0)
        slow.fill_between(rank, low, high, color="#3f90da", alpha=0.25, linewidth=0, label="10% to 90% of states")
        slow.plot(rank, middle, color="#3f90da", label="median")
        slow.set(xlabel="rank of the eigenvalue", ylabel="time constant (ticks)", yscale="log")
        slow.set_ylim(top=min(float(high.max()) * 1.3, 1e4))
        slow.legend(loc="upper right")
        text = f"Eigenvalues of the memory's one-tick Jacobian at {len(values)} states, and their time constants"
        figure.suptitle(title(heading, text, 100))
    return figure
