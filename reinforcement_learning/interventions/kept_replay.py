"""The replay of one episode of an arm, recorded while the arm is played."""

import io

import numpy as np
from nmmo.render.replay_helper import ReplayHelper

from reinforcement_learning.play.policy_pool import PolicyPool
from reinforcement_learning.play.replay import ReplayWriter


class KeptReplay:
    """Records one of a pool's worlds until its episode ends; the game plays as it would without the recording.

    Agents that were drawn by lot are called `POLICY_drawn_17`, the others `POLICY_17`, so that every reader of replays
    tells them apart as two policies.
    """

    def __init__(self, pool: PolicyPool, world: int, drawn: np.ndarray):
        """Start to record.

        Args:
            pool: whose episodes have just started.
            world: which of its worlds.
            drawn: which of the pool's slots were drawn by lot, (slots,) bool.
        """
        shared, first = pool.shared[world], world * pool.agents
        self._realm = shared.world.game.realm
        for agent, is_drawn in zip(shared.agents, drawn[first : first + pool.agents], strict=True):
            self._realm.players[agent].name = f"{pool.entrants[0].name}{'_drawn' if is_drawn else ''}_{agent}"
        self._file = io.BytesIO()
        self._writer = ReplayWriter(self._file)
        self._realm.record_replay(self._writer)
        self._writer.reset()

    def finish(self) -> bytes:
        """Stop recording, and return the content of the replay's file."""
        self._writer.finish()
        self._realm.record_replay(ReplayHelper())  # which records nothing: the pool plays other groups next
        return self._file.getvalue()
