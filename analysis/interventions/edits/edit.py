"""One edit: what was asked for, and how it is made in an arm: as it is, or as a control of the same size."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from activation_store.directions import Direction, Directions
from activation_store.interventions import Arm
from activation_store.layers import check_policy_layers
from activation_store.sparse_dictionary import SparseDictionary, feature_name
from agent_zoo.base import RecurrentPolicy
from agent_zoo.memory import MemoryState
from analysis.interventions.edits.donor_rule import DonorRule
from analysis.interventions.edits.edit_options import Along, EditKind, EditOptions, check_feature
from analysis.interventions.edits.linear_readings import JointMoments, Reading, StateMoments, fitted_eraser
from analysis.interventions.edits.memory_edits import (
    Clear,
    Freeze,
    KeptMemory,
    MemoryEdit,
    MovedAsFar,
    Transplant,
    memory_states,
)
from analysis.interventions.edits.state_edits import (
    AsFarAs,
    DirectedEdit,
    EditOf,
    Eraser,
    FeatureEdit,
    Interchange,
    ReadOutEdit,
    StateEdit,
    Untouched,
    check_direction,
    collapse,
    steer,
    swap,
)
from common.user_error import UserError


@dataclass(frozen=True, eq=False)
class Edit:
    """One edit of a run."""

    kind: EditKind
    directions: tuple[Direction, ...] = ()
    """Along which the state is edited: any number for collapse and interchange, one for steer, origin and target for
    swap, none for other edits."""
    of: EditOf = "state"  # whether the state is edited or its change per tick
    every: int = 1  # of clear and transplant: edited ticks from one to the next
    erased: Reading | None = None  # the variables that erase removes, and from which layer; None for other edits
    donor: DonorRule | None = None  # of transplant and interchange: how donors are drawn
    features: FeatureEdit | None = None
    """The edit of sparse features by collapse, steer and splice, with strength 0; None for other edits."""
    along: Along = "weights"  # how collapse, steer and interchange move states

    @staticmethod
    def named(
        options: EditOptions, directions: Directions | None, dictionary: SparseDictionary | None,
        policy: RecurrentPolicy, columns: Sequence[str],
    ) -> "Edit":  # fmt: skip
        """Return the edit that options ask for.

        Raises:
            UserError: there is no such direction, sparse feature, variable or layer.
        """
        features, erased = None, None
        if dictionary is not None and options.of_features:
            features = FeatureEdit(dictionary, tuple(map(dictionary.number, options.names)))
        if options.erased_layer is not None:
            check_policy_layers([options.erased_layer], policy.layers, policy.cell, bool(policy.semantic))
            for name in options.variables:
                check_feature(f"--variable {options.variable}", name, columns)
            erased = Reading(options.erased_layer, options.variables)
        return Edit(
            options.edit, directions.all_named(options.names) if directions is not None and not features else (),
            "change" if options.change else "state", options.every, erased,
            DonorRule.parse(options.donor, columns) if options.donor else None, features, options.along,
        )  # fmt: skip

    @property
    def layers(self) -> tuple[str, ...]:
        """Layers whose states it edits; none for edits of the memory."""
        if self.features:
            return (self.features.layer,)
        return (self.erased.layer,) if self.erased else tuple(direction.layer for direction in self.directions)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its directions or sparse features."""
        if self.features:
            return tuple(map(feature_name, self.features.numbers))
        return tuple(direction.name for direction in self.directions)

    def only(self, name: str) -> "Edit":
        """Return the same edit of only one of its directions or sparse features."""
        if self.features:
            return replace(self, features=replace(self.features, numbers=(self.features.dictionary.number(name),)))
        return replace(self, directions=tuple(direction for direction in self.directions if direction.name == name))

    def check(self, layer_units: Mapping[str, int], policy: str, sha256: str | None, one_by_one: bool = False) -> None:
        """Refuse directions that do not fit a policy or each other; other arguments as `check_direction`.

        Raises:
            UserError: as `check_direction`; or directions are of several layers, not independent, or do not vary.
        """
        for direction in self.directions:
            check_direction(direction, self.of, layer_units, policy, sha256)
        if self.directions and not one_by_one:  # what cannot be made is known before anything is played
            self._along(0.0, lambda layer: np.eye(layer_units[layer]))

    def made(
        self, dose: float | None, covariance: Callable[[str], np.ndarray], moments: Callable[[Reading], JointMoments],
        policy: str,
    ) -> StateEdit | MemoryEdit:  # fmt: skip
        """Return the edit as it is made in a tick.

        Args:
            dose: of steer, in standard deviations of the read-out, or the strength of a sparse feature.
            covariance: returns that of a layer's unedited states, (units, units); called for oblique swaps, and with
                `along`.
            moments: returns those of the unedited states that are read.
            policy: whose states are edited, for error messages.

        Raises:
            UserError: directions are not independent, or one does not vary.
            NothingToErase: a variable does not vary.
        """
        if self.kind == "clear":
            return Clear(self.every)
        if self.kind == "freeze":
            return Freeze()
        if self.features:
            return replace(self.features, strength=(dose or 0.0) if self.kind == "steer" else 0.0)
        if self.erased:
            return fitted_eraser(self.erased, moments(self.erased), policy)
        if self.kind == "transplant":
            assert self.donor
            return Transplant(self.donor, self.every)
        if self.donor:
            return Interchange(self._along(0.0, covariance), self.donor)
        return self._along(dose or 0.0, covariance)

    def _along(self, dose: float, covariance: Callable[[str], np.ndarray]) -> ReadOutEdit:
        """Return the edit along its directions; of an interchange one that holds the read-outs, for those of donors.

        Raises:
            UserError: as `collapse` and `swap`.
        """
        if self.kind == "swap":
            origin, target = self.directions
            return swap(origin, target, self.of, covariance)
        own = covariance(self.directions[0].layer) if self.along == "covariance" else None
        if self.kind == "steer":
            return steer(self.directions[0], dose, own)
        return collapse(self.directions, self.of, own)


