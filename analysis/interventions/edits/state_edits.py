"""Edits of a layer's activations, as functions of (B, units) tensors.

An edit reads numbers out of the activations, chooses new values for them, and writes the difference back:

    r = x W^T + b,    x' = x + (f(r) - r) P,    with P W^T = 1

so the read-outs take exactly the values f(r), and read-outs with orthogonal weights stay as they were. On the change of
a state per tick, the same is done to x_t - x_(t-1), whose read-outs have the mean 0 and no bias.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from torch.nn.functional import normalize

from activation_store.directions import Direction
from activation_store.sparse_dictionary import SparseDictionary
from agent_zoo.sparse_codes import SparseCoder
from analysis.interventions.edits.donor_rule import DonorRule
from common.user_error import UserError

EditOf = Literal["state", "change"]
_ORTHOGONAL = 1e-3  # largest cosine of directions that count as orthogonal
_INDEPENDENT = 1e-6  # smallest eigenvalue of the cosines, or correlations, of directions that count as independent


class StateEdit:
    """Edits one layer; by itself, it changes nothing."""

    layer: str
    of: EditOf  # whether the state itself is edited, or its change in each tick
    donor: DonorRule | None = None  # how donors are drawn, if the edit takes something from their states

    def apply(self, activations: torch.Tensor) -> torch.Tensor:
        """Edit states, or their changes: (B, units) -> (B, units)."""
        return activations

    def edited(
        self, before: torch.Tensor | None, after: torch.Tensor, donors: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Edit what a tick computed, (B, units), given the same layer before the tick if `of` is change.

        `donors` are the states of the agents' donors, (B, units), if `donor` says that they have any.
        """
        if self.of == "state":
            return self.apply(after)
        assert before is not None
        return before + self.apply(after - before)


class DirectedEdit(StateEdit, ABC):
    """An edit that moves states along a few directions."""

    @abstractmethod
    def axes(self) -> np.ndarray:
        """Return orthonormal directions that span all moves of the edit, (K, units)."""


@dataclass(frozen=True, eq=False)
class ReadOutEdit(DirectedEdit):
    """Gives K read-outs new values: each becomes a mixture of the old ones, plus a constant."""

    layer: str
    of: EditOf
    read: np.ndarray  # weights of the read-outs, (K, units)
    bias: np.ndarray  # of the read-outs, (K,)
    write: np.ndarray
    """What a unit more of each read-out adds to the activations, (K, units); read @ write.T is the identity."""
    mixture: np.ndarray  # new read-outs from old ones, (K, K)
    constant: np.ndarray  # added to them, (K,); or (B, K), others for each state

    def apply(self, activations: torch.Tensor) -> torch.Tensor:
        """See `StateEdit.apply`."""
        write, mixture, constant = (_like(activations, array) for array in (self.write, self.mixture, self.constant))
        read_outs = self.read_out(activations)
        wanted = read_outs @ mixture.T + constant
        return (activations + (wanted - read_outs) @ write).to(activations.dtype)

    def read_out(self, activations: torch.Tensor) -> torch.Tensor:
        """Return the read-outs of states, (B, units) -> (B, K) float64."""
        # In double precision: a unit that hardly varies may have a large weight, offset by the bias.
        return activations.double() @ _like(activations, self.read).T + _like(activations, self.bias)

    def axes(self) -> np.ndarray:
        """See `DirectedEdit.axes`."""
        return _orthonormal(self.write)


@dataclass(frozen=True, eq=False)
class Eraser(DirectedEdit):
    """Takes K read-outs out of the states: x' = x - (x - mean) right^T left^T, as LEACE does (Belrose et al. 2023)."""

    layer: str
    left: np.ndarray  # (units, K)
    right: np.ndarray  # weights of the read-outs, (K, units); right @ left is the identity
    mean: np.ndarray  # of unedited states, (units,)
    of: EditOf = "state"

    def apply(self, activations: torch.Tensor) -> torch.Tensor:
        """See `StateEdit.apply`."""
        centred = activations.double() - _like(activations, self.mean)
        read_outs = centred @ _like(activations, self.right).T  # (B, K)
        return (activations - read_outs @ _like(activations, self.left).T).to(activations.dtype)

    def axes(self) -> np.ndarray:
        """See `DirectedEdit.axes`."""
        return _orthonormal(self.left.T)

    @property
    def kept(self) -> np.ndarray:
        """What is left of centred states: x' - mean = kept (x - mean), (units, units)."""
        return np.eye(len(self.left)) - self.left @ self.right


@dataclass(frozen=True, eq=False)
class Untouched(StateEdit):
    """Changes nothing, but is called like every other edit: a control of the machinery."""

    layer: str
    of: EditOf = "state"


