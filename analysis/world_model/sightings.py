"""Where others are likely to be: where they were last seen, how far they have drifted since, and what a network adds.

A network that predicts from its own predictions forgets within a few ticks who was where. The last view in which others
were seen does not change, so it is kept, and both are weighed by how many ticks ago that was.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import isqrt
from typing import Self

import numpy as np
import torch
from torch.nn import functional

from analysis.world_model.network import WorldNetwork, WorldState, drawn
from analysis.world_model.scene import KINDS, SoftScene, Tables
from analysis.world_model.windows import CONTEXT, Windows

REACH = 4
"""Tiles that others are expected to drift at most, in each direction."""
LONGEST = 16
"""Largest number of ticks since a sighting with tables of its own. Beyond it the last odd or even number stands in."""

_LEAST = 1e-4
_RIDGE = 5.0
_WIDTH = 2 * REACH + 1


@dataclass(frozen=True, eq=False)
class Sightings(Tables):
    """How others drift, and how that is weighed against what a network predicts, by kind and ticks since a sighting."""

    # kernel: probability that one is so many rows and columns from where one of its kind was seen, for each that was
    # seen within `REACH`, (LONGEST, kinds, width, width); and where none was, (LONGEST, kinds)
    kernel: torch.Tensor
    base: torch.Tensor
    weights: torch.Tensor  # of the logits of both, and a constant, (LONGEST, kinds, 3)

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray]) -> Self:
        """See `Tables.of_arrays`; raises ValueError where a table has another shape."""
        read = super().of_arrays(arrays)
        for name, table in _no_drift().items():
            if (shape := getattr(read, name).shape) != table.shape:
                raise ValueError(f"sightings/{name} has the shape {tuple(shape)}")
        return read

    def drifted(self, scene: SoftScene) -> SoftScene:
        """Return scenes with others where they have drifted to since they were last seen, whatever is predicted."""
        return self._by_age(scene, lambda age, some: self.drift(age, last_seen(some, REACH)))

    def weighed(self, scene: SoftScene) -> SoftScene:
        """Return scenes with others where both the drift and what is predicted lead one to expect them."""

        def both(age: int, some: SoftScene) -> torch.Tensor:
            own, other, constant = self.weights[age].unsqueeze(2).unbind(1)  # (kinds, 1) each
            drift = self.drift(age, last_seen(some, REACH))
            return (own * _logit(some.kinds) + other * _logit(drift) + constant).sigmoid()

        return self._by_age(scene, both)

    def _by_age(self, scene: SoftScene, expected: Callable[[int, SoftScene], torch.Tensor]) -> SoftScene:
        """Replace where others are by what is expected at each age; nothing where no sighting is known."""
        kinds = scene.kinds
        for ticks in scene.since[:, 0].unique().tolist():
            if ticks > 0:
                (here,) = (scene.since[:, 0] == ticks).nonzero(as_tuple=True)
                kinds = kinds.index_copy(0, here, expected(_age(ticks), scene.take(here)))
        return replace(scene, kinds=kinds)

    def drift(self, age: int, seen: torch.Tensor) -> torch.Tensor:
        """Return the probabilities of the drift alone, (B, kinds, V).

        Args:
            age: place in the tables.
            seen: as `last_seen` returns it, with a frame of `REACH`.
        """
        near = functional.conv2d(seen, self.kernel[age].unsqueeze(1), groups=len(KINDS))
        return (near + self.base[age].view(-1, 1, 1)).clamp(_LEAST, 1 - _LEAST).flatten(2)


def _no_drift() -> dict[str, torch.Tensor]:
    """Return tables by which what a network predicts stays as it is."""
    shape = (LONGEST, len(KINDS))
    weights = torch.tensor([1.0, 0, 0]).repeat(*shape, 1)
    return {"kernel": torch.zeros(*shape, _WIDTH, _WIDTH), "base": torch.zeros(shape), "weights": weights}


def _age(ticks: int) -> int:
    """Return the place in the tables of a number of ticks since a sighting, from 1."""
    return min(ticks, LONGEST - (ticks - LONGEST) % 2) - 1


def last_seen(scene: SoftScene, frame: int) -> torch.Tensor:
    """Return where others were last seen, around the agent as it stands now.

    Args:
        frame: tiles beyond the view to return on each side.

    Returns:
        (B, kinds, side + 2 frame, side + 2 frame); 0 beyond the view of then.
    """
    side = isqrt(scene.seen.shape[2])
    along = torch.arange(-frame, side + frame)
    rows, columns = (along + scene.since[:, axis, None] for axis in (1, 2))  # (B, side + 2 frame) each
    inside = [(place >= 0) & (place < side) for place in (rows, columns)]
    place = rows.clamp(0, side - 1).unsqueeze(2) * side + columns.clamp(0, side - 1).unsqueeze(1)
    then = scene.seen.gather(2, place.flatten(1).unsqueeze(1).expand(-1, len(KINDS), -1))
    known = inside[0].unsqueeze(2) & inside[1].unsqueeze(1)
    return then.unflatten(2, known.shape[1:]) * known.unsqueeze(1)


def _logit(probabilities: torch.Tensor) -> torch.Tensor:
    return probabilities.clamp(_LEAST, 1 - _LEAST).logit()


def informed_state(
    network: WorldNetwork, windows: Windows, generator: torch.Generator | None
) -> tuple[torch.Tensor, WorldState]:
    """Return the bottlenecks, (W, dimensions), and states of the world in the last tick of the windows' contexts."""
    encoded = network.encode(windows.scene.soft(network.shape.materials))
    context = torch.stack([encoded[windows.starts + tick] for tick in range(CONTEXT)], dim=1)
    vector, _ = network.bottleneck(context)
    hidden, _ = network.start(vector)
    return vector, WorldState(hidden, drawn(network.posterior_logits(hidden, context[:, -1]), generator))


