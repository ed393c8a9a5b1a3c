"""Progress of tasks, evaluated only when it can have changed.

`tasks.pxd` gives the types with which this file is compiled.
"""

import inspect
from collections import defaultdict
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from nmmo.core.realm import Realm
from nmmo.entity.entity import EntityState
from nmmo.lib.event_code import EventCode
from nmmo.lib.event_log import EventState
from nmmo.systems.item import ItemState
from nmmo.task import base_predicates as predicates
from nmmo.task.game_state import GameState, GameStateGenerator
from nmmo.task.task_api import Task

from reinforcement_learning.game.fast_game.ways import GoTowards, GoToWater, share_of_way, share_to_water

_ENTITY = EntityState.State.attr_name_to_col
_EVENT = EventState.State.attr_name_to_col
_ITEM = ItemState.State.attr_name_to_col
# Predicates whose value changes only in ticks with one of these events about their subject.
_CHANGED_BY = {
    predicates.ScoreHit: {EventCode.SCORE_HIT},
    predicates.DefeatEntity: {EventCode.PLAYER_KILL},
    predicates.EarnGold: {EventCode.EARN_GOLD, EventCode.LOOT_GOLD},
    predicates.SpendGold: {EventCode.BUY_ITEM},
    predicates.MakeProfit: {EventCode.EARN_GOLD, EventCode.LOOT_GOLD, EventCode.BUY_ITEM},
    predicates.ConsumeItem: {EventCode.CONSUME_ITEM},
    predicates.HarvestItem: {EventCode.HARVEST_ITEM},
    predicates.FireAmmo: {EventCode.FIRE_AMMO},
    predicates.ListItem: {EventCode.LIST_ITEM},
    predicates.BuyItem: {EventCode.BUY_ITEM},
    predicates.AttainSkill: {EventCode.LEVEL_UP, EventCode.AGENT_CULLED},  # the dead have no skills
}
_Events = set[tuple[int, int]]


class FastGameStateGenerator(GameStateGenerator):
    """Uses the event log's own index of events instead of rebuilding it in every tick."""

    def __init__(self, generator: GameStateGenerator):
        self.config = generator.config
        self.spawn_pos = generator.spawn_pos

    def generate(self, realm: Realm, env_obs: dict) -> GameState:
        """Return the state that predicates read."""
        entities = EntityState.Query.table(realm.datastore)
        items = ItemState.Query.table(realm.datastore)
        ids = entities[:, _ENTITY["id"]].tolist()
        return GameState(
            current_tick=realm.tick,
            config=self.config,
            spawn_pos=self.spawn_pos,
            alive_agents={entity for entity in ids if entity > 0},
            env_obs=env_obs,
            entity_data=entities,
            entity_index=_rows_of(ids),
            item_data=items,
            item_index=_rows_of(items[:, _ITEM["owner_id"]].tolist()),
            event_data=realm.event_log.data,
            event_index=realm.event_log.rows_of,
            seize_status=realm.seize_status,
            cache_result={},
        )


def _own_items(state: GameState, agent: int) -> Hashable:
    rows = state.item_index.get(agent)
    return state.item_data[rows].tobytes() if rows else b""


def _own_row(state: GameState, agent: int) -> Hashable:
    rows = state.entity_index.get(agent)
    return state.entity_data[rows[0], _LEARNT].tobytes() if rows else b""


_LEARNT = [_ENTITY["gold"], *(column for name, column in _ENTITY.items() if name.endswith("_exp"))]
# What the value of other predicates depends on: while it is the same, so is the value.
_READ: dict[Callable, Callable[[GameState, int], Hashable]] = {
    predicates.OwnItem: _own_items, predicates.EquipItem: _own_items, predicates.FullyArmed: _own_items,
    predicates.HoardGold: _own_row, predicates.GainExperience: _own_row,
}  # fmt: skip


def _reached_tick(state: GameState, agent: int, num_tick: int | None = None) -> float:
    return state.current_tick / (state.config.HORIZON if num_tick is None else num_tick)


def _on_tile(state: GameState, agent: int, row: int, col: int) -> float:
    rows = state.entity_index.get(agent)
    return float(bool(rows) and _place(state, rows[0]) == (row, col))


