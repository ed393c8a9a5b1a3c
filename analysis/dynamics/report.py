"""What an analysis of dynamics says in words and tables: of states, of how they move, and of how long things last."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from analysis.dynamics.decompositions import MOST_FITTED, TITLES
from analysis.dynamics.fixed_points import TICKS, FixedPoints, time_constants
from analysis.dynamics.memory_length import (
    BEYOND_MOVED,
    MOVED,
    WHOLE,
    WHOLE_ALIKE,
    MemoryLength,
    MemoryUse,
    situations_compared,
    use_by_situation,
)
from analysis.dynamics.perturbations import FollowedEdit
from analysis.dynamics.stages import Effects, Motion, Persisting, StudiedStates
from analysis.features.feature import Feature
from analysis.statistics.circular_shift import ShiftedCorrelations
from analysis.statistics.effect_intervals import Differences
from analysis.statistics.inference import LEVEL
from analysis.statistics.resampling import Estimate
from common.number_text import format_p

_SHOWN = 6
_LAGS_SHOWN = (1, 2, 4, 8)
_FEATURES_NAMED = 3
_SMALL = 0.01


def state_lines(states: StudiedStates) -> list[str]:
    """Return the summary of single states."""
    data = states.data
    names = tuple(feature.name for feature in data.features)
    lines = [
        f"Policy {data.metadata.policy}, layer {data.layer}: {len(data):,} states of {len(data.lives):,} lives",
        "",
        "Decompositions of the states' z-scores. Stability is the mean |cosine| of a component with its match in "
        "refits to resampled lives. A component is stable if that exceeds what the components of Gaussians of the same "
        "covariance and autocorrelation reach (q <= 0.05). Features are those whose correlation within lives has "
        "q < 0.05, with tick and age held constant too; options of choices, such as move_west, are among them.",
    ]
    for kind, decomposition in states.decompositions.items():
        names_of = zip(decomposition.names, decomposition.stable, strict=True)
        stable = ", ".join(name for name, is_stable in names_of if is_stable) or "none"
        lines += [
            "",
            f"{len(decomposition.names)} {TITLES[decomposition.kind]} components{_fitted_to(kind, len(data))} explain "
            f"{decomposition.total:.1%} of the variance; stability {np.mean(decomposition.stability):.2f} on average, "
            f"{np.min(decomposition.stability):.2f} at worst; Gaussians' {np.mean(decomposition.floor):.2f} on "
            f"average, {np.max(decomposition.floor):.2f} at best; stable: {stable}",
        ]
        for number, name in enumerate(decomposition.names):
            lines.append(
                f"  {name}: {decomposition.explained[number]:.1%}, stability {decomposition.stability[number]:.2f}, "
                f"{strongest(states.associations[kind], number, names)}"
            )
    lines += [
        "",
        f"{states.label.max() + 1} Ward clusters on a graph of neighbours hold {states.explained:.1%} of the variance; "
        "adjusted Rand index with clusters of resampled lives "
        f"{_beside_floor(states.agreement, states.agreement_floor)}",
    ]
    for number in range(min(_SHOWN, states.label.max() + 1)):
        share = (states.label == number).mean()
        lines.append(
            f"  cluster {number} ({share:.1%} of states): {distinctive(states.differences, number, data.features)}"
        )
    lines += [
        "",
        f"{states.outlier.mean():.1%} of states are outliers: far from all others. The rank correlation of distances "
        f"to neighbours with those among half of the lives is {states.outlier_agreement:.2f}, in a Gaussian "
        f"{states.outlier_floor:.2f}",
        f"t-SNE plane of {len(states.plane):,} states: trustworthiness {states.trustworthiness:.2f} of 1; a second fit "
        f"to resampled lives keeps {states.plane_agreement:.0%} of the neighbours, of a Gaussian's "
        f"{states.plane_floor:.0%}",
    ]
    return lines


def _fitted_to(kind: str, records: int) -> str:
    """Say to how many records components were fitted, and compared with Gaussians, if not to all."""
    most = MOST_FITTED.get(kind, records)
    return f" (fitted to {most:,} states and compared with Gaussians of as many)" if records > most else ""


def _beside_floor(agreement: np.ndarray, floor: np.ndarray) -> str:
    return f"{agreement.mean():.2f}, with those of a Gaussian {floor.mean():.2f}"


def motion_lines(motion: Motion, effects: Effects | None, layer: str, features: Sequence[Feature]) -> list[str]:
    """Return the summary of consecutive states."""
    behaviours = motion.behaviours
    lines = [_behaviours_line(motion)]
    for number in range(behaviours.count):
        share = (behaviours.label == number).mean()
        lines.append(
            f"  behaviour {number} ({share:.1%} of ticks): {distinctive(motion.differences, number, features)}"
        )
    share = (motion.q < LEVEL).mean()
    correlations = f"Lagged correlations of independent components: {share:.0%} of all have q < 0.05 by circular shifts"
    lines += [*_pair_lines(motion), "", correlations]
    if effects is None:
        return [
            *lines,
            "",
            f"{layer} is no state of the policy's memory, so what needs the policy's own update is left out: "
            "Jacobians, their sign agreement with correlations, spectra, half-lives, memory length and fixed points.",
        ]
    return [
        *lines,
        *_agreement_lines(effects),
        "",
        *_spectrum_lines(effects, tuple(feature.name for feature in features)),
    ]


def _behaviours_line(motion: Motion) -> str:
    behaviours, tracks, layers = motion.behaviours, motion.tracks, list(motion.space)
    together = f" of {_listed(layers)} together" if len(layers) > 1 else ""
    shares = zip(behaviours.kept, layers, strict=True)
    kept = _listed([f"{share:.0%} of the variance of {name}" for share, name in shares])
    of_layers = f"; the principal components hold {kept}" if len(layers) > 1 else ""
    return (
        f"Behaviours{together}: {behaviours.count} clusters of trajectories in {len(tracks):,} ticks of "
        f"{len(tracks.lives)} lives hold {behaviours.explained:.1%} of their variance; adjusted Rand index with "
        f"behaviours of resampled lives {_beside_floor(behaviours.agreement, behaviours.agreement_floor)}{of_layers}"
    )


def _pair_lines(motion: Motion) -> Iterator[str]:
    if not motion.pairs:
        return
    yield ""
    yield (
        "How far behaviours of the layers together agree with those of each alone: normalised mutual information and "
        "adjusted Rand index; in brackets with one's labels from another life at the same age (mean of draws, and what "
        "95% of them are below):"
    )
    for pair in motion.pairs:
        yield (
            f"  {pair.one} and {pair.other}: information {pair.information:.2f} ({pair.dealt_information:.2f}, "
            f"{pair.dealt_information_high:.2f}), Rand {pair.rand:.2f} ({pair.dealt_rand:.2f}, "
            f"{pair.dealt_rand_high:.2f})"
        )


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _agreement_lines(effects: Effects) -> Iterator[str]:
    yield (
        f"Sign agreement of correlations with Jacobians at {len(effects.jacobian_records):,} states, pairs of "
        "different components, mean over behaviours:"
    )
    lags = {row.lag for row in effects.agreement}
    for lag in (shown for shown in _LAGS_SHOWN if shown in lags):
        rows = [row for row in effects.agreement if row.lag == lag]
        means = {
            name: np.nanmean([getattr(row, name) for row in rows] or [np.nan])
            for name in ("share", "shuffled_behaviours", "shuffled_components")
        }
        known = [row.significant for row in rows if row.pairs]
        significant = f"{np.mean(known):.0%}" if known else "n/a"
        yield (
            f"  lag {lag}: {means['share']:.0%} ({significant} where the correlation is significant); behaviours "
            f"dealt at random {means['shuffled_behaviours']:.0%}, components renamed at random "
            f"{means['shuffled_components']:.0%}; "
            f"p < 0.05 in {sum(row.p < 0.05 for row in rows)} of {sum(np.isfinite(row.p) for row in rows)} behaviours"
        )


def _spectrum_lines(effects: Effects, names: tuple[str, ...]) -> Iterator[str]:
    modulus = np.abs(effects.eigenvalues)
    slowest = time_constants(np.median(modulus[:, :_SHOWN], axis=0))
    yield (
        f"Spectrum of the memory's one-tick Jacobian at {len(modulus)} states: the largest |eigenvalue| is "
        f"{np.median(modulus[:, 0]):.3f} (median; above 1 in {(modulus[:, 0] > 1).mean():.0%} of states). Time "
        f"constants of the {len(slowest)} largest, in ticks: {', '.join(_ticks(value) for value in slowest)}"
    )
    yield "Slow modes of the layer's mean Jacobian, and the features that their activity goes with:"
    for number, mode in enumerate(effects.modes.tolist()):
        constant = float(time_constants(np.array(mode)))
        turns = f", turns once in {2 * np.pi / np.angle(mode):.0f} ticks" if mode.imag > 0 else ""
        yield (
            f"  slow_{number + 1}: |eigenvalue| {abs(mode):.3f}, time constant {_ticks(constant)} "
            f"ticks{turns}: {strongest(effects.mode_associations, number, names)}"
        )


def _ticks(value: float) -> str:
    return f"{value:.1f}" if np.isfinite(value) else "never"


def component_rows(states: StudiedStates) -> list[dict[str, Any]]:
    """Return one row for each component: what it explains, how stable it is, and what it goes with."""
    names = tuple(feature.name for feature in states.data.features)
    rows = []
    for kind, decomposition in states.decompositions.items():
        q, stable = decomposition.stability_q, decomposition.stable
        for number, name in enumerate(decomposition.names):
            rows.append(
                {
                    "component": name, "explained": float(decomposition.explained[number]),
                    "stability": float(decomposition.stability[number]),
                    "gaussian": float(np.mean(decomposition.floor)),
                    "gaussian_highest": float(np.max(decomposition.floor)), "stability_q": float(q[number]),
                    "stable": str(stable[number]).lower(), "linear_r2": float(decomposition.fidelity[number]),
                    "features": strongest(states.associations[kind], number, names),
                }
            )  # fmt: skip
    return rows


def association_rows(states: StudiedStates) -> list[dict[str, Any]]:
    """Return one row for each component and feature."""
    return [
        {
            "component": name, "feature": feature.name,
            "r": float(association.r[i, j]), "p": float(association.p[i, j]),
            "q": float(association.q[i, j]), "informative_lives": int(association.informative[i, j]),
        }
        for kind, association in states.associations.items()
        for i, name in enumerate(states.decompositions[kind].names)
        for j, feature in enumerate(states.data.features)
    ]  # fmt: skip


def summary(states: StudiedStates, motion: Motion) -> dict[str, Any]:
    """Return the numbers of single and of consecutive states as JSON values."""
    data = states.data
    return {
        "policy": data.metadata.policy, "layer": data.layer, "records": len(data), "lives": len(data.lives),
        "components": component_rows(states),
        "explained": {kind: decomposition.total for kind, decomposition in states.decompositions.items()},
        "clusters": {
            "explained": states.explained, "agreement": states.agreement.tolist(),
            "agreement_floor": states.agreement_floor.tolist(),
            "sizes": np.bincount(states.label).tolist(),
        },
        "outliers": {"share": float(states.outlier.mean()), "agreement": states.outlier_agreement,
            "agreement_floor": states.outlier_floor},
        "tsne": {"trustworthiness": states.trustworthiness, "agreement": states.plane_agreement,
            "agreement_floor": states.plane_floor},
        "behaviours": {
            "layers": list(motion.space), "units": [len(scale.mean) for scale in motion.space.values()],
            "kept": motion.behaviours.kept.tolist(),
            "pairs": [vars(pair) for pair in motion.pairs],
            "explained": motion.behaviours.explained, "agreement": motion.behaviours.agreement.tolist(),
            "agreement_floor": motion.behaviours.agreement_floor.tolist(),
            "sizes": np.bincount(motion.behaviours.label[motion.behaviours.label >= 0]).tolist(),
            "differences": [
                distinctive(motion.differences, number, data.features)
                for number in range(motion.behaviours.count)
            ],
        },
    }  # fmt: skip


def effects_summary(effects: Effects) -> dict[str, Any]:
    """Return the numbers of the memory's update as JSON values."""
    return {
        "sign_agreement": [vars(row) for row in effects.agreement],
        "slow_modes": [
            {"modulus": abs(mode), "angle": float(np.angle(mode))} for mode in effects.modes.tolist()
        ],
        "largest_modulus": {"median": float(np.median(np.abs(effects.eigenvalues[:, 0])))},
    }  # fmt: skip


