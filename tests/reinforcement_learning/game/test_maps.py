"""Maps: the same for the same settings, made once, and never seen half made."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from common.files import SUMS_FILE
from reinforcement_learning.game.maps import ensure_maps
from reinforcement_learning.play.contest import maps_of
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from tests.command import Started
from tests.fuzz import as_pipe, flip
from tests.tiny_policies import tiny_contest


@pytest.fixture
def settings(tmp_path: Path) -> EnvironmentSettings:
    return EnvironmentSettings(map_size=32, num_maps=3, maps_dir=tmp_path / "maps")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.npy")}


def test_made_once_with_progress(settings: EnvironmentSettings) -> None:
    seen: list[tuple[int, int]] = []
    folder = ensure_maps(settings, lambda done, total: seen.append((done, total)))
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert sorted(contents(folder)) == [f"map{n}/{file}.npy" for n in (1, 2, 3) for file in ("fractal", "map")]
    assert ensure_maps(settings, lambda done, total: pytest.fail("made again")) == folder


def test_only_the_maps_that_are_needed_are_made_and_others_join_them_later(
    settings: EnvironmentSettings, tmp_path: Path
) -> None:
    whole = contents(ensure_maps(replace(settings, maps_dir=tmp_path / "whole")))
    seen: list[tuple[int, int]] = []
    folder = ensure_maps(settings, lambda done, total: seen.append((done, total)), numbers=[2])
    assert seen == [(0, 1), (1, 1)]
    assert contents(folder) == {name: content for name, content in whole.items() if name.startswith("map2/")}
    before = (folder / "map2" / "map.npy").stat().st_mtime_ns
    assert ensure_maps(settings, lambda done, total: pytest.fail("made again"), numbers={2}) == folder
    assert ensure_maps(settings, numbers=[3, 2]) == folder and not (folder / "map1").exists()
    assert ensure_maps(settings) == folder and contents(folder) == whole
    assert (folder / "map2" / "map.npy").stat().st_mtime_ns == before


@pytest.mark.slow
def test_episodes_play_on_the_maps_that_were_made_for_them(
    small_world: EnvironmentSettings, task: TaskSettings, tmp_path: Path
) -> None:
    """Results do not depend on which other maps are there, and the game makes none of its own."""
    seed, episodes = 5, 3
    world = replace(small_world, num_maps=6, horizon=12)
    played = []
    for name, numbers in (("some", maps_of(world, [seed], episodes)), ("all", None)):
        env = replace(world, maps_dir=tmp_path / name)
        maps = ensure_maps(env, numbers=numbers)
        there = contents(maps)
        pool = tiny_contest(env, task, maps).pool(episodes)
        played.append(pool.play(seed, range(episodes)))
        on = {shared.world.episodes.map_number for shared in pool.shared}
        pool.close()
        assert contents(maps) == there and on == maps_of(world, [seed], episodes)
    assert played[0] == played[1]
    assert 1 < len(on) < world.num_maps


def test_same_settings_same_maps_another_seed_others(settings: EnvironmentSettings, tmp_path: Path) -> None:
    first = ensure_maps(settings)
    elsewhere = ensure_maps(replace(settings, maps_dir=tmp_path / "elsewhere"))
    other_seed = ensure_maps(replace(settings, map_seed=1))
    assert contents(first) == contents(elsewhere) and first.name == elsewhere.name
    for number in (1, 2, 3):
        ours, theirs = (np.load(folder / f"map{number}/map.npy") for folder in (first, other_seed))
        assert (ours != theirs).mean() > 0.1
    for change in ({"num_maps": 2}, {"map_size": 40}, {"map_seed": 9}):
        assert ensure_maps(replace(settings, **change)) != first
    assert ensure_maps(replace(settings, num_agents=3, horizon=9)) == first


MANY = {"num_maps": 40, "map_size": 64}


def start_generating(settings: EnvironmentSettings) -> Started:
    """Generate maps in a process of its own session, which prints how many there are."""
    code = f"""
        from pathlib import Path
        from reinforcement_learning.game.maps import ensure_maps
        from reinforcement_learning.settings import EnvironmentSettings
        ensure_maps(
            EnvironmentSettings(maps_dir=Path({str(settings.maps_dir)!r}), **{MANY!r}),
            lambda done, total: print(done, flush=True),
        )
    """
    return Started(sys.executable, "-c", textwrap.dedent(code))


def wait_for(process: subprocess.Popen[str], maps: int) -> None:
    assert process.stdout
    while int(process.stdout.readline()) < maps:
        pass


@pytest.mark.slow
def test_a_killed_generation_never_looks_complete_and_is_taken_up(settings: EnvironmentSettings) -> None:
    settings = replace(settings, **MANY)
    with start_generating(settings) as process:
        wait_for(process, maps=5)
        os.killpg(process.pid, signal.SIGKILL)
    (left,) = (path for path in settings.maps_dir.iterdir() if path.is_dir())
    assert all(np.load(item / "map.npy").shape == (96, 96) for item in left.glob("map*/"))  # whole, or not there
    progress: list[int] = []
    folder = ensure_maps(settings, lambda done, total: progress.append(done))
    assert progress[0] >= 5, "what was whole was made again"
    assert folder == left and len(contents(folder)) == 80
    untouched = ensure_maps(replace(settings, maps_dir=settings.maps_dir / "untouched"))
    assert contents(folder) == contents(untouched)


@pytest.mark.slow
def test_workers_end_with_a_killed_run_and_the_next_run_does_not_meet_them(settings: EnvironmentSettings) -> None:
    with start_generating(settings) as process:
        wait_for(process, maps=3)
        workers = psutil.Process(process.pid).children(recursive=True)
        process.kill()  # this process alone, not its workers
    with start_generating(settings) as again:
        output, _ = again.communicate(timeout=240)
    assert again.returncode == 0 and output.endswith("40\n")
    gone, alive = psutil.wait_procs(workers, timeout=60)
    assert gone and not alive, "workers outlive the run that started them"
    (folder,) = (path for path in settings.maps_dir.iterdir() if path.is_dir())
    assert len(contents(folder)) == 80 and not list(folder.glob(".map*"))


def test_leftovers_of_killed_runs_are_removed(settings: EnvironmentSettings) -> None:
    whole = ensure_maps(replace(settings, maps_dir=settings.maps_dir / "whole"))
    folder = settings.maps_dir / whole.name
    for name in (".map1", ".map2.12345", "map2"):
        (folder / name).mkdir(parents=True)
        (folder / name / "map.npy").write_bytes(b"half of a ")
    (folder / ".maps.json.abc.partial").touch()
    assert contents(ensure_maps(settings)) == contents(whole)
    assert {path.name for path in folder.iterdir()} == {"map1", "map2", "map3", "maps.json"}


@pytest.mark.slow
def test_two_processes_make_them_once(settings: EnvironmentSettings) -> None:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        folders = list(pool.map(ensure_maps, [settings, settings]))
    assert folders[0] == folders[1] and len(contents(folders[0])) == 6
    assert {path.name for path in folders[0].iterdir()} == {"map1", "map2", "map3", "maps.json"}


def with_tiles(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], None]:
    return lambda path: np.save(path, change(np.load(path)))


SEEN_WITHOUT_HASHES = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: os.truncate(path, path.stat().st_size - 100),
    "no array": lambda path: path.write_bytes(b"half of a map"),
    "a pipe": as_pipe,
    "no such tiles": with_tiles(lambda tiles: np.full_like(tiles, 99)),
    "negative": with_tiles(lambda tiles: np.full_like(tiles, -1)),
    "another shape": with_tiles(lambda tiles: tiles[:-1]),
    "text": with_tiles(lambda tiles: tiles.astype(str)),
    "no tiles": with_tiles(lambda tiles: tiles[:0, :0]),
    "too large a shape": lambda path: path.write_bytes(path.read_bytes().replace(b"(64, 64)", b"(9999999, 9999999)")),
}
SEEN_WITH_HASHES: dict[str, Callable[[Path], object]] = {
    "all grass": with_tiles(lambda tiles: np.full_like(tiles, 2)),
    "one bit": lambda path: flip(path, -64),
    "missing": lambda path: path.unlink(),
    "a file": lambda path: (shutil.rmtree(path.parent), path.parent.touch()),
    "hashes cut": lambda path: os.truncate(path.parent / SUMS_FILE, 20),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[EnvironmentSettings, Path]:
    settings = EnvironmentSettings(map_size=32, num_maps=1, maps_dir=tmp_path_factory.mktemp("made"))
    return settings, ensure_maps(settings)


def damaged_copy(made: tuple[EnvironmentSettings, Path], elsewhere: Path, damage: Callable) -> EnvironmentSettings:
    settings, folder = made
    shutil.copytree(folder, elsewhere / folder.name)
    damage(elsewhere / folder.name / "map1" / "map.npy")
    return replace(settings, maps_dir=elsewhere)


@pytest.mark.parametrize("damage", SEEN_WITH_HASHES.values(), ids=SEEN_WITH_HASHES.keys())
def test_a_damaged_map_is_made_anew(made: tuple[EnvironmentSettings, Path], tmp_path: Path, damage: Callable) -> None:
    progress: list[int] = []
    folder = ensure_maps(damaged_copy(made, tmp_path, damage), lambda done, total: progress.append(done))
    assert progress == [0, 1]
    assert contents(folder) == contents(made[1])
    assert (folder / "map1" / SUMS_FILE).read_bytes() == (made[1] / "map1" / SUMS_FILE).read_bytes()


@pytest.mark.parametrize("damage", SEEN_WITHOUT_HASHES.values(), ids=SEEN_WITHOUT_HASHES.keys())
def test_maps_of_earlier_versions_have_no_hashes_and_are_judged_by_their_tiles(
    made: tuple[EnvironmentSettings, Path], tmp_path: Path, damage: Callable
) -> None:
    def without_hashes(path: Path) -> None:
        (path.parent / SUMS_FILE).unlink()

    kept = damaged_copy(made, tmp_path / "kept", without_hashes)
    assert contents(ensure_maps(kept, lambda done, total: pytest.fail("made again"))) == contents(made[1])
    damaged = damaged_copy(made, tmp_path / "damaged", lambda path: (without_hashes(path), damage(path)))
    assert contents(ensure_maps(damaged)) == contents(made[1])


def test_a_cut_description_is_written_anew(made: tuple[EnvironmentSettings, Path], tmp_path: Path) -> None:
    def damage(path: Path) -> None:
        path.unlink()
        (path.parents[1] / "maps.json").write_bytes(b"{")

    folder = ensure_maps(damaged_copy(made, tmp_path, damage))
    assert (folder / "maps.json").read_bytes() == (made[1] / "maps.json").read_bytes()
