"""The files of an evaluation: a journal while it is running, and finally one result file per seed.

A result file `eval_<mode>_<seed>.json` is one object, policy name -> lists with an entry for each life: `length` in
ticks, and for each task `curriculum/<task>`, the furthest that agents given it came, 0 to 1. Each list has a twin,
`episode/<name of the list>`, that says which episode an entry is from. `provenance` says how it was made, and
`checksum` proves a policy's results.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from pydantic import TypeAdapter, ValidationError

from agent_zoo.checkpoint import versions
from common.checked_json import CHECKSUM, entry_checksum, entry_fits, with_checksum, without_checksum
from common.files import append_bytes, read_bytes, read_json, sync, write_bytes
from common.user_error import UserError
from reinforcement_learning.play.contest import Contest, Group
from reinforcement_learning.play.entrants import Entrant, encoding_of
from reinforcement_learning.play.policy_pool import EpisodeLives, PolicyPool
from reinforcement_learning.play.workers import WORLDS_TOGETHER
from reinforcement_learning.settings import EnvironmentSettings, task_record

_MADE_BY = "made_by"
_EPISODES = "episodes"
_PARTS = ("ticks", "task", "task_progress")  # of a life, as in `PolicyLives`


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

    The first line says how the episodes are played, each other line holds a group of episodes; all carry a checksum.
    What follows a damaged line is dropped, and so played again.

    Attributes:
        played: all episodes that are kept, by number.
        damage: where the file was damaged, in one line; None where it was not.
    """

    def __init__(self, path: Path, made_by: dict[str, dict[str, Any]]):
        """Read what is there (UserError: the file cannot be read, or its episodes were played in another way)."""
        self.path = path
        self.played: dict[int, PlayedEpisode] = {}
        self.damage: str | None = None
        self._made_by = made_by
        if path.exists():
            self._read()

    def add(self, episodes: Sequence[EpisodeLives]) -> None:
        """Append a group of episodes."""
        group = [
            PlayedEpisode(
                episode.number,
                {
                    name: PolicyLives(*([getattr(life, part) for life in lived] for part in _PARTS))
                    for name, lived in zip(self._made_by, episode.lives, strict=True)
                },
            )
            for episode in episodes
        ]
        lines = [with_checksum({_EPISODES: [asdict(episode) for episode in group]})]
        if not self.played:
            lines.insert(0, with_checksum({_MADE_BY: self._made_by}))
        new = not self.path.exists()
        content = b"".join(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in lines)
        append_bytes(self.path, content, begin=not self.played, sync=True)
        if new:
            sync(self.path.parent)
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
                if content[_MADE_BY] != self._made_by:
                    raise UserError(
                        f"{self.path} holds episodes that were played in another way (other weights, opponents, "
                        "episodes or worlds): remove it to restart this seed"
                    )
            elif number > 0 and (group := self._group(content)):
                self.played |= {episode.number: episode for episode in group}
            else:
                self.damage = f"{self.path} is damaged from line {number + 1} on: what it held there is played again"
                break
            whole += len(line) + 1
        os.truncate(self.path, whole)

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


LENGTH = "length"
TASK_PREFIX = "curriculum/"
EPISODE_PREFIX = "episode/"
PROVENANCE = "provenance"
_TICKS_BETWEEN = 16
_USUAL = EnvironmentSettings()
_LEFT_OUT = {
    name: getattr(_USUAL, name) for name in (
        "view_radius", "narrow_from", "food_regrowth", "flip_terrain", "ammunition_damage", "death_fog_tick", "water",
    )
}  # fmt: skip


def play_to_the_end(pool: PolicyPool, group: Group) -> Iterator[int | list[EpisodeLives]]:
    """Play a group of episodes to their end; yield ticks played at intervals, and last all lives at once."""
    played: list[EpisodeLives] = []
    for place, numbers in enumerate(group.rounds):
        pool.start(group.seed, numbers, first=place == 0)
        while not pool.is_over:
            pool.step()
            if pool.ticks % _TICKS_BETWEEN == 0:
                yield _TICKS_BETWEEN
        played += pool.finished()
    yield played


def provenance_of(contest: Contest, entrant: Entrant, mode: str, seed: int, episodes: int) -> dict[str, Any]:
    """Describe how an entrant's results are made, without folders, which do not affect them."""
    environment = asdict(contest.env)
    task = task_record(replace(contest.task, **encoding_of(entrant)))
    del environment["maps_dir"]
    task.pop("embeddings", None)  # where the file is does not matter, what it holds does
    for name, usual in _LEFT_OUT.items():
        if environment[name] == usual:
            del environment[name]  # as results from before there was a choice, which stay comparable
    opponents = [other.name for other in contest.entrants if other is not entrant]
    return {
        "agent": entrant.info.agent,
        "agent_steps": entrant.info.known_steps,  # None if unknown
        "checkpoint_sha256": entrant.sha256,  # None if it is untrained
        "opponents": opponents,
        "mode": mode,
        "seed": seed,
        "episodes": episodes,
        "worlds_together": WORLDS_TOGETHER,
        "environment": environment,
        "task": task,
        **contest.rules,
    }


