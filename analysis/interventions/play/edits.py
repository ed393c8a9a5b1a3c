"""One edit of a run: what the user asked for with what its names stand for, and how it is made in each arm."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from activation_store.directions import Direction, Directions
from activation_store.interventions import Arm
from activation_store.layers import check_policy_layers
from activation_store.sparse_dictionary import SparseDictionary, feature_name
from agent_zoo.base import RecurrentPolicy
from agent_zoo.network_parts.own_features import check_feature
from analysis.interventions.edits.donor_rule import DonorRule
from analysis.interventions.edits.edit_options import Along, EditKind, EditOptions
from analysis.interventions.edits.feature_edits import FeatureEdit, features_of
from analysis.interventions.edits.linear_readings import Reading, StateMoments, fitted_eraser
from analysis.interventions.edits.memory_edits import Clear, Freeze, KeptMemory, MemoryEdit, MovedAsFar, Transplant
from analysis.interventions.edits.state_edits import (
    AsFarAs,
    DirectedEdit,
    EditOf,
    Eraser,
    Interchange,
    StateEdit,
    Untouched,
    check_direction,
    edit_along,
    interchange,
)

Moments = Mapping[str, StateMoments]
"""Of the unedited states of a policy, by layer, and by the names of readings with their variables."""


@dataclass(frozen=True, eq=False)
class Edit:
    """One edit of a run.

    Attributes:
        directions: along which the state is edited: any number for collapse and interchange, one for steer, origin and
            target for swap, none for other edits.
        of: whether the state is edited or its change per tick.
        every: of clear and transplant: edited ticks from one to the next.
        erased: the variables that erase removes, and from which layer; None for other edits.
        donor: of transplant and interchange: how donors are drawn.
        features: the edit of sparse features by collapse, steer and splice, with strength 0; None for other edits.
        along: how collapse, steer and interchange move states.
    """

    kind: EditKind
    directions: tuple[Direction, ...] = ()
    of: EditOf = "state"
    every: int = 1
    erased: Reading | None = None
    donor: DonorRule | None = None
    features: FeatureEdit | None = None
    along: Along = "weights"

    @staticmethod
    def named(
        options: EditOptions, directions: Directions | None, dictionary: SparseDictionary | None,
        policy: RecurrentPolicy, columns: Sequence[str],
    ) -> "Edit":  # fmt: skip
        """Return the edit that options ask for.

        Raises:
            UserError: there is no such direction, sparse feature, variable or layer.
        """
        features, erased = features_of(options, dictionary), None
        if options.erased_layer is not None:
            check_policy_layers([options.erased_layer], policy.layers, policy.cell)
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

        Args:
            sha256: of its checkpoint file; None if unknown.

        Raises:
            UserError: as `check_direction`; or directions are of several layers, not independent, or do not vary.
        """
        for direction in self.directions:
            check_direction(direction, self.of, layer_units, policy, sha256)
        if self.directions and not one_by_one:  # what cannot be made is known before anything is played
            self._along(self.directions, 0.0, lambda layer: np.eye(layer_units[layer]))

    def in_arm(
        self, arm: Arm, moments: Moments, random: np.random.Generator, kept: Sequence[str]
    ) -> StateEdit | MemoryEdit:
        """Return the edit as it is made in an arm.

        Args:
            kept: layers whose states the memory carries into the next tick.

        Raises:
            UserError: directions are not independent, or one does not vary.
            NothingToErase: a variable does not vary.
        """
        if arm.kind == "no edit":
            return Untouched(self.layers[0]) if self.layers else KeptMemory()
        is_random = arm.played_kind == "random direction"
        if self.layers:
            edit = self._of_states(arm, moments, random)
            return _in_random_directions(edit, moments, random, kept) if is_random else edit
        memory = self._of_memory(arm)
        return MovedAsFar(memory, int(random.integers(2**31))) if is_random else memory

    def _of_memory(self, arm: Arm) -> MemoryEdit:
        if self.donor:
            return Transplant(_donor_in(arm, self.donor), self.every)
        return Clear(self.every) if self.kind == "clear" else Freeze()

    def _of_states(self, arm: Arm, moments: Moments, random: np.random.Generator) -> DirectedEdit | Interchange:
        is_like_it = arm.played_kind == "same variance"
        if self.features:
            return replace(self.features, strength=(arm.dose or 0.0) if self.kind == "steer" else 0.0)
        if self.erased:
            eraser = fitted_eraser(self.erased, self.erased.of(moments[self.erased.name]), arm.policy)
            return random_eraser(eraser, moments[self.erased.layer], random) if is_like_it else eraser
        directions: Sequence[Direction] = self.directions
        if arm.policy == "untrained":
            directions = [measured_in(direction, moments) for direction in directions]
        if is_like_it:
            directions = [
                _same_variance(direction, directions, moments[direction.layer], random) for direction in directions
            ]
        if self.donor:
            own = moments[directions[0].layer].covariance if self.along == "covariance" else None
            return interchange(directions, _donor_in(arm, self.donor), own)
        return self._along(directions, arm.dose or 0.0, lambda layer: moments[layer].covariance)

    def _along(
        self, directions: Sequence[Direction], dose: float, covariance: Callable[[str], np.ndarray]
    ) -> DirectedEdit:
        kind = "collapse" if self.kind == "interchange" else self.kind
        assert kind in ("collapse", "steer", "swap")
        return edit_along(kind, directions, self.of, dose, covariance, self.along)


