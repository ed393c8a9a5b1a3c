"""What agents do while they live, counted tick by tick, and the row that each life leaves."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from nmmo.lib.material import Foilage

from reinforcement_learning.game.life import CAUSES_OF_DEATH, Life
from reinforcement_learning.play.policy_pool import PolicyPool

_PER_TICKS = 100
_FAR = np.iinfo(np.int16).max


class LifeOutcomes:
    """Counts for every slot of a pool during one group of episodes."""

    def __init__(self, pool: PolicyPool):
        """Start to count; the pool's episodes must have started."""
        self.pool = pool
        self._dealt, self._taken = np.zeros(pool.slots), np.zeros(pool.slots)
        self._food_seen, self._approached = np.zeros(pool.slots), np.zeros(pool.slots)
        self._edited_ticks = np.zeros(pool.slots)
        self._first, self._last = (np.full((pool.slots, 2), np.nan) for _ in range(2))  # positions, row and column
        self._sums: dict[str, np.ndarray] = {}
        self._slots = np.zeros(0, dtype=np.int64)  # that acted in the last tick
        self._food = np.zeros((0, 2), dtype=np.int16)  # the food tile nearest to each of them
        self._distance = np.zeros(0, dtype=np.int16)  # to it; `_FAR` if none is in view

    def before_tick(self, slots: np.ndarray, position: np.ndarray) -> None:
        """Look at acting agents before they act.

        Args:
            slots: of the agents, (B,) int64.
            position: row and column of each on the map, (B, 2) int16.
        """
        self._count_approaches(slots, position)
        self._first[slots] = np.where(np.isnan(self._first[slots]), position, self._first[slots])
        self._last[slots] = position
        tiles = self.pool.arrival.observations["Tile"][slots]
        self._slots, (self._food, self._distance) = slots, _nearest_food(tiles, position)

    def after_tick(self) -> None:
        """Read what the engine counted for the agents whose lives have just ended."""
        for world, (shared, info) in enumerate(zip(self.pool.shared, self.pool.worlds.infos, strict=True)):
            for life in info.get("lives", ()):
                game, slot = shared.world.game, world * self.pool.agents + shared.agents.index(life.agent_id)
                player = (game.dead_this_tick if life.died else game.realm.players)[life.agent_id]
                self._dealt[slot] = player.history.damage_inflicted
                self._taken[slot] = player.history.damage_received

    def _count_approaches(self, slots: np.ndarray, position: np.ndarray) -> None:
        """Count who is nearer now to the food tile that was the nearest before the last tick."""
        saw = self._distance < _FAR
        _, now, before = np.intersect1d(slots, self._slots[saw], return_indices=True)
        moved = np.abs(self._food[saw][before] - position[now]).sum(axis=1)
        self._food_seen[slots[now]] += 1
        self._approached[slots[now]] += moved < self._distance[saw][before]

    def add(self, slots: np.ndarray, numbers: Mapping[str, torch.Tensor]) -> None:
        """Add what an edit did at once to some agents in this tick: name -> (B,)."""
        self._edited_ticks[slots] += 1
        for name, values in numbers.items():
            self._sums.setdefault(name, np.zeros(self.pool.slots))[slots] += values.cpu().numpy()

    def row(self, slot: int, life: Life) -> dict[str, Any]:
        """Return the outcomes of one life by name; those that do not exist for it are left out."""
        done = {
            "ticks": life.ticks,
            "reward": life.total_reward,
            "task_progress": life.task_progress,
            "level": life.level,
            "meals": _PER_TICKS * life.events.get("EAT_FOOD", 0) / life.ticks,
            "drinks": _PER_TICKS * life.events.get("DRINK_WATER", 0) / life.ticks,
            "damage_dealt": _PER_TICKS * self._dealt[slot] / life.ticks,
            "damage_taken": _PER_TICKS * self._taken[slot] / life.ticks,
            **{f"died_of/{cause}": float(life.cause_of_death == cause) for cause in CAUSES_OF_DEATH},
        }
        if self._food_seen[slot]:
            done["towards_food"] = self._approached[slot] / self._food_seen[slot]
        if life.ticks > 1:
            south, east = (self._last[slot] - self._first[slot]) / (life.ticks - 1)
            done |= {"south": _PER_TICKS * south, "east": _PER_TICKS * east}
        edited = self._edited_ticks[slot]
        if edited:
            done |= {"edited_ticks": edited, **{name: sums[slot] / edited for name, sums in self._sums.items()}}
        return done


def _nearest_food(tiles: np.ndarray, position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest food tile in each view, (B, 2), and the moves that it is away, (B,); `_FAR` if there is none.

    Args:
        tiles: row, column and material of each tile in view, (B, tiles, 3) int16.
        position: row and column of each agent, (B, 2) int16.
    """
    moves = np.abs(tiles[:, :, :2] - position[:, None]).sum(axis=2)  # (B, tiles)
    moves = np.where(tiles[:, :, 2] == Foilage.index, moves, _FAR)
    nearest = moves.argmin(axis=1)
    rows = np.arange(len(tiles))
    return tiles[rows, nearest, :2], moves[rows, nearest]
