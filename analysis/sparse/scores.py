"""How well a dictionary writes states that it was not fitted to, and how its features are used."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse

from activation_store.sparse_dictionary import SparseDictionary
from agent_zoo.sparse_codes import SparseCoder
from analysis.statistics.inference import student_stretch
from analysis.statistics.resampling import Estimate, draws_of, resampled_units

RESAMPLES = 1000
CONFIDENCE = 0.95
"""From so many test episodes on, intervals are over episodes; with fewer, over their lives."""

_CHUNK = 4096


@dataclass(frozen=True, eq=False)
class Units:
    """What is resampled for intervals."""

    name: str  # "episode" or "life"
    of_record: np.ndarray  # the unit of each record, (B,) int64
    draws: np.ndarray  # how often each resample draws each unit, (R, units)

    @staticmethod
    def of(life: np.ndarray, episode: np.ndarray, seed: int) -> "Units":
        """Choose units for records of these lives and episodes, (B,) numbers each, and draw them."""
        name, index = resampled_units(life, episode)
        draws = draws_of(int(index.max()) + 1, RESAMPLES, seed)
        return Units(name, index, draws.astype(np.float64))

    def mean(self, numbers: np.ndarray, weights: np.ndarray | None = None) -> Estimate:
        """Return the mean of one number per record, (B,), or the ratio of its sum to that of another number."""
        count = self.draws.shape[1]
        weights = np.ones(len(numbers)) if weights is None else weights
        tops, bottoms = (np.bincount(self.of_record, terms, count) for terms in (numbers, weights))
        value = float(tops.sum() / bottoms.sum())
        there = int((bottoms > 0).sum())
        if there < 2:
            return Estimate(value)
        below = self.draws @ bottoms
        drawn = (self.draws @ tops)[below > 0] / below[below > 0]
        tail = (1 - CONFIDENCE) / 2
        # Plain percentiles of few units are too narrow.
        low, high = value + student_stretch(there, CONFIDENCE) * (np.quantile(drawn, [tail, 1 - tail]) - value)
        return Estimate(value, float(low), float(high))


@dataclass(frozen=True, eq=False)
class Usage:
    """How a dictionary writes the test states."""

    unexplained: Estimate  # share of the variance that reconstructions do not explain
    active: float  # features of a state, on average
    alive: int  # features that are active in at least one state
    density: np.ndarray  # share of the states in which each feature is active, (F,)
    error: np.ndarray  # squared error of each record's reconstruction, (B,)
    deviation: np.ndarray  # squared distance of each record's state from the mean, (B,)


def usage(dictionary: SparseDictionary, states: np.ndarray, units: Units) -> Usage:
    """Write every state, (B, U), with a dictionary, and sum up."""
    error, counts = np.empty(len(states)), np.zeros(dictionary.features)
    coder = SparseCoder(dictionary)
    for start in range(0, len(states), _CHUNK):
        place = slice(start, start + _CHUNK)
        chunk = torch.from_numpy(states[place])
        strengths = coder.strengths(chunk)
        error[place] = (coder.rebuilt(strengths) - chunk).double().square().sum(dim=1).numpy()
        counts += (strengths != 0).sum(dim=0).numpy()
    deviation = np.square(states - states.mean(axis=0, dtype=np.float64)).sum(axis=1)
    active, alive = float(counts.sum() / len(states)), int((counts > 0).sum())
    return Usage(units.mean(error, deviation), active, alive, counts / len(states), error, deviation)


def strengths_of(dictionary: SparseDictionary, states: np.ndarray) -> sparse.csr_array:
    """Return the strengths of all features in all states, (B, U) to sparse (B, F) float32."""
    coder = SparseCoder(dictionary)
    chunks = torch.from_numpy(states).split(_CHUNK)
    return sparse.csr_array(sparse.vstack([sparse.csr_array(coder.strengths(chunk).numpy()) for chunk in chunks]))