@dataclass(frozen=True, eq=False, kw_only=True)
class MadeEdits:
    """Edits that are made together in a tick."""

    states: tuple[StateEdit, ...] = ()  # of layers, applied in this order
    memories: tuple[MemoryEdit, ...] = ()  # of the memory between ticks, applied in this order

    @property
    def donors(self) -> tuple[DonorRule, ...]:
        """How the donors of the edits that need them are drawn."""
        donors = [*(edit.donor for edit in self.memories), *(edit.donor for edit in self.states)]
        return tuple(dict.fromkeys(donor for donor in donors if donor))

    @property
    def layers(self) -> tuple[str, ...]:
        """Layers whose states are edited."""
        return tuple(dict.fromkeys(edit.layer for edit in self.states))

    def begun(
        self, memory: MemoryState, age: torch.Tensor, agents: torch.Tensor, donors: Mapping[DonorRule, MemoryState]
    ) -> MemoryState:
        """Return the memory with which B agents begin a tick.

        Args:
            age: in how many ticks each was edited before, (B,) int64.
            agents: their numbers, (B,) int64; the same for an agent's whole life.
            donors: memories with which the donors begin the tick, by rule.
        """
        for edit in self.memories:
            memory = edit.begin(memory, age, agents, donors[edit.donor] if edit.donor else None)
        return memory

    def edited(
        self, layer: str, before: MemoryState, states: torch.Tensor, donors: Mapping[DonorRule, torch.Tensor]
    ) -> torch.Tensor:
        """Return the edited states of a layer.

        Args:
            before: memory with which the tick begins, of B agents.
            states: that the tick computed, (B, units).
            donors: their donors' states of the layer, by rule, (B, units) each.

        Raises:
            UserError: edited states are not finite.
        """
        was = memory_states(before).get(layer)
        for edit in self.states:
            if edit.layer == layer:
                states = edit.edited(was, states, donors[edit.donor] if edit.donor else None)
        if not states.isfinite().all():
            raise UserError(
                f"an edit of {layer} gives values that are not finite: its dose may be too large, or its directions "
                "may nearly coincide"
            )
        return states


