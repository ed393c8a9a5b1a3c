"""The files of an evaluation: a journal while it is running, and finally one result file per seed.

A result file `eval_<mode>_<seed>.json` is one object, policy name -> lists with one entry per life: `length` in ticks,
and for each task `curriculum/<task>`, the best progress of each agent given it, 0 to 1. Each list has a counterpart,
`episode/<name of the list>`, with the episode of each entry. `provenance` records how the results were made.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from activation_store.files import read_json, sync_folder, write_bytes
from reinforcement_learning.play.contest import WORLDS_TOGETHER, Contest, Group, groups
from reinforcement_learning.play.entrants import Entrant
from reinforcement_learning.play.policy_pool import EpisodeLives, PolicyPool
from reinforcement_learning.versions import versions
from user_error import UserError

LENGTH = "length"
TASK_PREFIX = "curriculum/"
EPISODE_PREFIX = "episode/"
PROVENANCE = "provenance"


@dataclass(frozen=True)
class Provenance:
    """How the results of one policy and seed were made.

    Attributes:
        agent: folder in agent_zoo/.
        agent_steps: for which the policy was trained.
        checkpoint_sha256: of its file; None if it is untrained.
        opponents: policies that shared its worlds.
        mode: pvp or pve.
        seed: of the episodes.
        episodes: number played.
        worlds_together: episodes played in parallel.
        environment: settings of the world.
        task: settings of the tasks.
    """

    agent: str
    agent_steps: int
    checkpoint_sha256: str | None
    opponents: list[str]
    mode: str
    seed: int
    episodes: int
    worlds_together: int
    environment: dict[str, Any]
    task: dict[str, Any]


@dataclass(frozen=True)
class Summary:
    """Results of one policy with one seed.

    Attributes:
        episodes: played.
        lives: in all of them.
        mean_ticks: lived.
        median_ticks: lived.
        task_progress: mean over lives of the best progress in the life's task, 0 to 1.
    """

    episodes: int
    lives: int
    mean_ticks: float
    median_ticks: float
    task_progress: float


def play_to_the_end(pool: PolicyPool, group: Group) -> Iterator[list[EpisodeLives]]:
    """Play a group of episodes to their end, and yield all their lives at once."""
    yield pool.play(group.seed, group.numbers)


def provenance_of(contest: Contest, entrant: Entrant, mode: str, seed: int, episodes: int) -> Provenance:
    """Describe how an entrant's results are made, without folders, which do not affect them."""
    environment, task = asdict(contest.env), asdict(contest.task)
    del environment["maps_dir"], task["embeddings_dir"]
    opponents = [other.name for other in contest.entrants if other is not entrant]
    return Provenance(
        entrant.info.agent, entrant.info.steps, entrant.sha256, opponents, mode, seed, episodes, WORLDS_TOGETHER,
        environment, task,
    )  # fmt: skip


