"""Result files are read or refused, and scores and comparisons are those worked out by hand or planted."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.evaluation.held_out_tasks import (
    CATEGORIES,
    IN_CATEGORY,
    TASK_CATEGORIES,
    TASK_NAMES,
    TASK_WEIGHTS,
    task_index,
)
from analysis.evaluation.results import PolicyRun, find_result_files, read_results
from analysis.evaluation.scores import (
    PolicyResults,
    PolicyScores,
    elo,
    episode_scores,
    gather,
    improvements,
    probability_of_improvement,
    ranking,
    resampled_progress,
    resampled_ticks,
    score,
)
from analysis.statistics.resampling import Bootstrap
from common.checked_json import CHECKSUM, entry_checksum
from common.user_error import UserError
from reinforcement_learning.game.tasks import evaluation_tasks, training_tasks
from tests.command import assert_refuses
from tests.fuzz import flip
from tests.planted_results import Results, as_original, play, provenance, write

TASKS = len(TASK_NAMES)
RUNS = 300


def planted_run(
    rng: np.random.Generator, skill: float, episodes: int = 20, lives: int = 400, seed: int = 1, spread: float = 0.2
) -> PolicyRun:
    """A policy whose mean progress at every task is `skill`; luck moves all lives of an episode by up to `spread`."""
    luck = rng.uniform(-spread, spread, (episodes, 1))
    counts = rng.multinomial(lives, np.full(TASKS, 1 / TASKS), size=episodes)
    length = rng.geometric(1 / (100 + 200 * luck), (episodes, lives)).astype(float)
    return PolicyRun(
        Path(f"eval_pve_{seed}.json"), "planted", "pve", seed, tuple(range(episodes)), length.ravel(),
        np.repeat(np.arange(episodes), lives), rng.binomial(counts, skill + luck).astype(float), counts.astype(float),
        None,
    )  # fmt: skip


def scored(*runs: PolicyRun, **settings: float) -> PolicyScores:
    bootstrap = Bootstrap(**{"resamples": 400, **settings})
    (results,) = gather(runs)
    return score(results, bootstrap)


def run_of(sums: np.ndarray, lives: np.ndarray, ticks: list[float], seed: int = 1, episodes: bool = True) -> PolicyRun:
    """A run from (E, T) arrays, its lives in the first episode."""
    numbers = tuple(range(len(sums))) if episodes else None
    place = np.zeros(len(ticks), np.int64)
    return PolicyRun(Path("f"), "p", "pvp", seed, numbers, np.array(ticks), place, sums, lives, None)


def test_a_score_worked_out_by_hand() -> None:
    """Full survival, one of three combat tasks at 0.6 and half of the item tasks at 0.5."""
    progress = np.zeros(TASKS)
    progress[0] = 1.0
    progress[1] = 0.6
    item = [place for place, category in enumerate(TASK_CATEGORIES) if category == "item"]
    progress[item[:22]] = 0.5
    lives = np.full((1, TASKS), 4.0)
    result = scored(run_of(progress[None] * 4, lives, [10, 20, 60, 110]))
    assert result.weighted_score.value == pytest.approx(100 / 6 * (1 + 0.6 / 3 + 0.25))
    assert result.task_progress.value == pytest.approx((1 + 0.6 + 11) / 63)
    assert [one.value for one in result.category_score] == pytest.approx([100 / 6, 10 / 3, 0, 0, 100 / 24, 0])
    assert [one.value for one in result.category_progress] == pytest.approx([1, 0.2, 0, 0, 0.25, 0])
    assert [one.value for one in result.progress_at] == pytest.approx(progress)
    assert (result.length.value, result.median_length.value) == (50, 40)
    assert np.isnan([result.weighted_score.low, result.length.high]).all(), "one episode allows no interval"


def test_lives_count_alike_within_a_seed_and_seeds_count_alike() -> None:
    sums, lives = np.zeros((2, TASKS)), np.ones((2, TASKS))
    lives[0, 0], sums[0, 0], sums[1, 0] = 3, 3, 0  # three lives that reached it, one that did not
    first = run_of(sums, lives, [10, 30])
    second = run_of(np.zeros((1, TASKS)), np.ones((1, TASKS)), [100], seed=2)
    assert scored(first).progress_at[0].value == pytest.approx(0.75)
    both = scored(first, second)
    assert both.progress_at[0].value == pytest.approx(0.375)
    assert both.weighted_score.value == pytest.approx(TASK_WEIGHTS[0] * 0.375)
    assert (both.length.value, both.median_length.value) == (60, 60)


def test_a_seed_without_episodes_is_one_unit() -> None:
    rng = np.random.default_rng(0)
    lives = np.full((1, TASKS), 5.0)
    alone = run_of(rng.binomial(5, 0.4, (1, TASKS)).astype(float), lives, [5, 9], episodes=False)
    assert np.isnan(scored(alone).weighted_score.low) and scored(alone).results.episodes is None
    drawn = [rng.binomial(5, 0.4, (1, TASKS)).astype(float) for _ in range(5)]
    runs = [run_of(sums, lives, [5, 9], seed, episodes=False) for seed, sums in enumerate(drawn)]
    result = scored(*runs)
    item = [float(run.task_progress @ TASK_WEIGHTS) for run in runs]
    low, value, high = result.weighted_score.low, result.weighted_score.value, result.weighted_score.high
    assert min(item) <= low < value < high <= max(item)
    assert value == pytest.approx(np.mean(item))


@pytest.mark.slow
def test_intervals_of_one_seed_cover_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(1)
    scores = [scored(planted_run(rng, 0.4)).weighted_score for _ in range(RUNS)]
    inside, above, below = np.mean([(s.low <= 40.0 <= s.high, s.low > 40, s.high < 40) for s in scores], axis=0)
    assert 0.90 <= inside <= 0.98  # the binomial spread of 300 runs around 0.95, and few episodes
    assert max(above, below) < 0.06


@pytest.mark.parametrize(("between", "most"), [(0.15, 0.99), (0.0, 1.0)], ids=["seeds differ", "seeds are alike"])
@pytest.mark.slow
def test_intervals_of_several_seeds_cover_the_truth_at_least_as_often(between: float, most: float) -> None:
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(RUNS // 2):
        skills = 0.4 + rng.uniform(-between, between, 10)
        result = scored(*(planted_run(rng, skill, 6, seed=seed) for seed, skill in enumerate(skills)))
        covered += result.weighted_score.low <= 40.0 <= result.weighted_score.high
    assert 0.90 <= covered / (RUNS // 2) <= most


def test_a_task_that_a_resample_leaves_without_lives_keeps_its_mean() -> None:
    """One of eight episodes has the only life with a task: a third of the resamples do not draw that episode."""
    sums, lives = np.full((8, TASKS), 0.5), np.ones((8, TASKS))
    sums[1:, 5] = lives[1:, 5] = 0
    results = PolicyResults("p", "pvp", (run_of(sums, lives, [1.0]),))
    drawn = Bootstrap(resamples=200).draw(results.units)
    assert (drawn.episodes[:, 0] == 0).any()
    np.testing.assert_allclose(resampled_progress(results, drawn), 0.5)
    assert (resampled_ticks(results, drawn) == 1.0).all()


def test_a_task_that_a_seed_lacks_counts_in_the_other_seeds() -> None:
    """Also in resamples; where a resample draws only seeds without it, the observed mean stands in."""
    shape = (2, TASKS)
    first, second, third = (run_of(np.full(shape, p), np.ones(shape), [5.0], s) for s, p in enumerate((0.2, 0.6, 1.0)))
    first.progress_sum[:, 5] = first.progress_lives[:, 5] = 0
    assert np.isnan(first.task_progress[5]) and first.task_progress[4] == 0.2
    results = PolicyResults("p", "pvp", (first, second, third))
    assert results.task_progress[4] == pytest.approx(0.6) and results.task_progress[5] == pytest.approx(0.8)
    drawn = Bootstrap(resamples=300).draw(results.units)
    progress = resampled_progress(results, drawn)
    _, twice, thrice = drawn.seeds.T
    there = twice + thrice
    expected = np.where(there > 0, (0.6 * twice + 1.0 * thrice) / np.maximum(there, 1), 0.8)
    np.testing.assert_allclose(progress[:, 5], expected)
    np.testing.assert_allclose(progress[:, 4], drawn.seeds @ [0.2, 0.6, 1.0] / 3)
    assert (there == 0).any()


def test_draws_are_whole_and_repeatable_and_widen_with_confidence() -> None:
    units = ((1, (0, 1, 2)), (5, (0, 7)))
    drawn = Bootstrap(resamples=500).draw(units)
    assert (drawn.seeds.sum(axis=1) == 2).all()
    for seed, columns, size in zip(drawn.seeds.T, drawn.slices, (3, 2), strict=True):
        assert (drawn.episodes[:, columns].sum(axis=1) == seed * size).all()
    again = Bootstrap(resamples=500).draw(units)
    assert (again.episodes == drawn.episodes).all()
    assert (Bootstrap(resamples=500, seed=1).draw(units).episodes != drawn.episodes).any()
    run = planted_run(np.random.default_rng(5), 0.3)
    narrow, wide = (scored(run, confidence=share).weighted_score for share in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.value < narrow.high < wide.high
    rng = np.random.default_rng(4)
    # The weighted sums of ticks against plain repetition of the lives.
    run = planted_run(rng, 0.4, 6, 11)
    results = PolicyResults("p", "pve", (run,))
    drawn = Bootstrap(resamples=50).draw(results.units)
    for weights, ticks in zip(drawn.episodes.astype(int), resampled_ticks(results, drawn), strict=True):
        lives = np.repeat(run.ticks, weights[run.ticks_episode])
        np.testing.assert_allclose(ticks, [lives.mean(), np.median(lives)])


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
    result = probability_of_improvement(own, others, weights, other_weights)
    for w, v, probability in zip(weights, other_weights, result, strict=True):
        pairs = np.subtract.outer(np.repeat(own, w), np.repeat(others, v))
        assert probability == pytest.approx((pairs > 0).mean() + (pairs == 0).mean() / 2)


def test_an_episode_has_the_weighted_score_and_tasks_that_it_lacks_count_at_par() -> None:
    rng = np.random.default_rng(1)
    progress = rng.random((4, TASKS))
    results = PolicyResults("p", "pvp", (run_of(progress * 3, np.full((4, TASKS), 3.0), [1.0]),))
    np.testing.assert_allclose(episode_scores([results])[0], progress @ TASK_WEIGHTS)
    sums, lives = np.zeros((2, TASKS)), np.ones((2, TASKS))
    sums[0] = 0.5
    lives[1, 0] = 0  # the second episode never had the only survival task
    own = PolicyResults("p", "pvp", (run_of(sums, lives, [1.0]),))
    other = PolicyResults("q", "pvp", (run_of(np.zeros((2, TASKS)), np.ones((2, TASKS)), [1.0]),))
    par = (0.5 + 0) / 2
    np.testing.assert_allclose(episode_scores([own, other])[0], [50, par * 100 / 6])


def test_planted_order_is_found(tmp_path: Path) -> None:
    policies = planted(tmp_path, seeds=2)
    assert [row.policy for row in ranking(policies, BOOTSTRAP)] == ["best", "middling", "worst"]
    compared = {(row.policy, row.other): row.probability for row in improvements(policies, BOOTSTRAP)}
    assert set(compared) == {("best", "middling"), ("best", "worst"), ("middling", "worst")}
    assert all(0.6 < item.low < item.value < item.high <= 1 for item in compared.values())
    assert compared["best", "worst"].value > compared["best", "middling"].value
    ratings = {row.policy: row for row in ranking(policies, BOOTSTRAP)}
    assert np.mean([row.rating.value for row in ratings.values()]) == pytest.approx(1000)
    assert all(row.outcomes == 2 * 120 for row in ratings.values())
    assert ratings["worst"].rating.high < ratings["middling"].rating.low
    assert ratings["middling"].rating.high < ratings["best"].rating.low


def test_equal_policies_are_not_told_apart(tmp_path: Path) -> None:
    """In 40 evaluations of twins the 95% interval misses even odds about twice."""
    rng, missed = np.random.default_rng(2), 0
    for _ in range(40):
        policies = read(tmp_path, {"eval_pvp_1.json": play({"one": 0.4, "other": 0.4}, 30, 20, rng)})
        (compared,) = improvements(policies, BOOTSTRAP)
        first, second = ranking(policies, BOOTSTRAP)
        missed += not compared.probability.low <= 0.5 <= compared.probability.high
        assert first.rating.value + second.rating.value == pytest.approx(2000)
    assert missed <= 7


def test_elo_recovers_planted_ratings_ties_and_constant_winners() -> None:
    """Expected wins at known ratings; the drawn game for each pair moves them by less than a point."""
    planted_ratings = np.array([800.0, 950.0, 1050.0, 1200.0])
    chance = 1 / (1 + 10 ** (np.subtract.outer(planted_ratings, planted_ratings).T / 400))
    met = ~np.eye(4, dtype=bool)
    wins = 20_000 * chance * met
    np.testing.assert_allclose(elo(wins[None], met)[0], planted_ratings, atol=1)
    np.testing.assert_allclose(elo(np.stack([wins, wins.T]), met)[1], 2000 - planted_ratings, atol=1)
    met = ~np.eye(3, dtype=bool)
    np.testing.assert_allclose(elo(5.0 * met[None], met), 1000)
    met = ~np.eye(2, dtype=bool)
    ((first, second),) = elo(np.array([[[0, 200.0], [0, 0]]]), met)
    assert first - second == pytest.approx(400 * np.log10(200.5 / 0.5))
    ((low, high),) = elo(np.array([[[0, 0], [1e6, 0]]]), met)
    assert np.isfinite([low, high]).all() and high > low


def test_who_never_met_has_no_rating_and_who_always_wins_no_interval(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    met = ({"a": 0.1, "b": 0.4}, {"b": 0.4, "c": 0.7}, {"x": 0.5, "y": 0.1})
    files = {f"eval_pvp_{seed}.json": play(skills, 40, 30, rng) for seed, skills in enumerate(met, 1)}
    policies = read(tmp_path, files)
    ratings = {row.policy: row for row in ranking(policies, BOOTSTRAP)}
    assert list(ratings)[:3] == ["c", "b", "a"], "a and c met through b"
    assert np.isfinite([ratings[name].rating.low for name in "abc"]).all()
    assert np.isnan([ratings[name].rating.value for name in "xy"]).all()
    policies = planted(tmp_path / "sure", skills={"bad": 0.0, "good": 1.0}, episodes=10)
    (compared,) = improvements(policies, BOOTSTRAP)
    best, _ = ranking(policies, BOOTSTRAP)
    assert (compared.policy, compared.probability.value, best.policy, best.won) == ("bad", 0, "good", 1)
    assert np.isnan([compared.probability.low, best.rating.low]).all()


def test_seeds_are_the_unit_where_files_tell_no_episodes(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    skills = {"one": 0.4, "other": 0.45}
    files = {f"eval_pvp_{seed}.json": as_original(play(skills, 10, 63, rng)) for seed in range(6)}
    policies = read(tmp_path / "six", files)
    ratings = ranking(policies, BOOTSTRAP)
    better = [one > other for one, other in zip(*episode_scores(policies), strict=True)]
    assert 0 < sum(better) < 6 and {row.policy: row.won for row in ratings}["one"] == pytest.approx(np.mean(better))
    assert ratings[0].outcomes == 6 and np.isfinite(ratings[0].rating.low)
    alone = read(tmp_path / "one", {"eval_pvp_0.json": files["eval_pvp_0.json"]})
    (rating, *_), (compared, *_) = (of(alone, BOOTSTRAP) for of in (ranking, improvements))
    assert np.isnan([rating.rating.low, compared.probability.high]).all()


RESULTS = play({"one": 0.3, "other": 0.6}, 6, 40, np.random.default_rng(0), tasks_in_turn=True)
for policy in RESULTS:
    RESULTS[policy]["provenance"] = provenance("pvp", 1, 6)


def test_every_life_is_read_into_its_episode_whatever_the_numbers_of_episodes(tmp_path: Path) -> None:
    one, _ = read_results(write(tmp_path, "eval_pvp_1.json", RESULTS))
    assert (one.policy, one.mode, one.seed, one.episodes) == ("one", "pvp", 1, tuple(range(6)))
    assert one.ticks.tolist() == RESULTS["one"]["length"]
    assert one.ticks_episode.tolist() == RESULTS["one"]["episode/length"]
    for place, name in enumerate(TASK_NAMES):
        values, episodes = RESULTS["one"][name], RESULTS["one"][f"episode/{name}"]
        for episode in range(6):
            mine = [v for v, e in zip(values, episodes, strict=True) if e == episode]
            assert (one.progress_lives[episode, place], one.progress_sum[episode, place]) == (len(mine), sum(mine))
    assert one.provenance is not None and one.provenance.episodes == 6
    shuffled = {key: value for key, value in RESULTS["one"].items() if key != "provenance"}
    for key in [key for key in shuffled if key.startswith("episode/")]:
        shuffled[key] = [100 - 7 * number for number in shuffled[key]]
    (run,) = read_results(write(tmp_path, "eval_pve_3.json", {"one": shuffled}))
    assert run.episodes == (65, 72, 79, 86, 93, 100)
    np.testing.assert_array_equal(run.progress_sum, one.progress_sum[::-1])


def test_policies_that_did_not_share_worlds_are_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    contests = play({"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4}, 6, 40, rng)
    for name, opponent in ("ab", "ba", "cd", "dc"):
        contests[name]["provenance"] = provenance("pvp", 1, 6, opponents=[opponent])
    apart = write(tmp_path, "eval_pvp_1.json", contests)
    assert_refuses(r"eval_pvp_1.json: 'a' and 'c' were not played in the same worlds", read_results, apart)
    together = write(tmp_path / "one", "eval_pvp_1.json", {name: contests[name] for name in "ab"})
    assert [run.policy for run in read_results(together)] == ["a", "b"]
    for name in contests:
        contests[name]["provenance"] |= {"mode": "pve", "opponents": []}
    assert len(read_results(write(tmp_path, "eval_pve_1.json", contests))) == 4, "alone, each has its own worlds"


def test_an_original_file_gives_the_same_means(tmp_path: Path) -> None:
    ours = read_results(write(tmp_path / "ours", "eval_pvp_1.json", RESULTS))
    theirs = read_results(write(tmp_path / "theirs", "eval_pvp_1.json", {**as_original(RESULTS), "idle": {}}))
    assert [run.policy for run in theirs] == ["one", "other"], "a policy without any results is none"
    for mine, other in zip(ours, theirs, strict=True):
        assert other.episodes is None and other.provenance is None
        np.testing.assert_allclose(other.task_progress, mine.task_progress, rtol=1e-12)
        np.testing.assert_array_equal(other.ticks, mine.ticks)
        assert other.task_progress[0] == pytest.approx(np.mean(RESULTS[mine.policy][TASK_NAMES[0]]))


def test_files_are_found_once_each(tmp_path: Path) -> None:
    files = [write(tmp_path, f"eval_pvp_{seed}.json", RESULTS) for seed in (1, 2)]
    write(tmp_path, "other.json", {})
    assert find_result_files([tmp_path, files[1], tmp_path / "." / "eval_pvp_1.json"]) == files
    assert_refuses("holds no result files", find_result_files, [tmp_path, Path(tempfile.mkdtemp(dir=tmp_path))])
    assert_refuses("name without mode and seed", find_result_files, [write(tmp_path, "eval_both_1.json", {})])


def with_checksums(results: Mapping[str, Any]) -> dict[str, Any]:
    return {name: {**lists, CHECKSUM: entry_checksum(name, lists)} for name, lists in results.items()}


def differences(ours: list[PolicyRun], theirs: list[PolicyRun]) -> list[str]:
    """Names of what differs between runs, but for the file."""
    pairs = [(vars(one), vars(other)) for one, other in zip(ours, theirs, strict=True)]
    names = [name for name in vars(ours[0]) if name != "file"]
    return [name for one, other in pairs for name in names if not np.array_equal(one[name], other[name])]


def test_every_flipped_bit_of_results_with_a_checksum_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    """Whole, they are read as those without."""
    file = write(tmp_path, "eval_pvp_1.json", with_checksums(RESULTS))
    whole, content = read_results(file), file.read_bytes()
    assert differences(read_results(write(tmp_path / "plain", "eval_pvp_1.json", RESULTS)), whole) == []
    random, refused = np.random.default_rng(0), 0
    for place in random.choice(len(content), 300, replace=False):
        flip(file, place, 1 << int(random.integers(8)), content)
        try:
            assert differences(read_results(file), whole) == []
        except UserError:
            refused += 1
    assert refused > 290  # the rest are in keys of checksums and the like
    for checksum in (None, 3, "0" * 64, ["x"] * 3):
        wrong = {**with_checksums(RESULTS), "one": {**RESULTS["one"], CHECKSUM: checksum}}
        message = "policy 'one': its results do not match their checksum"
        assert_refuses(message, read_results, write(tmp_path, "eval_pvp_1.json", wrong))


def test_names_and_categories_are_those_of_the_game_and_no_others() -> None:
    game = [(f"curriculum/{spec.name}", spec.tags[0]) for spec in evaluation_tasks()]
    assert list(zip(TASK_NAMES, TASK_CATEGORIES, strict=True)) == game and len(set(TASK_NAMES)) == 63
    assert IN_CATEGORY.sum(axis=1).tolist() == [1, 3, 2, 8, 44, 5]
    np.testing.assert_allclose(IN_CATEGORY @ TASK_WEIGHTS, 100 / len(CATEGORIES))
    assert [task_index(name) for name in TASK_NAMES] == list(range(63))
    assert [task_index(f"curriculum/{spec.name}") for spec in training_tasks(128)] == [None] * len(training_tasks(128))
    own = "curriculum/Task_DefeatEntity_(agent_type:npc_level:3_num_agent:20)_reward_to:agent"
    turned = "curriculum/Task_DefeatEntity_(level:3_num_agent:20_agent_type:npc)_reward_to:agent"
    assert task_index(turned) == TASK_NAMES.index(own)
    assert task_index("curriculum/Task_TickGE_(num_tick: 1024)_reward_to:agent") == 0
    others = ("()_reward_to:agent", "(num_tick:1024)_reward_to:team", "(num_tick:512)_reward_to:agent",
              "(num_tick:1024_num_tick:1024)_reward_to:agent", "(more_num_tick:1024)_reward_to:agent")  # fmt: skip
    for key in (
        "",
        "length",
        "curriculum/",
        TASK_NAMES[0][11:],
        *(f"curriculum/Task_TickGE_{rest}" for rest in others),
    ):
        assert task_index(key) is None, key
