"""Rewards beyond the task, and restrictions: one weighted sum for all the published agents."""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import nmmo
import numpy as np
from nmmo.entity.entity import EntityState
from nmmo.lib.event_code import EventCode
from nmmo.lib.event_log import EventState

from agent_zoo.agent_settings import RewardRules
from agent_zoo.base import BaseRewardWrapper

NEW_EVENTS_PAID_A_TICK = 3
SKILLS = ("melee", "range", "mage", "fishing", "herbalism", "prospecting", "carving", "alchemy")
STYLES = ("melee", "range", "mage")
_DEFENCE_UNIT = 15
_ALWAYS_NEW = (EventCode.PLAYER_KILL, EventCode.EARN_GOLD)
_EVENT = EventState.State.attr_name_to_col
_DOER_AND_IDENTITY = [_EVENT["ent_id"], _EVENT["event"], _EVENT["type"], _EVENT["level"]]
_NPC_TYPE = EntityState.State.attr_name_to_col["npc_type"]
_PASSIVE = 1
_GIVING = (("Give", "InventoryItem"), ("Give", "Target"), ("GiveGold", "Target"))


@dataclass(frozen=True)
class AgentCondition:
    """An agent's condition at one tick; its defence is the mean over the three combat styles."""

    health: int = 100
    experience: tuple[int, ...] = (0,) * len(SKILLS)
    defence: float = 0
    inflicted: int = 0
    gold: int = 0

    @classmethod
    def of(cls, player: Any) -> Self:
        """Read one of the engine's players."""
        worn = player.equipment
        return cls(
            health=player.resources.health.val,
            experience=tuple(getattr(player, f"{skill}_exp").val for skill in SKILLS),
            defence=(worn.melee_defense + worn.range_defense + worn.mage_defense) / len(STYLES),
            inflicted=player.history.damage_inflicted,
            gold=player.gold.val,
        )

    def paid(self, before: "AgentCondition", rules: RewardRules) -> float:
        """Return what this condition is worth one tick after `before`."""
        if rules.as_published:
            learnt = max(self.experience) - max(before.experience)
            defended = self.defence / _DEFENCE_UNIT
        else:
            learnt = max(now - then for now, then in zip(self.experience, before.experience, strict=True))
            defended = self.defence - before.defence
        return rules.scale * (
            rules.hp * (self.health - before.health)
            + rules.experience * learnt
            + rules.defence * defended
            + rules.attack * (self.inflicted - before.inflicted)
            + rules.gold * (self.gold - before.gold)
        )


class WeightedReward(BaseRewardWrapper):
    """The task's reward and a weighted sum of what happened to the agent in the tick.

    Two events are of the same kind if they have the same type, object (a skill, an item, an opponent) and level.
    """

    default: ClassVar[RewardRules] = RewardRules()  # rules of agents of this kind
    pays_the_last_tick: ClassVar[bool] = False
    """Whether, as published, the tick in which a life or an episode ends is paid for."""

    def __init__(self, env: Any, game: nmmo.Env, rules: RewardRules | None = None):
        super().__init__(env, game)
        self.rules = rules or self.default
        self._known: dict[int, set[tuple[int, ...]]] = {}
        self._new: dict[int, int] = {}
        self._condition: dict[int, AgentCondition] = {}

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Start an episode."""
        self._known, self._new = {agent: set() for agent in self.game.possible_agents}, {}
        started = super().reset(seed=seed, options=options)
        if self.rules.as_published:  # the same start for all, whatever an agent is given at first
            self._condition = dict.fromkeys(self.game.possible_agents, AgentCondition())
        else:
            self._condition = {agent: AgentCondition.of(player) for agent, player in self.game.realm.players.items()}
        return started

    def restrict(self, observation: dict) -> None:
        """Forbid giving and attacks on NPCs that fight back, as the rules say."""
        if self.rules.disable_give:
            forbid_giving(observation, prices=self.rules.as_published)
        if self.rules.spare_dangerous_npcs:
            target = observation["ActionTargets"]["Attack"]["Target"]
            target[np.flatnonzero(observation["Entity"][:, _NPC_TYPE] > _PASSIVE)] = 0
            if not target.any():  # the game itself permits the no-op only if there is no target
                target[-1] = 1
                self.noops_permitted[int(observation["AgentId"])] += 1

    def after_tick(self, actions: dict, observations: dict, died: dict) -> None:
        """Count each agent's new kinds of events."""
        if not self.rules.explore:
            return
        always_new = _ALWAYS_NEW if self.rules.as_published else ()
        realm, self._new = self.game.realm, {}
        events = realm.event_log.get_data(tick=realm.tick)[:, _DOER_AND_IDENTITY].astype(int)
        for agent, *kind in events.tolist():
            known, identity = self._known.get(agent), tuple(kind)
            if known is not None and (identity not in known or identity[0] in always_new):
                known.add(identity)
                self._new[agent] = self._new.get(agent, 0) + 1

    def is_paid(self, died: bool, cut_off: bool) -> bool:
        """Return whether an agent is paid for more than its task in this tick."""
        if not self.rules.as_published:
            return not died
        return self.pays_the_last_tick or not (died or cut_off)

    def reward(self, agent: int, task_reward: float) -> float:
        """Return an agent's reward for this tick; one that died has no condition."""
        rules = self.rules
        paid = task_reward + rules.explore * min(self._new.get(agent, 0), NEW_EVENTS_PAID_A_TICK)
        player = self.game.realm.players.get(agent)
        if player is None:
            return paid
        if rules.heal and player.resources.health_restore > 0:
            paid += rules.heal
        if any((rules.hp, rules.experience, rules.defence, rules.attack, rules.gold)):
            before, now = self._condition[agent], AgentCondition.of(player)
            self._condition[agent] = now
            paid += now.paid(before, rules)
        return paid


def forbid_giving(observation: dict, prices: bool = True) -> None:
    """Leave only the no-op, the last option, in every head that gives away items or gold.

    Args:
        observation: of a living agent, changed in place.
    """
    targets = observation["ActionTargets"]
    for action, argument in _GIVING:
        targets[action][argument][:-1] = 0
    if prices:
        targets["GiveGold"]["Price"][1:] = 0
