"""Comparisons against planted orders, brute force and ratings known beforehand."""

from pathlib import Path

import numpy as np
import pytest

from analysis.evaluation.comparisons import elo, episode_scores, improvements, probability_of_improvement, ranking
from analysis.evaluation.held_out_tasks import TASK_NAMES, TASK_WEIGHTS
from analysis.evaluation.results import read_results
from analysis.evaluation.scores import PolicyResults, gather
from analysis.statistics.resampling import Bootstrap, KeptDraws
from tests.analysis.evaluation.test_scores import run_of
from tests.planted_results import Results, as_original, play, write

TASKS = len(TASK_NAMES)
BOOTSTRAP = Bootstrap(resamples=300)
SKILLS = {"worst": 0.2, "middling": 0.35, "best": 0.5}


def read(folder: Path, files: dict[str, Results]) -> list[PolicyResults]:
    return gather(run for name, results in files.items() for run in read_results(write(folder, name, results)))


def planted(folder: Path, seeds: int = 1, skills: dict[str, float] = SKILLS, episodes: int = 60) -> list[PolicyResults]:
    rng = np.random.default_rng(0)
    return read(folder, {f"eval_pvp_{seed}.json": play(skills, episodes, 40, rng) for seed in range(seeds)})


def test_probability_of_improvement_is_the_share_of_pairs_won() -> None:
    rng = np.random.default_rng(0)
    own, others = rng.integers(0, 5, 12) / 4, rng.integers(0, 5, 9) / 4
    weights, other_weights = rng.integers(0, 3, (20, 12)), rng.integers(0, 3, (20, 9))
    for w, v, probability in zip(
        weights, other_weights, probability_of_improvement(own, others, weights, other_weights), strict=True
    ):
        pairs = np.subtract.outer(np.repeat(own, w), np.repeat(others, v))
        assert probability == pytest.approx((pairs > 0).mean() + (pairs == 0).mean() / 2)


def test_an_episode_with_a_life_at_every_task_has_the_weighted_score() -> None:
    rng = np.random.default_rng(1)
    progress = rng.random((4, TASKS))
    results = PolicyResults("p", "pvp", (run_of(progress * 3, np.full((4, TASKS), 3.0), [1.0]),))
    np.testing.assert_allclose(episode_scores([results])[0], progress @ TASK_WEIGHTS)


def test_tasks_that_an_episode_lacks_count_at_par() -> None:
    sums, lives = np.zeros((2, TASKS)), np.ones((2, TASKS))
    sums[0] = 0.5
    lives[1, 0] = 0  # the second episode never had the only survival task
    own = PolicyResults("p", "pvp", (run_of(sums, lives, [1.0]),))
    other = PolicyResults("q", "pvp", (run_of(np.zeros((2, TASKS)), np.ones((2, TASKS)), [1.0]),))
    par = (0.5 + 0) / 2
    np.testing.assert_allclose(episode_scores([own, other])[0], [50, par * 100 / 6])


def test_planted_order_is_found(tmp_path: Path) -> None:
    policies = planted(tmp_path, seeds=2)
    draws = KeptDraws(BOOTSTRAP)
    assert [row.policy for row in ranking(policies, BOOTSTRAP, draws)] == ["best", "middling", "worst"]
    compared = {(row.policy, row.other): row.probability for row in improvements(policies, BOOTSTRAP, draws)}
    assert set(compared) == {("best", "middling"), ("best", "worst"), ("middling", "worst")}
    assert all(0.6 < item.low < item.value < item.high <= 1 for item in compared.values())
    assert compared["best", "worst"].value > compared["best", "middling"].value
    ratings = {row.policy: row for row in ranking(policies, BOOTSTRAP, draws)}
    assert np.mean([row.rating.value for row in ratings.values()]) == pytest.approx(1000)
    assert all(row.outcomes == 2 * 120 for row in ratings.values())
    assert ratings["worst"].rating.high < ratings["middling"].rating.low
    assert ratings["middling"].rating.high < ratings["best"].rating.low


