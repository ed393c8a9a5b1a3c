"""What an intervention run does: its edits, who is edited and when, and the arms that answer what the edits do.

Agents are edited from a tick on, until a tick, and while a condition on their own body or memory holds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from analysis.interventions.edits.linear_readings import Distances, Reading
from analysis.interventions.edits.memory_edits import memory_states
from analysis.interventions.edits.state_edits import coder_of
from analysis.interventions.play.outcomes import data_span
from analysis.runs.propagated_labels import CarryingRule
from analysis.runs.selection_file import read_selection
from common.argument_checks import COMPARISONS, parts_of
from common.user_error import UserError


@dataclass(frozen=True)
class BodyCondition:
    """A comparison of one feature with a number, such as `self_food < 30`.

    Attributes:
        feature: `self_` and a column of the agent's own row in the game, also if its policy does not see it; or `tick`.
        comparison: one of <, <=, >, >=, ==, !=.
    """

    feature: str
    comparison: str
    number: float

    @staticmethod
    def parse(text: str, columns: Sequence[str]) -> "BodyCondition":
        """Read a condition.

        Args:
            text: such as `self_food < 30`.

        Raises:
            UserError: it has another form, or names no feature.
        """
        feature, comparison, number = parts_of(text, "--while")
        check_feature(f"--while {text!r}", feature, columns)
        return BodyCondition(feature, comparison, number)

    def holds(self, rows: np.ndarray, columns: Sequence[str], tick: int) -> np.ndarray:
        """Say for which agents it holds.

        Args:
            rows: the agents' own rows in the game, (B, columns).

        Returns:
            (B,) bool.
        """
        return COMPARISONS[self.comparison](feature_values(self.feature, rows, columns, tick), self.number)


@dataclass(frozen=True, eq=False)
class FeatureCondition:
    """A comparison of a feature's strength, in the state with which a tick begins, with a number.

    Attributes:
        dictionary: of a layer of the memory.
    """

    dictionary: SparseDictionary
    feature: int
    comparison: str
    number: float

    @staticmethod
    def parse(text: str, dictionary: SparseDictionary, memory: Sequence[str]) -> "FeatureCondition":
        """Read a condition on a feature.

        Args:
            text: such as `feature_12 > 3`.

        Raises:
            UserError: there is no such feature, or its layer's state is not known when a tick begins.
        """
        name, comparison, number = parts_of(text, "--while")
        feature = dictionary.number(name)
        _check_memory(feature_name(feature), dictionary.source.layer, memory)
        return FeatureCondition(dictionary, feature, comparison, number)

    def holds(self, memory: MemoryState) -> np.ndarray:
        """Say for which agents it holds, given their memory before the tick: (B,) bool."""
        states = memory_states(memory)[self.dictionary.source.layer]
        strengths = coder_of(self.dictionary, str(states.device)).strengths(states)[:, self.feature]
        return COMPARISONS[self.comparison](strengths.cpu().numpy(), self.number)


@dataclass(frozen=True, eq=False)
class SelectionCondition:
    """The state with which a tick begins is like the points that were selected in the explorer.

    Attributes:
        layer: of the memory.
        rule: labels such states 1, others 0.
    """

    layer: str
    rule: CarryingRule

    @staticmethod
    def read(path: Path, memory: Sequence[str], policy_sha256: str | None) -> "SelectionCondition":
        """Read a selection, and fit the rule to the states of its run.

        Raises:
            UserError: as `read_selection`; or the run is of another policy, or of a layer whose state is not known when
                a tick begins.
        """
        selection = read_selection(path)
        layer, recorded = selection.run.layer, read_metadata(selection.dump).checkpoint_sha256
        _check_memory(str(path), layer, memory)
        if None not in (policy_sha256, recorded) and policy_sha256 != recorded:
            raise UserError(
                f"--while {path}: {selection.run.path} is a run of another policy than the one that is edited"
            )
        return SelectionCondition(layer, selection.rule())

    def in_words(self) -> str:
        """Say how an agent's state is compared with the selection, and how well that works on held-out lives."""
        held_out = self.rule.held_out
        accuracy = f"right for {held_out.balanced_agreement:.1%} of states" if held_out else "of unknown accuracy"
        return (
            f"--while: agents are edited in ticks that begin with a state of {self.layer} most of whose "
            f"{self.rule.voters} nearest points of the run are selected. On lives that had no vote, this is {accuracy} "
            "(mean over selected points and others)."
        )

    def holds(self, memory: MemoryState) -> np.ndarray:
        """Say for which agents it holds, given their memory before the tick: (B,) bool."""
        return self.rule.labels_of(memory_states(memory)[self.layer].cpu().numpy()) == 1


