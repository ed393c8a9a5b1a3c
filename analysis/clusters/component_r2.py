"""How well principal components predict a feature in lives held out from the fit."""

from dataclasses import dataclass

import numpy as np

from analysis.lives import Lives
from analysis.statistics.inference import Inference


@dataclass(frozen=True)
class FeatureR2:
    """Cross-validated R2 of F features, (F,) each; NaN if undefined.

    Attributes:
        value: share of the feature's variance that is predicted; below 0 if the mean predicts better.
        low, high: ends of its interval, from a bootstrap of the held-out errors over lives.
    """

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


def pca_feature_r2(
    scores: np.ndarray, features: np.ndarray, lives: Lives, folds: int = 5, settings: Inference | None = None
) -> FeatureR2:
    """Predict features from components by least squares, each life from a fit to other lives.

    R2 is 1 - (squared errors of held-out records) / (squared errors of the fitted lives' mean). Lives are split into
    folds of similar size (scikit-learn's GroupKFold). The fits are not repeated when lives are resampled.

    Args:
        scores: components of the activations, (B, components); their axes may come from all records, since they do not
            depend on features.
        features: (B, F), finite.
        folds: at least 2; capped at the number of lives.
        settings: number of resamples, confidence and seed.

    Returns:
        NaN for a feature that never changes, and for all features if there is only one life.
    """
    if len(lives) < 2:
        nothing = np.full(features.shape[1], np.nan)
        return FeatureR2(nothing, nothing, nothing)
    error, spread = _held_out_errors(scores, features - features[0], lives, min(folds, len(lives)))
    settings = settings or Inference()
    weights = np.random.default_rng([settings.seed, 6]).multinomial(
        len(lives), np.full(len(lives), 1 / len(lives)), settings.bootstraps
    )
    tail = (1 - settings.confidence) / 2
    once = np.ones((1, len(lives)))
    low, high = np.quantile(_r2(weights, error, spread), [tail, 1 - tail], axis=0)
    return FeatureR2(_r2(once, error, spread)[0], low, high)


def _r2(weights: np.ndarray, error: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Return R2 for each weighting of the lives, (R, L) to (R, F)."""
    total = weights @ spread
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(total > 0, 1 - (weights @ error) / total, np.nan)


def _held_out_errors(
    scores: np.ndarray, features: np.ndarray, lives: Lives, folds: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return each life's squared errors of the prediction and of the mean while it is held out, (L, F) each."""
    from sklearn.model_selection import GroupKFold

    design = np.column_stack([np.ones(len(scores)), scores])
    error, spread = (np.zeros((len(lives), features.shape[1])) for _ in range(2))
    for fitted, held_out in GroupKFold(folds).split(design, groups=lives.index):
        weights = np.linalg.lstsq(design[fitted], features[fitted], rcond=None)[0]
        wrong = (features[held_out] - design[held_out] @ weights) ** 2
        apart = (features[held_out] - features[fitted].mean(axis=0)) ** 2
        np.add.at(error, lives.index[held_out], wrong)
        np.add.at(spread, lives.index[held_out], apart)
    return error, spread