def made_together(made: Iterable[StateEdit | MemoryEdit]) -> dict[str, Any]:
    """Return the fields of `MadeEdits` for edits in their order."""
    edits = list(made)
    return {
        "states": tuple(edit for edit in edits if isinstance(edit, StateEdit)),
        "memories": tuple(edit for edit in edits if isinstance(edit, MemoryEdit)),
    }


_MOST_ALIKE = 0.5  # largest share of a control's direction that all controls may have in common
Moments = Mapping[str, StateMoments]
"""Of the unedited states of a policy, by layer, and by the names of readings with their variables."""


def made_in_arm(
    edit: Edit, arm: Arm, moments: Moments, random: np.random.Generator, kept: Sequence[str]
) -> StateEdit | MemoryEdit:
    """Return an edit as it is made in an arm.

    Args:
        kept: layers whose states the memory carries into the next tick.

    Raises:
        UserError, NothingToErase: as `Edit.made`.
    """
    if arm.kind == "no edit":
        return Untouched(edit.layers[0]) if edit.layers else KeptMemory()
    directions: Sequence[Direction] = edit.directions
    if arm.policy == "untrained":
        directions = [measured_in(direction, moments) for direction in directions]
    if arm.played_kind == "same variance":
        directions = same_variance(directions, moments, random)
    donor = edit.donor
    if donor and arm.kind == "random donor":
        donor = replace(donor, lottery=arm.number)
    made = replace(edit, directions=tuple(directions), donor=donor).made(
        arm.dose, lambda layer: moments[layer].covariance, lambda reading: reading.of(moments[reading.name]), arm.policy
    )
    if isinstance(made, Eraser) and arm.played_kind == "same variance":
        return random_eraser(made, moments[made.layer], random)
    if arm.played_kind != "random direction":
        return made
    if isinstance(made, MemoryEdit):
        return MovedAsFar(made, int(random.integers(2**31)))
    assert isinstance(made, DirectedEdit | Interchange)
    return _in_random_directions(made, moments, random, kept)


def measured_in(direction: Direction, moments: Moments) -> Direction:
    """Return the direction with the mean and the spread of its read-out over a policy's own unedited states."""
    if direction.layer not in moments:
        return direction
    own, weight = moments[direction.layer], direction.weight.astype(np.float64)
    spread = float(np.sqrt(weight @ own.covariance @ weight))
    return replace(direction, mean=float(weight @ own.mean + direction.bias), spread=spread)


def _in_random_directions(
    edit: DirectedEdit | Interchange, moments: Moments, random: np.random.Generator, kept: Sequence[str]
) -> AsFarAs | Interchange:
    """Return the control that moves states as far as an edit does, along as many random directions."""
    count, units = (edit.read_outs if isinstance(edit, Interchange) else edit).axes().shape
    directions = orthonormal(count, units, random)
    if isinstance(edit, Interchange):
        return replace(edit, along=directions)
    # What a reconstruction misses is turned to another direction in each state, so nothing is to be held in place.
    is_splice = isinstance(edit, FeatureEdit) and not edit.numbers
    adds_up = edit.layer in kept and edit.of == "state" and not is_splice
    return AsFarAs(edit, directions, directions @ moments[edit.layer].mean if adds_up else None)


def orthonormal(count: int, units: int, random: np.random.Generator) -> np.ndarray:
    """Return random directions of length 1 that are orthogonal to each other, (count, units)."""
    return np.linalg.qr(random.standard_normal((units, count)))[0].T


