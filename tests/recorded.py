"""A real episode, recorded as a replay and as a dump at once, and what a witness saw of the engine meanwhile."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from nmmo.core.tile import TileState
from nmmo.render.replay_helper import FileReplayHelper, ReplayHelper

from reinforcement_learning.extraction import Plan, Subject, extract
from reinforcement_learning.player import Decision, Player

POLICIES = ("untrained_a", "untrained_b")


@dataclass
class Truth:
    """The engine's own state at one tick, by entity id."""

    players: dict[int, dict[str, float]]
    npcs: dict[int, dict[str, float]]
    materials: np.ndarray


@dataclass
class Recording:
    """Where a recorded episode lies, and what is true of it."""

    replay: Path
    dump: Path
    episode: int
    truth: list[Truth] = field(default_factory=list)
    events: list[dict[str, int]] = field(default_factory=list)


class _Recorder:
    """Records the last of a plan's episodes."""

    def __init__(self, episode: int) -> None:
        self.episode = episode
        self.seen = -1
        self.helper = FileReplayHelper()
        self.truth: list[Truth] = []
        self.game: object = None

    def before(self, player: Player) -> None:
        self.game = player.worlds.envs[0].episodes.game
        if self.game.realm.tick > 0:
            return
        self.seen += 1
        if self.seen != self.episode:
            return
        for number, agent in self.game.realm.players.items():
            agent.name = f"{POLICIES[number % 2]}_{number}"
        self.game.realm.record_replay(self.helper)
        self.helper.reset()
        self.witness()

    def after(self, decision: Decision) -> None:
        if self.seen == self.episode and decision.acting.any():
            self.witness()

    def witness(self) -> None:
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


def record(subject: Subject, plan: Plan, maps: Path, folder: Path, *, compress: bool = True) -> Recording:
    """Play a plan's episodes, dump them all, and record the last one as a replay too."""
    recorder, act = _Recorder(plan.episodes - 1), Player.act

    def recorded_act(player: Player, decision: Decision, actions: np.ndarray) -> None:
        recorder.before(player)
        act(player, decision, actions)
        recorder.after(decision)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Player, "act", recorded_act)
        extract(subject, plan, maps, folder / "dump", on_tick=lambda episodes, records: None)
    recorder.helper.save(str(folder / "episode"), compress)
    recorder.game.realm.record_replay(ReplayHelper())
    log = recorder.game.realm.event_log
    events = [{name: int(row[column]) for name, column in log.attr_to_col.items()} for row in log.get_data()]
    suffix = "lzma" if compress else "json"
    return Recording(folder / f"episode.replay.{suffix}", folder / "dump", recorder.episode, recorder.truth, events)
