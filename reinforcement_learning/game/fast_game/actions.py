"""Convert agents' choices from numbers to the game's actions.

The game sorts each agent's choices and calls a class for each argument, which goes through many properties; here the
ids that the choices point at are read once for all agents.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from nmmo.core import action
from nmmo.core.realm import Realm
from nmmo.lib.event_code import EventCode
from nmmo.lib.utils import linf_single
from nmmo.systems import combat
from nmmo.systems.skill import Mage, Melee, Range

from reinforcement_learning.game.fast_game.observations import ObservationWriter

_DIRECTIONS = tuple(action.Direction.edges)
_STYLES = tuple(action.Style.edges)
_STYLE = {
    skill: (
        name, attrgetter(f"{name}_attack"), attrgetter(f"{name}_defense"),
        f"PROGRESSION_{name.upper()}_BASE_DAMAGE", f"PROGRESSION_{name.upper()}_LEVEL_DAMAGE",
    )
    for name, skill in (("melee", Melee), ("range", Range), ("mage", Mage))
}  # fmt: skip


class Move(action.Move):
    """The game's move, inlined, without the checks that cannot fail."""

    def call(realm: Realm, entity: Any, direction: Any) -> None:  # the game never makes instances of actions
        """Move one tile, unless something is in the way."""
        world, history = realm.map, entity.history
        row, column = history.last_pos = entity.pos
        down, right = direction.delta
        # Tiles that are not habitable are the game's impassible ones, including the void beyond the border, so agents
        # cannot leave the map or enter the void.
        if not world.habitable_rows[row + down][column + right] or entity.status.freeze._val > 0:
            return
        if down or right:
            del world.tile_rows[row][column].entities[entity.ent_id]
            row, column = row + down, column + right
            world.tile_rows[row][column].entities[entity.ent_id] = entity
            entity._pos = (row, column)
            (entity.row if down else entity.col).update(row if down else column)
        centre_row, centre_column = world.center_coord
        progress = world.dist_border_center - max(abs(centre_row - row), abs(centre_column - column))
        if progress > history.exploration:
            history.exploration = progress
            if entity.is_player:
                realm.event_log.record(EventCode.GO_FARTHEST, entity, distance=progress)


class Attack(action.Attack):
    """The game's attack; the target's best skill is found without building arrays of attributes."""

    def call(realm: Realm, entity: Any, style: Any, target: Any) -> None:
        """Hit the target, unless it is immune, dead, or out of range."""
        config = realm.config
        immune = entity.is_player and target.is_player and target.time_alive.val < config.COMBAT_SPAWN_IMMUNITY
        if immune or entity.ent_id == target.ent_id or not target.alive:
            return
        if linf_single(entity.pos, target.pos) > style.attack_range(config):
            return
        entity.history.attack = {"target": target.ent_id, "style": style.__name__}
        target.attacker = entity
        target.attacker_id.update(entity.ent_id)
        _hit(config, realm, entity, target, style)
        for fighter in (entity, target):
            fighter.latest_combat_tick.update(realm.tick + 1)  # the tick counter is about to increase


def _hit(config: Any, realm: Realm, attacker: Any, target: Any, style: Any) -> None:
    """Do the same as `combat.attack`."""
    skill = style.skill(attacker)
    name, attack, defence, base_damage, level_damage = _STYLE[type(skill)]
    offence = 0
    if attacker.is_player:
        offence = getattr(config, base_damage) + getattr(config, level_damage) * skill.level.val
    protection = 0
    if target.is_player:
        protection = config.PROGRESSION_BASE_DEFENSE + config.PROGRESSION_LEVEL_DEFENSE * combat.level(target.skills)
    offence += attacker.equipment.total(attack)
    protection += target.equipment.total(defence)
    ammunition = attacker.equipment.ammunition.item
    if ammunition is not None and attack(ammunition).val > 0:
        ammunition.fire(attacker)
    multiplier = config.COMBAT_WEAKNESS_MULTIPLIER if _is_weak(target, skill) else 1.0
    damage = config.COMBAT_DAMAGE_FORMULA(offence, protection, multiplier, config.COMBAT_MINIMUM_DAMAGE_PROPORTION)
    damage = max(int(damage), 0)
    if attacker.is_player:
        record = realm.event_log.record
        record(EventCode.SCORE_HIT, attacker, target=target, combat_style=type(skill), damage=damage)
    attacker.apply_damage(damage, name)
    target.receive_damage(attacker, damage)


def _is_weak(target: Any, skill: Any) -> bool:
    """Return whether a skill beats the skill in which the target has the most experience."""
    skills = (target.skills.melee, target.skills.range, target.skills.mage)
    experience = [known.exp.val for known in skills]
    most = max(experience)
    return most != min(experience) and isinstance(skill, skills[experience.index(most)].weakness)


def executable(chosen: dict[int, dict], realm: Realm, writer: ObservationWriter) -> dict[int, dict]:
    """Return the actions that can be executed, as `nmmo.Env._validate_actions` does.

    Args:
        chosen: option of each agent for each argument of each action.
        realm: the world.
        writer: of the observations that the options point at.
    """
    prices = action.Price.classes
    seen, owned, listed = writer.ids()
    valid: dict[int, dict] = {}
    for agent, choice in chosen.items():
        player = realm.players.entities.get(agent)
        if player is None or not player.alive:
            continue
        entities, items = seen[writer.index_of[agent]], owned[writer.index_of[agent]]
        made: dict = {}  # in alphabetical order, the game's order for equal priorities
        if (target := _pick(realm.entity_or_none, entities, choice["Attack"]["Target"])) is not None:
            made[Attack] = {action.Style: _STYLES[choice["Attack"]["Style"]], action.Target: target}
        if (item := _pick(realm.items.get, listed, choice["Buy"]["MarketItem"])) is not None:
            made[action.Buy] = {action.MarketItem: item}
        if (item := _pick(realm.items.get, items, choice["Destroy"]["InventoryItem"])) is not None:
            made[action.Destroy] = {action.InventoryItem: item}
        if (item := _pick(realm.items.get, items, choice["Give"]["InventoryItem"])) is not None:
            target = _pick(realm.entity_or_none, entities, choice["Give"]["Target"])
            if target is not None:
                made[action.Give] = {action.InventoryItem: item, action.Target: target}
        if (target := _pick(realm.entity_or_none, entities, choice["GiveGold"]["Target"])) is not None:
            made[action.GiveGold] = {action.Price: prices[choice["GiveGold"]["Price"]], action.Target: target}
        made[Move] = {action.Direction: _DIRECTIONS[choice["Move"]["Direction"]]}
        if (item := _pick(realm.items.get, items, choice["Sell"]["InventoryItem"])) is not None:
            made[action.Sell] = {action.InventoryItem: item, action.Price: prices[choice["Sell"]["Price"]]}
        if (item := _pick(realm.items.get, items, choice["Use"]["InventoryItem"])) is not None:
            made[action.Use] = {action.InventoryItem: item}
        valid[agent] = made
    return valid


def _pick(find: Callable[[int], Any], ids: list[int], option: int) -> Any:
    """Return what an option points at; options after the last id do nothing."""
    return find(ids[option]) if option < len(ids) else None
