"""When agents are edited: from a tick on, until a tick, and while a condition on their own body or memory holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from activation_store.reader import read_metadata
from activation_store.sparse_dictionary import SparseDictionary, feature_name
from agent_zoo.memories.memory import MemoryState
from agent_zoo.network_parts.own_features import check_feature, feature_values
from analysis.interventions.edits.feature_edits import coder_of
from analysis.interventions.edits.memory_edits import memory_states
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
