"""The game's configuration, and its maps: each generated once, in parallel, when a run first needs it, and seen whole.

A folder's name is a hash of all that its maps depend on. A map is made in a folder of another name, which is renamed
when all its files are on disk; so runs can read a folder while another run adds maps to it, and one that is killed
leaves only whole maps. Each map's folder holds the hashes of its files, and a map that is cut off or altered is made
anew; one of an earlier version, without hashes, is judged by its tiles. A lock lets one process generate while others
wait. The processes that generate end with the run that started them, and each writes to folders of its own, so a run
that follows a killed one never meets its work.
"""

import errno
import hashlib
import os
import shutil
import signal
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from types import MappingProxyType
from typing import Any

import nmmo.core.config as nc
import numpy as np
import orjson
from filelock import FileLock
from nmmo.core.terrain import MapGenerator

from common.array_files import array_of
from common.files import SUMS_FILE, as_json, make_folder, read_bytes, sums_hold, sync, write_bytes, write_sums
from common.progress_view import Progress, no_progress
from common.user_error import UserError
from reinforcement_learning.processes import end_with_parent, usable_cores, worker_context
from reinforcement_learning.settings import LARGEST_NUM_MAPS, EnvironmentSettings

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


DESCRIPTION_FILE = "maps.json"
_MAP_FILES = ("map.npy", "fractal.npy")
_MOST_FILE_BYTES = 1 << 26


def maps_folder(settings: EnvironmentSettings) -> Path:
    """Return the folder of the maps that these settings need, whether or not they have been generated."""
    digest = hashlib.sha256(orjson.dumps(_describe(settings), option=orjson.OPT_SORT_KEYS)).hexdigest()[:12]
    return settings.maps_dir / f"{settings.map_size}x{settings.map_size}_{settings.num_maps}_{digest}"


def ensure_maps(
    settings: EnvironmentSettings, progress: Progress = no_progress, numbers: Iterable[int] | None = None
) -> Path:
    """Return the folder of the maps that these settings need, generating first those that are not there.

    Args:
        settings: the world; `num_maps`, `map_size` and `map_seed` decide the maps.
        progress: called with (maps done, maps needed) after each generated map.
        numbers: of the maps that are needed, from 1; all `num_maps` by default.
    """
    folder = maps_folder(settings)
    needed = sorted(set(range(1, settings.num_maps + 1) if numbers is None else numbers))
    if _missing(folder, needed):
        make_folder(settings.maps_dir)
        with FileLock(f"{folder}.lock"):
            folder.mkdir(exist_ok=True)
            _remove_leftovers(folder)
            _write_if_changed(folder / DESCRIPTION_FILE, as_json(_describe(settings)))
            _generate(settings, folder, needed, progress)
            sync(folder)
    return folder


def read_maps(folder: Path, numbers: Iterable[int]) -> dict[str, bytes]:
    """Return the files of some maps of a finished folder, path within it -> content, for another machine."""
    names = [f"map{number}/{name}" for number in sorted(set(numbers)) for name in _MAP_FILES]
    return {name: read_bytes(folder / name) for name in names}


def write_maps(folder: Path, files: dict[str, bytes]) -> None:
    """Write what `read_maps` returned to another folder, except for maps that it already holds."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        if not path.exists():
            write_bytes(path, content)


def _describe(settings: EnvironmentSettings) -> dict[str, object]:
    """All that the maps depend on: the game's version and terrain settings, the seed, and how many maps there are."""
    import nmmo

    terrain = {
        name: value
        for name, value in game_config(settings, task_embedding_size=0).items()
        if name.startswith(("TERRAIN_", "PROGRESSION_SPAWN_", "MAP_N", "MAP_SIZE", "MAP_CENTER"))
        and isinstance(value, int | float)
    }
    return {"nmmo": nmmo.__version__, "seed": settings.map_seed, "terrain": terrain}


def _write_if_changed(path: Path, content: bytes) -> None:
    try:
        if read_bytes(path, len(content)) == content:
            return
    except UserError:  # missing, or another one
        pass
    write_bytes(path, content)


def _missing(folder: Path, needed: list[int]) -> list[int]:
    return [number for number in needed if not _is_whole(folder / f"map{number}")]


def _generate(settings: EnvironmentSettings, folder: Path, needed: list[int], progress: Progress) -> None:
    missing = _missing(folder, needed)
    done = len(needed) - len(missing)
    progress(done, len(needed))
    workers = min(usable_cores(), max(1, len(missing)))
    with ProcessPoolExecutor(workers, worker_context(), _start_worker, (os.getpid(),)) as pool:
        try:
            for finished in as_completed([pool.submit(_generate_one, settings, folder, number) for number in missing]):
                finished.result()
                done += 1
                progress(done, len(needed))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _start_worker(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends its workers
    end_with_parent(parent)


def _is_whole(folder: Path) -> bool:
    if (folder / SUMS_FILE).exists():
        return sums_hold(folder, _MAP_FILES)
    return _looks_like_a_map(folder)


def _looks_like_a_map(folder: Path) -> bool:
    """Return whether a map without hashes, of an earlier version, has tiles that the game knows."""
    from nmmo.lib.material import All

    try:
        tiles, fractal = (array_of(read_bytes(folder / name, _MOST_FILE_BYTES)) for name in _MAP_FILES)
    except (UserError, ValueError):
        return False
    if tiles.ndim != 2 or not tiles.size or tiles.shape != fractal.shape or tiles.dtype.kind != "i":
        return False
    return bool(np.isin(tiles, list(All.indices)).all())


def _generate_one(settings: EnvironmentSettings, folder: Path, number: int) -> None:
    """Generate map `number` (from 1) from its own random stream, so that the order of generation does not matter."""
    from nmmo.core.terrain import MapGenerator, Save

    config = game_config(settings, task_embedding_size=0)
    generator = MapGenerator(config)
    # The game derives a map's terrain from its index alone, so each seed gets a range of indices of its own.
    index = settings.map_seed * LARGEST_NUM_MAPS + number - 1
    roughness = np.logspace(config.TERRAIN_LOG_INTERPOLATE_MIN, config.TERRAIN_LOG_INTERPOLATE_MAX, settings.num_maps)
    generator.interpolaters = {index: roughness[number - 1]}
    fractal, tiles = generator.generate_map(index, np.random.default_rng([settings.map_seed, number]))
    scratch = folder / f".map{number}.{os.getpid()}"
    scratch.mkdir(exist_ok=True)
    Save.as_numpy(tiles, str(scratch))
    Save.fractal(fractal, str(scratch))
    write_sums(scratch, _MAP_FILES)
    try:
        scratch.rename(folder / f"map{number}")
    except OSError as error:
        # A worker of a run that was killed a moment ago may have put the same map there.
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY) or not _is_whole(folder / f"map{number}"):
            raise
        shutil.rmtree(scratch)


def _remove_leftovers(folder: Path) -> None:
    """Remove maps that are not whole, and temporary files of killed runs: whoever writes holds the lock."""
    for path in [*(place for place in folder.glob("map[0-9]*") if not _is_whole(place)), *folder.glob(".map*")]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)  # a worker that is about to end may still write to it
        else:
            path.unlink(missing_ok=True)
