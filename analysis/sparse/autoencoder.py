"""Sparse autoencoders while they are trained: their parameters, reconstructions and losses.

TopK with an auxiliary loss that revives dead features: Gao et al. 2024, "Scaling and evaluating sparse autoencoders",
arXiv:2406.04093. BatchTopK: Bussmann et al. 2024, arXiv:2412.06410. JumpReLU: Rajamanoharan et al. 2024,
arXiv:2407.14435. Matryoshka: Bussmann et al. 2025, arXiv:2503.17547.

States are divided by one number for the whole layer, so that their mean squared distance from the centre is the number
of units. Losses are in shares of that: 1 is what the centre alone leaves.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from activation_store.sparse_dictionary import DictionaryKind
from agent_zoo.sparse_codes import keep_largest

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


@dataclass(frozen=True, eq=False)
class Step:
    """What one batch gives."""

    loss: torch.Tensor
    unexplained: float  # share of the variance that the reconstruction does not explain
    fired: torch.Tensor  # which features are active in any of the states, (F,) bool
    active: float  # features of a state, on average
    least: float  # smallest strength that BatchTopK kept; NaN for other kinds


def step(kind: DictionaryKind, k: int, p: Parameters, states: torch.Tensor, dead: torch.Tensor) -> Step:
    """Reconstruct a batch of states, (B, U), and return the losses.

    Args:
        states: normalised, (B, U).
        dead: features that have not been active for long, (F,) bool; the auxiliary loss is theirs.
    """
    z = functional.linear(states - p.centre, p.encoder, p.encoder_bias)  # (B, F)
    extra: torch.Tensor | float = 0.0
    least = float("nan")
    if kind == "topk":
        strengths, places = z.topk(k, dim=1, sorted=False)
        strengths = strengths.relu()
        fired = torch.zeros(len(p.decoder), dtype=torch.bool)
        fired[places[strengths > 0]] = True
    else:
        if kind == "jumprelu":
            threshold = p.log_threshold.exp()
            strengths = _JumpReLU.apply(z, threshold)
            count = _Above.apply(z, threshold).sum(dim=1).mean()
            extra = SPARSITY * (count / k - 1) ** 2
        else:
            strengths, least = _largest_of_batch(z.relu(), k)
        fired = (strengths > 0).any(dim=0)
    active = float((strengths > 0).sum()) / len(states)
    if kind == "matryoshka":
        loss, rebuilt = _nested_loss(states, strengths, p)
    else:
        rebuilt = _sum_of_rows(places, strengths, p.decoder) if kind == "topk" else strengths @ p.decoder
        loss = _unexplained(states - p.centre - rebuilt)
    rest = (states - p.centre - rebuilt).detach()
    unexplained = float(_unexplained(rest))
    revived = _reviving_loss(rest, z, dead, p, k) if dead.any() else 0.0
    return Step(loss + extra + REVIVING * revived, unexplained, fired, active, least)


def _sum_of_rows(places: torch.Tensor, strengths: torch.Tensor, decoder: torch.Tensor) -> torch.Tensor:
    """Add up k rows of the decoder for each state: (B, k) twice to (B, U); much less work than a full product."""
    return functional.embedding_bag(places, decoder, per_sample_weights=strengths, mode="sum")


def _largest_of_batch(strengths: torch.Tensor, k: int) -> tuple[torch.Tensor, float]:
    """Keep the k times B largest of a batch, (B, F), and return the smallest of them."""
    values, _ = strengths.flatten().topk(k * len(strengths), sorted=False)
    least = float(values.detach().min())
    return torch.where(strengths >= max(least, _SMALLEST), strengths, 0), least


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
    """z where it is above its threshold, else 0; the threshold's gradient is that of a step smoothed by a window."""

    @staticmethod
    def forward(context: Any, z: torch.Tensor, threshold: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(z, threshold)
        return torch.where(z > threshold, z, 0)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        (gradient,) = gradients
        z, threshold = context.saved_tensors
        near = (z - threshold).abs() < BANDWIDTH / 2
        return gradient * (z > threshold), -(threshold / BANDWIDTH) * (near * gradient).sum(dim=0)


class _Above(torch.autograd.Function):
    """1 where z is above its threshold, else 0; with the same gradient of the threshold, and none of z."""

    @staticmethod
    def forward(context: Any, z: torch.Tensor, threshold: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(z, threshold)
        return (z > threshold).to(z.dtype)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[None, torch.Tensor]:
        (gradient,) = gradients
        z, threshold = context.saved_tensors
        near = (z - threshold).abs() < BANDWIDTH / 2
        return None, -(near * gradient).sum(dim=0) / BANDWIDTH