def same_variance(edited: Sequence[Direction], moments: Moments, random: np.random.Generator) -> list[Direction]:
    """Return random directions along which states vary as much as along K edited ones, or as nearly as possible.

    Their read-outs are uncorrelated with those of the edited directions. Otherwise the control of a direction that
    varies more than nearly all others would be turned towards that direction, and do what the edit does. As far as
    there are units left, they are uncorrelated with each other too: two controls of such directions would be turned
    towards the same one, and an edit of both would be without bounds.
    """
    drawn: list[Direction] = []
    for direction in edited:
        covariance = moments[direction.layer].covariance
        own = _unit(direction.weight.astype(np.float64))
        weights = np.array([other.weight for other in (*edited, *drawn)], np.float64)[: len(covariance) - 1]
        apart = np.linalg.svd(weights @ covariance)[2][len(weights) :].T  # orthonormal columns, (units, units - K)
        turned = apart @ _unit_of_variance(apart.T @ covariance @ apart, _variance(own, covariance), random)
        weight = (turned * np.linalg.norm(direction.weight)).astype(np.float32)
        drawn.append(measured_in(replace(direction, name=f"like {direction.name}", weight=weight, bias=0.0), moments))
    return drawn


def random_eraser(eraser: Eraser, states: StateMoments, random: np.random.Generator) -> Eraser:
    """Return an eraser of as many random read-outs, which takes as much variance from the states.

    Where the states are white, every read-out is a direction, and its erasure is the projection along it. The
    directions are random and orthogonal there; each takes the variance that one of the eraser's takes.
    """
    covariance = states.covariance
    values, vectors = np.linalg.eigh(covariance)
    white = vectors / np.sqrt(values) @ vectors.T
    colour = vectors * np.sqrt(values) @ vectors.T
    free = np.eye(len(covariance))  # orthonormal columns: where directions can still be drawn
    drawn = []
    for taken in np.linalg.eigvalsh(eraser.left.T @ eraser.left)[::-1]:
        along = free @ _unit_of_variance(free.T @ covariance @ free, float(taken), random)
        drawn.append(along)
        free = np.linalg.svd(np.array(drawn))[2][len(drawn) :].T
    directions = np.array(drawn).reshape(-1, len(covariance))
    return Eraser(eraser.layer, colour @ directions.T, directions @ white, states.mean)


def _unit_of_variance(covariance: np.ndarray, wanted: float, random: np.random.Generator) -> np.ndarray:
    """Return a random direction of length 1 along which states have a given variance, (units,).

    A random direction is turned towards the component of the largest or of the smallest variance until it fits. Draws
    that end near that component would be much the same, and controls must differ to tell what one more of them may do.
    These are made of all components, weighted by up to the first power of their variances or of the inverse: the
    variance is then the wanted one, or as near to it as such a mixture comes. `covariance` is (units, units).
    """
    start = _unit(random.standard_normal(len(covariance)))
    values, vectors = np.linalg.eigh(covariance)
    larger = _variance(start, covariance) < wanted
    end = vectors[:, -1] if larger else vectors[:, 0]
    power = 1.0 if larger else -1.0

    def fitting(moved: Callable[[float], np.ndarray]) -> np.ndarray:
        low, high, direction = 0.0, 1.0, start
        for _ in range(60):  # by bisection: the variance at 0 and at 1 lie on both sides of the wanted one
            middle = (low + high) / 2
            direction = moved(middle)
            beyond = (_variance(direction, covariance) - wanted) * (_variance(start, covariance) - wanted) < 0
            low, high = (low, middle) if beyond else (middle, high)
        return direction

    turned = fitting(lambda share: _unit((1 - share) * start + share * end))
    if (turned @ end) ** 2 <= _MOST_ALIKE:
        return turned
    return fitting(lambda share: _unit(vectors @ (values ** (power * share) * (vectors.T @ start))))


def _variance(direction: np.ndarray, covariance: np.ndarray) -> float:
    """Return the variance of states along a direction of length 1."""
    return float(direction @ covariance @ direction)


def _unit(vector: np.ndarray) -> np.ndarray:
    """Return a vector of the same direction with length 1."""
    return vector / np.linalg.norm(vector)