def strongest(correlations: ShiftedCorrelations, component: int, names: tuple[str, ...]) -> str:
    """Name the features that go with a component at q below 0.05, strongest first, such as `self_food +0.62`."""
    r, q = correlations.r[component], correlations.q[component]
    order = np.argsort(-np.nan_to_num(np.abs(r), nan=-1.0), kind="stable")
    sure = [i for i in order if np.isfinite(r[i]) and q[i] < LEVEL][:_FEATURES_NAMED]
    return ", ".join(f"{names[i]} {r[i]:+.2f}" for i in sure) or "none"


def distinctive(differences: Differences, cluster: int, features: Sequence[Feature]) -> str:
    """Name what sets a cluster apart given tick and age, strongest first.

    For example `more self_food (d +0.8), moves west in 56% (19% elsewhere)`.
    """
    d, sure = differences.effects.d_complement[cluster], differences.survives_given_time[cluster]
    inside, elsewhere = differences.effects.mean[cluster], differences.effects.complement_mean[cluster]
    order = [i for i in np.argsort(-np.nan_to_num(np.abs(d), nan=-1.0), kind="stable") if sure[i]][:_FEATURES_NAMED]
    named = (
        f"{features[i].phrase} in {inside[i]:.0%} ({elsewhere[i]:.0%} elsewhere)"
        if features[i].choice
        else f"{'more' if d[i] > 0 else 'less'} {features[i].name} (d {d[i]:+.1f})"
        for i in order
    )
    return ", ".join(named) or "nothing that survives"


