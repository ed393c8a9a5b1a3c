"""The journal of an evaluation under way: what was played so far, in lines that each prove themselves.

The first line says how the episodes are played, each other line holds a group of episodes; all carry a checksum. What
follows a damaged line is dropped, and so played again.
"""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError

from common.checked_json import with_checksum, without_checksum
from common.files import append_bytes, read_bytes, sync_folder
from common.user_error import UserError
from reinforcement_learning.play.policy_pool import EpisodeLives

_MADE_BY = "made_by"
_EPISODES = "episodes"


@dataclass(frozen=True)
class PolicyLives:
    """The lives of one policy in one episode, in lists of equal length."""

    ticks: list[int]  # that each lasted
    task: list[str]  # name of the task that each was given
    progress: list[float]  # the furthest that each came with it, 0 to 1

    def __post_init__(self) -> None:
        if not len(self.ticks) == len(self.task) == len(self.progress):
            raise ValueError("the lists differ in length")


@dataclass(frozen=True)
class PlayedEpisode:
    """One episode, by its number, and its lives by policy."""

    number: int
    lives: dict[str, PolicyLives]


class EvaluationJournal:
    """Keeps the episodes of one seed as they are played, so that a kill loses only those under way.

    Attributes:
        played: all episodes that are kept, by number.
        damage: where the file was damaged, in one line; None where it was not.
    """

    def __init__(self, path: Path, made_by: dict[str, dict[str, Any]]):
        """Read what is there.

        Raises:
            UserError: the file cannot be read, or its episodes were played in another way.
        """
        self.path = path
        self.played: dict[int, PlayedEpisode] = {}
        self.damage: str | None = None
        self._made_by = made_by
        if path.exists():
            self._read()

    def add(self, episodes: Sequence[EpisodeLives]) -> None:
        """Append a group of episodes."""
        group = [_played(episode, list(self._made_by)) for episode in episodes]
        lines = [with_checksum({_EPISODES: [asdict(episode) for episode in group]})]
        if not self.played:
            lines.insert(0, with_checksum({_MADE_BY: self._made_by}))
        new = not self.path.exists()
        content = b"".join(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in lines)
        append_bytes(self.path, content, begin=not self.played, sync=True)
        if new:
            sync_folder(self.path.parent)
        self.played |= {episode.number: episode for episode in group}

    def remove(self) -> None:
        """Remove the file."""
        self.path.unlink()

    def _read(self) -> None:
        """Take the lines up to the first that is damaged, and cut the file there."""
        lines = read_bytes(self.path).split(b"\n")[:-1]  # a kill may have cut the last line short
        whole = 0
        for number, line in enumerate(lines):
            content = _proved(line, self.path)
            if number == 0 and _MADE_BY in content:
                self._check(content[_MADE_BY])
            elif number > 0 and (group := self._group(content)):
                self.played |= {episode.number: episode for episode in group}
            else:
                self.damage = f"{self.path} is damaged from line {number + 1} on: what it held there is played again"
                break
            whole += len(line) + 1
        os.truncate(self.path, whole)

    def _check(self, made_by: object) -> None:
        if made_by != self._made_by:
            raise UserError(
                f"{self.path} holds episodes that were played in another way (other weights, opponents, episodes or "
                "worlds): remove it to restart this seed"
            )

    def _group(self, content: dict[str, Any]) -> list[PlayedEpisode]:
        """Return the episodes of a line, none where it does not hold the lives of these policies."""
        try:
            group = TypeAdapter(list[PlayedEpisode]).validate_python(content.get(_EPISODES))
        except ValidationError:
            return []
        return group if all(episode.lives.keys() == self._made_by.keys() for episode in group) else []


def _proved(line: bytes, path: Path) -> dict[str, Any]:
    """Return what a line holds, nothing where it is not what was written."""
    try:
        content = orjson.loads(line)
        return without_checksum(content, str(path)) if isinstance(content, dict) else {}
    except (orjson.JSONDecodeError, UserError):
        return {}


def _played(episode: EpisodeLives, names: Sequence[str]) -> PlayedEpisode:
    lives = {
        name: PolicyLives(
            [life.ticks for life in lived], [life.task for life in lived], [life.task_progress for life in lived]
        )
        for name, lived in zip(names, episode.lives, strict=True)
    }
    return PlayedEpisode(episode.number, lives)
