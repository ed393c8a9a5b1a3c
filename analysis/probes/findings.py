"""What the probes of one dump found: scores, advantages, increments and selectivity, with intervals and tests.

Commonality: three probes of each target, of the given variables, of the memory and of both, split what both explain
into what only the memory tells, what only the given variables tell, and what either tells (Mood 1971, "Partitioning
variance in multiple regression analyses"). Yes-or-no targets are taken as 0 and 1 and scored by R squared too, since
AUCs do not add up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.probes.dataset import ProbeData
from analysis.probes.inputs import Columns, Input
from analysis.probes.probing import Probed
from analysis.probes.ridge import fit_ridge
from analysis.probes.scores import Estimates, Key, Losses, estimate, losses
from analysis.probes.task import alike, mean_of_the_rest, scored_alike, smooth_basis
from analysis.statistics.resampling import folds_of

EVERY_BASELINE = "every"
"""In the place of a baseline: the increment over that one to which the memory adds with the least certainty."""

_SMALLEST_SCORE = 0.01
"""R squared of the memory below which there is nothing of which a share could remain."""


@dataclass(frozen=True)
class Findings:
    """Everything by probe and input; advantage, increment and selectivity for memories only."""

    scores: dict[Key, Estimates]
    precision: dict[Key, Estimates]  # average precision of binary targets, NaN for others
    advantages: dict[Key, Estimates]
    """What a memory's probe scores beyond the best of all baselines. The best of several noisy baselines looks better
    than any is, so the bias is negative where it matters, and the advantage errs towards too little."""
    increments: dict[Key, dict[str, Estimates]]
    """What a memory adds to each baseline: the score of a probe of both minus that of the same probe of the baseline.
    `EVERY_BASELINE` is the one over the baseline to which the memory adds with the least certainty; its p-value tests
    whether the memory adds to every baseline (an intersection-union test: Berger 1982, "Multiparameter hypothesis
    testing and acceptance sampling", Technometrics 24)."""
    selectivities: dict[Key, Estimates]
    increments_given: dict[Key, dict[str, Estimates]]
    """To every baseline that also reads the given variables; empty if there are none."""


def findings(probed: Probed, inputs: Sequence[Input], weights: np.ndarray, chance: np.ndarray) -> Findings:
    """Compare memories with baselines and with control tasks.

    A memory's probe of one kind has to beat the baselines' probes of every kind. `weights` are those of `draw_worlds`,
    (R, W), and `chance` is the score of knowing nothing, (T,).
    """
    memories = {source.name for source in inputs if source.kind == "memory"}
    drawn = {key: losses.resampled(weights) for key, losses in probed.losses.items()}
    baselines = [key for key in drawn if key[1] not in memories]
    wanted = [key for key in drawn if key[1] in memories]
    return Findings(
        scores={key: _score(probed.losses[key], drawn[key], chance) for key in drawn},
        precision={
            key: estimate(own.score, own.resampled(weights), _informative(own)) for key, own in probed.precision.items()
        },
        advantages={key: _advantage(key, baselines, probed, drawn) for key in wanted if baselines},
        increments=_increments(wanted, probed.together, probed.losses, weights),
        selectivities={key: _difference(probed.losses[key], probed.controls[key], weights) for key in wanted},
        increments_given=_increments(wanted, probed.known_together, probed.known, weights),
    )


def _score(losses: Losses, drawn: np.ndarray, chance: np.ndarray) -> Estimates:
    beyond = estimate(losses.score - chance, drawn - chance, _informative(losses))
    return Estimates(losses.score, beyond.low + chance, np.minimum(beyond.high + chance, 1.0), beyond.p)


def _advantage(key: Key, baselines: Sequence[Key], probed: Probed, drawn: dict[Key, np.ndarray]) -> Estimates:
    own = probed.losses[key]
    others = np.stack([probed.losses[baseline].score for baseline in baselines])  # (baselines, T)
    value = own.score - others.max(axis=0)
    # The best baseline is chosen anew in every resample, so that its choice widens the interval too.
    differences = drawn[key] - np.stack([drawn[baseline] for baseline in baselines]).max(axis=0)
    known = np.isfinite(value)
    best = tuple(
        baselines[place] if there else None
        for place, there in zip(np.where(known, others, 0).argmax(axis=0), known, strict=True)
    )
    bias = np.where(known, np.where(np.isfinite(differences), differences, value).mean(axis=0) - value, np.nan)
    return replace(estimate(value, differences, _informative(own)), over=best, bias=bias)


def _increments(
    wanted: Sequence[Key], together: Mapping[tuple[str, str, str], Losses], alone: Mapping[Key, Losses],
    weights: np.ndarray,
) -> dict[Key, dict[str, Estimates]]:  # fmt: skip
    over: dict[Key, dict[str, Estimates]] = {}
    for (probe, memory, baseline), both in together.items():
        over.setdefault((probe, memory), {})[baseline] = _difference(both, alone[probe, baseline], weights)
    return {key: {**over[key], EVERY_BASELINE: _least(key[0], over[key])} for key in wanted if key in over}


def _least(probe: str, over: Mapping[str, Estimates]) -> Estimates:
    """Return, for each target, the increment with the largest p-value."""
    # Where a test is not possible, as between two probes without any error, nothing shows that the memory adds.
    p = np.stack([np.where(np.isfinite(e.p), e.p, np.where(np.isfinite(e.value), 1, -1)) for e in over.values()])
    place = p.argmax(axis=0)
    names, targets = list(over), np.arange(p.shape[1])
    known = p[place, targets] >= 0
    numbers = np.stack([(e.value, e.low, e.high, own_p) for e, own_p in zip(over.values(), p, strict=True)])
    value, low, high, largest = np.where(known, numbers[place, :, targets].T, np.nan)
    least_over = tuple((probe, names[i]) if there else None for i, there in zip(place, known, strict=True))
    return Estimates(value, low, high, largest, least_over)


def _difference(own: Losses, other: Losses, weights: np.ndarray) -> Estimates:
    """Return how much better one probe scores than another one."""
    return estimate(own.score - other.score, own.resampled(weights) - other.resampled(weights), _informative(own))


def _informative(losses: Losses) -> np.ndarray:
    return np.count_nonzero(losses.stake > 0, axis=0)


def commonality(data: ProbeData, memory: str, usable: np.ndarray, weights: np.ndarray) -> dict[str, Estimates]:
    """Split the R squared of what a memory and the given variables explain.

    Args:
        usable: which targets can be probed, (T,) bool.
        weights: of resamples, as `draw_worlds` returns them.

    Returns:
        R squared of the `given` variables alone, of the `memory` alone and of `both`; what the memory adds to the given
        variables, `only_memory`, and they to it, `only_given`; what either tells, `common`, below 0 where they tell
        more together than apart; and `remaining`, only_memory as a share of memory, NaN where that tells nothing.
    """
    alone, hidden = Columns.of(smooth_basis(data.given)), data.inputs[memory]
    blocks = {"given": alone, "memory": Columns.of(hidden), "both": alone.beside(hidden)}
    lost = {name: _losses_of_block(block, data, usable) for name, block in blocks.items()}
    once, drawn = (
        _parts({name: losses.resampled(of) for name, losses in lost.items()})
        for of in (np.ones((1, data.worlds)), weights)
    )
    return {name: estimate(once[name][0], drawn[name], _informative(lost["both"])) for name in once}


def _losses_of_block(x: Columns, data: ProbeData, usable: np.ndarray) -> Losses:
    fold = folds_of(data.world)

    def score(here: tuple[np.ndarray, ...], rows: np.ndarray, columns: np.ndarray) -> Losses:
        y, by_r_squared = data.targets[here], np.zeros(len(columns), bool)
        predicted = fit_ridge(replace(x, rows=np.flatnonzero(rows)), y, fold[rows]).predicted
        return losses(predicted, y, mean_of_the_rest(y, fold[rows]), data.world[rows], data.worlds, by_r_squared)

    groups = [(rows, columns[usable[columns]]) for rows, columns in alike(np.isfinite(data.targets))]
    return scored_alike(data, [group for group in groups if len(group[1])], score)


def _parts(score: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    given, memory, both = score["given"], score["memory"], score["both"]
    something = memory >= _SMALLEST_SCORE
    remaining = np.divide(both - given, memory, out=np.full(memory.shape, np.nan), where=something)
    return {
        **score, "only_memory": both - given, "only_given": both - memory, "common": given + memory - both,
        "remaining": remaining,
    }  # fmt: skip
