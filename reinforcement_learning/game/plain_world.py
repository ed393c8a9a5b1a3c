"""The worlds in which trained policies are evaluated and recorded, without training aids."""

from dataclasses import replace
from typing import Any, Literal

from common.user_error import UserError
from reinforcement_learning.settings import EnvironmentSettings

Mode = Literal["pvp", "pve"]
Protocol = Literal["toolkit", "original"]
"""Rules of play: this toolkit's, or those of the published evaluations."""

SPAWN_IMMUNITY = 20


def without_training_aids(env: EnvironmentSettings) -> EnvironmentSettings:
    """Return the same world without fog, with all agents starving at the full rate, and no episode ending early."""
    return replace(env, resilient_population=0, early_stop_agents=0, death_fog_tick=None)


def evaluation_world() -> EnvironmentSettings:
    """Return the world of evaluations, with maps unseen by policies trained with the default map seed."""
    return without_training_aids(EnvironmentSettings(map_seed=1))


def original_rules(mode: Mode) -> dict[str, Any]:
    """Return the settings of a world that the original protocol fixes."""
    return {
        "num_maps": 4 if mode == "pve" else 256,
        "map_seed": 0,
        "flip_terrain": True,
        "ammunition_damage": 0,
        "spawn_immunity": SPAWN_IMMUNITY,
    }


def played_by(env: EnvironmentSettings, protocol: Protocol, mode: Mode) -> EnvironmentSettings:
    """Return the world of an evaluation by a protocol.

    Raises:
        UserError: a setting that the protocol fixes was chosen otherwise.
    """
    if protocol == "toolkit":
        return env
    rules, usual = original_rules(mode), evaluation_world()
    for name, value in rules.items():
        if getattr(env, name) not in (value, getattr(usual, name)):
            raise UserError(f"--protocol original plays with {name} {value}: leave out --env.{name.replace('_', '-')}")
    return replace(env, **rules)
