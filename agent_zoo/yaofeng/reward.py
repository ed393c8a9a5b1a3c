"""yaofeng's reward beyond the task: health, skill, armour and gold."""

from dataclasses import dataclass
from typing import Any

import nmmo

from agent_zoo.base import BaseRewardWrapper
from agent_zoo.rewards import forbid_attacking_dangerous_npcs, forbid_giving

SCALE = 0.1
HEALTH_WEIGHT = 0.03
EXPERIENCE_WEIGHT = 0.002
DEFENSE_WEIGHT = 0.04
GOLD_WEIGHT = 0.001
SKILLS = ("melee", "range", "mage", "fishing", "herbalism", "prospecting", "carving", "alchemy")


@dataclass(frozen=True)
class _Condition:
    """An agent's condition at one tick; its defense is the mean over the three combat styles."""

    health: int
    experience: tuple[int, ...]
    defense: float
    gold: int

    @staticmethod
    def of(player: Any) -> "_Condition":
        worn = player.equipment
        return _Condition(
            health=player.resources.health.val,
            experience=tuple(getattr(player, f"{skill}_exp").val for skill in SKILLS),
            defense=(worn.melee_defense + worn.range_defense + worn.mage_defense) / 3,
            gold=player.gold.val,
        )

    def better_than(self, before: "_Condition") -> float:
        """Return the weighted sum of changes since `before`; of the skills, only the one that gained most counts."""
        learnt = max(now - then for now, then in zip(self.experience, before.experience, strict=True))
        return SCALE * (
            HEALTH_WEIGHT * (self.health - before.health)
            + EXPERIENCE_WEIGHT * learnt
            + DEFENSE_WEIGHT * (self.defense - before.defense)
            + GOLD_WEIGHT * (self.gold - before.gold)
        )


class RewardWrapper(BaseRewardWrapper):
    """Task reward + 0.1 x (0.03 health + 0.002 best skill's experience + 0.04 defense + 0.001 gold), as changes.

    Giving, and attacking NPCs that fight back, are illegal.
    """

    def __init__(self, env: Any, game: nmmo.Env):
        super().__init__(env, game)
        self._condition: dict[int, _Condition] = {}

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Start an episode."""
        started = super().reset(seed=seed, options=options)
        self._condition = {agent: _Condition.of(player) for agent, player in self.game.realm.players.items()}
        return started

    def restrict(self, observation: dict) -> None:
        """Forbid giving, and attacks on NPCs that fight back."""
        forbid_giving(observation)
        forbid_attacking_dangerous_npcs(observation)

    def reward(self, agent: int, task_reward: float) -> float:
        """Return a living agent's reward for this tick."""
        before, now = self._condition[agent], _Condition.of(self.game.realm.players[agent])
        self._condition[agent] = now
        return task_reward + now.better_than(before)
