"""What an intervention run does: its edits, who is edited and when, and the arms that answer what the edits do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast

import numpy as np

from activation_store.directions import Direction
from activation_store.interventions import AT_ONCE, Arm, ArmKind
from activation_store.layers import LSTM_CELL
from activation_store.sparse_dictionary import feature_name
from agent_zoo.donor_rule import DonorRule
from agent_zoo.erasure import fitted_eraser
from agent_zoo.feature_edits import EditedFeatures, Splice, edit_of
from agent_zoo.linear_readings import Reading
from agent_zoo.memory_edits import Clear, Freeze, KeptMemory, MemoryEdit, MovedAsFar, Transplant
from agent_zoo.state_edits import (
    AsFarAs,
    DirectedEdit,
    EditOf,
    Interchange,
    StateEdit,
    Untouched,
    check_direction,
    edit_along,
    interchange,
)
from agent_zoo.state_moments import Distances, StateMoments
from reinforcement_learning.interventions.outcomes import DataSpan
from reinforcement_learning.interventions.random_edits import (
    orthonormal,
    random_eraser,
    towards_donors,
    unit,
    unit_of_variance,
    variance,
)
from reinforcement_learning.interventions.when import FeatureCondition, When


@dataclass(frozen=True, eq=False)
class ArmPlan:
    """How the agents of one arm are edited.

    Attributes:
        name: of the arm.
        drawn: number of agents in each world that are drawn by lot.
        when: the ticks in which they are edited.
        feature: a condition on the memory with which a tick begins, that must hold too; None for none.
        states: edits of layers, applied in this order.
        memories: edits of the memory between ticks, applied in this order.
        watched: layers whose unedited states are summed up; of unedited arms.
        distances: of edited states from unedited ones, by layer.
        directions: whose read-outs are compared before and after the edit.
        spans: of unedited states, by layer; what donors change is compared with them.
        readings: variables that are summed up together with a layer's states: in an unedited arm with the states of
            all agents, which must be watched, and otherwise with edited states.
        replayed: number of the episode whose replay is kept; None for none.
        follow: number of ticks for which agents are followed after each edit, which is then made in a single tick; 0 if
            they are edited in all ticks.
        controls: plans of random edits that are not played, but compared with the edit in its own states, at once.
        recorded: layers whose activations are recorded in every tick; none if the arm is not recorded.
    """

    name: str
    drawn: int
    when: When = field(default_factory=When)
    states: tuple[StateEdit | Interchange, ...] = ()
    memories: tuple[MemoryEdit | Transplant, ...] = ()
    watched: tuple[str, ...] = ()
    distances: Mapping[str, Distances] = field(default_factory=dict)
    directions: tuple[Direction, ...] = ()
    spans: Mapping[str, DataSpan] = field(default_factory=dict)
    readings: tuple[Reading, ...] = ()
    replayed: int | None = None
    recorded: tuple[str, ...] = ()
    follow: int = 0
    feature: FeatureCondition | None = None
    controls: "tuple[ArmPlan, ...]" = ()

    @property
    def donors(self) -> tuple[DonorRule, ...]:
        """How the donors of the edits that need them are drawn."""
        return tuple(
            each.donor for each in (*self.memories, *self.states) if isinstance(each, Transplant | Interchange)
        )

    @property
    def interchanged(self) -> tuple[str, ...]:
        """Layers in which read-outs are taken from donors."""
        return tuple(dict.fromkeys(each.layer for each in self.states if isinstance(each, Interchange)))

    @property
    def reported(self) -> tuple[str, ...]:
        """Layers whose edited states are compared with unedited ones."""
        layers = [*self.distances, *(each.layer for each in self.directions), *self.interchanged]
        return tuple(dict.fromkeys(layers))

    @property
    def edits(self) -> bool:
        """Whether anything is edited."""
        return bool(self.states or self.memories)


StateEditKind = Literal["collapse", "steer", "swap", "erase", "interchange", "splice"]
MemoryEditKind = Literal["clear", "freeze", "transplant"]
AT_ONCE_CONTROLS = 20
"""Arms of each kind of random direction that are measured at once, if any are played: with 19 or more, the rank of an
edit among them can have a p-value of 5%."""
UNEDITED = "unedited"
UNTRAINED_UNEDITED = "untrained, unedited"


@dataclass(frozen=True, eq=False)
class RequestedEdit:
    """One edit of a run.

    Attributes:
        kind: what is done.
        directions: along which the state is edited: any number for collapse and interchange, one for steer, origin and
            target for swap, none for other edits.
        erased: the variables that erase removes, and from which layer; None for other edits.
        of: whether the state is edited or its change per tick.
        every: of clear and transplant: edited ticks from one to the next.
        donor: of transplant and interchange: how donors are drawn.
        features: sparse features that collapse and steer set, or the dictionary of splice; None for other edits.
    """

    kind: StateEditKind | MemoryEditKind
    directions: tuple[Direction, ...] = ()
    of: EditOf = "state"
    every: int = 1
    erased: Reading | None = None
    donor: DonorRule | None = None
    features: EditedFeatures | None = None

    @property
    def layers(self) -> tuple[str, ...]:
        """Layers whose states it edits; none for edits of the memory."""
        if self.features:
            return (self.features.layer,)
        return (self.erased.layer,) if self.erased else tuple(each.layer for each in self.directions)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its directions or sparse features."""
        if self.features:
            return tuple(map(feature_name, self.features.numbers))
        return tuple(each.name for each in self.directions)

    def only(self, name: str) -> "RequestedEdit":
        """Return the same edit of only one of its directions or sparse features."""
        if self.features:
            return replace(self, features=replace(self.features, numbers=(self.features.dictionary.number(name),)))
        return replace(self, directions=tuple(each for each in self.directions if each.name == name))


