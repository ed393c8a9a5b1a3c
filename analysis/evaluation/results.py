"""Reads what evaluate.py and the original tools write, life by life, and says which results may be put together."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args

import numpy as np
from pydantic import ConfigDict

from analysis.evaluation.held_out_tasks import TASK_NAMES, task_index
from common.checked_json import entry_fits, in_shape
from common.files import read_json, visible
from common.user_error import UserError


@dataclass(frozen=True)
class Provenance:
    """What evaluate.py notes about how a policy was played; the hash is None for an untrained policy."""

    __pydantic_config__ = ConfigDict(strict=True, extra="ignore")

    agent: str
    checkpoint_sha256: str | None
    mode: str
    seed: int
    episodes: int
    environment: dict[str, Any]
    task: dict[str, Any]
    agent_steps: int | None = None
    opponents: tuple[str, ...] | None = None
    protocol: str = "toolkit"

    @property
    def played(self) -> tuple[str, str | None]:
        """The agent and its checkpoint."""
        return self.agent, self.checkpoint_sha256


Mode = Literal["pvp", "pve"]
MODES: tuple[Mode, ...] = get_args(Mode)
LENGTH = "length"
EPISODE_PREFIX = "episode/"
PROVENANCE = "provenance"

_PATTERN = "eval_*.json"
_FILE_NAME = re.compile(rf"eval_({'|'.join(MODES)})_(\d{{1,18}})\.json", re.ASCII)
_MOST_EPISODES = 1 << 31


@dataclass(frozen=True)
class PolicyRun:
    """What one policy did under one seed. E episodes, L lives, T held-out tasks."""

    file: Path
    policy: str
    mode: Mode
    seed: int
    episodes: tuple[int, ...] | None
    """Numbers of the episodes played, ascending; None where the file does not say which life was in which episode, and
    then E is 1: all lives together."""
    ticks: np.ndarray  # ticks that each life lasted, (L,) float64
    ticks_episode: np.ndarray  # the episode of each life, (L,) int64 in [0, E)
    progress_sum: np.ndarray  # maximum progress, summed over the lives of an episode that had a task, (E, T) float64
    progress_lives: np.ndarray  # how many lives that were, (E, T) float64
    provenance: Provenance | None  # how the file was made; None where it does not say

    @property
    def task_progress(self) -> np.ndarray:
        """Mean progress at each task over its lives, (T,); NaN where no life had the task."""
        return mean_of(self.progress_sum.sum(axis=0), self.progress_lives.sum(axis=0))

    @property
    def has_task(self) -> np.ndarray:
        """Whether any life had each task, (T,) bool."""
        return np.asarray(self.progress_lives.sum(axis=0) > 0)


def mean_of(total: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Return total / count, NaN where there is nothing to count."""
    return np.divide(total, count, out=np.full(np.shape(total), np.nan), where=count > 0)


def find_result_files(paths: Sequence[Path]) -> list[Path]:
    """Return the result files among and directly inside `paths`, each once.

    Raises:
        UserError: a path does not exist, a folder holds no result file, or a file's name tells no mode and seed.
    """
    files: dict[Path, Path] = {}
    for path in paths:
        if not path.exists():
            raise UserError(f"{path} does not exist")
        try:
            inside = visible(path, _PATTERN) if path.is_dir() else [path]
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}") from None
        if not inside:
            there = [folder for folder in visible(path, "*/") if visible(folder, _PATTERN)]
            hint = f", or take those in {there[0]}" if there else ""
            raise UserError(f"{path} holds no result files eval_<mode>_<seed>.json: create them with evaluate.py{hint}")
        for file in inside:
            files.setdefault(file.resolve(), file)
    for file in files.values():
        _mode_and_seed(file)
    return list(files.values())


def read_results(file: Path) -> list[PolicyRun]:
    """Read one result file; policies that it names without any results are left out, as the original does.

    Raises:
        UserError: the file is missing, damaged or no result file, no life of a policy was played to its end, or
            policies of a pvp file did not share their worlds.
    """
    mode, seed = _mode_and_seed(file)
    content = read_json(file)
    if not isinstance(content, dict):
        raise UserError(f"{file} holds no JSON object with policies: it is not a result file of evaluate.py")
    runs = [_PolicyReader(file, name, results).read(mode, seed) for name, results in content.items() if results != {}]
    if not runs:
        raise UserError(f"{file} holds no policy with results: run evaluate.py again")
    if mode == "pvp":
        _check_one_contest(runs)
    return runs


