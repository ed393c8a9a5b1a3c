"""Policies compared episode by episode: the probability of improvement, and an Elo-style ranking."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.evaluation.held_out_tasks import TASK_WEIGHTS
from analysis.evaluation.scores import PolicyResults
from analysis.statistics.resampling import Bootstrap, Estimate, Units, unit_count

ELO_MEAN = 1000.0
ELO_FACTOR = 400 / np.log(10)
"""Elo points of one unit of log odds: 400 points are odds of ten to one."""

_DECIMALS = 9  # sums in another order must not turn a tie into a win
_NEWTON_STEPS = 200
_LONGEST_STEP = 2.0
_SMALL_STEP = 1e-8


@dataclass(frozen=True)
class Improvement:
    """How likely an episode of `policy` scores higher than one of `other`; how many episodes each played."""

    policy: str
    other: str
    probability: Estimate
    episodes: int
    other_episodes: int


@dataclass(frozen=True)
class Rating:
    """A policy's place on the Elo scale."""

    policy: str
    rating: Estimate
    outcomes: int  # how many comparisons with another policy in a shared episode it rests on
    won: float  # share of them that it won, ties half


def episode_scores(policies: Sequence[PolicyResults]) -> list[np.ndarray]:
    """Return each policy's weighted score in each of its episodes, seed after seed, (U,) each, for one mode's policies.

    A task that no life of an episode had counts at par, the mean progress at it over these policies: so no episode is
    better or worse for the tasks it drew. With a life at every task this is the weighted score itself.
    """
    par = np.mean([results.task_progress for results in policies], axis=0)
    scores = []
    for results in policies:
        total = np.concatenate([run.progress_sum for run in results.runs])
        lives = np.concatenate([run.progress_lives for run in results.runs])
        progress = np.where(lives > 0, total / np.maximum(lives, 1), par)
        scores.append(np.round(progress @ TASK_WEIGHTS, _DECIMALS))
    return scores


def improvements(policies: Sequence[PolicyResults], bootstrap: Bootstrap) -> list[Improvement]:
    """Compare each pair of one mode's policies, each with those named after it."""
    scores = episode_scores(policies)
    compared = []
    for place, (results, own) in enumerate(zip(policies, scores, strict=True)):
        for other, others in zip(policies[place + 1 :], scores[place + 1 :], strict=True):
            once = np.ones((1, len(own))), np.ones((1, len(others)))
            probability = float(probability_of_improvement(own, others, *once)[0])
            low = high = np.array(np.nan)
            if unit_count(results.units) > 1 and unit_count(other.units) > 1:
                weights = bootstrap.draw(results.units).episodes, bootstrap.draw(other.units).episodes
                low, high = bootstrap.interval(probability_of_improvement(own, others, *weights))
            estimate = Estimate(probability, float(low), float(high))
            compared.append(Improvement(results.policy, other.policy, estimate, len(own), len(others)))
    return compared


def probability_of_improvement(
    scores: np.ndarray, others: np.ndarray, weights: np.ndarray, other_weights: np.ndarray
) -> np.ndarray:
    """Return the share of pairs in which `scores` is the higher, ties half, for each resample.

    Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical precipice", section 4.3: the
    Mann-Whitney U statistic over the number of pairs.

    Args:
        scores, others: (N,) and (M,).
        weights, other_weights: how often each is drawn, (R, N) and (R, M).

    Returns:
        (R,) float64.
    """
    order = np.argsort(others)
    drawn_below = np.pad(np.cumsum(other_weights[:, order], axis=1), ((0, 0), (1, 0)))
    places = [np.searchsorted(others[order], scores, side) for side in ("left", "right")]
    wins = np.einsum("rn,rn->r", weights, (drawn_below[:, places[0]] + drawn_below[:, places[1]]) / 2)
    return wins / weights.sum(axis=1, dtype=np.float64) / other_weights.sum(axis=1, dtype=np.float64)