def persistence_lines(persisting: Persisting, states: StudiedStates, reach: int) -> list[str]:
    """Return the summary."""
    names = states.decompositions["ica"].names
    return [
        "Half-lives of changes: an independent component is raised by one standard deviation at "
        f"{len(persisting.records)} states, and the layer followed for {reach} ticks with inputs held as recorded. "
        "Ticks until half of the distance is left, with 95% intervals over lives:",
        *(f"  {name}: {_half_life(course.half_life)}" for name, course in zip(names, persisting.lasting, strict=True)),
        "",
        *_length_lines(persisting),
        "",
        f"Where the memory settles with held input, followed for {TICKS:,} ticks from recorded states, and other "
        "points at which it hardly moves:",
        *(f"  {name}: {_held_text(points, len(persisting.starts))}" for name, points in persisting.held.items()),
    ]


def _half_life(estimate: Estimate) -> str:
    ticks = [
        f"{number:.1f}" if np.isfinite(number) else "not reached"
        for number in (estimate.value, estimate.low, estimate.high)
    ]
    return f"{ticks[0]} ({'no interval' if np.isnan(estimate.low) else f'{ticks[1]} to {ticks[2]}'})"


def _length_lines(persisting: Persisting) -> Iterator[str]:
    length = persisting.length
    if isinstance(length, str):
        yield f"Memory length was not measured: {length}"
        return
    whole = length.whole.mean(axis=0)
    yield (
        f"Memory length at {len(length.life)} decisions: mean KL of the actions and change of the value once the "
        "observation some ticks ago is replaced by another life's; with the whole memory replaced, "
        f"{whole[0]:.4f} nats and {whole[1]:.4f}"
    )
    for number, ticks in enumerate(length.ticks.tolist()):
        kl, value = length.divergence[:, number].mean(), length.value[:, number].mean()
        share = max(kl, 0) / whole[0]
        yield f"  {ticks} ticks ago: {max(kl, 0):.2g} nats ({share:.1%} of the whole), value {value:.2g}"
    for what, values, most in (("actions", length.divergence, whole[0]), ("value", length.value, whole[1])):
        above = length.ticks[values.mean(axis=0) > _SMALL * most]
        last = f"up to {above.max()} ticks ago" if len(above) else "not at all"
        more = ", the longest measured" if len(above) and above.max() == length.ticks[-1] else ""
        yield f"An observation changes the {what} by more than {_SMALL:.0%} of what the whole memory does {last}{more}"
    yield from _situation_lines(length)