def _check_one_contest(runs: Sequence[PolicyRun]) -> None:
    """Refuse policies that met different opponents, as far as the file says: neither scores nor outcomes compare."""
    first: tuple[str, set[str]] | None = None
    for run in runs:
        if run.provenance is None or run.provenance.opponents is None:
            continue
        together = {run.policy, *run.provenance.opponents}
        first = first or (run.policy, together)
        if together != first[1]:
            raise UserError(
                f"{run.file}: {first[0]!r} and {run.policy!r} were not played in the same worlds: evaluate each "
                "contest again in a folder of its own"
            )


def _mode_and_seed(file: Path) -> tuple[Mode, int]:
    match = _FILE_NAME.fullmatch(file.name)
    if match is None:
        raise UserError(f"{file} has a name without mode and seed: result files are called eval_<pvp|pve>_<seed>.json")
    mode: Mode = "pvp" if match[1] == "pvp" else "pve"
    return mode, int(match[2])


@dataclass(frozen=True)
class _PolicyReader:
    """One policy's object in one file, with a voice for complaints."""

    file: Path
    policy: str
    results: Any

    def read(self, mode: Mode, seed: int) -> PolicyRun:
        if not self.policy.isprintable() or not self.policy.strip():
            self.refuse("a policy's name must be printable text on one line")
        if not isinstance(self.results, dict):
            self.refuse("its results are not a JSON object; the file is damaged or from another tool")
        if not entry_fits(self.policy, self.results):
            self.refuse("its results do not match their checksum: the file is damaged or was edited; evaluate again")
        tasks = self.task_keys()
        ticks = self.numbers(LENGTH, math.inf)
        progress = {task: self.numbers(key, 1.0) for task, key in tasks.items()}
        if not len(ticks):
            self.refuse(f"{LENGTH!r} is empty: no life was played to its end; play more episodes with evaluate.py -n")
        numbers = self.episode_numbers([LENGTH, *tasks.values()])
        episodes = np.zeros(1, np.int64) if numbers is None else np.unique(np.concatenate(list(numbers.values())))

        def places(key: str, lives: int) -> np.ndarray:
            """The episode of each life, as a row of the arrays."""
            return np.zeros(lives, np.int64) if numbers is None else np.searchsorted(episodes, numbers[key])

        total, lives = np.zeros((2, len(episodes), len(TASK_NAMES)))
        for task, values in progress.items():
            place = places(tasks[task], len(values))
            total[:, task] = np.bincount(place, values, len(episodes))
            lives[:, task] = np.bincount(place, minlength=len(episodes))
        return PolicyRun(
            self.file, self.policy, mode, seed, None if numbers is None else tuple(episodes.tolist()),
            ticks, places(LENGTH, len(ticks)), total, lives, self.provenance(mode, seed),
        )  # fmt: skip

    def task_keys(self) -> dict[int, str]:
        """The key of each held-out task that the file holds."""
        keys: dict[int, str] = {}
        for key in self.results:
            task = task_index(key)
            if task is not None and keys.setdefault(task, key) != key:
                self.refuse(f"the task {key} is listed twice; the file is damaged")
        return keys

    def numbers(self, key: str, most: float) -> np.ndarray:
        """A list of numbers from 0 to `most`, as float64."""
        values = self.results.get(key)
        if not isinstance(values, list) or not set(map(type, values)) <= {int, float}:
            self.refuse(f"{key!r} is not a list of numbers; the file is damaged or from another tool")
        array = np.array(values, np.float64)
        if not (np.isfinite(array) & (array >= 0) & (array <= most)).all():
            limits = "0 or more" if math.isinf(most) else f"from 0 to {most:g}"
            self.refuse(f"{key!r} holds numbers that are not {limits}; the file is damaged")
        return array

    def episode_numbers(self, keys: list[str]) -> dict[str, np.ndarray] | None:
        """The episode that each entry of each list comes from; None where the file tells none."""
        if not any(EPISODE_PREFIX + key in self.results for key in keys):
            return None
        numbers = {}
        for key in keys:
            values = self.results.get(EPISODE_PREFIX + key)
            if not isinstance(values, list) or not all(type(v) is int and 0 <= v < _MOST_EPISODES for v in values):
                self.refuse(f"{EPISODE_PREFIX + key!r} is not a list of episode numbers from 0; the file is damaged")
            if len(values) != len(self.results[key]):
                self.refuse(
                    f"{key!r} has {len(self.results[key])} entries, {EPISODE_PREFIX + key!r} has {len(values)}; "
                    "the file is damaged"
                )
            numbers[key] = np.array(values, np.int64)
        return numbers

    def provenance(self, mode: Mode, seed: int) -> Provenance | None:
        """How the file says it was made; refused where its name says otherwise."""
        if PROVENANCE not in self.results:
            return None
        where = f"{self.file}, policy {self.policy!r}: in 'provenance'"
        provenance = in_shape(Provenance, self.results[PROVENANCE], where, "the file is damaged")
        if (provenance.mode, provenance.seed) != (mode, seed):
            self.refuse(f"it was played as {provenance.mode} with seed {provenance.seed}; give the file its name back")
        return provenance

    def refuse(self, what: str) -> NoReturn:
        raise UserError(f"{self.file}, policy {self.policy!r}: {what}")


