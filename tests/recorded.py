"""A real episode recorded both as a replay and as a dump, with the engine's own state."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from nmmo.core.tile import TileState
from nmmo.render.replay_helper import FileReplayHelper, ReplayHelper

from activation_store.writer import DumpWriter
from reinforcement_learning.play.contest import Contest, Group
from reinforcement_learning.play.extraction import RecordingPlan, metadata_of
from reinforcement_learning.play.policy_pool import EntrantActions, PolicyPool
from tests.watched import record_here, watched

POLICIES = ("untrained_a", "untrained_b")


@dataclass
class Truth:
    """The engine's own state at one tick, by entity id."""

    players: dict[int, dict[str, float]]
    npcs: dict[int, dict[str, float]]
    materials: np.ndarray


@dataclass
class Recording:
    """Files of a recorded episode, and the true state during it."""

    replay: Path
    dump: Path
    episode: int
    truth: list[Truth] = field(default_factory=list)
    events: list[dict[str, int]] = field(default_factory=list)


class _Recorder:
    """Records the episode that a pool of one world plays."""

    def __init__(self) -> None:
        self.helper = FileReplayHelper()
        self.truth: list[Truth] = []
        self.game: Any = None

    def before(self, pool: PolicyPool, _: Sequence[EntrantActions]) -> None:
        self.game = pool.shared[0].world.game
        if self.game.realm.tick > 0:
            return
        for number, agent in self.game.realm.players.items():
            agent.name = f"{POLICIES[number % 2]}_{number}"
        self.game.realm.record_replay(self.helper)
        self.helper.reset()
        self.witness()

    def witness(self, _: PolicyPool | None = None) -> None:
        realm = self.game.realm
        side = realm.config.MAP_SIZE
        tiles = TileState.Query.get_map(realm.datastore, side)
        self.truth.append(
            Truth(
                {number: _state(agent) | _belongings(agent) for number, agent in realm.players.items()},
                {number: _state(npc) for number, npc in realm.npcs.items()},
                tiles[:, :, TileState.State.attr_name_to_col["material_id"]].copy(),
            )
        )


def _state(entity) -> dict[str, float]:
    return {
        "row": int(entity.pos[0]), "col": int(entity.pos[1]), "health": int(entity.resources.health.val),
        "level": int(entity.attack_level),
    }  # fmt: skip


def _belongings(agent) -> dict[str, object]:
    skills = {type(skill).__name__.lower(): skill for skill in agent.skills.skills}
    levels = {name: (int(s.level.val), int(s.exp.val)) for name, s in skills.items() if name not in ("food", "water")}
    return {
        "food": int(agent.resources.food.val), "water": int(agent.resources.water.val), "gold": int(agent.gold.val),
        "kills": int(agent.history.player_kills),
        "skills": levels,
        "inventory": sorted((type(i).__name__, int(i.level.val), int(i.quantity.val)) for i in agent.inventory.items),
        "worn": sorted(type(i).__name__ for i in agent.inventory.items if i.equipped.val),
    }  # fmt: skip


def record(contest: Contest, plan: RecordingPlan, folder: Path, *, episode: int) -> Recording:
    """Play a plan's episodes one by one, dump them all, and also record one as a replay."""
    recorder = _Recorder()
    (entrant,) = contest.entrants
    with DumpWriter(folder / "dump", metadata_of(contest, entrant, plan)) as writer:
        for number in range(plan.episodes):
            with watched(recorder.before, recorder.witness) if number == episode else nullcontext():
                record_here(contest.pool(1), Group(plan.seed, (number,)), plan, [writer])
    recorder.helper.save(str(folder / "episode"), compress=True)
    recorder.game.realm.record_replay(ReplayHelper())
    log = recorder.game.realm.event_log
    events = [{name: int(row[column]) for name, column in log.attr_to_col.items()} for row in log.get_data()]
    return Recording(folder / "episode.replay.lzma", folder / "dump", episode, recorder.truth, events)
