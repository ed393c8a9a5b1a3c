"""Train one sparse autoencoder; after every epoch it can be interrupted and continued, with the same result.

TopK with an auxiliary loss that revives dead features: Gao et al. 2024, "Scaling and evaluating sparse autoencoders",
arXiv:2406.04093. BatchTopK: Bussmann et al. 2024, arXiv:2412.06410. JumpReLU: Rajamanoharan et al. 2024,
arXiv:2407.14435. Matryoshka: Bussmann et al. 2025, arXiv:2503.17547.

States are divided by one number for the whole layer, so that their mean squared distance from the centre is the number
of units. Losses are in shares of that: 1 is what the centre alone leaves.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import torch
from torch.nn import functional

from activation_store.sparse_dictionary import DictionaryKind, DictionarySource, SparseDictionary
from agent_zoo.sparse_codes import keep_largest
from analysis.matrix_products import fast_products
from common.array_files import Kind, read_tensors, write_tensors
from common.user_error import UserError

BANDWIDTH = 0.1
"""Width of the window around a jumprelu threshold in which it has a gradient, in normalised units."""
REVIVING = 1 / 32
"""Weight of the auxiliary loss, as in Gao et al."""
REVIVED = 2
"""Dead features that reconstruct what is left of a state, as a multiple of k, at most half as many as units. Fewer than
the usual half of the units: the more share the rest, the weaker each is, and the less likely to be among a state's k
largest."""
SPARSITY = 1.0
"""Weight of the squared relative distance of jumprelu's mean number of features from k."""

_MATCHED = 2048
_SMALLEST = 1e-12

PREFIXES = (16, 8, 4, 2, 1)
"""Matryoshka autoencoders also reconstruct with the first features alone: one in so many."""


@dataclass(eq=False)
class Parameters:
    """The parameters of an autoencoder with F features of U units, in normalised units."""

    encoder: torch.Tensor  # (F, U)
    encoder_bias: torch.Tensor  # (F,)
    decoder: torch.Tensor  # (F, U); rows have length 1
    centre: torch.Tensor  # (U,)
    log_threshold: torch.Tensor  # (F,); used by jumprelu only

    @staticmethod
    def drawn(
        kind: DictionaryKind, features: int, k: int, sample: torch.Tensor, centre: torch.Tensor, seed: int
    ) -> "Parameters":
        """Draw directions for decoder and encoder: each halfway between that of a state and a random one.

        Args:
            k: wanted in a state; jumprelu thresholds start where as many are above them.
            sample: some states, (N, U).
            centre: where the decoder starts, (U,).
        """
        random = torch.Generator().manual_seed(seed)
        drawn = sample[torch.randint(len(sample), (features,), generator=random)] - centre
        noise = torch.randn(features, len(centre), generator=random)
        # States vary along few directions: features along random directions alone would hardly ever be active.
        mixed = functional.normalize(drawn, dim=1) + functional.normalize(noise, dim=1)
        decoder = functional.normalize(mixed, dim=1)
        centred = sample[:_MATCHED] - centre
        strengths = keep_largest(functional.linear(centred, decoder), k)
        rebuilt = strengths @ decoder
        # Features that resemble each other add up to too much: begin with the scale that reconstructs best.
        gain = float((rebuilt * centred).sum() / rebuilt.square().sum().clamp(min=_SMALLEST))
        threshold = 1.0
        if kind == "jumprelu":
            z = gain * functional.linear(centred, decoder)
            threshold = max(float(np.quantile(z.numpy(), 1 - k / features)), BANDWIDTH)
        return Parameters(
            gain * decoder, torch.zeros(features), decoder, centre.clone(),
            torch.full((features,), float(np.log(threshold))),
        )  # fmt: skip

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the parameters by name."""
        return vars(self)

    @torch.no_grad()
    def project_gradient(self) -> None:
        """Take out of the decoder's gradient what would only change the length of its rows."""
        gradient = self.decoder.grad
        if gradient is not None:
            gradient -= (gradient * self.decoder).sum(dim=1, keepdim=True) * self.decoder

    @torch.no_grad()
    def normalise(self) -> None:
        """Give the decoder's rows length 1 again."""
        self.decoder.copy_(functional.normalize(self.decoder, dim=1))


def _sum_of_rows(places: torch.Tensor, strengths: torch.Tensor, decoder: torch.Tensor) -> torch.Tensor:
    """Add up k rows of the decoder for each state: (B, k) twice to (B, U); much less work than a full product."""
    return functional.embedding_bag(places, decoder, per_sample_weights=strengths, mode="sum")