class SeedResults:
    """Results of one contest and seed: those on disk, and those still missing.

    Episodes are added to a journal as they are played, so if the process is killed, only those in progress are lost.
    When all are complete, the result file is written and the journal is removed.
    """

    def __init__(self, path: Path, contest: Contest, mode: str, seed: int, episodes: int):
        """Find out what is on disk.

        Args:
            path: of the result file.
            contest: policies and world.
            mode: pvp or pve.
            seed: of the episodes.
            episodes: to play.

        Raises:
            UserError: the result file or the journal is damaged, or was made with other settings.
        """
        self.path = path
        self.seed = seed
        self.made_by = {
            entrant.name: asdict(provenance_of(contest, entrant, mode, seed, episodes)) for entrant in contest.entrants
        }
        name = path.stem if mode == "pvp" else f"{path.stem}.{contest.entrants[0].name}"
        self.journal = path.with_name(f".{name}.episodes.jsonl")
        self.groups = groups(seed, episodes)
        self.were_there = self._in_result_file()
        self._played = {} if self.were_there else self._read_journal()

    @property
    def missing(self) -> list[Group]:
        """Groups of episodes that are still to be played."""
        if self.were_there:
            return []
        return [group for group in self.groups if not set(group.numbers) <= self._played.keys()]

    def add(self, episodes: Sequence[EpisodeLives]) -> None:
        """Keep a group of episodes; with the last one, write the result file."""
        lines = [self._line(episode) for episode in episodes]
        self._append([orjson.dumps(lines)] if self._played else [orjson.dumps(self.made_by), orjson.dumps(lines)])
        self._played |= {line["number"]: line for line in lines}
        if not self.missing:
            self._write()

    def summaries(self) -> dict[str, Summary]:
        """Return the results of each policy of the contest, from the result file."""
        content = _read_results(self.path)
        return {name: _summary(content[name]) for name in self.made_by}

    def _in_result_file(self) -> bool:
        """Return whether the result file holds all entrants, with the same settings."""
        content = _read_results(self.path) if self.path.exists() else {}
        for name, made_by in self.made_by.items():
            if name in content and _without_versions(content[name].get(PROVENANCE)) != made_by:
                raise UserError(
                    f"{self.path} holds results of {name} that were made in another way (other weights, opponents, "
                    "episodes or worlds): move it away, or evaluate a copy of the policies in another folder"
                )
        return all(name in content for name in self.made_by)

    def _read_journal(self) -> dict[int, dict]:
        if not self.journal.exists():
            return {}
        content = self.journal.read_bytes()
        lines = content.split(b"\n")[:-1]  # the last line may be cut short if the process was killed
        try:
            made_by, *played = [orjson.loads(line) for line in lines] or [None]
        except orjson.JSONDecodeError as error:
            raise UserError(f"{self.journal} is damaged ({error}): remove it to restart this seed") from None
        if made_by is None:
            return {}
        if made_by != self.made_by:
            raise UserError(
                f"{self.journal} holds episodes that were played in another way (other weights, opponents, episodes "
                "or worlds): remove it to restart this seed"
            )
        os.truncate(self.journal, sum(len(line) + 1 for line in lines))
        return {line["number"]: line for group in played for line in group}

    def _line(self, episode: EpisodeLives) -> dict[str, Any]:
        lives = {
            name: {
                "ticks": [life.ticks for life in lived],
                "task": [life.task for life in lived],
                "progress": [life.task_progress for life in lived],
            }
            for name, lived in zip(self.made_by, episode.lives, strict=True)
        }
        return {"number": episode.number, "lives": lives}

    def _append(self, lines: Sequence[bytes]) -> None:
        new = not self.journal.exists()
        with self.journal.open("wb" if not self._played else "ab") as file:
            file.write(b"".join(line + b"\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
        if new:
            sync_folder(self.journal.parent)

    def _write(self) -> None:
        content = _read_results(self.path) if self.path.exists() else {}
        for name, made_by in self.made_by.items():
            content[name] = self._lists_of(name) | {PROVENANCE: made_by | {"versions": versions()}}
        write_bytes(self.path, orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE))
        self.journal.unlink()

    def _lists_of(self, name: str) -> dict[str, list]:
        lists: dict[str, list] = {}
        for number in sorted(self._played):
            lives = self._played[number]["lives"][name]
            for ticks, task, progress in zip(lives["ticks"], lives["task"], lives["progress"], strict=True):
                for key, value in ((LENGTH, ticks), (TASK_PREFIX + task, progress)):
                    lists.setdefault(key, []).append(value)
                    lists.setdefault(EPISODE_PREFIX + key, []).append(number)
        return dict(sorted(lists.items()))


def _read_results(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict) or not all(isinstance(each, dict) for each in content.values()):
        raise UserError(f"{path} is not a file of evaluation results: move it away")
    return content


def _summary(lists: dict[str, Any]) -> Summary:
    ticks = lists[LENGTH]
    progress = [value for name, values in lists.items() if name.startswith(TASK_PREFIX) for value in values]
    episodes = len(set(lists[EPISODE_PREFIX + LENGTH]))
    return Summary(episodes, len(ticks), float(np.mean(ticks)), float(np.median(ticks)), float(np.mean(progress)))


def _without_versions(provenance: object) -> dict | None:
    if not isinstance(provenance, dict):
        return None
    return {name: value for name, value in provenance.items() if name != "versions"}
