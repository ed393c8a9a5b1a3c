"""The actions in each world since its episode began; with the episode's seed, they suffice to recreate the world."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from reinforcement_learning.game.environment import EpisodeStart


@dataclass(frozen=True)
class Moment:
    """One tick of one episode."""

    first_seed: int  # of the world's whole sequence of episodes
    number: int  # of the episode in that sequence, from 0
    tick: int  # of the episode, from 0


class EpisodeJournal:
    """Records the actions in each world since its current episode began."""

    def __init__(self, starts: Sequence[EpisodeStart]):
        self._starts = list(starts)
        self._actions = [list(start.actions) for start in starts]
        self._world = {start.first_seed: world for world, start in enumerate(starts)}

    def record(self, actions: np.ndarray, began: Sequence[EpisodeStart]) -> None:
        """Add one tick.

        Args:
            actions: of all slots, (slots, heads).
            began: episodes that began in this tick; their worlds did not play the actions.
        """
        for world, taken in enumerate(np.split(actions.astype(np.int16), len(self._starts))):
            self._actions[world].append(taken)
        for episode in began:
            world = self._world[episode.first_seed]
            self._starts[world], self._actions[world] = episode, []

    def moments(self) -> list[Moment]:
        """Return the tick that each world plays next."""
        return [
            Moment(start.first_seed, start.number, tick=len(actions))
            for start, actions in zip(self._starts, self._actions, strict=True)
        ]

    def starts(self) -> list[EpisodeStart]:
        """Return for each world the start that takes it to its current state."""
        return [
            replace(start, actions=np.stack(actions)) if actions else start
            for start, actions in zip(self._starts, self._actions, strict=True)
        ]
