"""What an analysis of dynamics says of how long things last."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from analysis.dynamics.fixed_points import TICKS
from analysis.dynamics.jacobians import time_constants
from analysis.dynamics.memory_length import (
    WHOLE,
    WHOLE_ALIKE,
    MemoryLength,
    MemoryUse,
    situations_compared,
    use_by_situation,
)
from analysis.dynamics.motion_stages import HeldInput, Persisting
from analysis.dynamics.perturbations import FollowedEdit
from analysis.dynamics.results import StudiedStates
from analysis.statistics.resampling import Estimate

_SMALL = 0.01


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
        *(f"  {_held_line(held)}" for held in persisting.held),
    ]


def _half_life(estimate: Estimate) -> str:
    ticks = [
        f"{number:.1f}" if np.isfinite(number) else "not reached"
        for number in (estimate.value, estimate.low, estimate.high)
    ]
    return f"{ticks[0]} ({ticks[1]} to {ticks[2]})"


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
        "KL of the actions in nats once the whole memory is another life's, and once it is that of another life in the "
        "same situation, with 95% intervals over lives:"
    )
    for (group, replaced), use in uses.items():
        if replaced == WHOLE:
            alike = uses.get((group, WHOLE_ALIKE))
            matched = "" if alike is None else f"; same situation: {_with_interval(alike)}"
            yield f"  {group} ({use.decisions} decisions of {use.lives} lives): {_with_interval(use)}{matched}"
    for use in situations_compared(length):
        if use.outcome == "kl":
            compared = f"{_with_interval(use)}, p {use.p:.4f}"
            yield f"  {use.group}, within {use.lives} lives: same situation: {compared}"


def _with_interval(use: MemoryUse) -> str:
    between = "" if np.isnan(use.low) else f" ({use.low:.3f} to {use.high:.3f})"
    return f"{use.value:.3f}{between}"


def _held_line(held: HeldInput) -> str:
    points, starts = held.points, len(held.starts)
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
    return f"{held.name}: {'; '.join(kinds)}{rest}{_spread_text(points.half_spread)}"


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
        "fixed_points": [_held_summary(held) for held in persisting.held],
    }  # fmt: skip


def _held_summary(held: HeldInput) -> dict[str, Any]:
    points = held.points
    return {
        "input": held.name,
        "speed": np.where(points.fixed, 0.0, points.speed).tolist(),
        "settled": points.settled.tolist(),
        "half_spread": points.half_spread if np.isfinite(points.half_spread) else None,
        "unstable": points.unstable.tolist(),
        "largest_modulus": np.abs(points.eigenvalues[:, 0]).tolist(),
    }
