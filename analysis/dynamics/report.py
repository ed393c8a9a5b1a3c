"""What an analysis of dynamics says in words and tables."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from analysis.dynamics.decompositions import MOST_FITTED, TITLES, Decomposition
from analysis.dynamics.jacobians import time_constants
from analysis.dynamics.results import Effects, Motion, StudiedStates, distinctive, strongest
from analysis.features.feature import Feature
from analysis.statistics.inference import LEVEL

_SHOWN = 6
_LAGS_SHOWN = (1, 2, 4, 8)


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
        lines += [
            "",
            f"{len(decomposition.names)} {TITLES[decomposition.kind]} components{_fitted_to(kind, len(data))} explain "
            f"{decomposition.total:.1%} of the variance; stability {np.mean(decomposition.stability):.2f} on average, "
            f"{np.min(decomposition.stability):.2f} at worst; Gaussians' {np.mean(decomposition.floor):.2f} on "
            f"average, {np.max(decomposition.floor):.2f} at best; stable: {_stable_names(decomposition)}",
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


def _stable_names(decomposition: Decomposition) -> str:
    names = [name for name, stable in zip(decomposition.names, decomposition.stable, strict=True) if stable]
    return ", ".join(names) or "none"


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
    share = (motion.correlations.q < LEVEL).mean()
    correlations = f"Lagged correlations of independent components: {share:.0%} of all have q < 0.05 by circular shifts"
    lines += [*_pair_lines(motion), "", correlations]
    if effects is None:
        return [*lines, "", without_update(layer)]
    return [
        *lines,
        *_agreement_lines(effects),
        "",
        *_spectrum_lines(effects, tuple(feature.name for feature in features)),
    ]


def without_update(layer: str) -> str:
    """Return what is left out of the analysis of a layer that is no state of the memory, and why."""
    return (
        f"{layer} is no state of the policy's memory, so what needs the policy's own update is left out: Jacobians, "
        "their sign agreement with correlations, spectra, half-lives, memory length and fixed points."
    )


def _behaviours_line(motion: Motion) -> str:
    behaviours, tracks, layers = motion.behaviours, motion.tracks, motion.space.layers
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
            f"p < 0.05 in {sum(row.p < 0.05 for row in rows)} of {len(rows)} behaviours"
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
    for number, mode in enumerate(effects.modes):
        constant = float(time_constants(np.array(mode.eigenvalue)))
        angle = float(np.angle(mode.eigenvalue))
        turns = f", turns once in {2 * np.pi / angle:.0f} ticks" if mode.eigenvalue.imag > 0 else ""
        yield (
            f"  slow_{number + 1}: |eigenvalue| {abs(mode.eigenvalue):.3f}, time constant {_ticks(constant)} "
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
            "layers": motion.space.layers, "units": motion.space.units, "kept": motion.behaviours.kept.tolist(),
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
            {"modulus": abs(mode.eigenvalue), "angle": float(np.angle(mode.eigenvalue))} for mode in effects.modes
        ],
        "largest_modulus": {"median": float(np.median(np.abs(effects.eigenvalues[:, 0])))},
    }  # fmt: skip
