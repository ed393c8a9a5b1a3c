"""Principal components of activations, and the features that they are associated with.

And the directions that an analysis leaves for other stages: cluster differences and principal components.
"""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from activation_store.directions import Direction, Source, SourceKind, direction_from
from analysis.clusters.blindness import Blindness
from analysis.clusters.dataset import Dataset
from analysis.labels import NOISE
from analysis.lives import Lives
from analysis.runs.run_folder import plain
from analysis.statistics.association import EtaSquares, eta_squares
from analysis.statistics.inference import Inference, student_stretch
from analysis.statistics.resampling import draws_of, folds_of, resampled_units
from common.number_text import format_number

BINS = 20
EXPLAINED_SHARES = (0.5, 0.9, 0.99)
_COMPONENTS_SHOWN = 3
_WIDTH = 118
_FOLDS = 5
WRITTEN_SHARE = 0.99
"""Share of the variance that the written components explain together."""
CLUSTER_UNIT = "share of the way from the mean of all other records (0) to the cluster's mean (1)"
COMPONENT_UNIT = "component score"


def pca_feature_r2(
    scores: np.ndarray, features: np.ndarray, unit: np.ndarray, settings: Inference | None = None
) -> np.ndarray:
    """Predict features from components by least squares, each unit, a life or an episode, from a fit to other ones.

    Returns R2, the share of each feature's variance that is predicted, below 0 if the mean predicts better, and the
    ends of its interval by a bootstrap of the held-out errors over units, (3, F) float64.

    R2 is 1 - (squared errors of held-out records) / (squared errors of the fitted units' mean). Units are split into
    5 folds of similar size (scikit-learn's GroupKFold). The fits are not repeated when units are resampled. Intervals
    are stretched as in `student_stretch`. NaN for a feature, (B,), that never changes, and for all with one unit.

    Args:
        scores: components of the activations, (B, components); their axes may come from all records, since they do not
            depend on features.
        unit: as `resampled_units`, (B,).
    """
    units = int(unit.max()) + 1
    if units < 2:
        return np.full((3, features.shape[1]), np.nan)
    error, spread = _held_out_errors(scores, features - features[0], unit, min(_FOLDS, units))
    settings = settings or Inference()
    value = _r2(np.ones((1, units)), error, spread)[0]
    drawn = _r2(draws_of(units, settings.bootstraps, [settings.seed, 6]), error, spread)
    tail = (1 - settings.confidence) / 2
    ends = np.quantile(drawn, [tail, 1 - tail], axis=0)
    return np.vstack([value, value + student_stretch(units, settings.confidence) * (ends - value)])


def _r2(weights: np.ndarray, error: np.ndarray, spread: np.ndarray) -> np.ndarray:
    total = weights @ spread
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(total > 0, 1 - (weights @ error) / total, np.nan)


