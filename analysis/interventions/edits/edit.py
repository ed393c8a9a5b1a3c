"""One edit: what was asked for, with what its names stand for, and what it does to memories and states in a tick."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from activation_store.directions import Direction, Directions
from activation_store.layers import check_policy_layers
from activation_store.sparse_dictionary import SparseDictionary, feature_name
from agent_zoo.base import RecurrentPolicy
from agent_zoo.memory import MemoryState
from analysis.interventions.edits.donor_rule import DonorRule
from analysis.interventions.edits.edit_options import Along, EditKind, EditOptions, check_feature
from analysis.interventions.edits.feature_edits import FeatureEdit
from analysis.interventions.edits.linear_readings import JointMoments, Reading, fitted_eraser
from analysis.interventions.edits.memory_edits import Clear, Freeze, MemoryEdit, Transplant, memory_states
from analysis.interventions.edits.state_edits import (
    EditOf,
    Interchange,
    ReadOutEdit,
    StateEdit,
    check_direction,
    collapse,
    steer,
    swap,
)
from common.user_error import UserError


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

        Args:
            sha256: of its checkpoint file; None if unknown.

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
    """Edits that are made together in a tick.

    Attributes:
        states: of layers, applied in this order.
        memories: of the memory between ticks, applied in this order.
    """

    states: tuple[StateEdit, ...] = ()
    memories: tuple[MemoryEdit, ...] = ()

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
            memory = (edit.taking(donors[edit.donor]) if edit.donor else edit).begin(memory, age, agents)
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
                states = (edit.taking(donors[edit.donor]) if edit.donor else edit).edited(was, states)
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
