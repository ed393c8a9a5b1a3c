"""Attacks, without arrays of attributes and without a search through everything that the fighters wear.

`combat.pxd` gives the types with which this file is compiled.
"""

from typing import Any

from nmmo.core import action
from nmmo.core.realm import Realm
from nmmo.lib.event_code import EventCode
from nmmo.systems import skill

from reinforcement_learning.game.fast_game.state import Body

_STYLES = (action.Melee, action.Range, action.Mage)  # the same order as that of `Body.fighting`
_ATTACK = ("melee_attack", "range_attack", "mage_attack")
_DEFENCE = ("melee_defense", "range_defense", "mage_defense")
_SKILLS = (skill.Melee, skill.Range, skill.Mage)
_IDS = tuple(kind.SKILL_ID for kind in _SKILLS)
_WEAK_AGAINST = tuple(_SKILLS.index(kind.weakness) for kind in _SKILLS)


class Rules:
    """The configuration's numbers that attacks depend on, which stay the same during an episode."""

    def __init__(self, config: Any):
        self.immunity = config.COMBAT_SPAWN_IMMUNITY
        self.reach = [style.attack_range(config) for style in _STYLES]
        self.base_damage = [getattr(config, f"PROGRESSION_{kind.__name__.upper()}_BASE_DAMAGE") for kind in _SKILLS]
        self.level_damage = [getattr(config, f"PROGRESSION_{kind.__name__.upper()}_LEVEL_DAMAGE") for kind in _SKILLS]
        self.base_defence = config.PROGRESSION_BASE_DEFENSE
        self.level_defence = config.PROGRESSION_LEVEL_DEFENSE
        self.weakness = config.COMBAT_WEAKNESS_MULTIPLIER
        self.least_share = config.COMBAT_MINIMUM_DAMAGE_PROPORTION
        self.formula = config.COMBAT_DAMAGE_FORMULA
        self.experience = config.PROGRESSION_COMBAT_XP_SCALE


def attack(realm: Realm, rules: Rules, body: Body, style: Any, target: Body) -> None:
    """Hit the target in one of the game's styles, unless it is immune, dead, or out of range."""
    kind = 0 if style is _STYLES[0] else 1 if style is _STYLES[1] else 2
    immune = body.is_player and target.is_player and target.time_alive._val < rules.immunity
    if immune or body is target or not target.health._val > 0:
        return
    down = abs(body.row._val - target.row._val)
    right = abs(body.column._val - target.column._val)
    if down > rules.reach[kind] or right > rules.reach[kind]:
        return
    body.history.attack = {"target": target.number, "style": style.__name__}
    target.entity.attacker = body.entity
    target.attacker_id.update(body.number)
    _hit(realm, rules, body, kind, target)
    tick = realm.tick + 1  # the tick counter is about to increase
    body.latest_combat_tick.update(tick)
    target.latest_combat_tick.update(tick)


def _hit(realm: Realm, rules: Rules, body: Body, kind: int, target: Body) -> None:
    """Do the same as `combat.attack`."""
    offence = 0
    if body.is_player:
        offence = rules.base_damage[kind] + rules.level_damage[kind] * body.fighting_levels[kind]._val
    protection = 0
    if target.is_player:
        protection = rules.base_defence + rules.level_defence * target.level()
    offence += worn(body, _ATTACK[kind])
    protection += worn(target, _DEFENCE[kind])
    ammunition = body.ammunition.item
    if ammunition is not None and getattr(ammunition, _ATTACK[kind])._val > 0:
        ammunition.fire(body.entity)
    multiplier = rules.weakness if _is_weak(target, kind) else 1.0
    damage = max(int(rules.formula(offence, protection, multiplier, rules.least_share)), 0)
    history = body.history
    history.damage_inflicted += damage
    if body.is_player:
        realm.event_log.note(EventCode.SCORE_HIT, body.number, (_IDS[kind], 0, damage, 0, target.number))
        _learn(realm, rules, body, kind)
    _receive(body, target, damage)


def _receive(body: Body, target: Body, damage: int) -> None:
    """Do the same as `receive_damage`, which is called only if the target dies or cannot be hurt."""
    if not target.health._val > damage or target.entity._immortal:
        target.entity.receive_damage(body.entity, damage)
        return
    history = target.history
    history.damage_received += damage
    target.damage.update(damage)
    target.health.decrement(damage)


def _learn(realm: Realm, rules: Rules, body: Body, kind: int) -> None:
    """Do the same as `Skill.add_xp`."""
    experience, level = body.fighting[kind], body.fighting_levels[kind]
    experience.increment(rules.experience)
    reached = body.level_at(experience._val)
    if reached > level._val:
        level.update(reached)
        realm.event_log.note(EventCode.LEVEL_UP, body.number, (_IDS[kind], reached))


def worn(body: Body, name: str) -> Any:
    """Return the sum of an attribute over all that a player or NPC wears."""
    if not body.is_player:
        return getattr(body.equipment, name)
    total = 0
    for slot in body.slots:
        item = slot.item
        if item is not None:
            total += getattr(item, name)._val
    return total


def _is_weak(target: Body, kind: int) -> bool:
    """Return whether a skill beats the skill in which the target has the most experience."""
    experience = [known._val for known in target.fighting]
    most = max(experience)
    return most != min(experience) and kind == _WEAK_AGAINST[experience.index(most)]