FOLDERS = "_dir"  # where maps and embeddings lie says nothing about the game


def check_comparable(runs: Iterable[PolicyRun]) -> None:
    """Make sure that a name stands for one policy, and that a mode's runs were played by the same rules, each once.

    Raises:
        UserError: two runs do not go together; names both files.
    """
    first_by_rules: dict[str, PolicyRun] = {}
    first: dict[tuple[str | int, ...], PolicyRun] = {}  # by what must be alike in the runs that share it
    for run in runs:
        if run.provenance is not None:
            first_by_rules.setdefault(run.provenance.protocol, run)
            check_one_protocol(first_by_rules)
        # In pvp a seed is one file, since its policies share worlds; in pve policies may come one by one.
        of_whom = () if run.mode == "pvp" else (run.policy,)
        other = first.setdefault(("file", run.mode, run.seed, *of_whom), run)
        if other.file != run.file:
            raise UserError(
                f"{other.file} and {run.file} both hold {run.mode} results of seed {run.seed}"
                f"{f' for {run.policy!r}' if of_whom else ''}: leave one of them out"
            )
        other = first.setdefault(("checkpoint", run.policy), run) if run.provenance else run
        if other.provenance and run.provenance and other.provenance.played != run.provenance.played:
            raise UserError(
                f"{other.file} and {run.file} played different checkpoints under the name {run.policy!r}: "
                "give them different names, or play one of them again"
            )
        _check_same_rules(first.setdefault(("world", run.mode), run), run, _world_rules)
        _check_same_rules(first.setdefault(("task", run.mode, run.policy), run), run, _task_rules)


def check_one_protocol(first: Mapping[str, PolicyRun]) -> None:
    """Refuse runs by several protocols, given each one's first run (UserError: names a file of two)."""
    if len(first) > 1:
        (one, run), (other, another), *_ = first.items()
        raise UserError(
            f"{run.file} was played by the protocol {one!r} and {another.file} by {other!r}, which give other scores: "
            "keep them in separate folders"
        )


def _world_rules(run: PolicyRun) -> dict[str, Any]:
    recorded = {"episode numbers": run.episodes is not None, "provenance": run.provenance is not None}
    if run.provenance is None:
        return recorded
    return {**recorded, "episodes": run.provenance.episodes, **run.provenance.environment}


def _task_rules(run: PolicyRun) -> dict[str, Any]:
    return {} if run.provenance is None else run.provenance.task


def _check_same_rules(first: PolicyRun, run: PolicyRun, rules_of: Callable[[PolicyRun], dict[str, Any]]) -> None:
    before, now = rules_of(first), rules_of(run)
    for key in sorted(before.keys() | now.keys()):
        if not key.endswith(FOLDERS) and before.get(key) != now.get(key):
            raise UserError(
                f"{first.file} and {run.file} were played under different rules: {key} is {before.get(key)!r} and "
                f"{now.get(key)!r}; score them in separate folders"
            )