def _far_from_spawn(state: GameState, agent: int, dist: int) -> float:
    rows = state.entity_index.get(agent)
    if not rows or state.entity_data[rows[0], _ENTITY["health"]] <= 0:
        return 0.0
    row, column = _place(state, rows[0])
    start_row, start_column = state.spawn_pos[agent]
    return max(abs(row - start_row), abs(column - start_column)) / dist


def _on_its_way(state: GameState, agent: int) -> tuple[int, int] | None:
    """Return where an agent is; None if it is dead, or its way has not begun."""
    rows = state.entity_index.get(agent)
    if state.current_tick <= state.config.INTERRUPTED_AT:
        return None
    if not rows or state.entity_data[rows[0], _ENTITY["health"]] <= 0:
        return None
    return _place(state, rows[0])


def _gone_towards(state: GameState, agent: int, side: str, tiles: int) -> float:
    place = _on_its_way(state, agent)
    return share_of_way(place, state.spawn_pos[agent], side, tiles, state.config) if place else 0.0


def _gone_to_water(state: GameState, agent: int) -> float:
    place = _on_its_way(state, agent)
    return share_to_water(place, state.spawn_pos[agent], state.config.WATER_IN_VIEW[agent]) if place else 0.0


def _events_seen(state: GameState, agent: int, event: str, N: int) -> float:
    return np.count_nonzero(_events_of(state, agent)[:, _EVENT["event"]] == getattr(EventCode, event)) / N


def _hits_scored(state: GameState, agent: int, combat_style: Any, N: int) -> float:
    events = _events_of(state, agent)
    hits = (events[:, _EVENT["event"]] == EventCode.SCORE_HIT) & (events[:, _EVENT["type"]] == combat_style.SKILL_ID)
    return np.count_nonzero(hits) / N


def _items_owned(state: GameState, agent: int, item: Any, level: int, quantity: int) -> float:
    return sum(own[_ITEM["quantity"]] for own in _items_of(state, agent, item, level)) / quantity


def _items_worn(state: GameState, agent: int, item: Any, level: int, num_agent: int) -> float:
    if num_agent <= 0:
        return 1.0
    return sum(own[_ITEM["equipped"]] > 0 for own in _items_of(state, agent, item, level)) / num_agent


def _items_of(state: GameState, agent: int, item: Any, level: int) -> list[list[int]]:
    """Return an agent's items of a type that have at least a level."""
    items = state.item_data[state.item_index.get(agent, [])].tolist()
    kind = item.ITEM_TYPE_ID
    return [own for own in items if own[_ITEM["type_id"]] == kind and own[_ITEM["level"]] >= level]


def _experience_gained(state: GameState, agent: int, skill: Any, experience: int, num_agent: int) -> float:
    return _own_value(state, agent, f"{skill.__name__.lower()}_exp", absent=0) / (experience * num_agent)


def _skill_attained(state: GameState, agent: int, skill: Any, level: int, num_agent: int) -> float:
    if level <= 1:
        return 1.0
    reached = _own_value(state, agent, f"{skill.__name__.lower()}_level", absent=1)
    return (reached - 1) / (num_agent * (level - 1))


def _own_value(state: GameState, agent: int, name: str, absent: int) -> int:
    """Return an attribute of an agent; `absent` if it is dead."""
    rows = state.entity_index.get(agent)
    return state.entity_data[rows[0], _ENTITY[name]].item() if rows else absent


def _place(state: GameState, row: int) -> tuple[int, int]:
    return tuple(state.entity_data[row, _ENTITY["row"] : _ENTITY["col"] + 1].tolist())


def _events_of(state: GameState, agent: int) -> np.ndarray:
    return state.event_data[state.event_index.get(agent, [])]


# Predicates that can be computed directly, without views and caches; each function returns the same number.
_COMPUTED: dict[Callable, Callable[..., float]] = {
    predicates.TickGE: _reached_tick, predicates.OccupyTile: _on_tile, predicates.DistanceTraveled: _far_from_spawn,
    predicates.CountEvent: _events_seen, predicates.ScoreHit: _hits_scored, predicates.OwnItem: _items_owned,
    predicates.EquipItem: _items_worn, predicates.GainExperience: _experience_gained,
    predicates.AttainSkill: _skill_attained, GoTowards: _gone_towards, GoToWater: _gone_to_water,
}  # fmt: skip


