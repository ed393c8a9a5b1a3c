"""The randomisation test over who was edited: did the agents drawn by lot change more than others?"""

from collections.abc import Sequence

import numpy as np

from analysis.interventions.pairs import Pairs
from analysis.statistics.inference import Inference
from analysis.statistics.permutation_p import counted_p

_FLOOR = 1e-12


def randomisation_test(pairs: Pairs, outcomes: Sequence[str], settings: Inference) -> tuple[np.ndarray, np.ndarray]:
    """Test each outcome of an arm by redrawing who was edited, within each episode, as the lot drew it.

    The statistic is the contrast, the mean over episodes of (mean difference from the twin of edited agents - the same
    of unedited agents), divided by its standard error. The division matters: an edit that merely changes the course of
    lives spreads the differences of edited agents without moving their mean. The plain contrast would then be called
    significant too often if fewer agents are edited than not (Chung and Romano 2013, Annals of Statistics 41, 484-507).

    Args:
        pairs: of the arm.
        outcomes: names, O of them.
        settings: number of permutations, and their seed.

    Returns:
        Contrasts and two-sided p-values, (O,) each. Both are NaN where no episode has lives of both groups; p is NaN
        where no life differs from its twin at all.
    """
    differences = np.stack([pairs.difference(name) for name in outcomes], axis=1)  # (L, O)
    contrast, p = np.full((2, len(outcomes)), np.nan)
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

    The standard error uses the spread of each group within episodes, or the spread of contrasts over episodes if no
    episode has two edited, or no episode two unedited lives.
    """
    outcomes = episodes[0][1].shape[1]
    total, squares = np.zeros((2, permutations + 1, outcomes))
    within = np.zeros((2, permutations + 1, outcomes))
    freedom, share = np.zeros(2), np.zeros(2)
    scale = np.zeros(outcomes)
    for edited, values in episodes:
        labels = _redrawn(edited, permutations, rng)  # (M + 1, n)
        counts = np.array([edited.sum(), (~edited).sum()])
        centred = values - values.mean(axis=0)
        scale += (centred**2).mean(axis=0)
        sums, powers = labels @ centred, labels @ centred**2  # of the edited; sums of the others are the negatives
        contrast = sums * (1 / counts).sum()
        total += contrast
        squares += contrast**2
        within[0] += powers - sums**2 / counts[0]
        within[1] += (centred**2).sum(axis=0) - powers - sums**2 / counts[1]
        freedom += counts - 1
        share += 1 / counts
    count = len(episodes)
    mean = total / count
    if freedom.all():
        variance = (within * (share / freedom)[:, None, None]).sum(axis=0) / count**2
    elif count > 1:
        variance = (squares / count - mean**2) / (count - 1)
    else:
        variance = np.ones_like(mean)
    floor = _FLOOR * scale / count + np.finfo(float).tiny
    return mean[0], np.abs(mean) / np.sqrt(np.maximum(variance, floor))


def _redrawn(edited: np.ndarray, permutations: int, rng: np.random.Generator) -> np.ndarray:
    """Return who was edited, in the first row as drawn, then permuted, (M + 1, n) float64."""
    labels = np.tile(edited, (permutations + 1, 1))
    labels[1:] = rng.permuted(labels[1:], axis=1)
    return labels.astype(np.float64)
