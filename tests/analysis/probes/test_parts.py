"""The parts that probes are made of, and logistic probes, each against a library or a plain computation."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import average_precision_score, log_loss, r2_score, roc_auc_score
from sklearn.preprocessing import StandardScaler

from analysis.probes import logistic, mlp
from analysis.probes.dataset import TIME_CONSTANTS, Reservoir, traces
from analysis.probes.inputs import Columns, inputs_named, title_of
from analysis.probes.logistic import TrainingSet, basis_of, correlation, solve
from analysis.probes.mlp import fit_mlp
from analysis.probes.probing import classified, mean_of_the_rest, shifted_within_lives, smooth_basis
from analysis.probes.ridge import (
    ALL_FOLDS,
    PENALTIES,
    Choice,
    Fitted,
    Moments,
    NormalEquations,
    fit_ridge,
    fit_ridge_beside,
)
from analysis.probes.scores import average_precision, debiased_cka, draw_worlds, estimate, losses, similarities
from analysis.probes.targets import DEFAULT, HIDDEN, OF_FEATURES, TARGETS, targets_named
from analysis.statistics.resampling import folds_of
from tests.command import assert_refuses
from tests.planted_lives import make_lives


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def equations(x: np.ndarray, y: np.ndarray) -> NormalEquations:
    return NormalEquations(Moments.of(Columns.of(x), y, np.arange(len(y))))


@pytest.mark.parametrize("penalty", [1e-3, 1.0])
def test_ridge_is_the_librarys_on_columns_scaled_after_standardisation(
    rng: np.random.Generator, penalty: float
) -> None:
    """A scale of 0 leaves columns out."""
    x = rng.normal(size=(300, 9)) * rng.uniform(0.1, 50, 9) + 100
    x[:, 3] = 7  # a column that never changes
    y = x[:, :2] @ rng.normal(size=(2, 3)) + rng.normal(size=(300, 3))
    scales = np.array([[1.0] * 9, [1.0] * 5 + [10.0] * 4, [1.0] * 5 + [0.0] * 4])
    result = equations(x, y).fit(Choice(np.full(3, penalty), scales))
    scaled = StandardScaler().fit_transform(x)
    for column, scale in enumerate(scales):
        theirs = Ridge(penalty * len(x)).fit(scaled * scale, y[:, column]).predict(scaled * scale)
        np.testing.assert_allclose(result.predict(x)[:, column], theirs, atol=1e-6)
    assert not result.weight[5:, 2].any()


def test_every_record_is_predicted_by_probes_fitted_and_tuned_on_other_folds(rng: np.random.Generator) -> None:
    x, fold = rng.normal(size=(200, 30)).astype(np.float32), np.repeat([0, 1, 2, 3], 50)
    y = x[:, :1] + 2 * rng.normal(size=(200, 1))
    fitted, plain = fit_ridge(x, y, fold), lambda penalty: Choice(np.array([penalty]), np.ones((1, 30)))
    for test in range(4):
        rest = [item for item in range(4) if item != test]
        loss = np.zeros(len(PENALTIES))
        for held_out in rest:
            train = (fold != test) & (fold != held_out)
            for i, penalty in enumerate(PENALTIES):
                predicted = equations(x[train], y[train]).fit(plain(penalty)).predict(x[fold == held_out])
                loss[i] += ((predicted - y[fold == held_out]) ** 2).sum()
        best = equations(x[fold != test], y[fold != test]).fit(plain(PENALTIES[loss.argmin()]))
        np.testing.assert_allclose(fitted.predicted[fold == test], best.predict(x[fold == test]), atol=1e-8)


def test_bands_are_chosen_for_each_target_within_the_folds(rng: np.random.Generator) -> None:
    """One target is in a few columns among much noise, another in all: each gets the band that predicts it."""
    x, fold = rng.normal(size=(400, 60)).astype(np.float32), np.arange(400) % 4
    y = np.stack([x[:, 0] + rng.normal(size=400), x @ rng.normal(size=60) / 4 + rng.normal(size=400)], axis=1)
    few = np.where(np.arange(60) < 2, 1.0, 0.0)
    chosen = fit_ridge(x, y, fold, np.stack([few, np.ones(60)])).choices
    for choice in chosen.values():
        assert choice.scales[0].sum() == 2 and choice.scales[1].sum() == 60
    # The choice without a fold does not depend on that fold.
    garbled = np.where((fold == 2)[:, None], rng.normal(size=y.shape) * 100, y)
    again = fit_ridge(x, garbled, fold, np.stack([few, np.ones(60)])).choices[2]
    np.testing.assert_array_equal(again.scales, chosen[2].scales)
    np.testing.assert_array_equal(again.penalty, chosen[2].penalty)


def test_two_blocks_are_banded_ridge_tuned_on_other_folds(rng: np.random.Generator) -> None:
    """The whole nested cross-validation again, with scikit-learn's ridge on scaled columns, for every pair."""
    fold = np.repeat([0, 1, 2], 40)
    baseline, memory, other = (rng.normal(size=(120, n)).astype(np.float32) * 3 + 1 for n in (25, 4, 3))
    y = np.stack([baseline[:, 0] + memory[:, 1] + rng.normal(size=120), memory[:, 0] * 1.0], axis=1)
    y[:, 1] += 4 * rng.normal(size=120)
    result = fit_ridge_beside(baseline, {"memory": memory, "other": other}, y, fold)
    x = np.concatenate([baseline, memory], axis=1)

    def fit(train: np.ndarray, column: int, pair: tuple[float, float]) -> np.ndarray:
        scale = np.r_[np.ones(25), np.full(4, np.sqrt(pair[0] / pair[1]))]
        scaler = StandardScaler().fit(x[train].astype(float))
        model = Ridge(pair[0] * train.sum()).fit(scaler.transform(x[train]) * scale, y[train, column])
        return model.predict(scaler.transform(x.astype(float)) * scale)

    pairs = [(a, b) for a in PENALTIES for b in PENALTIES if 0.0099 < a / b < 10100]
    for test in range(3):
        for column in range(2):
            loss = []
            for pair in pairs:
                errors = 0.0
                for held_out in (n for n in range(3) if n != test):
                    output = fit((fold != test) & (fold != held_out), column, pair)
                    errors += ((output - y[:, column])[fold == held_out] ** 2).sum()
                loss.append(errors)
            expected = fit(fold != test, column, pairs[int(np.argmin(loss))])[fold == test]
            np.testing.assert_allclose(result["memory"].predicted[fold == test, column], expected, atol=1e-6)
    output = result["memory"].read_outs.predict(x)
    assert np.corrcoef(output[:, 0], y[:, 0])[0, 1] > 0.8
    assert result["other"].predicted.shape == y.shape and not np.allclose(result["other"].predicted, output, atol=0.1)