class Watch:
    """A task, and when its progress can have changed.

    Attributes:
        task: of an agent, or of several.
        agent: that the task is about.
        awaited: entity and code of the events that can change its progress; empty if unknown.
        read: returns what its progress depends on, if known.
        compute: returns its predicate's value, if there is a quick way.
        holds_state: whether the predicate holds the game's state of its last evaluation.
        simple: whether the game's own reward is the difference in progress.
    """

    def __init__(self, task: Task):
        self.task = task
        self.agent = 0
        self.arguments: dict = {}
        self.awaited: _Events = set()
        self.read: Any = None
        self.compute: Any = None
        self.last_read: Any = None
        self.holds_state = False
        evaluate: Any = getattr(type(task._eval_fn), "_evaluate", None)
        self.simple = type(task) is Task and evaluate is not None and len(task._eval_fn._groups) == 1
        if not self.simple:
            return  # other kinds of tasks may not reward the difference in progress
        subject = task._eval_fn.subject.agents
        self.arguments = task._eval_fn.kwargs
        function: Any = inspect.getclosurevars(evaluate).nonlocals.get("fn")
        if function is predicates.CountEvent:
            codes = {getattr(EventCode, self.arguments["event"])}
        else:
            codes = _CHANGED_BY.get(function, set())
        self.awaited = {(agent, code) for agent in subject for code in codes}
        if len(subject) == 1 and len(task._eval_fn.args) == 1:
            self.agent = subject[0]
            self.read = _READ.get(function)
            self.compute = _COMPUTED.get(function)

    def is_settled(self, state: GameState, happened: _Events) -> bool:
        """Return whether this tick's events leave the task's progress certainly as it was in the last one."""
        task = self.task
        if not self.simple or task._last_eval_tick is None:
            return False
        if task._completed_tick is not None:
            return True
        if self.awaited:
            return self.awaited.isdisjoint(happened)
        if self.read is None:
            return False
        before, self.last_read = self.last_read, self.read(state, self.agent)
        return before == self.last_read


def all_rewards(watches: list[Watch], state: GameState, happened: _Events, current: set[int]) -> dict[int, float]:
    """Return each agent's reward for progress in its tasks.

    Args:
        watches: over all tasks.
        happened: events of this tick.
        current: agents that are alive or died in this tick.
    """
    rewards: dict[int, float] = defaultdict(int)
    for watch in watches:
        if current.isdisjoint(watch.task._assignee):
            watch.task.close()
            continue
        for agent, reward in rewards_of(watch, state, happened).items():
            if agent in current:
                rewards[agent] += reward
    return rewards


def rewards_of(watch: Watch, state: GameState, happened: _Events) -> dict[int, float]:
    """Return a task's reward for each agent assigned to it; it must have been evaluated in every tick so far."""
    task = watch.task
    if watch.is_settled(state, happened):
        task._last_eval_tick = state.current_tick
        if watch.holds_state:
            task._eval_fn.close()  # to free its memory
            watch.holds_state = False
        return dict.fromkeys(task._assignee, 0.0)
    if watch.compute is None:
        watch.holds_state = True
        return task.compute_rewards(state)[0]
    progress = max(min(float(watch.compute(state, watch.agent, **watch.arguments)), 1.0), 0.0)
    return dict.fromkeys(task._assignee, _reward(task, progress, state))


def _reward(task: Task, progress: float, state: GameState) -> float:
    """Do the same as `Task.compute_rewards` for a task that is not completed, given its predicate's value."""
    difference = progress - task._progress
    task._progress = progress
    if progress >= 1:
        task._completed_tick = state.current_tick
    reward = difference * task._reward_multiplier
    task._last_eval_tick = state.current_tick
    task._max_progress = max(task._max_progress, progress)
    task._positive_reward_count += int(reward > 0)
    task._negative_reward_count += int(reward < 0)
    return reward


def _rows_of(ids: list[int]) -> dict[int, list[int]]:
    rows: dict[int, list[int]] = {}
    for row, identity in enumerate(ids):
        rows.setdefault(identity, []).append(row)
    return rows
