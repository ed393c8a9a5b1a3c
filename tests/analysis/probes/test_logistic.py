"""Logistic probes against scikit-learn's, on correlated inputs, rare events, and what can be told without a fault."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.preprocessing import StandardScaler

from analysis.probes import logistic
from analysis.probes.logistic import TrainingSet, basis_of, correlation, solve
from analysis.probes.probing import classified
from analysis.probes.ridge import ALL_FOLDS, Fitted, fit_ridge

RECORDS = 3000
FOLD = np.arange(RECORDS) % 4
ONES = torch.ones(40, dtype=torch.float64)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


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


def test_the_solution_does_not_depend_on_the_preconditioner(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logistic, "_CLOSE_ENOUGH", 1e-10)
    raw = correlated(rng)
    blocks, answers = tensors(StandardScaler().fit_transform(raw)[:, 4:], labels(raw, rng))
    columns, penalty = torch.arange(3), torch.full((3,), 0.01, dtype=torch.float64)
    plain = torch.ones(36, dtype=torch.float64), torch.eye(36, dtype=torch.float64)
    scale = ONES[4:]
    training, ours = TrainingSet(blocks, answers, scale), basis_of(correlation(blocks), scale)
    one, other = (solve(training, basis, columns, penalty) for basis in (ours, plain))
    np.testing.assert_allclose(one, other, atol=2e-3 * float(one.abs().max()))


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


def test_what_can_be_told_without_a_fault_stays_finite(rng: np.random.Generator) -> None:
    x = rng.normal(size=(400, 5)).astype(np.float32)
    x[:, 1] = x[:, 0] * 1000  # the same again
    fitted = fit(x, (x[:, :1] > 1).astype(float), np.arange(400) % 3)
    assert np.isfinite(fitted.predicted).all() and np.isfinite(fitted.read_outs.weight).all()
    assert roc_auc_score(x[:, 0] > 1, fitted.predicted[:, 0]) > 0.999


def test_another_folds_answers_cannot_help(rng: np.random.Generator) -> None:
    """A leak between folds would show here: the input names the record, and answers are coin flips."""
    y, fold = rng.integers(0, 2, (120, 1)).astype(float), np.arange(120) % 4
    predicted = fit(np.eye(120, dtype=np.float32), y, fold).predicted
    for item in range(4):
        np.testing.assert_allclose(np.ptp(predicted[fold == item]), 0, atol=1e-3)


def test_a_column_that_only_the_test_records_vary_in_is_not_used(rng: np.random.Generator) -> None:
    x, fold = rng.normal(size=(400, 3)).astype(np.float32), np.arange(400) % 4
    y = (x[:, :1] + rng.logistic(size=(400, 1)) > 0).astype(float)
    before = fit(x, y, fold).predicted
    strange = np.column_stack([x, np.where(fold == 0, 1e4 * rng.normal(size=400), 5)]).astype(np.float32)
    after = fit(strange, y, fold).predicted
    np.testing.assert_allclose(after[fold == 0], before[fold == 0], atol=0.02)