def _held_out_errors(
    scores: np.ndarray, features: np.ndarray, unit: np.ndarray, folds: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return each unit's squared errors of the prediction and of the mean while it is held out, (units, F) each."""
    design = np.column_stack([np.ones(len(scores)), scores])
    error, spread = (np.zeros((int(unit.max()) + 1, features.shape[1])) for _ in range(2))
    fold = folds_of(unit, folds)
    for number in range(folds):
        fitted, held_out = fold != number, fold == number
        weights = np.linalg.lstsq(design[fitted], features[fitted], rcond=None)[0]
        wrong = (features[held_out] - design[held_out] @ weights) ** 2
        apart = (features[held_out] - features[fitted].mean(axis=0)) ** 2
        np.add.at(error, unit[held_out], wrong)
        np.add.at(spread, unit[held_out], apart)
    return error, spread


@dataclass(frozen=True, eq=False)
class Components:
    """All principal components of activations, strongest first. U units, K = min(U, records) components."""

    mean: np.ndarray  # of the activations, (U,) float64
    directions: np.ndarray  # (K, U) float64, orthonormal
    explained: np.ndarray  # each component's share of the activations' variance, (K,) float64

    def scores(self, activations: np.ndarray, count: int) -> np.ndarray:
        """Return the scores of activations on the first components, (B, U) -> (B, count) float64."""
        centred = activations - self.mean.astype(activations.dtype)  # (B, U)
        return np.asarray(centred @ self.directions[:count].T.astype(activations.dtype), np.float64)

    def needed_for(self, shares: tuple[float, ...] = EXPLAINED_SHARES) -> dict[float, int]:
        """Return the number of components that explain each share of the variance; shares are above 0 and below 1."""
        total = np.cumsum(self.explained)
        return {share: int(np.searchsorted(total, share) + 1) for share in shares}

    def name(self, component: int) -> str:
        """Return the axis label of a component."""
        return f"PC {component + 1} ({self.explained[component]:.1%} of variance)"


def principal_components(activations: np.ndarray) -> Components:
    """Find the principal components of activations, (B, units), not all the same."""
    from sklearn.decomposition import PCA

    model = PCA(n_components=min(activations.shape)).fit(activations.astype(np.float64))
    return Components(model.mean_, model.components_, model.explained_variance_ratio_)


def pearson_r(scores: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Return Pearson's r of components and features, (B, K) and (B, F) to (K, F); NaN if either never changes."""
    left, right = _standardised(scores), _standardised(features)
    return left.T @ right / len(scores)


def _standardised(values: np.ndarray) -> np.ndarray:
    # After subtracting the first row, a column that never changes is exactly zero.
    shifted = values.astype(np.float64) - values[0]
    spread = shifted.std(axis=0)
    return (shifted - shifted.mean(axis=0)) / np.where(spread > 0, spread, np.nan)


def binned_profile(score: np.ndarray, feature: np.ndarray, lives: Lives, bins: int = BINS) -> np.ndarray:
    """Average a feature in bins with equal numbers of records along a component, (B,) each.

    Returns each bin's mean score, mean, and ends of its interval, (4, bins); NaN if its records are all of one life.

    Records of one life are not independent. A bin's mean is a ratio of two sums over lives, so its standard error is
    that of a ratio estimator with lives as sampling units (Cochran 1977, "Sampling techniques", equation 6.13), and its
    95% interval Student's.

    Args:
        bins: at most; fewer if there are fewer records.
    """
    rank = np.empty(len(score), np.int64)
    rank[np.argsort(score, kind="stable")] = np.arange(len(score))
    count = min(bins, len(score))
    bin_of = rank * count // len(score)
    records = np.bincount(bin_of, minlength=count)
    mean = np.bincount(bin_of, feature, count) / records
    cell = bin_of * len(lives) + lives.index
    shape = (count, len(lives))
    size = np.bincount(cell, minlength=count * len(lives)).reshape(shape)
    total = np.bincount(cell, feature, count * len(lives)).reshape(shape)
    inside = (size > 0).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = ((total - mean[:, None] * size) ** 2).sum(axis=1) / records**2 * inside / (inside - 1)
    reach = special.stdtrit(np.maximum(inside - 1, 1), 0.975) * np.sqrt(np.where(inside > 1, variance, np.nan))
    return np.stack([np.bincount(bin_of, score, count) / records, mean, mean - reach, mean + reach])


@dataclass(frozen=True, eq=False)
class ComponentReport:
    """Associations of principal components with features. K components, F features."""

    features: tuple[str, ...]
    own: np.ndarray  # which of the features are not options of a categorical feature, (O,) int64
    choices: tuple[EtaSquares, ...]
    explained: np.ndarray  # each component's share of the activations' variance, (K,)
    r: np.ndarray  # Pearson's r, (K, F); NaN if a feature never changes
    r2: np.ndarray  # cross-validated by unit, of all K components together, and the ends of its interval, (3, F)
    lives: int
    unit: str  # what a fit leaves out whole and intervals resample, "life" or "episode"
    units: int
    blindness: Blindness  # how much of what the K components tell the listed features cover

    @property
    def plural(self) -> str:
        """What a fit leaves out whole, in the plural."""
        return "episodes" if self.unit == "episode" else "lives"

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON; undefined values become null."""
        return {
            "features": list(self.features),
            "explained": self.explained.tolist(),
            "pearson_r": plain(self.r),
            **dict(zip(("r2", "r2_low", "r2_high"), plain(self.r2), strict=True)),
            "choices": plain(self.choices),
            "lives": self.lives,
            "unit": self.unit,
            "units": self.units,
            "blindness": plain(self.blindness),
        }

    def as_text(self) -> str:
        """Return the report as plain text, best predicted features first."""
        width = max((len(self.features[i]) for i in self.own), default=0)
        lines = [
            f"Principal components: {len(self.explained)} explain {self.explained.sum():.1%} of the variance.",
            f"R2 of all of them together, least squares, cross-validated over {self.units} whole {self.plural} (0 is",
            f"no better than the mean) with its interval by a bootstrap over {self.plural}, and the components with",
            "largest Pearson r.",
        ]
        for i in self.own[np.argsort(-np.nan_to_num(self.r2[0, self.own], nan=-np.inf), kind="stable")]:
            value, low, high = (f"{format_number(number, sign=True):>5}" for number in self.r2[:, i])
            strongest = ", ".join(f"PC {k + 1} {self.r[k, i]:+.2f}" for k in self.strongest(i)) or "never changes"
            lines.append(f"  {self.features[i]:<{width}} R2 = {value} [{low}, {high}]   {strongest}".rstrip())
        if self.choices:
            lines += [
                "Choices and sides: eta-square, the share of a component's variance between options, where it survives",
                "given tick and age, corrected for all components and categorical features; in brackets: shifted "
                "options.",
            ]
        width = max((len(choice.name) for choice in self.choices), default=0)
        for choice in self.choices:
            certain = choice.surviving[:_COMPONENTS_SHOWN]
            named = [f"PC {i + 1} {choice.value[i]:.2f} ({choice.shifted_mean[i]:.2f})" for i in certain]
            lines.append(f"  {choice.name:<{width}} {', '.join(named) or 'none'}")
        conclusions = [line for sentence in self.blindness.sentences for line in textwrap.wrap(sentence, _WIDTH)]
        return "\n".join([*lines, *conclusions, *self.blindness.table, ""])

    def strongest(self, feature: int, count: int = _COMPONENTS_SHOWN) -> list[int]:
        """Return the components with the largest |r| with a feature, largest first; none if it never changes."""
        r = np.abs(self.r[:, feature])
        return [int(i) for i in np.argsort(-np.nan_to_num(r, nan=-1), kind="stable")[:count] if np.isfinite(r[i])]


def report_components(
    components: Components, scores: np.ndarray, data: Dataset, blindness: Blindness, settings: Inference
) -> ComponentReport:
    """Compare the scores of the first components, (B, K), with the features of the same records."""
    name, unit = resampled_units(data.lives.index, data.records.episode)
    return ComponentReport(
        features=tuple(feature.name for feature in data.features), own=data.own,
        choices=eta_squares(scores, data.codes, data.lives, data.records.tick, data.records.episode, settings),
        explained=components.explained[: scores.shape[1]], r=pearson_r(scores, data.values),
        r2=pca_feature_r2(scores, data.values, unit, settings), lives=len(data.lives), unit=name,
        units=int(unit.max()) + 1, blindness=blindness,
    )  # fmt: skip


def cluster_directions(data: Dataset, labels: np.ndarray, run: str, dump: str) -> Iterator[Direction]:
    """Yield a direction `cluster_NUMBER` for each cluster: its mean minus that of all other records, including noise.

    The weight is that difference divided by its squared length, so the read-out is 0 at the mean of the other records
    and 1 at the cluster's. If there are no other records, or both means are equal, there is no direction.
    """
    total = data.activations.sum(axis=0, dtype=np.float64)  # (U,)
    for number in np.unique(labels[labels != NOISE]).tolist():
        inside = labels == number
        own, count = data.activations[inside].sum(axis=0, dtype=np.float64), int(inside.sum())
        rest = (total - own) / max(len(data) - count, 1)  # (U,)
        difference = own / count - rest
        length = difference @ difference
        if count < len(data) and length > 0:
            weight = difference / length
            yield _direction(f"cluster_{number}", "cluster difference", weight, rest, CLUSTER_UNIT, data, run, dump)


def component_directions(data: Dataset, components: Components, run: str, dump: str) -> Iterator[Direction]:
    """Yield a direction `component_NUMBER`, from 1, for each component needed to explain `WRITTEN_SHARE`.

    Its weight has length 1; its read-out is the component's score, 0 at the mean of the activations. The other
    arguments are as in `cluster_directions`.
    """
    for i in range(components.needed_for((WRITTEN_SHARE,))[WRITTEN_SHARE]):
        weight = components.directions[i]
        name = f"component_{i + 1}"
        yield _direction(name, "principal component", weight, components.mean, COMPONENT_UNIT, data, run, dump)


def _direction(
    name: str, kind: SourceKind, weight: np.ndarray, origin: np.ndarray, unit: str, data: Dataset, run: str, dump: str
) -> Direction:
    """Return the direction with this weight whose read-out is 0 at the origin, (U,) each."""
    source = Source(kind, run, dump, data.metadata.policy, data.metadata.checkpoint_sha256)
    episodes = len(np.unique(data.records.episode))
    return direction_from(name, data.layer, weight, origin, unit, data.activations, len(data.lives), episodes, source)
