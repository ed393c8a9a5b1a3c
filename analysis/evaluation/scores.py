"""Scores of policies with intervals: progress at the held-out tasks, weighted by category, and ticks lived.

Also policies compared episode by episode: the probability of improvement, and an Elo-style ranking.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.evaluation.held_out_tasks import CATEGORIES, FULL_SCORE, IN_CATEGORY, PREFIX, TASK_NAMES, TASK_WEIGHTS
from analysis.evaluation.results import MODES, Mode, PolicyRun, mean_of
from analysis.statistics.resampling import Bootstrap, Draws, Estimate, Units, unit_count
from common.user_error import UserError


@dataclass(frozen=True)
class PolicyResults:
    """All that one policy did in one mode: a run for each seed, in the order of seeds."""

    policy: str
    mode: Mode
    runs: tuple[PolicyRun, ...]

    @property
    def units(self) -> Units:
        """The seeds and episodes that intervals resample."""
        return tuple((run.seed, run.episodes or (0,)) for run in self.runs)

    @property
    def episodes(self) -> int | None:
        """How many episodes the policy played over all seeds; None where its files do not tell."""
        counts = [len(run.episodes) for run in self.runs if run.episodes is not None]
        return sum(counts) if counts else None

    @property
    def lives(self) -> int:
        """How many lives ended over all seeds."""
        return sum(len(run.ticks) for run in self.runs)

    @property
    def task_progress(self) -> np.ndarray:
        """Mean progress at each task, averaged over the seeds in which a life had it, (T,); NaN where no life did."""
        progress = [np.where(run.has_task, run.task_progress, 0) for run in self.runs]
        return mean_of(np.sum(progress, axis=0), np.sum([run.has_task for run in self.runs], axis=0))

    @property
    def has_task(self) -> np.ndarray:
        """Whether any life of any seed had each task, (T,) bool."""
        return np.asarray(np.any([run.has_task for run in self.runs], axis=0))


@dataclass(frozen=True)
class PolicyScores:
    """What a policy reached; every number is a mean over seeds, progress over those in which a life had the task."""

    results: PolicyResults
    task_progress: Estimate  # progress averaged over the 63 tasks, 0 to 1
    weighted_score: Estimate  # 0 to 100
    length: Estimate  # mean ticks lived
    median_length: Estimate
    category_progress: tuple[Estimate, ...]
    """Progress averaged over each category's tasks, in the order of `CATEGORIES`."""
    category_score: tuple[Estimate, ...]  # each category's part of the weighted score
    progress_at: tuple[Estimate, ...]  # progress at each task, in the order of `TASK_NAMES`


def gather(runs: Iterable[PolicyRun]) -> list[PolicyResults]:
    """Put the runs of each policy in each mode together; pvp first, then by name."""
    groups: dict[tuple[Mode, str], list[PolicyRun]] = {}
    for run in sorted(runs, key=lambda run: (MODES.index(run.mode), run.policy, run.seed)):
        groups.setdefault((run.mode, run.policy), []).append(run)
    return [PolicyResults(policy, mode, tuple(group)) for (mode, policy), group in groups.items()]


def score(results: PolicyResults, bootstrap: Bootstrap) -> PolicyScores:
    """Score a policy; one that played a single episode, or a single seed without episodes, gets no intervals.

    A score is linear in the progress at each task, so each is a column of `parts @ progress`.
    """
    tasks = len(TASK_WEIGHTS)
    in_category = IN_CATEGORY / IN_CATEGORY.sum(axis=1, keepdims=True)
    parts = np.vstack([np.full(tasks, 1 / tasks), TASK_WEIGHTS, in_category, IN_CATEGORY * TASK_WEIGHTS, np.eye(tasks)])
    observed = np.concatenate([parts @ results.task_progress, ticks_lived(results)])
    if unit_count(results.units) > 1:
        drawn = bootstrap.draw(results.units)
        resampled = np.hstack([resampled_progress(results, drawn) @ parts.T, resampled_ticks(results, drawn)])
        low, high = bootstrap.interval(resampled)
    else:
        low = high = np.full(len(observed), np.nan)
    estimates = [Estimate(*map(float, ends)) for ends in zip(observed, low, high, strict=True)]
    task_progress, weighted_score, *rest, length, median_length = estimates
    categories = len(CATEGORIES)
    return PolicyScores(
        results, task_progress, weighted_score, length, median_length,
        tuple(rest[:categories]), tuple(rest[categories : 2 * categories]), tuple(rest[2 * categories :]),
    )  # fmt: skip


def seed_score(run: PolicyRun) -> tuple[float, float]:
    """Return the task progress and the weighted score of one seed alone.

    Tasks that none of its lives had are left out, and their points go to the other tasks of their category; where a
    category has no others, there is no weighted score, and it is NaN.
    """
    progress, known = run.task_progress, run.has_task
    if known.all():
        return float(progress.mean()), float(progress @ TASK_WEIGHTS)
    if not known.any():
        return np.nan, np.nan
    tasks = (IN_CATEGORY & known).sum(axis=1)
    total = (IN_CATEGORY & known) @ np.where(known, progress, 0)
    return float(progress[known].mean()), float(FULL_SCORE * mean_of(total, tasks).mean())