class SeedResults:
    """Results of one contest and seed: those on disk, and those still missing.

    Episodes are added to a journal as they are played; the result file is written when all are there, and the journal
    removed.
    """

    def __init__(self, path: Path, contest: Contest, mode: str, seed: int, episodes: int):
        """Find out what is on disk (UserError: it is damaged, or it or the journal was made in another way)."""
        self.path = path
        self.seed = seed
        self.made_by = {
            entrant.name: provenance_of(contest, entrant, mode, seed, episodes) for entrant in contest.entrants
        }
        name = path.stem if mode == "pvp" else f"{path.stem}.{contest.entrants[0].name}"
        self.groups = contest.groups(seed, episodes)
        self.were_there = self._in_result_file(alone=mode == "pvp")
        journal = path.with_name(f".{name}.episodes.jsonl")
        self._journal = None if self.were_there else EvaluationJournal(journal, self.made_by)
        if self._journal and not self.missing:  # killed between the last episode and the result file
            self._write(self._journal)

    @property
    def missing(self) -> list[Group]:
        """Groups of episodes that are still to be played."""
        if self._journal is None:
            return []
        return [group for group in self.groups if not set(group.numbers) <= self._journal.played.keys()]

    @property
    def damage(self) -> str | None:
        """What of the journal was damaged, and so is missing, in one line; None for nothing."""
        return self._journal.damage if self._journal else None

    def add(self, episodes: Sequence[EpisodeLives]) -> None:
        """Keep a group of episodes; with the last one, write the result file."""
        assert self._journal, "all episodes were there"
        self._journal.add(episodes)
        if not self.missing:
            self._write(self._journal)

    def summaries(self) -> dict[str, tuple[int, int, float, float, float]]:
        """Return how each policy of the contest did, from the result file (UserError: the file is damaged).

        Returns:
            By name: episodes, lives, their mean and median length in ticks, and the mean over lives of the best
            progress in the life's task, 0 to 1.
        """
        content, summaries = _read_results(self.path), {}
        try:
            for name in self.made_by:
                lists = content[name]
                episodes, ticks = len(set(lists[EPISODE_PREFIX + LENGTH])), lists[LENGTH]
                progress = [value for key, values in lists.items() if key.startswith(TASK_PREFIX) for value in values]
                means = float(np.mean(ticks)), float(np.median(ticks)), float(np.mean(progress))
                summaries[name] = (episodes, len(ticks), *means)
        except (KeyError, TypeError, ValueError):
            raise UserError(f"{self.path} is damaged: move it away, and evaluate again") from None
        return summaries

    def _in_result_file(self, alone: bool) -> bool:
        """Return whether the result file holds all entrants, with the same settings, and nobody else if `alone`."""
        content = _read_results(self.path) if self.path.exists() else {}
        for name, made_by in self.made_by.items():
            stated = content.get(name, {}).get(PROVENANCE)
            stated = (
                {key: value for key, value in stated.items() if key != "versions"} if isinstance(stated, dict) else None
            )
            if name in content and stated != made_by:
                raise UserError(
                    f"{self.path} holds results of {name} that were made in another way (other weights, opponents, "
                    "episodes, worlds or protocol): move it away, or evaluate a copy of the policies in another folder"
                )
        others = content.keys() - self.made_by.keys()
        if alone and others:
            raise UserError(
                f"{self.path} holds another contest, with {', '.join(sorted(others))}, and a pvp file holds only one: "
                "move it away, or evaluate a copy of the policies in another folder"
            )
        return all(name in content for name in self.made_by)

    def _write(self, journal: EvaluationJournal) -> None:
        content = _read_results(self.path) if self.path.exists() else {}
        for name, made_by in self.made_by.items():
            entry = _lists_of(name, journal) | {PROVENANCE: made_by | {"versions": versions()}}
            content[name] = entry | {CHECKSUM: entry_checksum(name, entry)}
        write_bytes(self.path, orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE))
        journal.remove()


def _lists_of(name: str, journal: EvaluationJournal) -> dict[str, Any]:
    lists: dict[str, Any] = {}
    for number in sorted(journal.played):
        lives = journal.played[number].lives[name]
        for ticks, task, progress in zip(lives.ticks, lives.task, lives.progress, strict=True):
            for key, value in ((LENGTH, ticks), (TASK_PREFIX + task, progress)):
                lists.setdefault(key, []).append(value)
                lists.setdefault(EPISODE_PREFIX + key, []).append(number)
    return dict(sorted(lists.items()))


def _read_results(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict) or not all(isinstance(value, dict) for value in content.values()):
        raise UserError(f"{path} is not a file of evaluation results: move it away")
    for name, entry in content.items():
        if not entry_fits(name, entry):
            raise UserError(
                f"{path}: the results of {name!r} do not match their checksum, so they are damaged or were edited: "
                "move the file away, and evaluate again"
            )
    return content
