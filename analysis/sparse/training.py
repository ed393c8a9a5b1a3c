"""Train one sparse autoencoder; after every epoch it can be interrupted and continued, with the same result."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import torch

from activation_store.sparse_dictionary import DictionaryKind, DictionarySource, SparseDictionary
from analysis.matrix_products import fast_products
from analysis.sparse.autoencoder import Parameters, step
from common.array_files import Kind, read_tensors, write_tensors
from common.user_error import UserError

BATCH = 512
"""States in a batch."""
DEAD_AFTER = 50_000
"""A feature that has not been active in so many states, or in a whole epoch if that is shorter, is dead."""

_LEARNING_RATE = 1e-3
_WARM_UP = 0.05
_DECAY_FROM = 0.5
_SAMPLE = 20_000
_MEDIAN_STEPS = 100
_MEDIAN_TOLERANCE = 1e-6
_SMOOTHING = 0.99
_KIND: Kind = "autoencoder training"
_REPORT_EVERY = 8


@dataclass(frozen=True)
class FitPlan:
    """One dictionary to fit."""

    kind: DictionaryKind
    features: int  # wanted; PCA and ICA have as many as the states have dimensions
    k: int  # features of a state
    seed: int  # of the first directions and of the order of states
    epochs: int  # passes over the training states
    name: str = ""  # unique in the run, such as topk_8x_k32
    layer: str = ""
    original: str | None = None
    """Name of the plan that differs only in its seed and is reported; None if this is that one."""

    @property
    def deciding(self) -> dict[str, Any]:
        """What decides the parameters of a training, as its file holds it."""
        return {name: getattr(self, name) for name in ("kind", "features", "k", "seed", "epochs")}


@dataclass(frozen=True)
class Epoch:
    """What one pass over the training states gives, on average over its batches."""

    epoch: int  # number, from 1
    states: int  # seen in all epochs so far
    loss: float
    unexplained: float  # share of the variance
    active: float  # features of a state
    dead: int  # features that count as dead at the end


@dataclass(frozen=True, eq=False)
class Normalisation:
    """How states are normalised: (state / scale) has the centre `centre` and a variance of 1 a unit on average."""

    scale: float  # raw units in a normalised one
    centre: np.ndarray  # in normalised units, (U,) float32
    sample: np.ndarray  # some normalised states, (N, U) float32


def normalisation(states: np.ndarray, seed: int) -> Normalisation:
    """Measure how to normalise states, (B, U), from up to 20,000 of them; the centre is their geometric median."""
    chosen = np.random.default_rng(seed).permutation(len(states))[:_SAMPLE]
    sample = states[np.sort(chosen)].astype(np.float64)
    median = geometric_median(sample)
    spread = float(np.sqrt(np.square(sample - median).mean()))
    if not spread > 0:
        raise UserError("the layer has the same state in every record, so it has no features")
    return Normalisation(spread, (median / spread).astype(np.float32), (sample / spread).astype(np.float32))


def geometric_median(points: np.ndarray) -> np.ndarray:
    """Return the point whose distances from all points have the least sum, (B, U) to (U,), by Weiszfeld's iteration."""
    median = points.mean(axis=0)
    for _ in range(_MEDIAN_STEPS):
        distances = np.maximum(np.linalg.norm(points - median, axis=1), 1e-12)
        weights = 1 / distances
        following = weights @ points / weights.sum()
        moved, median = float(np.linalg.norm(following - median)), following
        if moved <= _MEDIAN_TOLERANCE * float(distances.mean()):
            break
    return median


@fast_products()
def train(
    plan: FitPlan, states: np.ndarray, normal: Normalisation, unfinished: Path | None,
    on_epoch: Callable[[Epoch], None] = lambda _: None, report: Callable[[int, int], None] = lambda *_: None,
) -> "Training":  # fmt: skip
    """Train an autoencoder, from where an interrupted training left off if there is one.

    Args:
        states: raw, (B, U) float32.
        unfinished: file that holds the training after each epoch; None for a training that need not be resumed.
        report: called with the states seen so far, and those of all epochs.

    Raises:
        UserError: the loss is no longer finite, or the file is damaged or of another training.
    """
    training = Training.read(unfinished, plan, normal) if unfinished and unfinished.exists() else Training(plan, normal)
    values = torch.from_numpy(states)
    for number in range(len(training.curve), plan.epochs):
        epoch = training.epoch(values, number, report)
        training.curve.append(epoch)
        if unfinished and number + 1 < plan.epochs:
            training.write(unfinished)
        on_epoch(epoch)
    return training