@dataclass(frozen=True, eq=False)
class AsFarAs(StateEdit):
    """Moves each state as another edit would, but along other directions: its axes are turned to them.

    So each state moves exactly as far, and those that the other edit moves to opposite sides move to opposite sides.

    In a state that the memory keeps, such moves would add up from tick to tick, while the other edit finds its state
    where it has put it. There a move starts where states are on average along the directions, so that a state ends up
    as far from there as the other edit would take it.
    """

    original: DirectedEdit  # the other edit, with K axes
    directions: np.ndarray  # orthonormal, (K, units)
    start: np.ndarray | None = None  # where moves along the directions start, (K,); None for the state itself

    @property
    def layer(self) -> str:  # type: ignore[override]
        """See `StateEdit`."""
        return self.original.layer

    @property
    def of(self) -> EditOf:  # type: ignore[override]
        """See `StateEdit`."""
        return self.original.of

    def apply(self, activations: torch.Tensor) -> torch.Tensor:
        """See `StateEdit.apply`."""
        directions = _like(activations, self.directions)
        started = activations
        if self.start is not None:
            offset = activations.double() @ directions.T - _like(activations, self.start)  # (B, K)
            started = (activations - offset @ directions).to(activations.dtype)
        moved = (self.original.apply(started) - started).double()
        along = moved @ _like(activations, self.original.axes()).T  # (B, K)
        return (started + along @ directions).to(activations.dtype)