def ticks_lived(results: PolicyResults) -> np.ndarray:
    """Return mean and median ticks lived, each averaged over seeds, (2,)."""
    return np.mean([[run.ticks.mean(), np.median(run.ticks)] for run in results.runs], axis=0)


def resampled_progress(results: PolicyResults, draws: Draws) -> np.ndarray:
    """Return mean progress at each task in each resample, (R, T).

    Where none of the episodes drawn from a seed has a life with some task, the seed's own mean stands in: that keeps
    resamples centred on the observed score, which leaving the task out would not, since tasks differ in difficulty. A
    seed without any life with the task does not count; where all seeds drawn are such, the mean of the others stands
    in.
    """
    shape = len(draws.seeds), len(TASK_WEIGHTS)
    total, seeds = np.zeros(shape), np.zeros(shape)
    for place, (run, columns) in enumerate(zip(results.runs, draws.slices, strict=True)):
        weights, times = draws.episodes[:, columns], draws.seeds[:, place, None] * run.has_task
        progress = _means(weights @ run.progress_sum, weights @ run.progress_lives, run.task_progress)
        total += times * np.where(run.has_task, progress, 0)
        seeds += times
    return _means(total, seeds, results.task_progress)


def resampled_ticks(results: PolicyResults, draws: Draws) -> np.ndarray:
    """Return mean and median ticks lived in each resample, (R, 2)."""
    ticks = np.zeros((len(draws.seeds), 2))
    for place, (run, columns) in enumerate(zip(results.runs, draws.slices, strict=True)):
        values, value = np.unique(run.ticks, return_inverse=True)
        weights = draws.episodes[:, columns]
        lives = np.zeros((weights.shape[1], len(values)), np.float32)
        np.add.at(lives, (run.ticks_episode, value), 1)
        times = weights @ lives  # how often each resample drew each length of life
        mean = _means(times @ values, times.sum(axis=1), run.ticks.mean())
        ticks += draws.seeds[:, place, None] * np.column_stack([mean, _medians(values, times, np.median(run.ticks))])
    return ticks / len(results.runs)


def _means(total: np.ndarray, count: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    return np.where(count > 0, total / np.maximum(count, 1), otherwise)


def _medians(values: np.ndarray, times: np.ndarray, otherwise: float) -> np.ndarray:
    """Return the median of ascending values that occur so many times, (values,) and (R, values) -> (R,)."""
    up_to = np.cumsum(times, axis=1)
    half = up_to[:, -1:] / 2
    last = len(values) - 1
    lower = values[np.minimum((up_to < half).sum(axis=1), last)]
    upper = values[np.minimum((up_to <= half).sum(axis=1), last)]
    return np.where(half[:, 0] > 0, (lower + upper) / 2, otherwise)


_TASKS_NAMED = 3
_GAPS_NAMED = 3


def scorable(policies: Sequence[PolicyResults]) -> tuple[list[PolicyResults], list[str]]:
    """Return the policies that have a score, and a sentence for each that has none and about gaps in the others.

    A policy has no score if no life had some task in any of its files. A gap is a file without a life at tasks that
    the policy's other files have.

    Raises:
        UserError: no policy has a score.
    """
    scored = [results for results in policies if results.has_task.all()]
    left_out = [
        f"{first.file}{f' and {len(others)} more' if others else ''}, policy {results.policy!r}: no life had "
        f"{_named(~results.has_task)}, so it has no score: play more episodes with evaluate.py -n; an evaluation on a "
        "single task has no score"
        for results in policies
        for first, *others in [results.runs]
        if not results.has_task.all()
    ]
    if not scored:
        raise UserError(left_out[0])
    gaps = [
        f"warning: {run.file}, policy {run.policy!r}: no life had {_named(~run.has_task)}: progress there is the mean "
        "over the policy's other seeds"
        for results in scored
        for run in results.runs
        if not run.has_task.all()
    ]
    if len(gaps) > _GAPS_NAMED:  # one sentence instead of many that differ in files and tasks alone
        more = f"likewise in {len(gaps) - 1} more results of a policy and a seed: evaluate.py -n fills them"
        gaps = [f"{gaps[0]}; {more}"]
    return scored, [*(f"left out: {reason}" for reason in left_out), *gaps]


def _named(tasks: np.ndarray) -> str:
    """Name some of the tasks that are marked, (T,) bool."""
    places = np.flatnonzero(tasks).tolist()
    names = ", ".join(TASK_NAMES[place].removeprefix(PREFIX) for place in places[:_TASKS_NAMED])
    more = ", ..." if len(places) > _TASKS_NAMED else ""
    return f"{len(places)} of the {len(TASK_NAMES)} held-out tasks ({names}{more})"


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