def _nested_loss(states: torch.Tensor, strengths: torch.Tensor, p: Parameters) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean loss of reconstructions by the first features, and the reconstruction by all, less the centre."""
    ends = [max(1, len(p.decoder) // part) for part in PREFIXES]
    rebuilt, losses, start = torch.zeros_like(states), [], 0
    for end in ends:
        rebuilt = rebuilt + strengths[:, start:end] @ p.decoder[start:end]
        losses.append(_unexplained(states - p.centre - rebuilt))
        start = end
    return torch.stack(losses).mean(), rebuilt


def _reviving_loss(rest: torch.Tensor, z: torch.Tensor, dead: torch.Tensor, p: Parameters, k: int) -> torch.Tensor:
    """How much of what is left the dead features leave, as a share of it.

    Strengths can be negative here: a feature that no state activates would have no gradient otherwise, and stay dead.
    """
    (places,) = dead.nonzero(as_tuple=True)
    most = min(REVIVED * k, max(rest.shape[1] // 2, 1), len(places))
    strengths, chosen = z[:, places].topk(most, dim=1, sorted=False)
    rebuilt = _sum_of_rows(places[chosen], strengths, p.decoder)
    return _unexplained(rest - rebuilt) / _unexplained(rest).clamp(min=_SMALLEST)


def _unexplained(error: torch.Tensor) -> torch.Tensor:
    """Return the share of the variance: errors, (B, U), in normalised units."""
    return error.square().sum(dim=1).mean() / error.shape[1]


class _JumpReLU(torch.autograd.Function):
    """z where it is above its threshold, else 0; and 1 where it is, else 0, which has no gradient of z.

    The threshold's gradient is that of a step smoothed by a window.
    """

    @staticmethod
    def forward(context: Any, z: torch.Tensor, threshold: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        context.save_for_backward(z, threshold)
        above = z > threshold
        return torch.where(above, z, 0), above.to(z.dtype)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gradient, of_above = gradients
        z, threshold = context.saved_tensors
        near = (z - threshold).abs() < BANDWIDTH / 2
        smoothed = (threshold / BANDWIDTH) * (near * gradient).sum(dim=0) + (near * of_above).sum(dim=0) / BANDWIDTH
        return gradient * (z > threshold), -smoothed


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


Report = Callable[[int, int, str], None]


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
    on_epoch: Callable[[Epoch], None] = lambda _: None, report: Report = lambda *_: None,
) -> "Training":  # fmt: skip
    """Train an autoencoder, from where an interrupted training left off if there is one.

    Args:
        states: raw, (B, U) float32.
        unfinished: file that holds the training after each epoch; None for a training that need not be resumed.
        report: called with the states seen so far, those of all epochs, and how good the last epoch was.

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

    def epoch(self, states: torch.Tensor, number: int, report: Report) -> Epoch:
        """Train on every state once, in an order that depends on the seed and the epoch alone."""
        order = torch.from_numpy(np.random.default_rng([self.plan.seed, number]).permutation(len(states)))
        batches = order.split(BATCH)
        sums, left = np.zeros(3), f"{self.curve[-1].unexplained:.2%} of the variance left" if self.curve else ""
        for place, batch in enumerate(batches):
            done = (number + place / len(batches)) / self.plan.epochs
            sums += np.array(self._step(states[batch] / self.scale, done, len(states))) * len(batch)
            if place % _REPORT_EVERY == 0:
                report(number * len(states) + place * BATCH, self.plan.epochs * len(states), left)
        loss, unexplained, active = (sums / len(states)).tolist()
        if not np.isfinite(loss):
            raise UserError(f"the loss of {self.plan.kind} is no longer finite in epoch {number + 1}: check the dump")
        dead = int(self._dead(len(states)).sum())
        return Epoch(number + 1, (number + 1) * len(states), loss, unexplained, active, dead)

    def _step(self, states: torch.Tensor, done: float, epoch: int) -> tuple[float, float, float]:
        """Train on normalised states, (B, U); returns loss, unexplained share of variance, and features of a state."""
        kind, k, p, dead = self.plan.kind, self.plan.k, self.p, self._dead(epoch)
        z = functional.linear(states - p.centre, p.encoder, p.encoder_bias)  # (B, F)
        extra: torch.Tensor | float = 0.0
        if kind == "topk":
            strengths, places = z.topk(k, dim=1, sorted=False)
            strengths = strengths.relu()
            fired = torch.zeros(len(p.decoder), dtype=torch.bool)
            fired[places[strengths > 0]] = True
        else:
            if kind == "jumprelu":
                strengths, above = _JumpReLU.apply(z, p.log_threshold.exp())
                extra = SPARSITY * (above.sum(dim=1).mean() / k - 1) ** 2
            else:  # the k times B largest of the batch
                strengths = z.relu()
                least = float(strengths.detach().flatten().topk(k * len(states), sorted=False)[0].min())
                strengths = torch.where(strengths >= max(least, _SMALLEST), strengths, 0)
                before = self.threshold or least
                self.threshold = _SMOOTHING * before + (1 - _SMOOTHING) * least
            fired = (strengths > 0).any(dim=0)
        active = float((strengths > 0).sum()) / len(states)
        if kind == "matryoshka":
            loss, rebuilt = _nested_loss(states, strengths, p)
        else:
            rebuilt = _sum_of_rows(places, strengths, p.decoder) if kind == "topk" else strengths @ p.decoder
            loss = _unexplained(states - p.centre - rebuilt)
        rest = (states - p.centre - rebuilt).detach()
        revived = _reviving_loss(rest, z, dead, p, k) if dead.any() else 0.0
        loss = loss + extra + REVIVING * revived
        self.optimiser.zero_grad()
        loss.backward()
        self.p.project_gradient()
        # A short rise, a plateau, and a fall to 0.
        rate = min(1.0, done / _WARM_UP + 0.01, (1 - done) / (1 - _DECAY_FROM))
        self.optimiser.param_groups[0]["lr"] = _LEARNING_RATE * rate
        self.optimiser.step()
        self.p.normalise()
        self.silent += len(states)
        self.silent[fired] = 0
        return float(loss.detach()), float(_unexplained(rest)), active

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
            if content["plan"] != plan.deciding or content["scale"] != training.scale:
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