@dataclass(frozen=True, eq=False)
class Experiment:
    """The settings of an intervention run.

    Attributes:
        edits: applied together, in this order.
        doses: of the edit that steers, in standard deviations of its read-out; empty if none does.
        when: the ticks in which agents are edited.
        feature: a condition on a sparse feature that must hold too; None for none.
        one_by_one: whether each direction or sparse feature of the only edit is edited in arms of its own.
        drawn: number of agents in each world that are edited.
        controls: arms of each kind of random control, for every dose.
        seed: of the random directions.
        reported: directions whose read-outs are compared before and after the edit.
        memory: layers of the policy's memory.
        follow: ticks for which agents are followed after an edit in a single tick, in arms of their own; 0 for none.
    """

    edits: tuple[RequestedEdit, ...]
    doses: tuple[float, ...]
    when: When
    drawn: int
    controls: int
    seed: int
    reported: tuple[Direction, ...] = ()
    memory: tuple[str, ...] = ()
    follow: int = 0
    feature: FeatureCondition | None = None
    one_by_one: bool = False

    @property
    def layers(self) -> tuple[str, ...]:
        """Layers whose states are edited."""
        return tuple(dict.fromkeys(layer for edit in self.edits for layer in edit.layers))

    @property
    def readings(self) -> tuple[Reading, ...]:
        """Variables that are erased, by layer."""
        return tuple(edit.erased for edit in self.edits if edit.erased)

    @property
    def transplants(self) -> bool:
        """Whether an edit takes over memories, so that those of other donors can take their place."""
        return any(edit.kind == "transplant" for edit in self.edits)

    @property
    def watched(self) -> tuple[str, ...]:
        """Layers whose unedited states are summed up."""
        return tuple(dict.fromkeys([*self.layers, *(self.memory if self.transplants else ())]))

    @property
    def kept(self) -> tuple[str, ...]:
        """Layers whose states the memory carries into the next tick: an LSTM's cell, another memory's hidden state."""
        cells = tuple(layer for layer in self.memory if layer.startswith(LSTM_CELL))
        return cells or self.memory

    @property
    def moves_states(self) -> bool:
        """Whether all edits are along directions, so that other directions can take their place."""
        return all(edit.layers for edit in self.edits)

    @property
    def has_same_variance(self) -> bool:
        """Whether there are controls of the same variance: for edits along directions of layers."""
        return self.moves_states and not any(edit.features for edit in self.edits)

    def arms(self) -> list[Arm]:
        """Return all arms that are played; the unedited ones come first."""
        arms = [
            Arm(UNEDITED, "unedited", "trained", None, UNEDITED),
            Arm(UNTRAINED_UNEDITED, "unedited", "untrained", None, UNTRAINED_UNEDITED),
            Arm("no edit", "no edit", "trained", None, UNEDITED),
        ]
        for dose in self.doses or (None,):
            for direction in self.edits[0].names if self.one_by_one else (None,):
                arms += self._arms_of(dose, direction)
        return [*arms, *self._followed_arms()] if self.follow else arms

    def measured_at_once(self, edit: Arm) -> list[Arm]:
        """Return the controls that are measured at once in an arm, in the states in which it edits agents."""
        if edit.kind != "edit" or edit.policy != "trained" or not self.controls:
            return []
        said = edit.name.removeprefix("edit")
        kinds = ("random direction", *(["same variance"] if self.has_same_variance else []))
        return [
            replace(edit, name=f"{kind} {number}{AT_ONCE}{said}", kind=cast(ArmKind, kind + AT_ONCE))
            for kind in kinds
            for number in range(1, AT_ONCE_CONTROLS + 1)
        ]

    def all_arms(self) -> list[Arm]:
        """Return the arms that are played, and behind them those that are measured in others at once."""
        played = self.arms()
        return [*played, *(control for arm in played for control in self.measured_at_once(arm))]

    def _arms_of(self, dose: float | None, direction: str | None) -> list[Arm]:
        """Return the arms of an edit and of its controls."""
        said = ("" if dose is None else f", dose {dose:+g}") + ("" if direction is None else f", {direction}")

        def arm(name: str, kind: ArmKind) -> Arm:
            return Arm(f"{name}{said}", kind, "trained", dose, UNEDITED, direction)

        arms = [arm("edit", "edit")]
        arms.append(Arm(f"untrained, edit{said}", "edit", "untrained", dose, UNTRAINED_UNEDITED, direction))
        for number in range(1, self.controls + 1):
            arms.append(arm(f"random direction {number}", "random direction"))
            if self.has_same_variance:
                arms.append(arm(f"same variance {number}", "same variance"))
            if self.transplants:
                arms.append(arm(f"random donor {number}", "random donor"))
        return arms

    def _followed_arms(self) -> list[Arm]:
        """Return the arms in which edits are made once and followed: with the dose that is farthest from 0."""
        dose = max(self.doses, key=abs) if self.doses else None
        return [
            Arm("edited once", "edited once", "trained", dose, UNEDITED),
            Arm("untrained, edited once", "edited once", "untrained", dose, UNTRAINED_UNEDITED),
        ]

    def plan(self, arm: Arm, moments: Mapping[str, StateMoments]) -> ArmPlan:
        """Return how the agents of an arm are edited.

        Args:
            arm: one of `arms`.
            moments: of the unedited states of the arm's policy, by layer, and by the names of `readings` with
                variables; not needed for an unedited arm.

        Raises:
            UserError: directions are not independent, or one does not vary.
            NothingToErase: a variable does not vary.
        """
        if arm.kind == "unedited":
            return ArmPlan(arm.name, self.drawn, watched=self.watched, readings=self.readings)
        states, memories = self._all_made(arm, moments)
        has_donors = any(edit.donor for edit in self.edits)
        return ArmPlan(
            arm.name, self.drawn, self.when, states, memories,
            controls=tuple(
                ArmPlan(each.name, self.drawn, self.when, *self._all_made(_as_played(each), moments))
                for each in self.measured_at_once(arm)
            ),
            distances={layer: Distances.of(moments[layer]) for layer in self.layers},
            directions=tuple(_measured(each, moments) for each in self.reported),
            spans={layer: DataSpan.of(moments[layer]) for layer in self.watched} if has_donors else {},
            readings=self.readings if arm.kind == "edit" else (),
            follow=self.follow if arm.kind == "edited once" else 0,
            feature=self.feature,
        )  # fmt: skip

    def _all_made(
        self, arm: Arm, moments: Mapping[str, StateMoments]
    ) -> tuple[tuple[StateEdit | Interchange, ...], tuple[MemoryEdit | Transplant, ...]]:
        """Return the edits of layers and of the memory as they are done in an arm."""
        states: list[StateEdit | Interchange] = []
        memories: list[MemoryEdit | Transplant] = []
        random = np.random.default_rng([self.seed, _number(arm), *self._place(arm)])
        for edit in self.edits if arm.direction is None else [self.edits[0].only(arm.direction)]:
            made = self._made(edit, arm, moments, random)
            (states if isinstance(made, StateEdit | Interchange) else memories).append(made)  # type: ignore[arg-type]
        return tuple(states), tuple(memories)

    def _place(self, arm: Arm) -> list[int]:
        """Return the place of an arm's direction among those that are edited one by one; nothing for other arms."""
        return [] if arm.direction is None else [1 + self.edits[0].names.index(arm.direction)]

    def _made(
        self, edit: RequestedEdit, arm: Arm, moments: Mapping[str, StateMoments], random: np.random.Generator
    ) -> StateEdit | Interchange | MemoryEdit | Transplant:
        """Return one edit as it is done in an arm."""
        if edit.features:
            return _feature_edit(edit, edit.features, arm, moments, random, self.kept)
        if edit.erased:
            return _erasure(edit.erased, arm, moments, random, self.kept)
        if arm.kind == "no edit":
            return Untouched(edit.directions[0].layer) if edit.directions else KeptMemory()
        if arm.kind == "random donor" and edit.donor:
            edit = replace(edit, donor=replace(edit.donor, lottery=_number(arm)))
        if not edit.directions:
            return _memory_edit(edit, int(random.integers(2**31)) if arm.kind == "random direction" else None)
        directions: Sequence[Direction] = edit.directions
        if arm.policy == "untrained":
            directions = [_measured(each, moments) for each in directions]
        if arm.kind == "same variance":
            directions = [_same_variance(each, moments[each.layer], random) for each in directions]
        if edit.donor:
            exchange = interchange(directions, edit.donor)
            return towards_donors(exchange, random) if arm.kind == "random direction" else exchange
        assert edit.kind in ("collapse", "steer", "swap")
        made = edit_along(edit.kind, directions, edit.of, arm.dose or 0.0, lambda layer: moments[layer].covariance)
        return _as_far_as(made, moments, random, self.kept) if arm.kind == "random direction" else made


