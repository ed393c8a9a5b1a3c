"""Figures of an analysis of dynamics: single states, consecutive states, and how long things last."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.dynamics.decompositions import TITLES
from analysis.dynamics.fixed_points import FixedPoints, time_constants
from analysis.dynamics.jacobians import mean_jacobians
from analysis.dynamics.memory_length import interval_over_lives
from analysis.dynamics.perturbations import KINDS, FollowedEdit
from analysis.dynamics.stages import Effects, Motion, Persisting, StudiedStates
from analysis.dynamics.tracks import Update, tensor
from analysis.figures.points import PointsPanel, add_cluster_legend, draw_clusters
from analysis.figures.style import EFFECT_MAP, NOISE_COLOUR, cluster_colour, headed, new_figure, style, title
from analysis.labels import NOISE
from analysis.statistics.inference import LEVEL
from analysis.statistics.resampling import as_columns

_CELL = 0.24
_LIVES_SHOWN, _TICKS_SHOWN, _BEHAVIOURS_SHOWN = 6, 100, 3
_LAGS = (1, 4)
_MOST_NAMES = 20
"""Of components along an axis."""
_SHOWN_TICKS = 32
_FAINTEST = 1e-9


def components_and_features(states: StudiedStates) -> Figure:
    """Draw the correlation of every component with every feature; a dot marks q < 0.05."""
    names = [feature.name for feature in states.data.features]
    kinds = list(states.decompositions)
    rows = sum(len(states.decompositions[kind].names) for kind in kinds)
    with style():
        figure = new_figure(max(7.0, _CELL * len(names) + 4.5), _CELL * rows + 3.6)
        panels = figure.subplots(len(kinds), 1, sharex=True, squeeze=False)[:, 0]
        image = None
        for axes, kind in zip(panels, kinds, strict=True):
            decomposition, r = states.decompositions[kind], states.associations[kind]
            image = axes.imshow(r.r, cmap=EFFECT_MAP, vmin=-1, vmax=1, aspect="auto")
            sure_row, sure_column = np.nonzero(r.q < LEVEL)
            axes.scatter(sure_column, sure_row, s=4, c="black", linewidths=0)
            numbers = zip(
                decomposition.names, decomposition.explained, decomposition.stability, decomposition.stable, strict=True
            )
            labels = [
                f"{name}  {share:.0%}, {again:.2f}{'*' if stable else ''}" for name, share, again, stable in numbers
            ]
            axes.set_yticks(range(len(labels)), labels, fontsize=7)
            axes.set_ylabel(f"{TITLES[decomposition.kind]}\n(explained, stability;\n* above Gaussians)")
        panels[-1].set_xticks(range(len(names)), names, rotation=60, ha="right", rotation_mode="anchor", fontsize=7)
        if image is not None:
            figure.colorbar(image, ax=panels.tolist(), shrink=0.5, label="Pearson's r within lives")
        text = "Components and features; a dot marks q < 0.05 by circular shifts within lives, given tick and age"
        headed(figure, states.data.heading, text)
    return figure


def plane(states: StudiedStates) -> Figure:
    """Draw the t-SNE plane, coloured by Ward cluster; outliers are grey."""
    labels = np.where(states.outlier, NOISE, states.label)[states.plane_records]
    with style():
        figure = new_figure(10.0, 7.0)
        axes = figure.subplots()
        panel = PointsPanel(axes, 7.0, 6.5)
        draw_clusters(panel, states.plane, labels)
        axes.set(xlabel="t-SNE 1", ylabel="t-SNE 2", xticks=[], yticks=[])
        add_cluster_legend(figure, labels, crowded=panel.crowded(len(labels)))
        text = (
            f"Ward clusters on a graph of neighbours; noise: outliers. Trustworthiness {states.trustworthiness:.2f}; a "
            f"second fit keeps {states.plane_agreement:.0%} of the neighbours"
        )
        axes.set_title(title(states.data.heading, text, 80))
    return figure


def trajectories(motion: Motion, states: StudiedStates) -> Figure:
    """Draw the end of the longest lives in the plane of the first two principal components, coloured by behaviour."""
    axes_of = states.decompositions["pca"].read_outs[:2]
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
            colours = [cluster_colour(cluster) if cluster >= 0 else NOISE_COLOUR for cluster in label[own]]
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
        headed(figure, states.data.heading, text)
    return figure


def correlations_and_jacobians(motion: Motion, effects: Effects | None, names: Sequence[str], heading: str) -> Figure:
    """Draw lagged correlations, beside mean Jacobians if there are any, for the largest behaviours."""
    means = None
    if effects is not None:
        label = motion.behaviours.label[effects.jacobian_records]
        means = mean_jacobians(effects.jacobians, label, motion.behaviours.count)
    shown = range(min(_BEHAVIOURS_SHOWN, motion.behaviours.count))
    lags = [lag for lag in _LAGS if lag < motion.r.shape[1]]
    columns = 1 if means is None else 2
    with style():
        figure = new_figure(3.1 * columns * len(lags) + 1, 3.1 * len(shown) + 1)
        panels = figure.subplots(len(shown), columns * len(lags), squeeze=False)
        for row, number in enumerate(shown):
            for column, lag in enumerate(lags):
                left = panels[row, columns * column]
                r, q = motion.r[number, lag], motion.q[number, lag]
                image = left.imshow(r, cmap=EFFECT_MAP, vmin=-1, vmax=1)
                left.scatter(*np.nonzero(q < LEVEL)[::-1], s=2, c="black", linewidths=0)
                left.set_title(f"behaviour {number}, lag {lag}: correlation", fontsize=8)
                figure.colorbar(image, ax=left, shrink=0.7)
                if means is not None:
                    _draw_mean(panels[row, columns * column + 1], means[number, lag])
        _name_components(panels, names)
        text = "Correlation of later with earlier components (a dot: q < 0.05)"
        text += "" if means is None else ", and how the later ones would change"
        headed(figure, heading, text)
    return figure


def _name_components(panels: np.ndarray, names: Sequence[str]) -> None:
    """Name components below the lowest panels and beside the leftmost ones; of many, every second one, and so on."""
    places = range(0, len(names), -(-len(names) // _MOST_NAMES))
    shown = [names[place] for place in places]
    for (row, column), axes in np.ndenumerate(panels):
        axes.set_xticks(places, shown if row == len(panels) - 1 else [], fontsize=8, rotation=90)
        axes.set_yticks(places, shown if column == 0 else [], fontsize=8)
        axes.tick_params(length=2)
    for axes in panels[-1]:
        axes.set_xlabel("earlier", fontsize=8)
    for axes in panels[:, 0]:
        axes.set_ylabel("later", fontsize=8)


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
        for name, dashes, label in (
            ("shuffled_behaviours", "--", "behaviours dealt at random"),
            ("shuffled_components", ":", "components renamed"),
        ):
            means = [np.nanmean([getattr(row, name) for row in effects.agreement if row.lag == lag]) for lag in lags]
            axes.plot(lags, means, dashes, color="#333333", label=label)
        axes.set(xlabel="lag (ticks)", ylabel="share of pairs with the same sign", ylim=(0, 1))
        axes.axhline(0.5, color="#dddddd", linewidth=0.8, zorder=0)
        axes.legend(loc="lower left")
        text = "Signs of lagged correlations and of Jacobians, one line for each behaviour"
        headed(figure, heading, text)
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
        plane.scatter(effects.modes.real, effects.modes.imag, s=28, facecolors="none", edgecolors="#bd1f01",
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
        headed(figure, heading, text)
    return figure


def half_lives(persisting: Persisting, states: StudiedStates) -> Figure:
    """Draw what is left of a change of each independent component, and their half-lives."""
    names = states.decompositions["ica"].names
    with style():
        figure = new_figure(11.0, 4.8)
        curves, bars = figure.subplots(1, 2, width_ratios=(1.2, 1))
        for number, course in enumerate(persisting.lasting):
            curves.plot(course.left[: _SHOWN_TICKS + 1], color=cluster_colour(number), linewidth=1)
        curves.axhline(0.5, color="#888888", linewidth=0.8, linestyle=":")
        curves.set(xlabel="ticks after the change", ylabel="share of the distance left", ylim=(0, None))
        middle, low, high = as_columns(course.half_life for course in persisting.lasting)
        place = np.arange(len(middle))
        known = np.isfinite(middle) & ~np.isinf(high)
        # Where all lives agree, rounding can put an end on the wrong side; of a single life there is no interval.
        middle, low, high = middle[known], low[known], high[known]
        reach = np.nan_to_num(np.maximum([middle - low, high - middle], 0))
        bars.errorbar(middle, place[known], xerr=reach, fmt="o", color="#33475b", markersize=4, linewidth=1)
        bars.set_yticks(place, names)
        bars.invert_yaxis()
        bars.set(xlabel="half-life (ticks)", xlim=(0, None))
        text = "What is left of a component raised by one standard deviation in one tick, inputs held as recorded"
        headed(figure, states.data.heading, text)
    return figure


def memory_length_figure(persisting: Persisting, heading: str) -> Figure | None:
    """Draw how much an observation some ticks ago still matters; None if it was not measured."""
    length = persisting.length
    if isinstance(length, str):
        return None
    with style():
        figure = new_figure(10.0, 4.6)
        panels = figure.subplots(1, 2)
        for axes, values, whole, text in (
            (panels[0], length.divergence, length.whole[:, 0], "KL of the actions (nats)"),
            (panels[1], length.value, length.whole[:, 1], "|change of the value|"),
        ):
            mean = np.maximum(values.mean(axis=0), _FAINTEST)
            low, high = interval_over_lives(values, length.life)
            axes.fill_between(
                length.ticks, np.maximum(low, _FAINTEST), np.maximum(high, _FAINTEST), alpha=0.25, color="#3f90da",
                linewidth=0,
            )  # fmt: skip
            axes.plot(length.ticks, mean, marker=".", color="#3f90da", label="one observation replaced")
            axes.axhline(whole.mean(), color="#bd1f01", linestyle="--", label="the whole memory replaced")
            axes.set(xscale="log", yscale="log", xlabel="ticks ago", ylabel=text)
            axes.set_xticks(length.ticks, [str(tick) for tick in length.ticks], fontsize=7)
            axes.minorticks_off()
            axes.legend(loc="lower left")
        text = "A decision once the observation that many ticks ago is replaced by another life's"
        headed(figure, heading, text)
    return figure


def flow(persisting: Persisting, motion: Motion, states: StudiedStates, update: Update) -> Figure:
    """Draw where the layer moves in one tick with held input, and the fixed points, in the plane of two components."""
    axes_of = states.decompositions["pca"].read_outs[:2]
    own = update.place(states.data.layer)

    def plane(state: np.ndarray) -> np.ndarray:
        return states.scale.z(state[:, own]) @ axes_of.T

    columns = min(3, len(persisting.held))
    rows = -(-len(persisting.held) // columns)
    with style():
        figure = new_figure(4.2 * columns, 4.0 * rows + 0.8)
        panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
        recorded = plane(motion.tracks.state[:: max(1, len(motion.tracks) // 3000)])
        starts = persisting.starts
        for axes, (name, points) in zip(panels, persisting.held.items(), strict=False):
            axes.scatter(*recorded.T, s=1, c="#e3e6ea", linewidths=0)
            before, after = plane(starts), update(tensor(starts), tensor(points.read).expand(len(starts), -1)).numpy()
            moved = plane(after) - before
            axes.quiver(*before.T, *moved.T, angles="xy", scale_units="xy", scale=1, width=0.004, color="#33475b")
            _draw_points(axes, points, plane(points.state))
            axes.set_title(name)
        for axes in panels[len(persisting.held) :]:
            axes.remove()
        for axes in figure.axes:
            axes.set(xlabel="pc_1", ylabel="pc_2")
            axes.tick_params(labelbottom=True, labelleft=True)  # which shared axes hide in all but the outer panels
        text = "Arrows: one tick with held input, from recorded states. Dot: stable point, ring: unstable, x: slow"
        headed(figure, states.data.heading, text)
    return figure


def followed_edits(compared: Sequence[FollowedEdit], heading: str) -> Figure:
    """Draw what is left of the edits of interventions, as measured in the running game and as computed."""
    kinds = [kind for kind in KINDS if any(kind in edit.computed for edit in compared)]
    with style():
        figure = new_figure(5.2 * len(kinds), 4.4)
        for axes, kind in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
            for number, edit in enumerate(compared):
                if kind not in edit.computed or kind not in edit.measured:
                    continue
                colour = cluster_colour(number)
                name = f"{edit.direction.name}, dose {edit.dose:+g}"
                axes.plot(edit.computed[kind].left[: _SHOWN_TICKS + 1], color=colour, label=name)
                axes.plot(edit.measured[kind].left[: _SHOWN_TICKS + 1], color=colour, linestyle="--")
            axes.axhline(0.5, color="#888888", linewidth=0.8, linestyle=":")
            axes.set(
                xlabel="ticks after the edit", ylabel=f"share of the distance of {kind} states left", ylim=(0, None)
            )
            axes.legend(loc="upper right")
        text = "Edits in a single tick: computed with inputs held (solid), measured in the running game (dashed)"
        headed(figure, heading, text)
    return figure


def _draw_points(axes: Axes, points: FixedPoints, where: np.ndarray) -> None:
    fixed, stable = points.fixed, points.unstable == 0
    for kept, look in (
        (fixed & stable, {"marker": "o", "c": "#bd1f01"}),
        (fixed & ~stable, {"marker": "o", "facecolors": "none", "edgecolors": "#bd1f01"}),
        (~fixed, {"marker": "x", "c": "#bd1f01", "s": 12, "linewidths": 0.8}),
    ):
        axes.scatter(*where[kept].T, zorder=3, **{"s": 45, **look})  # type: ignore[arg-type]