@torch.no_grad()
def fit_sightings(network: WorldNetwork, batches: Iterable[Windows], generator: torch.Generator) -> Sightings:
    """Fit them to what came after recorded ticks, and to what a network predicts from these.

    Kernels are fitted by least squares, weights by logistic regression. Windows may be of any length; what they do not
    reach is as two ticks before.
    """
    parts: list[list[tuple[torch.Tensor, ...]]] = [[] for _ in range(LONGEST)]
    for windows in batches:
        for part, (scene, real) in zip(parts, _predicted(network, windows, generator), strict=False):
            part.append((last_seen(scene, REACH), scene.kinds, real))
    fitted = Sightings(**_no_drift())
    for age, ticks in enumerate(parts):
        if not ticks:  # no window is as long
            for table in vars(fitted).values():
                table[age] = table[age - 2]
            continue
        seen, predicted, real = (torch.cat(part) for part in zip(*ticks, strict=True))
        for kind in range(len(KINDS)):
            fitted.kernel[age, kind], fitted.base[age, kind] = _kernel(seen[:, kind], real[:, kind])
        drift = fitted.drift(age, seen)
        for kind in range(len(KINDS)):
            fitted.weights[age, kind] = _weights(predicted[:, kind], drift[:, kind], real[:, kind])
    return fitted


def _predicted(
    network: WorldNetwork, windows: Windows, generator: torch.Generator
) -> Iterator[tuple[SoftScene, torch.Tensor]]:
    """Predict windows with the recorded actions, as simulations do; yields each tick's scenes, and who was there."""
    scene, (_, state) = windows.last_given(network.shape.materials), informed_state(network, windows, generator)
    left = torch.arange(len(windows))
    for tick in range(CONTEXT, windows.ticks):
        (going,) = (windows.lengths[left] > tick).nonzero(as_tuple=True)
        if not len(going):
            return
        left, state, scene = left[going], state.take(going), scene.take(going)
        action = windows.action[left, tick - 1]
        hidden = network.step(state, action)
        state = WorldState(hidden, drawn(network.prior_logits(hidden), generator))
        scene = network.decode(state, scene, action, decided=True).scene
        yield scene, windows.at(tick)[1].kinds


def _kernel(seen: torch.Tensor, real: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Fit presence, (B, V), to who was seen near, (B, side + 2 REACH, ...); returns the kernel and the constant."""
    near = functional.unfold(seen.unsqueeze(1), _WIDTH).transpose(1, 2)  # (B, V, width^2)
    some = near.sum(dim=2) > 0
    base = real[~some].double().mean() if (~some).any() else torch.zeros(())
    inputs, wanted = near[some].double(), real[some].double() - base
    kernel = torch.linalg.solve(
        inputs.T @ inputs + _RIDGE * torch.eye(_WIDTH**2, dtype=torch.float64), inputs.T @ wanted
    )
    return kernel.float().view(_WIDTH, _WIDTH), base.float()


def _weights(own: torch.Tensor, drift: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """Fit the weights of both predictions of presence, (B, V) each; of the drift alone if nobody ever was there."""
    if not real.any():
        return torch.tensor([0.0, 1.0, 0.0])
    from sklearn.linear_model import LogisticRegression

    logits = torch.stack([_logit(own), _logit(drift)], dim=2).flatten(0, 1).numpy()
    fitted = LogisticRegression(max_iter=1000).fit(logits, real.flatten().numpy() > 0)
    return torch.tensor([*fitted.coef_[0], fitted.intercept_[0]], dtype=torch.float32)