def test_traces_and_reservoirs_are_a_plain_loop_over_each_life(rng: np.random.Generator) -> None:
    lives, values = make_lives([1, 40, 7, 40]), rng.normal(size=(88, 3))
    result = traces(values, lives).reshape(88, len(TIME_CONSTANTS), 3)
    for start, length in zip(lives.starts, lives.lengths, strict=True):
        for place, constant in enumerate(TIME_CONSTANTS):
            trace = values[start]
            for tick in range(length):
                trace = trace + (values[start + tick] - trace) / constant
                np.testing.assert_allclose(result[start + tick, place], trace, rtol=1e-5, atol=1e-6)
    lives, values = make_lives([60, 3, 60]), rng.normal(2, 5, (123, 4))
    reservoir = Reservoir.draw(values, seed=1)
    result = reservoir.run(values, lives)
    standardised = (values - values.mean(axis=0)) / values.std(axis=0)
    for start, length in zip(lives.starts, lives.lengths, strict=True):
        state = np.zeros(result.shape[1])
        for tick in range(start, start + length):
            new = np.tanh(standardised[tick] @ reservoir.inward + state @ reservoir.recurrent)
            state = (1 - reservoir.rate) * state + reservoir.rate * new
            np.testing.assert_allclose(result[tick], state, rtol=1e-4, atol=1e-5)
    assert np.abs(np.linalg.eigvals(reservoir.recurrent)).max() == pytest.approx(0.95)
    assert (1 / reservoir.rate).min() == 2 and (1 / reservoir.rate).max() == pytest.approx(256)
    np.testing.assert_array_equal(Reservoir.draw(values, seed=1).run(values, lives), result)