def _as_played(control: Arm) -> Arm:
    """Return the arm that a control at once would be if it were played."""
    return replace(control, kind=cast(ArmKind, control.kind.removesuffix(AT_ONCE)))


def _number(arm: Arm) -> int:
    """The number in a random control's name, the same for all its doses; 0 for other arms."""
    digits = "".join(each for each in arm.name.partition(",")[0] if each.isdigit())
    return int(digits or 0)


def _memory_edit(edit: RequestedEdit, seed: int | None) -> MemoryEdit | Transplant:
    """Return an edit of the memory, or with a seed the control that moves it as far in a random direction."""
    if edit.donor:
        return Transplant(edit.donor, edit.every, seed)
    made = Clear(edit.every) if edit.kind == "clear" else Freeze()
    return made if seed is None else MovedAsFar(made, seed)


def _feature_edit(
    edit: RequestedEdit, features: EditedFeatures, arm: Arm, moments: Mapping[str, StateMoments],
    random: np.random.Generator, kept: Sequence[str],
) -> StateEdit:  # fmt: skip
    """Return an edit of sparse features as it is done in an arm; `kept` as in `_as_far_as`."""
    if arm.kind == "no edit":
        return Untouched(features.layer)
    made = edit_of(features, arm.dose or 0.0 if edit.kind == "steer" else 0.0)
    if arm.kind != "random direction":
        return made
    # What a reconstruction misses is turned to another direction in each state, so nothing is to be held in place.
    return _as_far_as(made, moments, random, () if isinstance(made, Splice) else kept)