def _situation_lines(length: MemoryLength) -> Iterator[str]:
    uses = {
        (use.group, use.replaced): use for use in use_by_situation(length) if use.outcome == "kl" and not use.ticks_ago
    }
    yield (
        "KL of the actions in nats once the whole memory is another life's, once it is that of another life in the "
        "same situation, and once it is moved as far in random directions, with 95% intervals over lives:"
    )
    for (group, replaced), use in uses.items():
        if replaced == WHOLE:
            others = (("same situation", WHOLE_ALIKE), ("random directions", MOVED))
            more = [f"; {name}: {_with_interval(uses[group, kind])}" for name, kind in others if (group, kind) in uses]
            yield f"  {group} ({use.decisions} decisions of {use.lives} lives): {_with_interval(use)}{''.join(more)}"
    compared = {(use.group, use.replaced): use for use in situations_compared(length) if use.outcome == "kl"}
    for group in dict.fromkeys(group for group, _ in compared):
        alike, moved, times = (compared[group, kind] for kind in (WHOLE_ALIKE, MOVED, BEYOND_MOVED))
        yield (
            f"  {group}, within {alike.lives} lives: same situation: {_with_interval(alike)}, p {format_p(alike.p)}; "
            f"random directions: {_with_interval(moved)}, p {format_p(moved.p)}"
        )
        if np.isfinite(times.value):
            yield (
                f"    compared with random directions, the memory matters {times.value:.2f} times ({times.low:.2f} to "
                f"{times.high:.2f}, p {format_p(times.p)}) as much as outside of the situation"
            )


