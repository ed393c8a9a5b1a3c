"""What is left of a score once other variables are known: commonality analysis, cross-validated.

Three probes of each target, of the given variables, of the memory and of both, split what both explain into what only
the memory tells, what only the given variables tell, and what either tells (Mood 1971, "Partitioning variance in
multiple regression analyses"). Yes-or-no targets are taken as 0 and 1 and scored by R squared too, since AUCs do not
add up.
"""

from dataclasses import dataclass

import numpy as np

from representation.probes.dataset import ProbeData
from representation.probes.given import smooth_basis
from representation.probes.inference import Estimates, Resamples
from representation.probes.ridge import fit_ridge
from representation.probes.scores import Losses, losses
from representation.probes.splits import folds_of_worlds
from representation.probes.task import alike, mean_of_the_rest

_SMALLEST_SCORE = 0.01
"""R squared of the memory below which there is nothing of which a share could remain."""


@dataclass(frozen=True)
class Commonality:
    """R squared split up, of every target, (T,) each.

    Attributes:
        given: of the given variables alone.
        memory: of the memory alone.
        both: of both together.
        only_memory: what the memory adds to the given variables.
        only_given: what the given variables add to the memory.
        common: what either tells; below 0 where they tell more together than apart.
        remaining: only_memory as a share of memory; NaN where the memory tells nothing.
    """

    given: Estimates
    memory: Estimates
    both: Estimates
    only_memory: Estimates
    only_given: Estimates
    common: Estimates
    remaining: Estimates


def commonality(data: ProbeData, memory: str, usable: np.ndarray, resamples: Resamples) -> Commonality:
    """Split what a memory and the given variables explain.

    Args:
        data: with given variables.
        memory: name of an input.
        usable: which targets can be probed, (T,) bool.
        resamples: of the worlds.
    """
    given, hidden = smooth_basis(data.given), data.inputs[memory]
    blocks = {"given": given, "memory": hidden, "both": np.concatenate([given, hidden], axis=1)}
    found = {name: _losses(block, data, usable) for name, block in blocks.items()}
    at_all = np.ones((1, data.worlds))
    once, drawn = (
        _parts({name: each.resampled(weights) for name, each in found.items()})
        for weights in (at_all, resamples.weights)
    )
    informative = np.count_nonzero(found["both"].stake > 0, axis=0)
    return Commonality(**{name: resamples.estimate(once[name][0], drawn[name], informative) for name in once})


def _losses(x: np.ndarray, data: ProbeData, usable: np.ndarray) -> Losses:
    fold = folds_of_worlds(data.world)[data.world]
    lost, stake = np.zeros((2, data.worlds, data.targets.shape[1]))
    for rows, columns in alike(np.isfinite(data.targets)):
        columns = columns[usable[columns]]
        if len(columns):
            y = data.targets[np.ix_(rows, columns)]
            predicted = fit_ridge(x[rows], y, fold[rows]).predicted
            mean, by_r_squared = mean_of_the_rest(y, fold[rows]), np.zeros(len(columns), bool)
            part = losses(predicted, y, mean, data.world[rows], data.worlds, by_r_squared)
            lost[:, columns], stake[:, columns] = part.lost, part.stake
    return Losses(lost, stake)


def _parts(score: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    given, memory, both = score["given"], score["memory"], score["both"]
    something = memory >= _SMALLEST_SCORE
    remaining = np.divide(both - given, memory, out=np.full(memory.shape, np.nan), where=something)
    return {
        **score,
        "only_memory": both - given,
        "only_given": both - memory,
        "common": given + memory - both,
        "remaining": remaining,
    }
