"""What an intervention run does: its edits, who is edited and when, and the arms that answer what the edits do.

Agents are edited from a tick on, until a tick, and while a condition on their own body or memory holds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from activation_store.directions import Direction
from activation_store.interventions import AT_ONCE, Arm, ArmKind
from activation_store.layers import LSTM_CELL
from activation_store.reader import read_metadata
from activation_store.sparse_dictionary import SparseDictionary, feature_name
from agent_zoo.memory import MemoryState
from analysis.interventions.edits.edit import Edit, MadeEdits, Moments, made_in_arm, made_together, measured_in
from analysis.interventions.edits.edit_options import PATHS, RunOptions, check_feature, feature_values
from analysis.interventions.edits.linear_readings import Distance, Reading, distance_from, leading_components
from analysis.interventions.edits.memory_edits import memory_states
from analysis.interventions.edits.state_edits import coder_of
from analysis.runs.propagated_labels import CarryingRule, read_selection
from common.argument_checks import COMPARISONS, parts_of
from common.user_error import UserError

Condition = Callable[[np.ndarray, Sequence[str], int, MemoryState], np.ndarray]
"""Says for which agents it holds, (B,) bool, given their own rows in the game, (B, columns), the names of the columns,
the tick, and the memory with which it begins."""


def body_condition(text: str, columns: Sequence[str]) -> Condition:
    """Return a comparison of a feature with a number, such as `self_food < 30`, also if the policy does not see it.

    Raises:
        UserError: it has another form, or names no feature.
    """
    feature, comparison, number = parts_of(text, "--while")
    check_feature(f"--while {text!r}", feature, columns)
    return partial(_compared, feature, comparison, number)


def _compared(
    feature: str, comparison: str, number: float, rows: np.ndarray, columns: Sequence[str], tick: int,
    memory: MemoryState,
) -> np.ndarray:  # fmt: skip
    return COMPARISONS[comparison](feature_values(feature, rows, columns, tick), number)


def feature_condition(text: str, dictionary: SparseDictionary, memory: Sequence[str]) -> Condition:
    """Return a comparison of a sparse feature's strength in the memory with a number, such as `feature_12 > 3`.

    Raises:
        UserError: there is no such feature, or its layer's state is not known when a tick begins.
    """
    name, comparison, number = parts_of(text, "--while")
    feature = dictionary.number(name)
    _check_memory(feature_name(feature), dictionary.source.layer, memory)
    return partial(_strong, dictionary, feature, comparison, number)


def _strong(
    dictionary: SparseDictionary, feature: int, comparison: str, number: float, rows: np.ndarray,
    columns: Sequence[str], tick: int, memory: MemoryState,
) -> np.ndarray:  # fmt: skip
    states = memory_states(memory)[dictionary.source.layer]
    strengths = coder_of(dictionary, str(states.device)).strengths(states)[:, feature]
    return COMPARISONS[comparison](strengths.cpu().numpy(), number)


def selection_rule(path: Path, memory: Sequence[str], policy_sha256: str | None) -> tuple[str, CarryingRule]:
    """Return what a selection made in the explorer says of states: their layer, and a rule that labels such states 1.

    Raises:
        UserError: as `read_selection`; or the run is of another policy, or of a layer whose state is not known when
            a tick begins.
    """
    selection = read_selection(path)
    layer, recorded = selection.run.layer, read_metadata(selection.dump).checkpoint_sha256
    _check_memory(str(path), layer, memory)
    if None not in (policy_sha256, recorded) and policy_sha256 != recorded:
        raise UserError(f"--while {path}: {selection.run.path} is a run of another policy than the one that is edited")
    return layer, selection.rule()


def like_selection(
    layer: str, rule: CarryingRule, rows: np.ndarray, columns: Sequence[str], tick: int, memory: MemoryState
) -> np.ndarray:
    """Say whose state of a layer is like the selected points; with its first two arguments given, a `Condition`."""
    return rule.labels_of(memory_states(memory)[layer].cpu().numpy()) == 1


def rule_in_words(layer: str, rule: CarryingRule) -> str:
    """Say how an agent's state is compared with the selection, and how well that works on held-out lives."""
    accuracy = f"right for {rule.held_out.balanced_agreement:.1%} of states" if rule.held_out else "of unknown accuracy"
    return (
        f"--while: agents are edited in ticks that begin with a state of {layer} most of whose {rule.voters} nearest "
        f"points of the run are selected. On lives that had no vote, this is {accuracy} (mean over selected points and "
        "others)."
    )


