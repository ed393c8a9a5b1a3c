"""Do clusters follow the phases of life? Shares over a life or over ticks, and a test that respects lives.

Each life weighs equally, however long it is: in every bin the share of a cluster is the mean over the lives that have
ticks in the bin. The test asks whether bins tell anything about clusters: the mutual information of both, as a share of
the clusters' entropy (Theil's uncertainty coefficient; Theil 1970, "On the estimation of relationships involving
qualitative variables"). What chance gives is found by turning the labels of each life in a circle by a random number of
records, which keeps each life's own labels and how they follow each other, and breaks only their tie to time.
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats
from scipy.special import entr

from activation_store.reader import Progress
from analysis.life.phases.visits import LabelSequences
from analysis.statistics.resampling import Bootstrap

_ROUNDING = 1e-12


@dataclass(frozen=True)
class Association:
    """How much time tells about clusters, beyond what chance would. K states."""

    explained: float  # share of the clusters' entropy that time explains, 0 to 1; NaN where only one label occurs
    chance: float
    """The mean of that share over circular shifts: not zero, since lives are few and labels cling together."""
    chance_high: float  # its 95th percentile
    p: float  # how often a shift explains as much, (1 + as much) / (1 + shifts)
    state_explained: np.ndarray  # the share of the entropy of "this state or another" that time explains, (K,)
    state_chance: np.ndarray  # its mean over shifts, (K,)
    state_p: np.ndarray  # as `p`, (K,)
    state_q: np.ndarray  # `state_p` corrected for the number of states (Benjamini and Hochberg 1995), (K,)
    permutations: int


@dataclass(frozen=True)
class Shares:
    """Mean share of each state in each bin, each life weighing equally, and 95% bands. T bins, K states."""

    edges: np.ndarray  # of the bins, (T + 1,), in shares of a life or in ticks
    mean: np.ndarray  # (T, K); NaN where no life is in the bin
    low: np.ndarray  # (T, K); NaN where no band can be told: one life, or all resamples agree
    high: np.ndarray
    lives: np.ndarray  # with ticks in the bin, (T,) int64


def shares(sequences: LabelSequences, edges: np.ndarray, shown: np.ndarray, bootstrap: Bootstrap) -> Shares:
    """Return each state's share in each bin, with bands from resampling episodes, then lives within them.

    `edges` are in records of each life, (L, T + 1), `shown` the same as they are to be shown, (T + 1,).
    """
    width = np.diff(edges, axis=1)  # (L, T)
    present = width > 0
    weights = bootstrap.draw(sequences.units).episodes if len(sequences) > 1 else np.empty((0, len(sequences)))
    lives, drawn = present.sum(axis=0), weights @ present  # (T,), (R, T)
    parts = []
    for state in range(len(sequences.labels)):
        share = _share(sequences, state, edges, np.zeros(len(sequences), np.int64))
        with np.errstate(invalid="ignore", divide="ignore"):
            mean, resampled = share.sum(axis=0) / lives, weights @ share / drawn
        parts.append((mean, *band(resampled, bootstrap)))
    mean, low, high = (np.stack(part, axis=1) for part in zip(*parts, strict=True))
    return Shares(shown, mean, low, high, lives)


def band(resampled: np.ndarray, bootstrap: Bootstrap) -> tuple[np.ndarray, np.ndarray]:
    """Return the interval of each bin, NaN where some resample had no life in it, (R, T) to (T,) twice."""
    known = np.isfinite(resampled).all(axis=0) & (len(resampled) > 0)
    low, high = np.full((2, resampled.shape[1]), np.nan)
    if known.any():
        low[known], high[known] = bootstrap.interval(resampled[:, known])
    return low, high


def association(
    sequences: LabelSequences, edges: np.ndarray, permutations: int, seed: int, progress: Progress | None = None
) -> Association:
    """Test whether bins of time and clusters go together, against circular shifts of each life's labels.

    `edges` are in records of each life, (L, T + 1).
    """
    rng = np.random.default_rng(seed)
    unmoved = np.zeros(len(sequences), np.int64)
    observed = _explained(_joint(sequences, edges, unmoved))  # (1 + K,)
    null = np.empty((permutations, len(observed)))
    for i in range(permutations):
        null[i] = _explained(_joint(sequences, edges, rng.integers(sequences.lengths)))
        if progress:
            progress((i + 1) / permutations)
    as_much = (null >= observed - _ROUNDING).sum(axis=0)
    p = np.where(np.isnan(observed), 1.0, (1 + as_much) / (1 + permutations))
    chance = null.mean(axis=0)
    return Association(
        explained=float(observed[0]), chance=float(chance[0]), chance_high=float(np.quantile(null[:, 0], 0.95)),
        p=float(p[0]), state_explained=observed[1:], state_chance=chance[1:], state_p=p[1:],
        state_q=stats.false_discovery_control(p[1:]), permutations=permutations,
    )  # fmt: skip


def _share(sequences: LabelSequences, state: int, edges: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Return the share of each life's bin that a state takes, 0 where the life has no tick in the bin, (L, T)."""
    width = np.diff(edges, axis=1)
    time = sequences.time_in(state, edges, shift)
    return np.divide(time, width, out=np.zeros_like(time), where=width > 0)


def _joint(sequences: LabelSequences, edges: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Return how probable each bin and state are together, each life weighing equally in each bin, (T, K)."""
    present = np.count_nonzero(np.diff(edges, axis=1) > 0)
    states = range(len(sequences.labels))
    together = np.stack([_share(sequences, state, edges, shift).sum(axis=0) for state in states], axis=1)
    return np.maximum(together, 0.0) / max(present, 1)


def _explained(joint: np.ndarray) -> np.ndarray:
    """Return the share of entropy that bins explain: of all states together, then of each against the rest, (1 + K,).

    NaN where there is no entropy to explain.
    """
    bins, states = joint.sum(axis=1), joint.sum(axis=0)  # (T,), (K,)
    rest = np.maximum(bins[:, None] - joint, 0.0)
    entropy = np.append(entr(states).sum(), entr(states) + entr(rest.sum(axis=0)))
    together = np.append(entr(joint).sum(), (entr(joint) + entr(rest)).sum(axis=0))
    information = np.maximum(entr(bins).sum() + entropy - together, 0.0)
    return np.divide(information, entropy, out=np.full(len(entropy), np.nan), where=entropy > _ROUNDING)
