"""Labels known to the engine but hidden from observations, recorded for each agent-tick as `truth/NAME`."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from activation_store.columns import TRUTH, Column, truth_column
from agent_zoo.observation import ObservationLayout
from agent_zoo.observation_masking import POSITION, ObservationMask

Read = Callable[[Any, Any], float]


LABELS: dict[str, tuple[Column, Read]] = {
    "spawn_row": (
        truth_column("int16", "tiles", "Row where the life began."), lambda p, _: p.history.starting_position[0],
    ),
    "spawn_col": (
        truth_column("int16", "tiles", "Column where the life began."), lambda p, _: p.history.starting_position[1],
    ),
    "farthest": (
        truth_column(
            "int16", "tiles", "Largest distance from its spawn so far: the larger of the row and column differences."
        ),
        lambda p, _: p.history.exploration,
    ),
    "damage_received": (
        truth_column("int32", "health", "Damage received in this life so far."), lambda p, _: p.history.damage_received,
    ),
    "damage_inflicted": (
        truth_column("int32", "health", "Damage inflicted in this life so far."),
        lambda p, _: p.history.damage_inflicted,
    ),
    "player_kills": (
        truth_column("int16", "kills", "Agents and NPCs killed so far."), lambda p, _: p.history.player_kills,
    ),
    "health_restored": (
        truth_column("int16", "health", "Health restored in the last tick."), lambda p, _: p.resources.health_restore,
    ),
    "task_progress": (
        truth_column("float32", "0 to 1", "Best progress in its task so far."),
        lambda _, task: task.progress_info["max_progress"],
    ),
}  # fmt: skip
"""Name -> its column, and what reads it from the engine's player and the player's task."""
TASK = "task"


def truth_columns() -> dict[str, Column]:
    """Describe the columns, by name."""
    labels = {TRUTH + name: column for name, (column, _) in LABELS.items()}
    task = truth_column("int32", "number", "Number of the agent's task among environment.tasks of the metadata.")
    return {**labels, TRUTH + TASK: task}


def truth_of(game: Any, agents: Sequence[int], task_numbers: dict[str, int]) -> dict[str, np.ndarray]:
    """Read the labels of living agents before they act: column name -> (agents,)."""
    players = [game.realm.players[agent] for agent in agents]
    tasks = [game.agent_task_map[agent][0] for agent in agents]
    pairs = list(zip(players, tasks, strict=True))
    columns = {
        TRUTH + name: np.array([read(player, task) for player, task in pairs], dtype=column.dtype)
        for name, (column, read) in LABELS.items()
    }
    columns[TRUTH + TASK] = np.array([task_numbers[task.spec_name] for task in tasks], dtype=np.int32)
    return columns


def withheld_columns(mask: ObservationMask) -> dict[str, Column]:
    """Describe the columns of an agent's own row hidden from its policy, by name; positions have their own columns."""
    return {
        TRUTH + name: truth_column("int16", "as observed", f"The agent's {name}, which is hidden from its policy.")
        for name in mask.withheld
        if name not in POSITION
    }


class OwnRows:
    """Each agent's own row among the entities that it sees, before masking.

    Attributes:
        values: (B, columns) int16.
    """

    def __init__(self, observations: np.ndarray, layout: ObservationLayout):
        """Find the rows in the game's padded observations, (B,) structured."""
        self._column = {name: place for place, name in enumerate(layout.entity_columns)}
        entities = observations["Entity"]  # (B, rows, columns)
        row = np.argmax(entities[:, :, 0] == observations["AgentId"].reshape(-1, 1), axis=1)
        self.values = entities[np.arange(len(entities)), row]

    @property
    def position(self) -> np.ndarray:
        """Rows and columns on the map, (B, 2) int16."""
        return self.values[:, [self._column[name] for name in POSITION]]

    def withheld(self, mask: ObservationMask) -> dict[str, np.ndarray]:
        """Return the columns described by `withheld_columns`: column name -> (B,) int16."""
        return {name: self.values[:, self._column[name.removeprefix(TRUTH)]] for name in withheld_columns(mask)}