@dataclass(frozen=True, eq=False)
class Interchange(StateEdit):
    """Read-outs take the values that they have in another agent's state of the same tick.

    Exchanging the part of a state that a direction reads, and leaving the rest, is an interchange intervention on a
    distributed representation (Geiger et al. 2021, "Causal abstractions of neural networks"; Geiger et al. 2024,
    "Finding alignments between interpretable causal variables and distributed neural representations").
    """

    read_outs: ReadOutEdit  # holds the read-outs at constants, in whose place the donors' come
    donor: DonorRule = field()  # not the default of every edit, None
    along: np.ndarray | None = None
    """None, or for a control orthonormal directions along which states are moved as far towards the donor's state
    instead, (K, units)."""
    of: EditOf = "state"

    @property
    def layer(self) -> str:  # type: ignore[override]
        """See `StateEdit`."""
        return self.read_outs.layer

    def edited(
        self, before: torch.Tensor | None, after: torch.Tensor, donors: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See `StateEdit.edited`."""
        assert donors is not None
        edit = replace(self.read_outs, constant=self.read_outs.read_out(donors).cpu().numpy())
        if self.along is None:
            return edit.apply(after)
        directions = _like(after, self.along)
        far = (edit.apply(after) - after).double().norm(dim=1, keepdim=True)  # (B, 1)
        towards = (donors - after).double() @ directions.T @ directions  # (B, units)
        return (after + far * normalize(towards, dim=1)).to(after.dtype)


def collapse(directions: Sequence[Direction], of: EditOf, covariance: np.ndarray | None = None) -> ReadOutEdit:
    """Hold the read-outs of directions at their recorded means, or undo their changes.

    Args:
        covariance: of the layer's states, (units, units), to move them along what goes with the read-outs, which is the
            covariance of states and read-outs (Haufe et al. 2014, "On the interpretation of weight vectors of linear
            models"): of all changes that give the read-outs their values, the one of the smallest Mahalanobis distance.
            None to move them along the weights, the change of the smallest Euclidean distance.

    Raises:
        UserError: the directions are of several layers, or not independent.
    """
    constant = [0.0] * len(directions) if of == "change" else [direction.mean for direction in directions]
    return _read_out_edit(directions, of, np.zeros((len(directions),) * 2), constant, covariance)


def steer(direction: Direction, dose: float, covariance: np.ndarray | None = None) -> ReadOutEdit:
    """Hold a direction's read-out at its recorded mean plus `dose` standard deviations; covariance as in `collapse`."""
    held = [direction.mean + dose * direction.spread]
    return _read_out_edit([direction], "state", np.zeros((1, 1)), held, covariance)


def swap(
    origin: Direction, target: Direction, of: EditOf, covariance: Callable[[str], np.ndarray]
) -> ReadOutEdit:  # fmt: skip
    """Move what varies along one direction to another: the origin's read-out stays at its mean, the target's gains it.

    A standard deviation of the origin becomes one of the target. If the two directions are not orthogonal, they are
    in the space in which the recorded states are white, so that moving along one does not move the other.

    Args:
        covariance: returns that of a layer's states, (units, units); called if the directions are not orthogonal in raw
            activations.

    Raises:
        UserError: the directions belong to different layers or are the same, or one of them does not vary.
    """
    if origin.layer != target.layer:
        raise UserError(
            f"{origin.name} is a direction of {origin.layer}, {target.name} of {target.layer}: only directions of the "
            "same layer can be swapped"
        )
    if origin.spread == 0:
        raise UserError(f"the direction {origin.name} does not vary, so there is nothing to move")
    gain = target.spread / origin.spread
    mixture = np.array([[0.0, 0.0], [gain, 1.0]])
    constant = [0.0, 0.0] if of == "change" else [origin.mean, -gain * origin.mean]
    one, other = origin.weight.astype(np.float64), target.weight.astype(np.float64)
    are_orthogonal = abs(one @ other) <= _ORTHOGONAL * np.linalg.norm(one) * np.linalg.norm(other)
    own = None if are_orthogonal else covariance(origin.layer)
    return _read_out_edit([origin, target], of, mixture, constant, own)


def _read_out_edit(
    directions: Sequence[Direction], of: EditOf, mixture: np.ndarray, constant: Sequence[float],
    covariance: np.ndarray | None,
) -> ReadOutEdit:  # fmt: skip
    layers = {direction.layer for direction in directions}
    if len(layers) > 1:
        raise UserError(f"directions of several layers ({', '.join(sorted(layers))}) need an --edit each")
    read = np.stack([direction.weight for direction in directions]).astype(np.float64)
    spanned = read if covariance is None else read @ covariance  # (K, units)
    products = spanned @ read.T
    for direction, square in zip(directions, np.diag(products), strict=True):
        if not square > 0:
            raise UserError(f"the direction {direction.name} does not vary, so it cannot be edited")
    lengths = np.sqrt(np.diag(products))
    if np.linalg.eigvalsh(products / np.outer(lengths, lengths))[0] < _INDEPENDENT:
        raise UserError(
            f"the directions {', '.join(direction.name for direction in directions)} are not independent: leave one out"
        )
    write = np.linalg.solve(products, spanned)
    bias = np.zeros(len(read)) if of == "change" else np.array([direction.bias for direction in directions])
    return ReadOutEdit(layers.pop(), of, read, bias, write, mixture, np.array(constant, dtype=np.float64))


def _orthonormal(rows: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis of what independent rows span, (K, units)."""
    return np.linalg.qr(rows.T)[0].T


def _like(activations: torch.Tensor, array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float64)).to(activations.device)


def check_direction(
    direction: Direction, of: EditOf, layer_units: Mapping[str, int], policy: str, sha256: str | None
) -> None:
    """Refuse a direction that does not fit a policy.

    Args:
        sha256: of its checkpoint file; None if unknown.

    Raises:
        UserError: the policy has no such layer, another number of units, or the direction is another policy's.
    """
    direction.check_policy(layer_units, policy, sha256)
    if of == "change" and not direction.layer.startswith("lstm_"):
        raise UserError(
            f"{direction.layer} is not part of the memory, so it has no change per tick: leave out --change"
        )


_CODERS = 8


@dataclass(frozen=True, eq=False)
class FeatureEdit(DirectedEdit):
    """Gives features of every state the same strengths, and leaves all else as it is; or replaces whole states."""

    dictionary: SparseDictionary
    numbers: tuple[int, ...] = ()  # of the features; if there are none, states are replaced by their reconstructions
    strength: float = 0.0  # that the features get; 0 takes them out
    of: EditOf = "state"

    @property
    def layer(self) -> str:  # type: ignore[override]
        """The layer whose states the dictionary writes."""
        return self.dictionary.source.layer

    def apply(self, activations: torch.Tensor) -> torch.Tensor:
        """See `StateEdit.apply`."""
        coder, numbers = coder_of(self.dictionary, str(activations.device)), list(self.numbers)
        if not numbers:
            return coder.reconstruction(activations)
        change = self.strength - coder.strengths(activations)[:, numbers]  # (B, K)
        return activations + change @ coder.decoder[numbers]

    def axes(self) -> np.ndarray:
        """See `DirectedEdit.axes`."""
        if not self.numbers:
            return np.eye(self.dictionary.units)
        return _orthonormal(self.dictionary.decoder[list(self.numbers)].astype(np.float64))


def check_dictionary(
    dictionary: SparseDictionary, layer_units: Mapping[str, int], policy: str, sha256: str | None
) -> None:
    """Refuse a dictionary that does not fit a policy.

    Raises:
        UserError: the policy has no such layer, another number of units, or the dictionary is another policy's.
    """
    source = dictionary.source
    if layer_units.get(source.layer) != dictionary.units:
        raise UserError(
            f"--features holds features of {source.layer}, {dictionary.units} units, of {source.policy}; {policy} has "
            f"{', '.join(f'{name} ({units})' for name, units in layer_units.items())}"
        )
    if None not in (sha256, source.checkpoint_sha256) and source.checkpoint_sha256 != sha256:
        raise UserError(
            f"--features was fitted to another policy, {source.policy}, not to {policy} as it is now: extract "
            "activations and train the autoencoder again"
        )


@functools.lru_cache(maxsize=_CODERS)
def coder_of(dictionary: SparseDictionary, device: str) -> SparseCoder:
    """Return a dictionary ready to use on a device."""
    return SparseCoder(dictionary, device)