def measured_in(direction: Direction, moments: Moments) -> Direction:
    """Return the direction with the mean and the spread of its read-out over a policy's own unedited states."""
    if direction.layer not in moments:
        return direction
    own, weight = moments[direction.layer], direction.weight.astype(np.float64)
    spread = float(np.sqrt(weight @ own.covariance @ weight))
    return replace(direction, mean=float(weight @ own.mean + direction.bias), spread=spread)


def _donor_in(arm: Arm, donor: DonorRule) -> DonorRule:
    return replace(donor, lottery=arm.number) if arm.kind == "random donor" else donor


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


def _same_variance(
    direction: Direction, edited: Sequence[Direction], moments: StateMoments, random: np.random.Generator
) -> Direction:
    """Return a random direction along which the states vary as much as along this one, or as nearly as possible.

    Its read-out is uncorrelated with those of the edited directions. Otherwise the control of a direction that varies
    more than nearly all others would be turned towards that direction, and do what the edit does.
    """
    covariance = moments.covariance
    own = _unit(direction.weight.astype(np.float64))
    weights = np.array([other.weight for other in edited if other.layer == direction.layer], np.float64)
    apart = np.linalg.svd(weights @ covariance)[2][len(weights) :].T  # orthonormal columns, (units, units - K)
    turned = apart @ _unit_of_variance(apart.T @ covariance @ apart, _variance(own, covariance), random)
    weight = (turned * np.linalg.norm(direction.weight)).astype(np.float32)
    like_it = replace(direction, name=f"like {direction.name}", weight=weight, bias=0.0)
    return measured_in(like_it, {direction.layer: moments})


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

    A random direction is turned towards the component of the largest or of the smallest variance until it fits; if
    even that component does not reach the variance, it is the result.

    Args:
        covariance: of the states, (units, units).
    """
    start = _unit(random.standard_normal(len(covariance)))
    _, vectors = np.linalg.eigh(covariance)
    end = vectors[:, -1] if _variance(start, covariance) < wanted else vectors[:, 0]
    low, high = 0.0, 1.0
    turned = start
    for _ in range(60):  # by bisection: the variance at 0 and at 1 lie on both sides of the wanted one
        middle = (low + high) / 2
        turned = _unit((1 - middle) * start + middle * end)
        beyond = (_variance(turned, covariance) - wanted) * (_variance(start, covariance) - wanted) < 0
        low, high = (low, middle) if beyond else (middle, high)
    return turned


def _variance(direction: np.ndarray, covariance: np.ndarray) -> float:
    """Return the variance of states along a direction of length 1."""
    return float(direction @ covariance @ direction)


def _unit(vector: np.ndarray) -> np.ndarray:
    """Return a vector of the same direction with length 1."""
    return vector / np.linalg.norm(vector)