class Training:
    """One training: the parameters so far, in normalised units, and what the following epochs depend on.

    Attributes:
        threshold: of BatchTopK's strengths when states come one by one, in normalised units; 0 for other kinds.
        curve: the epochs so far.
    """

    def __init__(self, plan: FitPlan, normal: Normalisation):
        self.plan, self.scale = plan, normal.scale
        sample, centre = torch.from_numpy(normal.sample), torch.from_numpy(normal.centre)
        self.p = Parameters.drawn(plan.kind, plan.features, plan.k, sample, centre, plan.seed)
        for tensor in self.p.tensors().values():
            tensor.requires_grad_()
        self.optimiser = torch.optim.Adam(list(self.p.tensors().values()), lr=_LEARNING_RATE, fused=True)
        self.silent = torch.zeros(plan.features, dtype=torch.int64)  # states since each feature was active
        self.threshold = 0.0
        self.curve: list[Epoch] = []

    @property
    def parameters(self) -> dict[str, np.ndarray]:
        """The parameters as in `Parameters`, by name."""
        return {name: tensor.detach().numpy().copy() for name, tensor in self.p.tensors().items()}

    def dictionary(self, source: DictionarySource) -> SparseDictionary:
        """Return the autoencoder in raw units."""
        p, plan, scale = self.parameters, self.plan, self.scale
        thresholds = {
            "topk": np.zeros(plan.features), "jumprelu": np.exp(p["log_threshold"])
        }.get(plan.kind, np.full(plan.features, self.threshold))  # fmt: skip
        return SparseDictionary(
            plan.kind, plan.k, p["decoder"], (scale * p["centre"]).astype(np.float32), source, p["encoder"],
            (scale * p["encoder_bias"]).astype(np.float32), (scale * thresholds).astype(np.float32),
        )  # fmt: skip

    def epoch(self, states: torch.Tensor, number: int, report: Callable[[int, int], None]) -> Epoch:
        """Train on every state once, in an order that depends on the seed and the epoch alone."""
        order = torch.from_numpy(np.random.default_rng([self.plan.seed, number]).permutation(len(states)))
        batches = order.split(BATCH)
        sums = np.zeros(3)
        for place, batch in enumerate(batches):
            done = (number + place / len(batches)) / self.plan.epochs
            sums += np.array(self._step(states[batch] / self.scale, done, len(states))) * len(batch)
            if place % _REPORT_EVERY == 0:
                report(number * len(states) + place * BATCH, self.plan.epochs * len(states))
        loss, unexplained, active = (sums / len(states)).tolist()
        if not np.isfinite(loss):
            raise UserError(f"the loss of {self.plan.kind} is no longer finite in epoch {number + 1}: check the dump")
        dead = int(self._dead(len(states)).sum())
        return Epoch(number + 1, (number + 1) * len(states), loss, unexplained, active, dead)

    def _step(self, batch: torch.Tensor, done: float, epoch: int) -> tuple[float, float, float]:
        result = step(self.plan.kind, self.plan.k, self.p, batch, self._dead(epoch))
        self.optimiser.zero_grad()
        result.loss.backward()
        self.p.project_gradient()
        self.optimiser.param_groups[0]["lr"] = _LEARNING_RATE * _schedule(done)
        self.optimiser.step()
        self.p.normalise()
        self.silent += len(batch)
        self.silent[result.fired] = 0
        if np.isfinite(result.least):
            before = self.threshold or result.least
            self.threshold = _SMOOTHING * before + (1 - _SMOOTHING) * result.least
        return float(result.loss.detach()), result.unexplained, result.active

    def _dead(self, epoch: int) -> torch.Tensor:
        return self.silent >= min(DEAD_AFTER, epoch)

    def write(self, path: Path) -> None:
        """Write everything that the following epochs depend on."""
        arrays = {f"parameter/{name}": tensor.detach().numpy() for name, tensor in self.p.tensors().items()}
        for name, tensor in self.p.tensors().items():
            for part, value in self.optimiser.state.get(tensor, {}).items():
                arrays[f"{part}/{name}"] = value.numpy()
        text = {
            "plan": self.plan.deciding, "scale": self.scale, "threshold": self.threshold,
            "curve": [asdict(epoch) for epoch in self.curve],
        }  # fmt: skip
        write_tensors(path, {**arrays, "silent": self.silent.numpy()}, orjson.dumps(text).decode(), _KIND)

    @staticmethod
    def read(path: Path, plan: FitPlan, normal: Normalisation) -> "Training":
        """Read a training.

        Raises:
            UserError: the file is damaged, or of another training.
        """
        arrays, text = read_tensors(path, _KIND)
        training = Training(plan, normal)
        try:
            content: Any = orjson.loads(text)
            if content["plan"] != plan.deciding or content["scale"] != normal.scale:
                raise UserError(f"{path} belongs to a run with other arguments or another dump: delete it")
            training.threshold = float(content["threshold"])
            training.curve = [Epoch(**epoch) for epoch in content["curve"]]
            with torch.no_grad():
                for name, tensor in training.p.tensors().items():
                    tensor.copy_(torch.from_numpy(arrays[f"parameter/{name}"]))
                    parts = [part for part in ("step", "exp_avg", "exp_avg_sq") if f"{part}/{name}" in arrays]
                    if parts:
                        training.optimiser.state[tensor] = {
                            part: torch.from_numpy(arrays[f"{part}/{name}"].copy()) for part in parts
                        }
                training.silent.copy_(torch.from_numpy(arrays["silent"]))
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise UserError(f"{path} is damaged ({error}): delete it, and this autoencoder starts again") from None
        return training


def _schedule(done: float) -> float:
    """Return the learning rate's share at a share of the training: a short rise, a plateau, and a fall to 0."""
    return min(1.0, done / _WARM_UP + 0.01, (1 - done) / (1 - _DECAY_FROM))