def _with_interval(use: MemoryUse) -> str:
    between = "" if np.isnan(use.low) else f" ({use.low:.3f} to {use.high:.3f})"
    return f"{use.value:.3f}{between}"


def _held_text(points: FixedPoints, starts: int) -> str:
    kinds = []
    for i in range(min(3, len(points.speed))):
        kind = "slow point" if not points.fixed[i] else "stable fixed point"
        if points.fixed[i] and points.unstable[i]:
            kind = f"fixed point with {points.unstable[i]} unstable directions"
        slowest = float(time_constants(points.eigenvalues[i, :1])[0])
        constant = f"slowest time constant {slowest:.1f} ticks" if np.isfinite(slowest) else ""
        settled = f"{points.settled[i]} of {starts} starts settle there" if points.settled[i] else ""
        details = ", ".join(filter(None, (settled, "" if points.fixed[i] else f"q = {points.speed[i]:.1g}", constant)))
        kinds.append(f"{kind}{f' ({details})' if details else ''}")
    if more := len(points.speed) - len(kinds):
        kinds.append(f"{more} more")
    on_their_way = starts - points.settled.sum()
    rest = f"; starts still on their way: {on_their_way}" if on_their_way else ""
    return f"{'; '.join(kinds)}{rest}{_spread_text(points.half_spread)}"


def _spread_text(half_spread: float) -> str:
    if np.isnan(half_spread):
        return ""
    when = f"after {half_spread:.1f}" if np.isfinite(half_spread) else f"not within {TICKS:,}"
    return f". Half of the starts' spread is gone {when} ticks"


def edit_rows(edits: Sequence[FollowedEdit]) -> list[dict[str, Any]]:
    """Return a row for each edit and each kind of state whose half-life was both measured and computed, in ticks.

    Half-lives have 95% intervals, and are infinite if half was never reached.
    """
    return [
        {
            "run": edit.run.name, "direction": edit.direction.name, "dose": edit.dose, "states": kind,
            **_ends("measured", measured.half_life), **_ends("computed", edit.computed[kind].half_life),
        }
        for edit in edits
        for kind, measured in edit.measured.items()
        if kind in edit.computed
    ]  # fmt: skip


def _ends(name: str, estimate: Estimate) -> dict[str, float]:
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def edit_lines(edits: Sequence[FollowedEdit]) -> list[str]:
    """Return half-lives that interventions measured, beside those of the same edits here; nothing without any."""
    if not edits:
        return []
    return [
        "",
        "Half-lives of edits that interventions made in a single tick (a read-out held at its recorded mean plus a "
        "dose in standard deviations), in ticks: measured in the running game, with 95% intervals over episodes, and "
        "computed here for the same edit with inputs held as recorded, over lives:",
        *(
            f"  {edit.direction.name}, dose {edit.dose:+g}, {kind} states: measured {_half_life(measured.half_life)}, "
            f"computed {_half_life(edit.computed[kind].half_life)}"
            for edit in edits
            for kind, measured in edit.measured.items()
            if kind in edit.computed
        ),
    ]


def persistence_summary(persisting: Persisting, states: StudiedStates) -> dict[str, Any]:
    """Return the numbers as JSON values."""
    names = states.decompositions["ica"].names
    length = persisting.length
    return {
        "half_lives": {
            name: [course.half_life.value, course.half_life.low, course.half_life.high]
            for name, course in zip(names, persisting.lasting, strict=True)
        },
        "memory_length": None
        if isinstance(length, str)
        else {
            "ticks": length.ticks.tolist(), "divergence": length.divergence.mean(axis=0).tolist(),
            "value": length.value.mean(axis=0).tolist(), "whole": length.whole.mean(axis=0).tolist()[:2],
        },
        "fixed_points": [_held_summary(name, points) for name, points in persisting.held.items()],
    }  # fmt: skip


def _held_summary(name: str, points: FixedPoints) -> dict[str, Any]:
    return {
        "input": name,
        "speed": np.where(points.fixed, 0.0, points.speed).tolist(),
        "settled": points.settled.tolist(),
        "half_spread": points.half_spread if np.isfinite(points.half_spread) else None,
        "unstable": points.unstable.tolist(),
        "largest_modulus": np.abs(points.eigenvalues[:, 0]).tolist(),
    }
