"""A real episode of agents that forage, fight and trade, and every behavioural feature computed from the engine.

Features are computed with plain loops over the game's objects: players, NPCs, tiles, items and events.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nmmo.core.action as game_action
import numpy as np
import pytest
import torch
from nmmo.lib import material
from nmmo.lib.event_code import EventCode
from nmmo.systems import item

from activation_store.records import Records
from activation_store.writer import DumpWriter
from agent_zoo.network_parts.distribution import ActionDistribution
from reinforcement_learning.play.contest import Contest, Group
from reinforcement_learning.play.extraction import RecordingPlan, metadata_of
from reinforcement_learning.play.policy_pool import EntrantActions, PolicyPool
from tests.forager import forage
from tests.watched import record_here, watched

RADIUS = 7
REACH = 3
NPC_TYPES = {"passive": 1, "neutral": 2, "aggressive": 3}
STYLES = ("melee", "range", "mage")
SKILLS = (*STYLES, "fishing", "herbalism", "prospecting", "carving", "alchemy")
GIVE_ITEMS = (material.Ore, material.Tree, material.Crystal, material.Herb, material.Fish)
USED_UP = (material.Slag, material.Stump, material.Fragment, material.Weeds)
GIFTS = (
    item.Spear, item.Wand, item.Bow, item.Pickaxe, item.Hat, item.Runes, item.Whetstone, item.Ration, item.Potion,
)  # fmt: skip

Key = tuple[int, int, int]
"""Episode, step and agent."""


@dataclass
class Past:
    """The engine's state over one life so far, one entry per tick."""

    position: list[tuple[int, int]] = field(default_factory=list)
    vitals: list[dict[str, int]] = field(default_factory=list)
    ate: list[bool] = field(default_factory=list)
    drank: list[bool] = field(default_factory=list)


class Witness:
    """Makes all agents forage, and reads the engine's state while an extraction runs."""

    def __init__(self, contest: Contest) -> None:
        self.layout = contest.entrants[0].info.layout
        self.random = np.random.default_rng(1)
        self.truth: dict[Key, dict[str, float]] = {}
        self.options: dict[Key, dict[str, str]] = {}
        self.drank: dict[Key, bool] = {}
        self.log: dict[Key, list[dict[str, int]]] = {}
        self.deaths: set[Key] = set()
        self.past: dict[int, Past] = defaultdict(Past)

    def play(self, contest: Contest, plan: RecordingPlan, folder: Path) -> None:
        """Extract a dump of the plan's episodes, one by one, to `folder`."""

        def sample(distribution: ActionDistribution, uniforms: torch.Tensor) -> torch.Tensor:
            present = self.pool.arrival.observations[self.pool.arrival.acting]
            return torch.from_numpy(forage(present, self.layout, self.random))

        with (
            pytest.MonkeyPatch.context() as patch,
            watched(self.before_tick, self.after_tick),
            DumpWriter(folder, metadata_of(contest, contest.entrants[0], plan)) as writer,
        ):
            patch.setattr(ActionDistribution, "sample", sample)
            for self.episode in range(plan.episodes):
                self.pool, self.step = contest.pool(1), 0
                record_here(self.pool, Group(plan.seed, (self.episode,)), plan, [writer])

    def before_tick(self, pool: PolicyPool, _: Sequence[EntrantActions]) -> None:
        self.acting = np.flatnonzero(pool.arrival.acting)
        realm = self.pool.shared[0].world.game.realm
        if realm.tick == 0:
            self.past.clear()
        for slot in self.acting.tolist():
            agent = realm.players[slot + 1]
            past = self.past[slot + 1]
            remember(past, agent, realm)
            self.options[self.episode, self.step, slot + 1] = {**sides(agent, realm), "moved": moved(past)}
            self.truth[self.episode, self.step, slot + 1] = {
                **others(agent, realm), **ground(agent, realm), **body(agent, realm), **belongings(agent),
                **over_time(past),
            }  # fmt: skip
        if realm.tick == 0:
            enrich(realm)

    def after_tick(self, _: PolicyPool) -> None:
        game = self.pool.shared[0].world.game
        now = game.realm.event_log.get_data(tick=game.realm.tick)
        column = game.realm.event_log.attr_to_col
        for slot in self.acting.tolist():
            agent = game.dead_this_tick.get(slot + 1) or game.realm.players[slot + 1]
            key = (self.episode, self.step, slot + 1)
            self.truth[key].update(accepted(agent, agent.history.actions))
            self.options[key].update(chosen(agent.history.actions))
            mine = now[now[:, column["ent_id"]] == slot + 1]
            self.log[key] = [{name: int(row[place]) for name, place in column.items()} for row in mine]
            self.drank[key] = EventCode.DRINK_WATER in mine[:, column["event"]]
            if slot + 1 in game.dead_this_tick:
                self.deaths.add(key)
        self.step += 1


