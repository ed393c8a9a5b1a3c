"""Record one episode as a replay for Neural MMO's viewer and for ours."""

import lzma
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import orjson
import torch
from nmmo.render.replay_helper import FileReplayHelper

from agent_zoo.data_parallel import pick_device
from common.files import atomic_file
from common.progress_view import counted_progress
from common.user_error import UserError, one_line
from reinforcement_learning.game.maps import ensure_maps
from reinforcement_learning.game.plain_world import without_training_aids
from reinforcement_learning.game.tasks import check_tasks
from reinforcement_learning.play.contest import Contest, maps_of
from reinforcement_learning.play.entrants import admit, load_entrants
from reinforcement_learning.play.policy_pool import EpisodeLives
from reinforcement_learning.settings import Settings

SUFFIX = ".replay.lzma"
_PRESET = 1  # a tenth of the time of the default, 6, for files that are a quarter larger


class ReplayWriter(FileReplayHelper):
    """Writes the same as Neural MMO's own helper, but tick by tick: that one keeps gigabytes until the end.

    The helper also pickles metadata, which no viewer needs; it is left out here.
    """

    def __init__(self, file: BinaryIO):
        super().__init__()
        self._file = file
        self._compressor = lzma.LZMACompressor(lzma.FORMAT_ALONE, preset=_PRESET)

    def reset(self) -> None:
        """Write the map and the current world; call this once, when an episode has started."""
        first = self._packet()  # sets the map
        self._write(b'{"map":' + _json(self.map) + b',"packets":[' + _json(first))

    def update(self) -> None:
        """Write one tick; the game calls this."""
        self._write(b"," + _json(self._packet()))

    def finish(self) -> None:
        """Write the end of the file."""
        self._write(b"]}")
        self._file.write(self._compressor.flush())

    def _write(self, content: bytes) -> None:
        self._file.write(self._compressor.compress(content))


def replay_path(folder: Path, seed: int, policy: str | None, task: str | None) -> Path:
    """Return the path of a replay, named after its content.

    Args:
        policy: that plays all agents; None if all policies of the folder play.
        task: given to every agent, as the user named it; None if tasks are drawn.

    Raises:
        UserError: it already exists.
    """
    parts = [f"seed_{seed}", *([policy] if policy else []), *([f"task_{task}"] if task else [])]
    path = folder / (re.sub(r"[^A-Za-z0-9._-]+", "-", "_".join(parts)) + SUFFIX)
    if path.exists():
        raise UserError(f"{path} already exists: move it away, or choose another --train.seed")
    return path


def record_replay(contest: Contest, seed: int, path: Path, on_tick: Callable[[int, int], None]) -> EpisodeLives:
    """Play the first episode of a seed and write its replay atomically.

    It is the same episode as in an extraction of one episode with the same seed, policies and world. Agents are named
    after their policy: `NAME_17` is agent 17, played by NAME.

    Args:
        on_tick: called after each tick with (ticks played, maximum number of ticks).

    Raises:
        UserError: an entrant does not fit the world, or the file cannot be written.
    """
    torch.set_num_threads(1)  # as in extraction: a larger batch would round differently
    pool = contest.pool(worlds=1)
    realm = pool.shared[0].world.game.realm
    try:
        with atomic_file(path) as file:
            pool.start(seed, [0])
            for agent, entrant in zip(pool.shared[0].agents, pool.entrant_of, strict=True):
                realm.players[agent].name = f"{pool.entrants[entrant].name}_{agent}"
            writer = ReplayWriter(file)
            realm.record_replay(writer)
            writer.reset()
            while not pool.is_over:
                pool.step()
                on_tick(realm.tick, contest.env.horizon)
            writer.finish()
        return pool.finished()[0]
    finally:
        pool.close()


def _json(content: object) -> bytes:
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)


def replay_contest(folder: Path, name: str | None, settings: Settings) -> Contest:
    """Load the policies of a folder that fit the world, or the one with that name; name the others on standard error.

    Raises:
        UserError: there is no policy, or none fits, or the requested one does not fit.
    """
    device, env = pick_device(settings.train.device), without_training_aids(settings.env)
    entrants = load_entrants(folder, () if name is None else (name,))
    check_tasks(settings.task, env)
    with counted_progress("generating maps", "maps") as progress:
        maps = ensure_maps(env, progress, maps_of(env, [settings.train.seed], 1))
    admitted, tasks, left_out = admit(entrants, env, settings.task, maps, must_fit=bool(name))
    for reason in left_out:
        print(f"left out: {one_line(reason)}", file=sys.stderr)
    return Contest(admitted, env, tasks, maps, device)