def ranking(policies: Sequence[PolicyResults], bootstrap: Bootstrap) -> list[Rating]:
    """Rank policies that shared worlds, best first.

    An outcome is which of two policies has the higher episode score in an episode that both played, ties half.
    Policies that no chain of shared episodes links to most of the others get no rating.
    """
    units, wins = shared_outcomes(policies)
    total = wins.sum(axis=0)
    linked = _linked(total)
    met = (total + total.T > 0)[np.ix_(linked, linked)]
    ratings = np.full((len(policies), 3), np.nan)
    if linked.sum() > 1:
        ratings[linked, 0] = elo(total[None][:, linked][:, :, linked], met)[0]
        if unit_count(units) > 1:
            between = wins[:, linked][:, :, linked]
            resampled = bootstrap.draw(units).episodes @ between.reshape(len(wins), -1)
            ratings[linked, 1:] = np.stack(bootstrap.interval(elo(resampled.reshape(-1, *met.shape), met)), axis=1)
    outcomes = total.sum(axis=1) + total.sum(axis=0)
    won = total.sum(axis=1) / np.maximum(outcomes, 1)
    rows = [
        Rating(results.policy, Estimate(*map(float, rating)), round(float(count)), float(share) if count else np.nan)
        for results, rating, count, share in zip(policies, ratings, outcomes, won, strict=True)
    ]
    return sorted(rows, key=lambda row: -np.nan_to_num(row.rating.value, nan=-np.inf))


def shared_outcomes(policies: Sequence[PolicyResults]) -> tuple[Units, np.ndarray]:
    """Return all episodes of one mode, and for each and each pair of P policies who did better.

    Returns:
        The episodes, U in all, and (U, P, P) float32: 1 where the row's policy did better than the column's, 0.5 for
        each at a tie, 0 otherwise and where not both played.
    """
    played: dict[int, set[int]] = {}
    for results in policies:
        for seed, episodes in results.units:
            played.setdefault(seed, set()).update(episodes)
    units = tuple((seed, tuple(sorted(played[seed]))) for seed in sorted(played))
    row = {place: i for i, place in enumerate((seed, number) for seed, numbers in units for number in numbers)}
    scores = np.full((len(row), len(policies)), np.nan)
    for column, (results, own) in enumerate(zip(policies, episode_scores(policies), strict=True)):
        scores[[row[seed, number] for seed, numbers in results.units for number in numbers], column] = own
    first, second = scores[:, :, None], scores[:, None, :]
    others = ~np.eye(len(policies), dtype=bool)
    return units, ((first > second) + 0.5 * (first == second)).astype(np.float32) * others


def elo(wins: np.ndarray, met: np.ndarray) -> np.ndarray:
    """Return Bradley-Terry ratings on the Elo scale, with a mean of 1000, by maximum likelihood (Newton's method).

    Each pair that met is given one drawn game more, so that a policy that won or lost every one has a finite rating.
    Bradley and Terry 1952, "Rank analysis of incomplete block designs"; the scale is Elo's, 1978.

    Args:
        wins: how often each policy beat each other, ties half to both, (R, P, P).
        met: which pairs met, (P, P) bool, all policies linked.

    Returns:
        (R, P) float64.
    """
    wins = wins + met / 2.0
    games = wins + wins.transpose(0, 2, 1)
    strength = np.zeros(wins.shape[:2])
    for _ in range(_NEWTON_STEPS):
        chance = 1 / (1 + np.exp(strength[:, None, :] - strength[:, :, None]))
        slope = (wins - games * chance).sum(axis=2)
        bend = games * chance * (1 - chance)
        # The likelihood does not change where all strengths shift: a constant matrix takes that direction out.
        matrix = 1.0 - bend
        np.einsum("rpp->rp", matrix)[:] += bend.sum(axis=2)
        step = np.linalg.solve(matrix, slope[..., None])[..., 0]
        strength += step * np.minimum(1, _LONGEST_STEP / np.maximum(np.abs(step).max(axis=1, keepdims=True), 1e-300))
        if np.abs(step).max() < _SMALL_STEP:
            break
    return ELO_MEAN + ELO_FACTOR * (strength - strength.mean(axis=1, keepdims=True))


def _linked(wins: np.ndarray) -> np.ndarray:
    """Return which policies belong to the largest group linked by shared episodes, (P,) bool."""
    from scipy.sparse.csgraph import connected_components

    _, group = connected_components(wins + wins.T > 0, directed=False)
    return np.asarray(group == np.bincount(group).argmax())