def keys(records: Records) -> list[Key]:
    columns = (records.episode, records.step, records.agent_id)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def enrich(realm: Any) -> None:
    """Give agents in their first tick items, gold and levels that take hours to acquire, so that all features vary."""
    for agent in realm.players.values():
        agent.gold.update(30)
        for kind in GIFTS:
            agent.inventory.receive(kind(realm, 1))
        for place, name in enumerate(SKILLS):
            getattr(agent.skills, name).level.update(1 + (agent.ent_id + place // 3) % 4)
        if agent.ent_id % 4 == 0:
            agent.resources.food.update(5)
            agent.resources.water.update(5)
        if agent.ent_id % 5 == 0:
            agent.status.freeze.update(4)


def remember(past: Past, agent: Any, realm: Any) -> None:
    """Append an agent's current state; the events of the last tick show what it ate and drank."""
    now, column = realm.event_log.get_data(tick=realm.tick), realm.event_log.attr_to_col
    mine = [row for row in now if row[column["ent_id"]] == agent.ent_id]
    codes = {int(row[column["event"]]) for row in mine}
    consumed = {int(row[column["type"]]) for row in mine if row[column["event"]] == EventCode.CONSUME_ITEM}
    had_ration = item.Ration.ITEM_TYPE_ID in consumed
    past.position.append(agent.pos)
    past.vitals.append(
        {name: int(getattr(agent, name).val) for name in ("health", "food", "water", "gold")}
    )  # fmt: skip
    past.ate.append(EventCode.EAT_FOOD in codes or had_ration)
    past.drank.append(EventCode.DRINK_WATER in codes or had_ration)


def apart(one: tuple[int, int], other: tuple[int, int]) -> int:
    return max(abs(int(one[0]) - int(other[0])), abs(int(one[1]) - int(other[1])))


def over_time(past: Past) -> dict[str, float]:
    now, before = past.vitals[-1], past.vitals[-2] if len(past.vitals) > 1 else past.vitals[-1]
    here = past.position[-1]
    still = 0
    while still + 1 < len(past.position) and past.position[-2 - still] == here:
        still += 1
    return {
        **{f"{name}_change": now[name] - before[name] for name in now},
        "ticks_since_eating": since(past.ate),
        "ticks_since_drinking": since(past.drank),
        "distance_to_spawn": apart(here, past.position[0]),
        "displacement": apart(here, past.position[-11] if len(past.position) > 10 else past.position[0]),
        "ticks_standing_still": still,
        "has_moved": len(past.position) > 1 and past.position[-2] != here,
    }


def since(happened: list[bool]) -> int:
    """Ticks since it last happened, or since spawn."""
    ago = [ticks for ticks, yes in enumerate(reversed(happened)) if yes]
    return ago[0] if ago else len(happened) - 1


def others(agent: Any, realm: Any) -> dict[str, float]:
    def nearest(entities: list[Any]) -> int:
        return min((apart(agent.pos, one.pos) for one in entities), default=RADIUS + 1)

    players = [
        one for one in realm.players.values() if one is not agent and apart(agent.pos, one.pos) <= RADIUS
    ]  # fmt: skip
    npcs = [one for one in realm.npcs.values() if apart(agent.pos, one.pos) <= RADIUS]
    of_type = {kind: [npc for npc in npcs if npc.npc_type.val == code] for kind, code in NPC_TYPES.items()}
    health = [one.resources.health.val for one in players]
    closest = [npc.npc_type.val for npc in npcs if apart(agent.pos, npc.pos) == nearest(npcs)]
    return {
        "n_visible_entities": len(players) + len(npcs),
        "n_visible_players": len(players),
        "n_visible_npcs": len(npcs),
        "distance_to_player": nearest(players),
        "distance_to_npc": nearest(npcs),
        **{f"distance_to_{kind}_npc": nearest(group) for kind, group in of_type.items()},
        **{f"n_{kind}_npcs": len(group) for kind, group in of_type.items()},
        "nearest_npc_type": max(closest, default=0),
        "n_players_within_reach": sum(apart(agent.pos, one.pos) <= REACH for one in players),
        "n_npcs_within_reach": sum(apart(agent.pos, one.pos) <= REACH for one in npcs),
        "lowest_player_health": min(health, default=0),
        "highest_player_health": max(health, default=0),
        "n_stronger_players": sum(one.attack_level > agent.attack_level for one in players),
        "n_stronger_npcs": sum(one.attack_level > agent.attack_level for one in npcs),
    }


def side(here: tuple[int, int], there: tuple[int, int]) -> str:
    """The side on which a place lies: the larger difference decides, the row of equal ones."""
    south, east = int(there[0]) - int(here[0]), int(there[1]) - int(here[1])
    if south == east == 0:
        return "here"
    if abs(south) >= abs(east):
        return "south" if south > 0 else "north"
    return "east" if east > 0 else "west"


def moved(past: Past) -> str:
    before = past.position[-2] if len(past.position) > 1 else past.position[-1]
    return side(before, past.position[-1]).replace("here", "nowhere")


def sides(agent: Any, realm: Any) -> dict[str, str]:
    """The side of the nearest of some things: nearest in tiles, then in steps, then the first side."""

    def nearest(places: list[tuple[int, int]]) -> str:
        def rank(place: tuple[int, int]) -> tuple[int, int, int]:
            steps = abs(int(place[0]) - int(agent.pos[0])) + abs(int(place[1]) - int(agent.pos[1]))
            return (
                apart(agent.pos, place),
                steps,
                ("north", "south", "east", "west", "here").index(side(agent.pos, place)),
            )

        seen = [place for place in places if apart(agent.pos, place) <= RADIUS]
        return side(agent.pos, min(seen, key=rank)) if seen else "nowhere"

    def tiles(kind: Any) -> list[tuple[int, int]]:
        row, col = agent.pos
        around = [(r, c) for r in range(row - RADIUS, row + RADIUS + 1) for c in range(col - RADIUS, col + RADIUS + 1)]
        return [place for place in around if realm.map.tiles[place].state.index == kind.index]

    npcs = list(realm.npcs.values())
    return {
        "nearest_water": nearest(tiles(material.Water)),
        "nearest_foilage": nearest(tiles(material.Foilage)),
        "nearest_player": nearest([player.pos for player in realm.players.values() if player is not agent]),
        "nearest_npc": nearest([npc.pos for npc in npcs]),
        "nearest_enemy": nearest([npc.pos for npc in npcs if npc.npc_type.val > NPC_TYPES["passive"]]),
    }


def ground(agent: Any, realm: Any) -> dict[str, float]:
    """Materials of the map's tiles around and under the agent."""
    row, col = agent.pos
    around = {
        (r, c): realm.map.tiles[r, c]
        for r in range(row - RADIUS, row + RADIUS + 1)
        for c in range(col - RADIUS, col + RADIUS + 1)
    }
    beside = [around[row + 1, col], around[row - 1, col], around[row, col + 1], around[row, col - 1]]

    def is_any(tile: Any, kinds: tuple[Any, ...]) -> bool:
        return tile.state.index in {kind.index for kind in kinds}

    def nearest(*kinds: Any) -> int:
        return min((apart(agent.pos, at) for at, tile in around.items() if is_any(tile, kinds)), default=RADIUS + 1)

    def tiles(*kinds: Any) -> int:
        return sum(is_any(tile, kinds) for tile in around.values())

    here = around[row, col]
    inside = np.flatnonzero(realm.map.habitable_tiles.any(axis=1)).tolist()
    return {
        "self_row": row,
        "self_col": col,
        "distance_to_centre": apart(agent.pos, realm.map.center_coord),
        "distance_to_edge": min(row - inside[0], inside[-1] - row, col - inside[0], inside[-1] - col),
        "distance_to_water": nearest(material.Water),
        "distance_to_foilage": nearest(material.Foilage),
        "distance_to_resource": nearest(*GIVE_ITEMS),
        **{f"distance_to_{kind.tex}": nearest(kind) for kind in GIVE_ITEMS},
        "n_water_tiles": tiles(material.Water),
        "n_foilage_tiles": tiles(material.Foilage),
        "n_resource_tiles": tiles(*GIVE_ITEMS),
        "walkable_share": sum(not tile.impassible for tile in around.values()) / len(around),
        "n_open_sides": sum(not tile.impassible for tile in beside),
        "is_beside_water": any(is_any(tile, (material.Water,)) for tile in beside),
        "is_beside_fish": any(is_any(tile, (material.Fish,)) for tile in beside),
        "is_on_grass": is_any(here, (material.Grass,)),
        "is_on_foilage": is_any(here, (material.Foilage,)),
        "is_on_scrub": is_any(here, (material.Scrub,)),
        "is_on_resource": is_any(here, GIVE_ITEMS),
        "is_on_used_up": is_any(here, USED_UP),
    }


def body(agent: Any, realm: Any) -> dict[str, float]:
    level = {name: int(getattr(agent.skills, name).level.val) for name in SKILLS}
    latest = agent.latest_combat_tick.val
    return {
        "tick": realm.tick,
        "self_health": agent.resources.health.val,
        "self_food": agent.resources.food.val,
        "self_water": agent.resources.water.val,
        "self_gold": agent.gold.val,
        "max_combat_level": agent.attack_level,
        "in_combat": agent.in_combat,
        "age": agent.history.time_alive.val,
        "freeze": agent.status.freeze.val,
        "damage_taken": agent.history.damage.val,
        "is_attacked": agent.attacker is not None,
        "is_attacked_by_player": agent.attacker is not None and agent.attacker.is_player,
        "ticks_since_combat": realm.tick - latest if latest else agent.history.time_alive.val,
        "is_starving": agent.resources.food.empty,
        "is_dehydrated": agent.resources.water.empty,
        **{f"{name}_level": one for name, one in level.items()},
        "max_harvesting_level": max(level[name] for name in SKILLS[3:]),
        "max_level": max(level.values()),
    }


def belongings(agent: Any) -> dict[str, float]:
    carried, worn = list(agent.inventory.items), list(agent.equipment)
    attack = {style: getattr(agent.equipment, f"{style}_attack") for style in STYLES}
    rations = sum(isinstance(one, item.Ration) for one in carried)
    potions = sum(isinstance(one, item.Potion) for one in carried)
    return {
        "n_inventory_items": len(carried),
        "n_worn_items": len(worn),
        "item_level": agent.equipment.item_level,
        **{f"worn_{style}_attack": points for style, points in attack.items()},
        "worn_attack": sum(attack.values()),
        "worn_defence": sum(getattr(agent.equipment, f"{style}_defense") for style in STYLES),
        "holds_weapon": isinstance(agent.equipment.held.item, item.Weapon),
        "holds_tool": isinstance(agent.equipment.held.item, item.Tool),
        "n_ammunition": sum(one.quantity.val for one in carried if isinstance(one, item.Ammunition)),
        "n_rations": rations,
        "n_potions": potions,
        "n_consumables": rations + potions,
        "n_listed_items": sum(one.listed_price.val > 0 for one in carried),
        "inventory_fullness": len(carried) / agent.inventory.capacity,
    }


def chosen(actions: dict) -> dict[str, str]:
    """The options of the agent's actions as accepted by the engine."""
    move = actions.get(game_action.Move, {}).get(game_action.Direction)
    target = actions.get(game_action.Attack, {}).get(game_action.Target)
    used = actions.get(game_action.Use, {}).get(game_action.InventoryItem)
    kinds = {
        "armour": item.Armor, "weapon": item.Weapon, "tool": item.Tool, "ammunition": item.Ammunition,
        "ration": item.Ration, "potion": item.Potion,
    }  # fmt: skip
    npcs = {number: f"{kind}_npc" for kind, number in NPC_TYPES.items()}
    whom = "nobody" if target is None else "player" if target.is_player else npcs[target.npc_type.val]
    return {
        "move": "stay" if move is None else move.__name__.lower(),
        "attack_target": whom,
        "use": "nothing" if used is None else next(name for name, kind in kinds.items() if isinstance(used, kind)),
        "buy": "offer" if game_action.Buy in actions else "nothing",
    }


def accepted(agent: Any, actions: dict) -> dict[str, float]:
    """The agent's actions as accepted by the engine, without no-ops and impossible actions."""
    move = actions.get(game_action.Move, {}).get(game_action.Direction)
    attack = actions.get(game_action.Attack, {})
    target = attack.get(game_action.Target)
    done = {
        "is_using_item": game_action.Use in actions,
        "is_destroying_item": game_action.Destroy in actions,
        "is_buying": game_action.Buy in actions,
        "is_selling": game_action.Sell in actions,
        "is_giving_item": game_action.Give in actions,
        "is_giving_gold": game_action.GiveGold in actions,
        "is_moving": move is not None and move is not game_action.Stay,
        "is_attacking": target is not None,
    }
    trades = ("is_buying", "is_selling", "is_giving_item", "is_giving_gold")
    return {
        **done,
        **{
            f"is_attacking_with_{style}": target is not None
            and attack[game_action.Style].__name__.lower() == style
            for style in STYLES
        },
        "is_attacking_player": target is not None and target.is_player,
        "is_attacking_npc": target is not None and target.is_npc,
        "is_trading": any(done[name] for name in trades),
        "is_idle": not any(done.values()),
    }  # fmt: skip
