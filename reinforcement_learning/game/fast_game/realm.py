"""The world: the order in which everything happens in a tick.

`realm.pxd` gives the types with which this file is compiled.
"""

from typing import Any

import numpy as np
from nmmo.core import action
from nmmo.core.realm import Realm
from nmmo.entity.entity import EntityState
from nmmo.systems.item import ItemState

from reinforcement_learning.game.fast_game.combat import Rules, attack
from reinforcement_learning.game.fast_game.events import FastEventLog
from reinforcement_learning.game.fast_game.ground import FastMap, move_all
from reinforcement_learning.game.fast_game.npcs import FastNPCs
from reinforcement_learning.game.fast_game.players import FastPlayers, Needs
from reinforcement_learning.game.fast_game.state import Body, CellTable, FastDatastore

_GAMES_FIRST_ROWS = 100  # the order in which rows are used depends on it
_MOVE, _ATTACK, _SELL = "Move", "Attack", "Sell"


def take_over(realm: Realm) -> None:
    """Give a world's parts the faster classes without changing their data."""
    realm.__class__ = FastRealm
    FastEventLog.take_over(realm)
    realm.datastore.__class__ = FastDatastore
    for name, state in (("Entity", EntityState.State), ("Item", ItemState.State)):
        CellTable.take_over(realm, name, state.num_attributes, _GAMES_FIRST_ROWS)
    realm.map.__class__ = FastMap
    realm.players.__class__ = FastPlayers
    realm.npcs.__class__ = FastNPCs


class Plan:
    """Players' actions of a tick in the order in which they are carried out.

    Attributes:
        early: by the game's priority, body, action and its arguments of everything before attacks.
        attacks: attacker's body, style and target's body.
        moves: body, rows down and columns right.
        sales: body, action and its arguments.
    """

    def __init__(self) -> None:
        self.early: dict[int, list[tuple[Body, Any, Any]]] = {}
        self.attacks: list[tuple[Body, Any, Body]] = []
        self.moves: list[tuple[Body, int, int]] = []
        self.sales: list[tuple[Body, Any, Any]] = []


def plan_of(entities: dict[int, Any], actions: dict[int, dict]) -> Plan:
    """Sort players' actions; arguments as returned by `executable`, and all players by number."""
    plan = Plan()
    for number, made in actions.items():
        body = entities[number].body
        for act, arguments in made.items():
            name = act.__name__
            if name == _MOVE:
                (direction,) = arguments.values()
                plan.moves.append((body, *direction.delta))
            elif name == _ATTACK:
                style, target = arguments.values()
                plan.attacks.append((body, style, target.body))
            elif name == _SELL:
                plan.sales.append((body, act, arguments))
            else:
                plan.early.setdefault(act.priority, []).append((body, act, arguments))
    return plan


def call_all(realm: Realm, calls: list[tuple[Body, Any, Any]]) -> None:
    """Carry out actions by the game's own code; those of the dead and the frozen are left out."""
    for body, act, arguments in calls:
        if body.can_act():
            act.call(realm, body.entity, *arguments.values())


def attack_all(realm: Realm, rules: Rules, attacks: list[tuple[Body, Any, Body]]) -> None:
    """Carry out attacks; those of the dead and the frozen are left out."""
    for body, style, target in attacks:
        if body.can_act():
            attack(realm, rules, body, style, target)


class FastRealm(Realm):
    """The game's world."""

    rules: Rules

    def reset(self, np_random: np.random.Generator, map_dict: dict, **options: Any) -> None:
        """Start an episode."""
        self.rules = Rules(self.config)
        self.players.needs = Needs(self.config)
        super().reset(np_random, map_dict, **options)

    def entity_or_none(self, ent_id: int | None) -> Any:
        """Find a player or NPC by id; the game's version goes through `Mapping.get`, which catches a `KeyError`."""
        if ent_id is None:
            return None
        return (self.npcs if ent_id < 0 else self.players).entities.get(ent_id)

    def step(self, actions: dict[int, dict]) -> tuple[dict, dict]:
        """Play one tick; return the players and the NPCs that died."""
        decisions = self.npcs.decide()
        plan = plan_of(self.players.entities, actions)
        self.players.update(actions)
        self.npcs.grow_older()
        for priority in sorted(plan.early):
            if priority == action.Buy.priority:
                self._np_random.shuffle(plan.early[priority])
            call_all(self, plan.early[priority])
        attack_all(self, self.rules, plan.attacks + decisions.attacks)
        move_all(self.map.ground, self.event_log, plan.moves + decisions.moves)
        call_all(self, plan.sales)
        dead = self.players.cull(), self.npcs.cull()
        self.tick += 1
        self.map.step()
        self.update_fog_map()
        self.exchange.step()
        self.event_log.update()
        if self._replay_helper is not None:
            self._replay_helper.update()
        return dead