Condition = BodyCondition | FeatureCondition | SelectionCondition


def _check_memory(name: str, layer: str, memory: Sequence[str]) -> None:
    if layer not in memory:
        raise UserError(
            f"--while {name}: {layer} is not part of the memory, so its state is not known when a tick begins; "
            f"conditions work on states of {', '.join(memory) or 'no layer'}"
        )


@dataclass(frozen=True)
class When:
    """The ticks in which drawn agents are edited.

    Attributes:
        first: the first tick of the episode, from 0.
        until: the first tick after the last one; None for the end of the episode.
        condition: on the agent's own body or on its memory, that must hold in each tick; None for none.
    """

    first: int = 0
    until: int | None = None
    condition: Condition | None = None

    def __post_init__(self) -> None:
        if self.first < 0:
            raise UserError(f"--from-tick must be at least 0, not {self.first}")
        if self.until is not None and self.until <= self.first:
            raise UserError(f"--until-tick must be after --from-tick ({self.first}), not {self.until}")

    def now(self, rows: np.ndarray, columns: Sequence[str], tick: int, memory: MemoryState | None = None) -> np.ndarray:
        """Say which agents are edited in a tick, (B,) bool; arguments as those of the conditions' `holds`."""
        if tick < self.first or (self.until is not None and tick >= self.until):
            return np.zeros(len(rows), dtype=bool)
        if self.condition is None:
            return np.ones(len(rows), dtype=bool)
        if isinstance(self.condition, BodyCondition):
            return self.condition.holds(rows, columns, tick)
        assert memory is not None
        return self.condition.holds(memory)


AT_ONCE_CONTROLS = 20
"""Arms of each kind of random direction that are measured at once, if any are played: with 19 or more, the rank of an
edit among them can have a p-value of 5%."""
UNEDITED = "unedited"
UNTRAINED_UNEDITED = "untrained, unedited"


@dataclass(frozen=True, eq=False)
class ArmPlan(MadeEdits):
    """How the agents of one arm are edited, and what is measured on the way.

    Attributes:
        drawn: number of agents in each world that are drawn at random.
        watched: layers whose unedited states are summed up; of unedited arms.
        distances: of edited states from unedited ones, by layer.
        directions: whose read-outs are compared before and after the edit.
        spans: as `data_span`, by layer; what donors change is compared with them.
        readings: variables that are summed up together with a layer's states: in an unedited arm with the states of
            all agents, which must be watched, and otherwise with edited states.
        replayed: number of the episode whose replay is kept; None for none.
        recorded: layers whose activations are recorded in every tick; none if the arm is not recorded.
        follow: number of ticks for which agents are followed after each edit, which is then made in a single tick; 0 if
            they are edited in all ticks.
        through: paths along which edits of states act.
        controls: plans of random edits that are not played, but compared with the edit in its own states, at once.
    """

    name: str
    drawn: int
    when: When = field(default_factory=When)
    watched: tuple[str, ...] = ()
    distances: Mapping[str, Distances] = field(default_factory=dict)
    directions: tuple[Direction, ...] = ()
    spans: Mapping[str, np.ndarray] = field(default_factory=dict)
    readings: tuple[Reading, ...] = ()
    replayed: int | None = None
    recorded: tuple[str, ...] = ()
    follow: int = 0
    through: tuple[str, ...] = PATHS
    controls: "tuple[ArmPlan, ...]" = ()

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
    """What the options of a run stand for.

    Attributes:
        edits: applied together, in this order.
        drawn: number of agents in each world that are edited.
        reported: directions whose read-outs are compared before and after the edit.
    """

    options: RunOptions
    edits: tuple[Edit, ...]
    drawn: int
    when: When = field(default_factory=When)
    reported: tuple[Direction, ...] = ()
    memory: tuple[str, ...] = ()

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
            distances={layer: Distances.of(moments[layer]) for layer in edited.layers},
            directions=tuple(measured_in(direction, moments) for direction in self.reported),
            spans={layer: data_span(moments[layer]) for layer in self.watched} if has_donors else {},
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