def test_a_network_takes_the_weight_decay_that_a_target_needs(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few records and many columns of noise the heaviest decay predicts better than the lightest."""
    x, fold = rng.normal(size=(600, 80)).astype(np.float32), np.arange(600) % 3
    y = x[:, :1] + 3 * rng.normal(size=(600, 1))
    mean, world, ranked = mean_of_the_rest(y, fold), fold, np.zeros(1, bool)

    def score() -> float:
        return losses(fit_mlp(x, y, fold, ranked, 0), y, mean, world, 3, ranked).score[0]

    chosen = score()
    monkeypatch.setattr(mlp, "WEIGHT_DECAYS", mlp.WEIGHT_DECAYS[:1])
    assert chosen > score() + 0.01


def test_a_network_learns_a_target_that_no_record_of_the_stopping_fold_has(rng: np.random.Generator) -> None:
    """The first epoch would be the best for ever: without records, nothing is ever wrong."""
    x, fold = rng.normal(size=(900, 4)).astype(np.float32), np.arange(900) % 5
    y = np.where((fold == 1)[:, None], np.nan, 2 * x[:, :1])
    predicted = fit_mlp(x, y, fold, np.zeros(1, bool), 0)
    assert np.corrcoef(predicted[fold == 0, 0], y[fold == 0, 0])[0, 1] > 0.9


def test_ridge_makes_nothing_of_columns_that_only_rounding_varies_in_its_training_records(
    rng: np.random.Generator,
) -> None:
    """Sums of squares of a constant are no constant times its square: the difference must not pass for a variance."""
    fold = np.arange(30_000) % 3
    x = np.repeat(rng.uniform(0.01, 20, (1, 100)).astype(np.float32), 30_000, axis=0)
    x[(fold == 0) & (rng.random(30_000) < 0.1)] *= 3
    y = rng.normal(50, 1, (30_000, 1))
    for result in (fit_ridge(x, y, fold), fit_ridge_beside(x[:, :50], {"other": x[:, 50:]}, y, fold)["other"]):
        here = fold == 0
        np.testing.assert_allclose(result.predicted[here], mean_of_the_rest(y, fold)[here], rtol=1e-9)


@pytest.mark.parametrize("constant", [0.0, 0.1])
def test_a_network_makes_nothing_of_a_column_that_its_training_records_do_not_vary_in(
    rng: np.random.Generator, constant: float
) -> None:
    """Such as gold that agents have in one world only: linear probes leave it out there, too."""
    x, fold = rng.normal(size=(900, 4)).astype(np.float32), np.arange(900) % 3
    y, none = 2 * x[:, :1], np.zeros(1, bool)
    gold = np.where((fold == 0) & (rng.random(900) < 0.1), 300, constant).astype(np.float32)
    without = fit_mlp(np.column_stack([x, np.full(900, constant, np.float32)]), y, fold, none, 0)
    result = fit_mlp(np.column_stack([x, gold]), y, fold, none, 0)
    np.testing.assert_array_equal(result[fold == 0], without[fold == 0])


def test_scores_are_the_librarys_in_each_world_and_guessing_the_mean_scores_zero(rng: np.random.Generator) -> None:
    y = np.stack([rng.normal(size=90), rng.integers(0, 2, 90)], axis=1).astype(float)
    predicted = np.round(y + rng.normal(size=y.shape), 1)  # with ties
    one_world, ranked = np.zeros(90, np.int64), np.array([False, True])
    mean = np.broadcast_to(y.mean(axis=0), y.shape)
    score = losses(predicted, y, mean, one_world, 1, ranked).score
    np.testing.assert_allclose(score, [r2_score(y[:, 0], predicted[:, 0]), roc_auc_score(y[:, 1], predicted[:, 1])])
    y, predicted = rng.integers(0, 2, (90, 1)).astype(float), rng.normal(size=(90, 1))
    world = np.repeat([0, 1, 2], 30)
    y[world == 2] = 0  # a world without a positive has no say
    result = average_precision(predicted, y, world, 3)
    parts = [average_precision_score(y[world == n, 0], predicted[world == n, 0]) for n in (0, 1)]
    counts = [y[world == n].sum() for n in (0, 1)]
    assert result.score[0] == pytest.approx(np.average(parts, weights=counts)) and result.stake[2, 0] == 0
    y, fold = rng.normal(size=(60, 1)) + np.repeat([0, 5, 9], 20)[:, None], np.repeat([0, 1, 2], 20)
    mean = mean_of_the_rest(y, fold)
    np.testing.assert_allclose(mean[0, 0], y[fold != 0].mean())
    assert losses(mean, y, mean, fold, 3, np.zeros(1, bool)).score[0] == 0
    y, world = rng.integers(0, 2, (200, 1)).astype(float), np.repeat([0, 1], 100)
    assert losses(y + 10 * world[:, None], y, y * 0, world, 2, np.ones(1, bool)).score[0] == 1


def test_controls_stay_within_lives_and_folds_are_whole_worlds(
    rng: np.random.Generator,
) -> None:
    lives = make_lives([1, 2, 3, 40])
    values = np.arange(46.0)[:, None]
    shifted = shifted_within_lives(values, lives, seed=0)
    for start, length in zip(lives.starts, lives.lengths, strict=True):
        part = shifted[start : start + length, 0]
        moved = int(part[0] - start)
        np.testing.assert_array_equal(part, np.roll(np.arange(start, start + length), -moved))
        assert moved > 0 or length == 1
    assert 10 <= shifted[6, 0] - 6 <= 30
    world = np.repeat(np.arange(12), rng.integers(50, 100, 12))
    folds = folds_of(world)
    assert sorted(set(folds.tolist())) == [0, 1, 2, 3, 4]
    assert len({*zip(world.tolist(), folds.tolist(), strict=True)}) == 12
    sizes = np.bincount(folds)
    assert sizes.max() < 2 * sizes.min()
    assert len(set(folds_of(np.array([0, 1, 2])).tolist())) == 3
    given = np.column_stack([rng.uniform(-3, 3, 500), rng.integers(0, 3, 500)])
    basis = smooth_basis(given)
    y = np.column_stack([given[:, 0] ** 2, given[:, 1] == 1]).astype(float)
    fitted = basis @ np.linalg.lstsq(basis, y, rcond=None)[0]
    assert (1 - (fitted - y).var(axis=0) / y.var(axis=0) > 0.99).all()


def test_intervals_cover_as_often_as_they_say(rng: np.random.Generator) -> None:
    for worlds in (4, 8, 20):
        values = rng.normal(1, 1, (worlds, 2000))
        weights = draw_worlds(worlds, 1000, seed=0)
        drawn = weights @ values / worlds
        result = estimate(values.mean(axis=0), drawn, np.full(2000, worlds))
        assert 0.93 < ((result.low < 1) & (result.high > 1)).mean() < 0.97


def test_cka_is_that_of_the_kernels_one_of_rotations_and_none_of_strangers(rng: np.random.Generator) -> None:
    """Song et al. 2012, equation 5, written out with (N, N) matrices."""
    x, y = rng.normal(size=(25, 4)), rng.normal(size=(25, 6))
    y[:, 0] += x[:, 0]

    def hsic(a: np.ndarray, b: np.ndarray) -> float:
        n, one = len(a), np.ones(len(a))
        k, m = (case @ case.T for case in (a - a.mean(axis=0), b - b.mean(axis=0)))
        np.fill_diagonal(k, 0), np.fill_diagonal(m, 0)
        sums = (one @ k @ one) * (one @ m @ one) / ((n - 1) * (n - 2))
        return (np.trace(k @ m) + sums - 2 / (n - 2) * (one @ k @ m @ one)) / (n * (n - 3))

    assert debiased_cka(x, y) == pytest.approx(hsic(x, y) / np.sqrt(hsic(x, x) * hsic(y, y)))
    x = rng.normal(size=(80, 30)) * np.arange(1, 31)
    rotation, _ = np.linalg.qr(rng.normal(size=(30, 30)))
    assert debiased_cka(x, 3 * x @ rotation + 5) == pytest.approx(1)
    strangers = [debiased_cka(rng.normal(size=(60, 200)), rng.normal(size=(60, 200))) for _ in range(50)]
    assert abs(np.mean(strangers)) < 0.02  # the plain estimator would give about 0.8


def test_slow_lives_do_not_make_strangers_alike(rng: np.random.Generator) -> None:
    """Two layers that share nothing, each constant through every life: records would look alike, lives do not."""
    lives = make_lives([30] * 60)
    layers = {name: np.repeat(rng.normal(size=(60, 20)), 30, axis=0) for name in ("one", "other")}
    ((value, low, high),) = similarities(layers, lives, lives.index // 10, seed=0).values()
    assert abs(value) < 0.1 and low < 0 < high
    layers["still"] = np.ones((1800, 20))
    assert all(np.isnan(similarities(layers, lives, lives.index // 10, seed=0)["one", "still"]))
    layers = dict.fromkeys(("one", "other"), rng.normal(size=(1800, 20)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ((value, low, high),) = similarities(layers, lives, lives.index // 10, seed=0).values()
    assert value == low == high == pytest.approx(1)


def test_targets_are_described_and_checkpoints_are_baselines_by_name() -> None:
    assert sum(name in OF_FEATURES for name in DEFAULT) >= 35 and set(HIDDEN) <= set(DEFAULT)
    assert len(set(DEFAULT)) == len(DEFAULT) == len(targets_named(["default"]))
    assert all(target.unit and target.definition.endswith(".") for target in TARGETS.values())
    assert_refuses(r"no target 'self_heath': did you mean self_health\?", targets_named, ["self_heath"])
    assert_refuses("no input 'lstm'", inputs_named, ["lstm"], [4])
    name = "steps_757328_lstm_cell"
    own, watched = inputs_named(["lstm_cell", name], [4])
    assert own.name == "lstm_cell" and (watched.kind, watched.layers) == ("baseline", (name,))
    assert title_of(name) == watched.title == "cell state after 757,328 steps"
    assert name not in [item.name for item in inputs_named(["all"], [4])]
    assert [item.name for item in inputs_named([name], [4])] == [name]
    assert [item.name for item in inputs_named(["all", name], [4])][-1] == name
    assert len(inputs_named(["all", "lstm_cell"], [4])) == len(inputs_named(["all"], [4]))
    assert_refuses("no input 'steps_5_lstm_gate'", inputs_named, ["steps_5_lstm_gate"], [4])


RECORDS = 3000
FOLD = np.arange(RECORDS) % 4
ONES = torch.ones(40, dtype=torch.float64)


def correlated(rng: np.random.Generator) -> np.ndarray:
    """Forty columns of which ten tell almost all, on scales far apart, one of them constant."""
    x = rng.normal(size=(RECORDS, 10)) @ rng.normal(size=(10, 40)) + 0.1 * rng.normal(size=(RECORDS, 40))
    x = x * rng.uniform(0.1, 30, 40) + 100
    x[:, 3] = 7
    return x.astype(np.float32)


def labels(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return a common and a rare event that the input tells, and coin flips, (B, 3)."""
    signal = StandardScaler().fit_transform(x) @ rng.normal(size=40) / 3 + rng.logistic(size=RECORDS)
    return np.stack([signal > 0, signal > np.sort(signal)[-21], rng.random(RECORDS) < 0.5], axis=1).astype(float)


def library(x: np.ndarray, y: np.ndarray, penalty: float, solver: str = "lbfgs") -> LogisticRegression:
    """Fit scikit-learn's to standardised input; its penalty is that of the sum of losses, and not relative."""
    strength = penalty * y.mean() * (1 - y.mean()) * len(y)
    return LogisticRegression(C=1 / strength, solver=solver, tol=1e-7, max_iter=20_000).fit(x, y)


def tensors(*arrays: np.ndarray) -> list[list[torch.Tensor]]:
    return [list(torch.from_numpy(array.astype(np.float32)).split(1000)) for array in arrays]


@pytest.mark.parametrize(("close_enough", "tolerance"), [(1e-10, 1e-3), (None, 0.05)])
def test_it_is_the_librarys(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, close_enough: float | None, tolerance: float
) -> None:
    if close_enough:
        monkeypatch.setattr(logistic, "_CLOSE_ENOUGH", close_enough)
    raw = correlated(rng)
    x, y = StandardScaler().fit_transform(raw.astype(float)), labels(raw, rng)
    assert y[:, 1].sum() == 20
    blocks, answers = tensors(x, y)
    penalties = np.repeat([1e-4, 1e-2, 1.0], 3)
    training, basis = TrainingSet(blocks, answers, ONES), basis_of(correlation(blocks), ONES)
    result = solve(training, basis, torch.arange(3).repeat(3), torch.from_numpy(penalties)).numpy()
    for column, penalty in enumerate(penalties):
        truth = y[:, column % 3]
        theirs = library(x, truth, penalty, "newton-cholesky")
        assert np.abs(result[:-1, column] - theirs.coef_[0]).max() < tolerance * np.abs(theirs.coef_).max()
        assert result[-1, column] == pytest.approx(theirs.intercept_[0], abs=tolerance * 10)
        ours = log_loss(truth, 1 / (1 + np.exp(-(x @ result[:-1, column] + result[-1, column]))))
        strength = penalty * truth.mean() * (1 - truth.mean()) / 2
        difference = ours - log_loss(truth, theirs.predict_proba(x)[:, 1])
        difference += strength * ((result[:-1, column] ** 2).sum() - (theirs.coef_**2).sum())
        entropy = log_loss(truth, np.full(RECORDS, truth.mean()))
        assert -1e-6 < difference < 1e-3 * entropy


def fit(x: np.ndarray, y: np.ndarray, fold: np.ndarray) -> Fitted:
    """Fit as probes are fitted: every target is yes-or-no."""
    return classified(x, y, fold, np.ones(y.shape[1], bool), fit_ridge(x, y, fold))


def test_it_is_cross_validated_with_the_penalties_of_the_ridge_regression(rng: np.random.Generator) -> None:
    """The whole cross-validation again, with scikit-learn's: the same predictions, also of rare events."""
    x = correlated(rng)
    y = labels(x, rng)
    result = fit(x, y, FOLD)
    assert result.choices.keys() == {0, 1, 2, 3, ALL_FOLDS}
    chosen_by = fit_ridge(x, y, FOLD).choices
    for test in range(4):
        rest = test != FOLD
        scaler = StandardScaler().fit(x[rest].astype(float))
        for column, penalty in enumerate(chosen_by[test].penalty):
            theirs = library(scaler.transform(x[rest]), y[rest, column], penalty)
            expected = theirs.decision_function(scaler.transform(x[test == FOLD]))
            np.testing.assert_allclose(result.predicted[test == FOLD, column], expected, atol=0.1, rtol=0.02)


def test_numbers_beside_yes_or_no_targets_are_the_ridge_regressions(rng: np.random.Generator) -> None:
    x = correlated(rng)
    y = np.column_stack([x[:, 5] + rng.normal(size=RECORDS), labels(x, rng)[:, 0], x[:, 8]])
    ridge = fit_ridge(x, y, FOLD)
    both = classified(x, y, FOLD, np.array([False, True, False]), fit_ridge(x, y, FOLD))
    np.testing.assert_array_equal(both.predicted[:, [0, 2]], ridge.predicted[:, [0, 2]])
    np.testing.assert_array_equal(both.read_outs.weight[:, [0, 2]], ridge.read_outs.weight[:, [0, 2]])
    assert both.predicted[:, 1].min() < -1 < ridge.predicted[:, 1].min()  # log-odds, not shares


def test_planted_events_are_found_and_coins_are_not(rng: np.random.Generator) -> None:
    x = correlated(rng)
    y = labels(x, rng)
    fitted = fit(x, y, FOLD)
    common, rare, coin = (roc_auc_score(y[:, i], fitted.predicted[:, i]) for i in range(3))
    assert common > 0.75 and rare > 0.75 and abs(coin - 0.5) < 0.04
    odds = x @ fitted.read_outs.weight + fitted.read_outs.bias
    assert roc_auc_score(y[:, 0], odds[:, 0]) >= common
    likely = 1 / (1 + np.exp(-odds))
    np.testing.assert_allclose(likely.mean(axis=0), y.mean(axis=0), atol=1e-3)  # an unpenalised intercept sees to it
    assert fitted.read_outs.weight[3].tolist() == [0, 0, 0]


def test_a_column_that_repeats_another_does_no_harm(rng: np.random.Generator) -> None:
    x = rng.normal(size=(400, 5)).astype(np.float32)
    x[:, 1] = x[:, 0] * 1000  # the same again
    fitted = fit(x, (x[:, :1] > 1).astype(float), np.arange(400) % 3)
    assert np.isfinite(fitted.predicted).all() and np.isfinite(fitted.read_outs.weight).all()
    assert roc_auc_score(x[:, 0] > 1, fitted.predicted[:, 0]) > 0.999


def test_what_only_another_fold_knows_cannot_help(rng: np.random.Generator) -> None:
    """A leak between folds would show here: the input names the record, and answers are coin flips."""
    y, fold = rng.integers(0, 2, (120, 1)).astype(float), np.arange(120) % 4
    predicted = fit(np.eye(120, dtype=np.float32), y, fold).predicted
    for item in range(4):
        np.testing.assert_allclose(np.ptp(predicted[fold == item]), 0, atol=1e-3)
    x, fold = rng.normal(size=(400, 3)).astype(np.float32), np.arange(400) % 4
    y = (x[:, :1] + rng.logistic(size=(400, 1)) > 0).astype(float)
    before = fit(x, y, fold).predicted
    strange = np.column_stack([x, np.where(fold == 0, 1e4 * rng.normal(size=400), 5)]).astype(np.float32)
    after = fit(strange, y, fold).predicted
    np.testing.assert_allclose(after[fold == 0], before[fold == 0], atol=0.02)