def _check_memory(name: str, layer: str, memory: Sequence[str]) -> None:
    if layer not in memory:
        raise UserError(
            f"--while {name}: {layer} is not part of the memory, so its state is not known when a tick begins; "
            f"conditions work on states of {', '.join(memory) or 'no layer'}"
        )


@dataclass(frozen=True)
class When:
    """The ticks in which drawn agents are edited."""

    first: int = 0  # tick of the episode
    until: int | None = None  # the first tick after the last one; None for the end of the episode
    condition: Condition | None = None  # that must hold in each tick

    def __post_init__(self) -> None:
        if self.first < 0:
            raise UserError(f"--from-tick must be at least 0, not {self.first}")
        if self.until is not None and self.until <= self.first:
            raise UserError(f"--until-tick must be after --from-tick ({self.first}), not {self.until}")

    def now(self, rows: np.ndarray, columns: Sequence[str], tick: int, memory: MemoryState) -> np.ndarray:
        """Say which agents are edited in a tick, (B,) bool; arguments as those of a `Condition`."""
        if tick < self.first or (self.until is not None and tick >= self.until):
            return np.zeros(len(rows), dtype=bool)
        return np.ones(len(rows), dtype=bool) if self.condition is None else self.condition(rows, columns, tick, memory)


AT_ONCE_CONTROLS = 20
"""Arms of each kind of random direction that are measured at once, if any are played: with 19 or more, the rank of an
edit among them can have a p-value of 5%."""
UNEDITED = "unedited"
UNTRAINED_UNEDITED = "untrained, unedited"


@dataclass(frozen=True, eq=False)
class ArmPlan(MadeEdits):
    """How the agents of one arm are edited, and what is measured on the way."""

    name: str
    drawn: int  # number of agents in each world that are drawn at random
    when: When = field(default_factory=When)
    watched: tuple[str, ...] = ()  # layers whose unedited states are summed up; of unedited arms
    distances: Mapping[str, Distance] = field(default_factory=dict)  # of edited states from unedited ones, by layer
    directions: tuple[Direction, ...] = ()  # whose read-outs are compared before and after the edit
    spans: Mapping[str, np.ndarray] = field(default_factory=dict)
    """By layer, as `leading_components`, (K, units): what donors change is compared with them."""
    readings: tuple[Reading, ...] = ()
    """Variables that are summed up together with a layer's states: in an unedited arm with the states of all agents,
    which must be watched, and otherwise with edited states."""
    replayed: int | None = None  # number of the episode whose replay is kept
    recorded: tuple[str, ...] = ()  # layers whose activations are recorded in every tick
    follow: int = 0
    """Ticks for which agents are followed after each edit, which is then made in a single tick; 0 to edit in all."""
    through: tuple[str, ...] = PATHS  # paths along which edits of states act
    controls: "tuple[ArmPlan, ...]" = ()
    """Random edits that are not played, but compared with the edit in its own states, at once."""

    @property
    def interchanged(self) -> tuple[str, ...]:
        """Layers in which read-outs are taken from donors."""
        return tuple(dict.fromkeys(edit.layer for edit in self.states if edit.donor))

    @property
    def reported(self) -> tuple[str, ...]:
        """Layers whose edited states are compared with unedited ones."""
        layers = [*self.distances, *(direction.layer for direction in self.directions), *self.interchanged]
        return tuple(dict.fromkeys(layers))

    @property
    def edits(self) -> bool:
        """Whether anything is edited."""
        return bool(self.states or self.memories)