def _erasure(
    erased: Reading, arm: Arm, moments: Mapping[str, StateMoments], random: np.random.Generator, kept: Sequence[str]
) -> StateEdit:
    """Return an erasure as it is done in an arm; `kept` as in `_as_far_as`."""
    if arm.kind == "no edit":
        return Untouched(erased.layer)
    eraser = fitted_eraser(erased, erased.of(moments[erased.name]), arm.policy)
    if arm.kind == "same variance":
        return random_eraser(eraser, moments[erased.layer], random)
    return _as_far_as(eraser, moments, random, kept) if arm.kind == "random direction" else eraser


def _as_far_as(
    edit: DirectedEdit, moments: Mapping[str, StateMoments], random: np.random.Generator, kept: Sequence[str]
) -> AsFarAs:
    """Return the control along random directions; `kept` names the layers that the memory keeps."""
    count, units = edit.axes().shape
    directions = orthonormal(count, units, random)
    adds_up = edit.layer in kept and edit.of == "state"
    return AsFarAs(edit, directions, directions @ moments[edit.layer].mean if adds_up else None)


def _measured(direction: Direction, moments: Mapping[str, StateMoments]) -> Direction:
    """Return the direction with the mean and the spread of its read-out over a policy's own unedited states."""
    if direction.layer not in moments:
        return direction
    own, weight = moments[direction.layer], direction.weight.astype(np.float64)
    spread = float(np.sqrt(weight @ own.covariance @ weight))
    return replace(direction, mean=float(weight @ own.mean + direction.bias), spread=spread)


