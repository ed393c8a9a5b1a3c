"""Time to train a sparse autoencoder, and what it finds of planted features beside scikit-learn's dictionary learning.

    python -m benchmarks.sparse_autoencoder
    python -m benchmarks.sparse_autoencoder --states 100000 --kind batch_topk --output sparse.json

Wall-clock time with torch's threads on this machine; run it while nothing else is running. States are planted: each is
a sum of three of twice as many features as units. The time for a million states is that of the measured ones, scaled.
"""

import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from activation_store.sparse_dictionary import DictionaryKind
from analysis.runs.run_folder import versions
from analysis.sparse.training import FitPlan, normalisation, train
from benchmarks.measure import Output, timed
from common import command_line

MILLION = 1_000_000
TRUE_UNITS, TRUE_FEATURES, ACTIVE = 24, 48, 3
TRUE_STATES = 20_000


@dataclass(frozen=True)
class Arguments(Output):
    """Arguments of benchmarks/sparse_autoencoder.py."""

    states: int = 50_000
    """States for the time of training, at least 1,000."""
    units: int = 256
    """Units of these states."""
    width: int = 8
    """Features, as a multiple of the units."""
    k: int = 32
    """Features of a state."""
    kind: DictionaryKind = "topk"
    """Kind of autoencoder."""
    epochs: int = 10
    """Passes over the states that the time for a million is of; one is measured."""


def main() -> None:
    """Parse, measure and print."""
    arguments = command_line.parse(Arguments, __doc__)
    result = measure(arguments)
    for name, value in result.items():
        print(f"{name.replace('_', ' ')}: {value:.3g}")
    arguments.write({**asdict(arguments), **result, "output": None, "versions": versions()})


def measure(arguments: Arguments) -> dict[str, float]:
    """Train on planted states of the wanted size, then on few for the comparison with scikit-learn.

    Processor seconds are those of all threads: what counts if other programs run. Cosines are of a planted feature with
    the nearest one that was found, on average; scikit-learn's mini-batch dictionary learning is given as many features.
    """
    features = arguments.width * arguments.units
    states, _ = planted(arguments.states, arguments.units, 2 * arguments.units)
    plan = FitPlan(arguments.kind, features, arguments.k, 0, 1)
    before = time.process_time()
    _, seconds = timed(lambda: _trained(plan, states))
    processor = time.process_time() - before
    to_minutes = MILLION * arguments.epochs / arguments.states / 60
    few, truth = planted(TRUE_STATES, TRUE_UNITS, TRUE_FEATURES)
    wanted = 2 * TRUE_FEATURES
    decoder = _trained(FitPlan(arguments.kind, wanted, ACTIVE, 0, 30), few)
    atoms = _library(few, wanted)
    return {
        "threads": torch.get_num_threads(), "seconds": seconds, "processor_seconds": processor,
        "minutes_for_a_million": seconds * to_minutes, "processor_minutes_for_a_million": processor * to_minutes,
        "cosine": _nearest(truth, decoder), "cosine_of_library": _nearest(truth, atoms),
    }  # fmt: skip


def planted(states: int, units: int, features: int) -> tuple[np.ndarray, np.ndarray]:
    """Return states, (B, U) float32, that are sums of three features, and the features, (F, U)."""
    random = np.random.default_rng(0)
    directions = random.standard_normal((features, units))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    made = 0.02 * random.standard_normal((states, units))
    for _ in range(ACTIVE):
        made += random.uniform(1, 2, (states, 1)) * directions[random.integers(features, size=states)]
    return made.astype(np.float32), directions


def _trained(plan: FitPlan, states: np.ndarray) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        trained = train(plan, states, normalisation(states, 0), Path(folder) / "x")
    return trained.parameters["decoder"]


def _library(states: np.ndarray, features: int) -> np.ndarray:
    from sklearn.decomposition import MiniBatchDictionaryLearning

    learning = MiniBatchDictionaryLearning(
        features, batch_size=512, max_iter=30, fit_algorithm="cd", transform_algorithm="omp", random_state=0,
        positive_code=True,
    )  # fmt: skip
    atoms = learning.fit(states - states.mean(axis=0)).components_
    return atoms / np.maximum(np.linalg.norm(atoms, axis=1, keepdims=True), 1e-12)


def _nearest(truth: np.ndarray, directions: np.ndarray) -> float:
    return float((truth @ directions.T).max(axis=1).mean())


if __name__ == "__main__":
    command_line.run(main)