@dataclass(frozen=True, eq=False)
class Experiment:
    """What the options of a run stand for."""

    options: RunOptions
    edits: tuple[Edit, ...]  # applied together, in this order
    drawn: int  # number of agents in each world that are edited
    when: When = field(default_factory=When)
    reported: tuple[Direction, ...] = ()  # whose read-outs are compared before and after the edit
    memory: tuple[str, ...] = ()  # layers of the policy's memory

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
    def drawn_directions(self) -> tuple[ArmKind, ...]:
        """Kinds of controls along other directions; of the same variance only if all edits are along directions."""
        along = all(edit.layers and not edit.features for edit in self.edits)
        return ("random direction", "same variance") if along else ("random direction",)

    def arms(self) -> list[Arm]:
        """Return all arms that are played; the unedited ones come first."""
        arms = [
            Arm(UNEDITED, "unedited", "trained", None, UNEDITED),
            Arm(UNTRAINED_UNEDITED, "unedited", "untrained", None, UNTRAINED_UNEDITED),
            Arm("no edit", "no edit", "trained", None, UNEDITED),
        ]
        doses = self.options.steered
        for dose in doses or (None,):
            for direction in self.edits[0].names if self.options.one_by_one else (None,):
                arms += self._arms_of(dose, direction)
        if self.options.follow:
            farthest = max(doses, key=abs, default=None)
            arms.append(Arm("edited once", "edited once", "trained", farthest, UNEDITED))
            arms.append(Arm("untrained, edited once", "edited once", "untrained", farthest, UNTRAINED_UNEDITED))
        return arms

    def measured_at_once(self, edit: Arm) -> list[Arm]:
        """Return the controls that are measured at once in an arm, in the states in which it edits agents."""
        if not edit.is_studied or not self.options.controls:
            return []
        name = _named(edit.dose, edit.direction)
        # A read-out that is held is near where it is held already; one of the same variance, which nobody held, is not.
        moved = [own for own in self.edits if own.of == "state" and not own.donor]
        held = any(layer in self.kept for own in moved for layer in own.layers)
        return [
            replace(edit, name=name(f"{kind} {number} at once"), kind=AT_ONCE[kind], number=number)
            for kind in (self.drawn_directions[:1] if held else self.drawn_directions)
            for number in range(1, AT_ONCE_CONTROLS + 1)
        ]

    def all_arms(self) -> list[Arm]:
        """Return the arms that are played, and behind them those that are measured in others at once."""
        played = self.arms()
        return [*played, *(control for arm in played for control in self.measured_at_once(arm))]

    def _arms_of(self, dose: float | None, direction: str | None) -> list[Arm]:
        """Return the arms of an edit and of its controls."""
        name = _named(dose, direction)
        edit = Arm(name("edit"), "edit", "trained", dose, UNEDITED, direction)
        arms = [edit, replace(edit, name=name("untrained, edit"), policy="untrained", twin=UNTRAINED_UNEDITED)]
        kinds = self.drawn_directions
        if self.transplants:
            kinds = (*kinds, "random donor")
        for number in range(1, self.options.controls + 1):
            arms += [replace(edit, name=name(f"{kind} {number}"), kind=kind, number=number) for kind in kinds]
        return arms

    def plan(self, arm: Arm, moments: Moments) -> ArmPlan:
        """Return how the agents of an arm are edited.

        Args:
            moments: of the arm's policy; not needed for an unedited arm.

        Raises:
            UserError, NothingToErase: as `made_in_arm`.
        """
        if arm.kind == "unedited":
            return ArmPlan(arm.name, self.drawn, self.when, watched=self.watched, readings=self.readings)
        has_donors = any(edit.donor for edit in self.edits)
        edited = self._edited(arm, moments)
        return replace(
            edited,
            controls=tuple(self._edited(control, moments) for control in self.measured_at_once(arm)),
            distances={layer: distance_from(moments[layer]) for layer in edited.layers},
            directions=tuple(measured_in(direction, moments) for direction in self.reported),
            spans={layer: leading_components(moments[layer].covariance) for layer in self.watched if has_donors},
            readings=self.readings if arm.kind == "edit" else (),
            follow=self.options.follow if arm.kind == "edited once" else 0,
        )

    def _edited(self, arm: Arm, moments: Moments) -> ArmPlan:
        """Return the plan with nothing but the arm's edits."""
        edits, seed = self.edits, [self.options.seed, arm.number]
        if arm.direction is not None:
            seed.append(1 + edits[0].names.index(arm.direction))
            edits = (edits[0].only(arm.direction),)
        random = np.random.default_rng(seed)
        kept = () if arm.is_at_once else self.kept  # at once, nothing adds up
        made = made_together(made_in_arm(edit, arm, moments, random, kept) for edit in edits)
        return ArmPlan(arm.name, self.drawn, self.when, through=self.options.paths, **made)


def _named(dose: float | None, direction: str | None) -> Callable[[str], str]:
    """Return the function that names an arm of this dose and direction after what is done in it."""
    of = ("" if dose is None else f", dose {dose:+g}") + ("" if direction is None else f", {direction}")
    return lambda what: what + of
