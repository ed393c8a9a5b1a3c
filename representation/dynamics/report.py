"""What an analysis of dynamics says in words and tables."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from representation.dynamics.decompositions import TITLES
from representation.dynamics.jacobians import time_constants
from representation.dynamics.results import Motion, States, distinctive, strongest

_SHOWN = 6
_LAGS_SHOWN = (1, 2, 4, 8)


def state_lines(states: States) -> list[str]:
    """Return the summary of single states."""
    data = states.data
    names = tuple(feature.name for feature in data.features)
    lines = [
        f"Policy {data.metadata.policy}, layer {data.layer}: {len(data):,} states of {len(data.lives):,} lives",
        "",
        "Decompositions of the states' z-scores. Stability is the mean |cosine| of a component with its match in "
        "refits to "
        "resampled lives; features are those whose correlation within lives has q < 0.05.",
    ]
    for kind, found in states.decompositions.items():
        lines += [
            "",
            f"{len(found.names)} {TITLES[found.kind]} components explain {found.total:.1%} of the variance; "
            f"stability {np.mean(found.stability):.2f} on average, {np.min(found.stability):.2f} at worst",
        ]
        for number, name in enumerate(found.names):
            lines.append(
                f"  {name}: {found.explained[number]:.1%}, stability {found.stability[number]:.2f}, "
                f"{strongest(states.associations[kind], number, names)}"
            )
    lines += [
        "",
        f"{states.label.max() + 1} Ward clusters on a graph of neighbours hold {states.explained:.1%} of the variance; "
        f"adjusted Rand index with clusters of resampled lives {states.agreement.mean():.2f}",
    ]
    for number in range(min(_SHOWN, states.label.max() + 1)):
        share = (states.label == number).mean()
        lines.append(f"  cluster {number} ({share:.1%} of states): {distinctive(states.differences, number, names)}")
    lines += [
        "",
        f"{states.outlier.mean():.1%} of states are outliers: far from all others. The rank correlation of distances "
        "to "
        f"neighbours with those among half of the lives is {states.outlier_agreement:.2f}",
        f"t-SNE plane of {len(states.plane):,} states: trustworthiness {states.trustworthiness:.2f} of 1; a second fit "
        f"to resampled lives keeps {states.plane_agreement:.0%} of the neighbours",
    ]
    return lines


def motion_lines(motion: Motion, names: tuple[str, ...]) -> list[str]:
    """Return the summary of consecutive states."""
    behaviours, tracks = motion.behaviours, motion.tracks
    lines = [
        f"Behaviours: {behaviours.count} clusters of trajectories in {len(tracks):,} ticks of {len(tracks.lives)} "
        "lives "
        f"hold {behaviours.explained:.1%} of their variance; adjusted Rand index with behaviours of resampled lives "
        f"{behaviours.agreement.mean():.2f}",
    ]
    for number in range(behaviours.count):
        share = (behaviours.label == number).mean()
        lines.append(f"  behaviour {number} ({share:.1%} of ticks): {distinctive(motion.differences, number, names)}")
    lines += ["", *_agreement_lines(motion), "", *_spectrum_lines(motion, names)]
    return lines


def _agreement_lines(motion: Motion) -> Iterator[str]:
    sure = np.isfinite(motion.correlations.q) & (motion.correlations.q < 0.05)
    yield (f"Lagged correlations of independent components: {sure.mean():.0%} of all have q < 0.05 by circular shifts")
    yield (
        f"Sign agreement of correlations with Jacobians at {len(motion.jacobian_records):,} states, pairs of different "
        "components, mean over behaviours:"
    )
    lags = {row.lag for row in motion.agreement}
    for lag in (each for each in _LAGS_SHOWN if each in lags):
        rows = [row for row in motion.agreement if row.lag == lag]
        told = {
            name: np.nanmean([getattr(row, name) for row in rows] or [np.nan])
            for name in ("share", "shuffled_behaviours", "shuffled_components")
        }
        known = [row.significant for row in rows if row.pairs]
        significant = f"{np.mean(known):.0%}" if known else "n/a"
        yield (
            f"  lag {lag}: {told['share']:.0%} ({significant} where the correlation is significant); behaviours "
            "dealt at "
            f"random {told['shuffled_behaviours']:.0%}, components renamed at random "
            f"{told['shuffled_components']:.0%}; "
            f"p < 0.05 in {sum(row.p < 0.05 for row in rows)} of {len(rows)} behaviours"
        )


def _spectrum_lines(motion: Motion, names: tuple[str, ...]) -> Iterator[str]:
    modulus = np.abs(motion.eigenvalues)
    slowest = time_constants(np.median(modulus[:, :_SHOWN], axis=0))
    yield (
        f"Spectrum of the memory's one-tick Jacobian at {len(modulus)} states: the largest |eigenvalue| is "
        f"{np.median(modulus[:, 0]):.3f} (median; above 1 in {(modulus[:, 0] > 1).mean():.0%} of states). Time "
        "constants "
        f"of the {len(slowest)} largest, in ticks: {', '.join(_ticks(each) for each in slowest)}"
    )
    yield "Slow modes of the layer's mean Jacobian, and the features that their activity goes with:"
    for number, mode in enumerate(motion.modes):
        constant = float(time_constants(np.array(mode.eigenvalue)))
        angle = float(np.angle(mode.eigenvalue))
        turns = f", turns once in {2 * np.pi / angle:.0f} ticks" if mode.eigenvalue.imag > 0 else ""
        yield (
            f"  slow_{number + 1}: |eigenvalue| {abs(mode.eigenvalue):.3f}, time constant {_ticks(constant)} "
            f"ticks{turns}: "
            f"{strongest(motion.mode_associations, number, names)}"
        )


def _ticks(value: float) -> str:
    return f"{value:.1f}" if np.isfinite(value) else "never"


def component_rows(states: States) -> list[dict[str, Any]]:
    """Return one row for each component: what it explains, how stable it is, and what it goes with."""
    names = tuple(feature.name for feature in states.data.features)
    rows = []
    for kind, found in states.decompositions.items():
        for number, name in enumerate(found.names):
            rows.append(
                {
                    "component": name, "explained": float(found.explained[number]),
                    "stability": float(found.stability[number]), "linear_r2": float(found.fidelity[number]),
                    "features": strongest(states.associations[kind], number, names),
                }
            )  # fmt: skip
    return rows


def association_rows(states: States) -> list[dict[str, Any]]:
    """Return one row for each component and feature."""
    return [
        {
            "component": name, "feature": feature.name, "r": float(found.r[i, j]), "p": float(found.p[i, j]),
            "q": float(found.q[i, j]), "informative_lives": int(found.informative[i, j]),
        }
        for kind, found in states.associations.items()
        for i, name in enumerate(states.decompositions[kind].names)
        for j, feature in enumerate(states.data.features)
    ]  # fmt: skip


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows with the same keys as tab-separated text with a line of names; what is unknown stays empty."""
    names = list(rows[0]) if rows else []
    lines = ["\t".join(names), *("\t".join(_cell(row[name]) for name in names) for row in rows)]
    return "\n".join(lines) + "\n"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}" if np.isfinite(value) else ""
    return str(value)
