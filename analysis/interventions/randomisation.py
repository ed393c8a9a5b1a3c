"""The randomisation test over who was edited: did the agents drawn by lot change more than others?"""

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np

from analysis.interventions.pairs import Pairs
from analysis.statistics.inference import Inference
from analysis.statistics.permutation_p import counted_p

_FLOOR = 1e-12

FLIPS: Final = "sign flips over episodes"
Test = Literal["randomisation over who was edited", "sign flips over episodes", "none"]
"""Ways to find a p-value: the first where both edited and unedited lives are known, the second elsewhere."""


def randomisation_test(pairs: Pairs, differences: np.ndarray, settings: Inference) -> tuple[np.ndarray, np.ndarray]:
    """Test O differences of lives from their twins by redrawing who was edited, within each episode.

    The statistic is the mean over episodes of the contrast, (mean difference from the twin of edited agents - the same
    of unedited agents), divided by its standard error over episodes. The division matters: an edit that merely changes
    the course of lives spreads the differences of edited agents, perhaps of all in an episode alike, without moving
    their mean. The plain contrast would then be called significant too often (Chung and Romano 2013, Annals of
    Statistics 41, 484-507); so would one divided by a standard error over lives.

    Args:
        pairs: say who was edited, and in which episode.
        differences: of the same lives, (L, O); NaN where there is none.
        settings: number of permutations, and their seed.

    Returns:
        Contrasts and two-sided p-values, (O,) each. Both are NaN where no episode has lives of both groups; p is NaN
        where no life has a difference other than 0.
    """
    contrast, p = np.full((2, differences.shape[1]), np.nan)
    known = np.isfinite(differences)
    masks, group = np.unique(known, axis=1, return_inverse=True)  # (L, masks), (O,)
    for place, mask in enumerate(masks.T):
        columns = np.flatnonzero(group.ravel() == place)
        episodes = _episodes(pairs, mask, differences[:, columns])
        if not episodes:
            continue
        rng = np.random.default_rng([settings.seed, 2])  # the same draws in all arms with the same lives
        contrasts, statistic = _statistics(episodes, settings.permutations, rng)
        contrast[columns] = contrasts
        differs = np.any([values.any(axis=0) for _, values in episodes], axis=0)
        p[columns] = np.where(differs, counted_p(statistic[0], statistic[1:]), np.nan)
    return contrast, p


def _episodes(pairs: Pairs, mask: np.ndarray, differences: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return who was edited, (n,), and the differences, (n, K), of each episode with lives of both groups."""
    found = []
    for place in range(len(pairs.episodes)):
        rows = np.flatnonzero(mask & (pairs.episode == place))
        edited = pairs.edited[rows]
        if edited.any() and not edited.all():
            found.append((edited, differences[rows]))
    return found


def _statistics(
    episodes: Sequence[tuple[np.ndarray, np.ndarray]], permutations: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the contrasts, (K,), and |contrast / standard error| of the lot as drawn and permuted, (M + 1, K).

    With a single episode there is no standard error, and the contrast itself is the statistic.
    """
    total, squares = np.zeros((2, permutations + 1, episodes[0][1].shape[1]))
    for edited, values in episodes:
        labels = _redrawn(edited, permutations, rng)  # (M + 1, n)
        sums = labels @ (values - values.mean(axis=0))  # of the edited; those of the others are the negatives
        contrast = sums * (1 / edited.sum() + 1 / (~edited).sum())
        total += contrast
        squares += contrast**2
    count = len(episodes)
    mean = total / count
    if count == 1:
        return mean[0], np.abs(mean)
    variance = (squares / count - mean**2) / (count - 1)
    return mean[0], np.abs(mean) / np.sqrt(np.maximum(variance, _FLOOR * squares / count + np.finfo(float).tiny))


def _redrawn(edited: np.ndarray, permutations: int, rng: np.random.Generator) -> np.ndarray:
    """Return who was edited, in the first row as drawn, then permuted, (M + 1, n) float64."""
    labels = np.tile(edited, (permutations + 1, 1))
    labels[1:] = rng.permuted(labels[1:], axis=1)
    return labels.astype(np.float64)
