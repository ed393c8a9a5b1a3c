"""Progress of tasks, evaluated only when it can have changed."""

import inspect

from nmmo.core.realm import Realm
from nmmo.entity.entity import EntityState
from nmmo.lib.event_code import EventCode
from nmmo.systems.item import ItemState
from nmmo.task import base_predicates as predicates
from nmmo.task.game_state import GameState, GameStateGenerator
from nmmo.task.task_api import Task

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
        ids = entities[:, EntityState.State.attr_name_to_col["id"]].tolist()
        return GameState(
            current_tick=realm.tick,
            config=self.config,
            spawn_pos=self.spawn_pos,
            alive_agents={entity for entity in ids if entity > 0},
            env_obs=env_obs,
            entity_data=entities,
            entity_index=_rows_of(ids),
            item_data=items,
            item_index=_rows_of(items[:, ItemState.State.attr_name_to_col["owner_id"]].tolist()),
            event_data=realm.event_log.data,
            event_index=realm.event_log.rows_of,
            seize_status=realm.seize_status,
            cache_result={},
        )


def triggers(task: Task) -> _Events:
    """Return the (agent, event code) pairs that can change a task's progress; empty if unknown."""
    evaluate = getattr(type(task._eval_fn), "_evaluate", None)
    if type(task) is not Task or evaluate is None or len(task._eval_fn._groups) != 1:
        return set()  # other kinds of tasks may not reward the difference in progress
    function = inspect.getclosurevars(evaluate).nonlocals.get("fn")
    if function is predicates.CountEvent:
        codes = {getattr(EventCode, task._eval_fn.kwargs["event"])}
    else:
        codes = _CHANGED_BY.get(function, set())
    return {(agent, code) for agent in task._eval_fn.subject.agents for code in codes}


def rewards_of(task: Task, state: GameState, awaited: _Events, happened: _Events) -> dict[int, float]:
    """Return a task's reward for each agent assigned to it; it must have been evaluated in every tick so far.

    Args:
        task: of an agent that is alive or died in this tick.
        state: of the game.
        awaited: the task's triggers.
        happened: in this tick.
    """
    if not awaited or task._last_eval_tick is None or not awaited.isdisjoint(happened):
        return task.compute_rewards(state)[0]
    task._last_eval_tick = state.current_tick
    task._eval_fn.close()  # otherwise it would keep the state of its last evaluation in memory
    return dict.fromkeys(task.assignee, 0.0)


def _rows_of(ids: list[int]) -> dict[int, list[int]]:
    rows: dict[int, list[int]] = {}
    for row, identity in enumerate(ids):
        rows.setdefault(identity, []).append(row)
    return rows