def _same_variance(direction: Direction, moments: StateMoments, random: np.random.Generator) -> Direction:
    """Return a random direction along which the states vary as much as along this one."""
    own = unit(direction.weight.astype(np.float64))
    turned = unit_of_variance(moments.covariance, variance(own, moments.covariance), random)
    weight = (turned * np.linalg.norm(direction.weight)).astype(np.float32)
    found = replace(direction, name=f"like {direction.name}", weight=weight, bias=0.0)
    return _measured(found, {direction.layer: moments})


def check_directions(experiment: Experiment, layer_units: Mapping[str, int], policy: str, sha256: str | None) -> None:
    """Refuse directions that do not fit a policy or each other.

    Args:
        experiment: whose directions are checked.
        layer_units: of the policy.
        policy: its name.
        sha256: of its checkpoint file; None if unknown.

    Raises:
        UserError: the policy has no such layer, another number of units, or the direction is another policy's; or
            directions of one edit are of several layers, are not independent, or do not vary.
    """
    for edit in experiment.edits:
        for each in edit.directions:
            check_direction(each, edit.of, layer_units, policy, sha256)
    together = (edit for edit in experiment.edits if edit.directions and not experiment.one_by_one)
    for edit in together:  # made once, and left: what cannot be made is known before anything is played
        kind = "collapse" if edit.kind == "interchange" else edit.kind
        assert kind in ("collapse", "steer", "swap")
        edit_along(kind, edit.directions, edit.of, 0.0, lambda layer: np.eye(layer_units[layer]))
