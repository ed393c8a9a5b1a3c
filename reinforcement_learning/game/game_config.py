"""Neural MMO's configuration for our environment settings."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import nmmo.core.config as nc
from nmmo.core.terrain import MapGenerator

from reinforcement_learning.settings import EnvironmentSettings

MAP_BORDER = 16
# Neural MMO's own densities: 64 resource clusters and 256 single resources on 128 x 128 tiles.
_TILES_PER_CLUSTER = 128 * 128 // 64
_TILES_PER_SINGLE_RESOURCE = 128 * 128 // 256


class GameConfig(
    nc.Medium, nc.Terrain, nc.Resource, nc.Combat, nc.NPC, nc.Progression, nc.Item, nc.Equipment, nc.Profession,
    nc.Exchange,
):  # fmt: skip
    """All systems of the game except communication.

    Attributes:
        INTERRUPTED_AT: tick in which all agents are moved to other places; -1: never.
        WATER_IN_VIEW: tiles of water that an agent had in view where its way began, by agent, (W, 2) each; empty
            where no task leads to water.
    """

    INTERRUPTED_AT = -1
    WATER_IN_VIEW: Mapping[int, Any] = MappingProxyType({})


class FinishedMaps(MapGenerator):
    """Disables map generation: the game's own generator would regenerate all maps if one is missing."""

    def generate_all_maps(self, seed: int | None = None) -> None:
        """Do nothing."""


def game_config(settings: EnvironmentSettings, task_embedding_size: int, maps: Path | None = None) -> GameConfig:
    """Return the game's configuration for our settings; `maps` is a folder of finished maps, only read by the game."""
    tiles = settings.map_size**2
    config = GameConfig()
    values = {
        "PROVIDE_ACTION_TARGETS": True,
        "PROVIDE_NOOP_ACTION_TARGET": True,
        "PLAYER_N": settings.num_agents,
        "NPC_N": settings.num_npcs,
        "HORIZON": settings.horizon,
        "COMBAT_SPAWN_IMMUNITY": settings.spawn_immunity,
        "RESOURCE_RESILIENT_POPULATION": settings.resilient_population,
        "RESOURCE_FOILAGE_RESPAWN": config.RESOURCE_FOILAGE_RESPAWN * settings.food_regrowth,
        "TERRAIN_WATER": settings.water,
        "EQUIPMENT_AMMUNITION_BASE_DAMAGE": settings.ammunition_damage,
        "DEATH_FOG_ONSET": settings.death_fog_tick,
        "WATER_IN_VIEW": {},
        "INTERRUPTED_AT": -1 if settings.interrupt is None else settings.interrupt,
        "TERRAIN_FLIP_SEED": settings.flip_terrain,
        "TASK_EMBED_DIM": task_embedding_size,
        "MAP_N": settings.num_maps,
        "MAP_CENTER": settings.map_size,
        "MAP_SIZE": settings.map_size + 2 * MAP_BORDER,
        "PROGRESSION_SPAWN_CLUSTERS": max(1, tiles // _TILES_PER_CLUSTER),
        "PROGRESSION_SPAWN_UNIFORMS": max(1, tiles // _TILES_PER_SINGLE_RESOURCE),
        "MAP_FORCE_GENERATION": False,
        "MAP_GENERATOR": FinishedMaps,
        "PATH_MAPS": str((maps or settings.maps_dir).resolve()),
    }
    for name, value in values.items():
        config.set(name, value)
    return config