def test_equal_policies_are_not_told_apart(tmp_path: Path) -> None:
    """In 40 evaluations of twins the 95% interval misses even odds about twice."""
    rng, missed = np.random.default_rng(2), 0
    for _ in range(40):
        policies = read(tmp_path, {"eval_pvp_1.json": play({"one": 0.4, "other": 0.4}, 30, 20, rng)})
        (compared,) = improvements(policies, BOOTSTRAP, KeptDraws(BOOTSTRAP))
        first, second = ranking(policies, BOOTSTRAP, KeptDraws(BOOTSTRAP))
        missed += not compared.probability.low <= 0.5 <= compared.probability.high
        assert first.rating.value + second.rating.value == pytest.approx(2000)
    assert missed <= 7


def test_elo_recovers_planted_ratings() -> None:
    """Expected wins at known ratings; the drawn game for each pair moves them by less than a point."""
    planted_ratings = np.array([800.0, 950.0, 1050.0, 1200.0])
    chance = 1 / (1 + 10 ** (np.subtract.outer(planted_ratings, planted_ratings).T / 400))
    met = ~np.eye(4, dtype=bool)
    wins = 20_000 * chance * met
    np.testing.assert_allclose(elo(wins[None], met)[0], planted_ratings, atol=1)
    np.testing.assert_allclose(elo(np.stack([wins, wins.T]), met)[1], 2000 - planted_ratings, atol=1)


def test_a_policy_that_always_wins_has_a_finite_rating() -> None:
    met = ~np.eye(2, dtype=bool)
    ((first, second),) = elo(np.array([[[0, 200.0], [0, 0]]]), met)
    assert first - second == pytest.approx(400 * np.log10(200.5 / 0.5))
    ((low, high),) = elo(np.array([[[0, 0], [1e6, 0]]]), met)
    assert np.isfinite([low, high]).all() and high > low


def test_winning_every_episode_leaves_no_interval(tmp_path: Path) -> None:
    policies = planted(tmp_path, skills={"bad": 0.0, "good": 1.0}, episodes=10)
    (compared,) = improvements(policies, BOOTSTRAP, KeptDraws(BOOTSTRAP))
    best, _ = ranking(policies, BOOTSTRAP, KeptDraws(BOOTSTRAP))
    assert (compared.policy, compared.probability.value, best.policy, best.won) == ("bad", 0, "good", 1)
    assert np.isnan([compared.probability.low, best.rating.low]).all()


def test_all_ties_mean_equal_ratings() -> None:
    met = ~np.eye(3, dtype=bool)
    np.testing.assert_allclose(elo(5.0 * met[None], met), 1000)


def test_policies_that_never_met_the_others_have_no_rating(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    policies = read(
        tmp_path,
        {
            "eval_pvp_1.json": play({"a": 0.1, "b": 0.4}, 40, 30, rng),
            "eval_pvp_2.json": play({"b": 0.4, "c": 0.7}, 40, 30, rng),
            "eval_pvp_3.json": play({"x": 0.5, "y": 0.1}, 40, 30, rng),
        },
    )
    ratings = {row.policy: row for row in ranking(policies, BOOTSTRAP, KeptDraws(BOOTSTRAP))}
    assert list(ratings)[:3] == ["c", "b", "a"], "a and c met through b"
    assert np.isfinite([ratings[name].rating.low for name in "abc"]).all()
    assert np.isnan([ratings[name].rating.value for name in "xy"]).all()


def test_seeds_are_the_unit_where_files_tell_no_episodes(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    skills = {"one": 0.4, "other": 0.45}
    files = {f"eval_pvp_{seed}.json": as_original(play(skills, 10, 63, rng)) for seed in range(6)}
    policies = read(tmp_path / "six", files)
    ratings = ranking(policies, BOOTSTRAP, KeptDraws(BOOTSTRAP))
    better = [one > other for one, other in zip(*episode_scores(policies), strict=True)]
    assert 0 < sum(better) < 6 and {row.policy: row.won for row in ratings}["one"] == pytest.approx(np.mean(better))
    assert ratings[0].outcomes == 6 and np.isfinite(ratings[0].rating.low)
    alone = read(tmp_path / "one", {"eval_pvp_0.json": files["eval_pvp_0.json"]})
    (rating, *_), (compared, *_) = (of(alone, BOOTSTRAP, KeptDraws(BOOTSTRAP)) for of in (ranking, improvements))
    assert np.isnan([rating.rating.low, compared.probability.high]).all()
