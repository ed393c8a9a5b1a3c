"""Training runs: their settings, metrics against agent-steps, and groups of those that differ in their seed alone."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np

from common.argument_checks import did_you_mean
from common.checked_json import read_small_json
from common.files import read_json_lines, sha256
from common.user_error import UserError

SETTINGS_FILE = "settings.json"
_OLDER_REWARDS = {"reward.as_published": False}
"""What a run from before that choice was paid by: unlike other settings, it was not what is now the default."""
METRICS_FILE = "metrics.jsonl"
CHECKPOINTS_FOLDER = "checkpoints"
AGENT = "agent"
SEED = "train.seed"
BUDGET = "train.total_agent_steps"
_STEPS = "agent_steps"


@dataclass(frozen=True, eq=False)
class ComparedRun:
    """One training run. U updates."""

    folder: Path
    settings: dict[str, Any]  # full names such as `train.gamma` to values, and `agent`
    steps: np.ndarray  # agent-steps trained after each update, (U,) float64, ascending
    metrics: dict[str, np.ndarray]  # name -> (U,) float64, NaN where an update did not report it
    sha256: str

    @property
    def name(self) -> str:
        """Of its folder."""
        return self.folder.resolve().name

    @property
    def seed(self) -> int:
        """Of the training."""
        return int(self.settings[SEED])

    @property
    def end(self) -> float:
        """Agent-steps trained so far."""
        return float(self.steps[-1])

    @property
    def finished(self) -> bool:
        """Whether it trained for as long as it was asked to."""
        return self.end >= float(self.settings[BUDGET])


def read_run(folder: Path) -> ComparedRun:
    """Read a run; a last line of metrics that a kill cut short is passed over.

    Raises:
        UserError: there is no run, it has no metrics yet, or a file is damaged.
    """
    settings_file, metrics_file = folder / SETTINGS_FILE, folder / METRICS_FILE
    if not settings_file.is_file():
        state = "is not the folder of a training run" if folder.exists() else "does not exist"
        raise UserError(f"{folder} {state}: give folders that train.py wrote, such as runs/NAME")
    if not metrics_file.is_file():
        raise UserError(f"{folder} has no {METRICS_FILE}: its training ended before the first update; leave it out")
    settings = _settings(settings_file)
    updates = read_json_lines(metrics_file)
    if not updates:
        raise UserError(f"{metrics_file} holds no update yet: train for longer, or leave this run out")
    names = sorted({name for update in updates for name in update} - {_STEPS})
    try:
        steps = np.array([update[_STEPS] for update in updates], np.float64)
        table = {name: np.array([update.get(name, np.nan) for update in updates], np.float64) for name in names}
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{metrics_file} is damaged: a line lacks {_STEPS!r} or holds no numbers") from None
    if not (np.diff(steps, prepend=0) > 0).all():
        raise UserError(f"{metrics_file} is damaged: {_STEPS!r} does not grow from line to line")
    return ComparedRun(folder, settings, steps, table, sha256(metrics_file))


def _settings(path: Path) -> dict[str, Any]:
    content = read_small_json(path)
    sections = content.get("settings") if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(sections, dict):
        raise UserError(f"{path} is damaged, or not the settings of a training run")
    flat = {
        f"{section}.{key}": value
        for section, values in sections.items()
        if isinstance(values, Mapping)
        for key, value in values.items()
    }
    for name in (SEED, BUDGET):
        if not isinstance(flat.get(name), int):
            raise UserError(f"{path} does not name {name}: it is damaged, or not the settings of a training run")
    return {AGENT: content.get("agent"), **_OLDER_REWARDS, **flat}


TITLES = {
    "lives/total_reward": "Return: sum of rewards over a life",
    "lives/ticks": "Ticks lived",
    "lives/task_progress": "Task progress, 0 to 1",
    "lives/task_completed": "Share of lives that completed their task",
    "loss/entropy": "Entropy (nats, all heads together)",
    "loss/explained_variance": "Explained variance of the returns, 1 is all",
    "loss/value": "Value loss: half the squared error",
    "loss/approximate_kl": "KL divergence of an update (nats)",
    "loss/gradient_norm": "Gradient norm before clipping",
}
"""What is compared unless other metrics are asked for."""


def chosen_metrics(runs: Sequence[ComparedRun], requested: Sequence[str]) -> list[str]:
    """Return the metrics asked for, or else those of `TITLES` that any run reported.

    Raises:
        UserError: no run reported a metric that was asked for, or none of the usual ones.
    """
    reported = sorted({name for run in runs for name in run.metrics})
    for name in requested:
        if name not in reported:
            raise UserError(f"no run reported the metric {name!r}{did_you_mean(name, reported)}; see docs/training.md")
    chosen = list(dict.fromkeys(requested)) or [name for name in TITLES if name in reported]
    if not chosen:
        raise UserError(f"the runs report none of the usual metrics: choose with --metrics from {', '.join(reported)}")
    return chosen


GroupBy = Literal["name", "settings"]

NOT_COMPARED = (
    SEED, "env.maps_dir", "task.embeddings_dir", "task.embeddings", "rollout.vectorization", "rollout.num_workers",
    "rollout.ray_address", "train.device", "train.num_checkpoints", "train.checkpoint_spacing",
    "train.checkpoint_interval", "wandb.project", "wandb.entity", "wandb.group", "wandb.mode",
)  # fmt: skip
"""Settings that runs of a group may differ in: they do not change what is learnt, but for the seed."""
_CHOOSE_OPPONENTS = ("train.num_checkpoints", "train.checkpoint_spacing", "train.checkpoint_interval")
"""Of these, those that do change it in a run with opponents, which are its own checkpoints."""
_KERNEL = "train.pool_kernel"

_SEED_AT_THE_END = re.compile(r"(?:[-_.](?:seed|s)?|seed)?[-_.]?\d+$", re.IGNORECASE)


@dataclass(frozen=True)
class RunGroup:
    """Runs that are repetitions of each other, ordered by seed."""

    name: str
    runs: tuple[ComparedRun, ...]

    @property
    def end(self) -> float:
        """Agent-steps that all its runs reached."""
        return min(run.end for run in self.runs)

    @property
    def described(self) -> ComparedRun:
        """Its first run, with the settings of all: one from before a setting existed lacks it, others have it."""
        return _described(self.runs)


def group_runs(runs: Sequence[ComparedRun], by: GroupBy) -> list[RunGroup]:
    """Group runs, in the order in which they were given.

    Raises:
        UserError: there is one run only or one is given twice, runs of a group differ in a setting other than the seed,
            or two of them used the same seed.
    """
    if len(runs) == 1:
        raise UserError(
            f"{runs[0].folder} is one run only: its own curves are in its curves.png; give several runs to compare"
        )
    folders = [run.folder.resolve() for run in runs]
    if twice := [str(run.folder) for run, place in zip(runs, folders, strict=True) if folders.count(place) > 1]:
        raise UserError(f"{twice[0]} is given twice")

    def belongs(group: Sequence[ComparedRun], other: ComparedRun) -> bool:
        if by == "name":
            return name_without_seed(group[0].name) == name_without_seed(other.name)
        return not settings_that_differ((*group, other))

    members: list[list[ComparedRun]] = []
    for run in runs:
        own = next((member for member in members if belongs(member, run)), None)
        if own is None:
            members.append([run])
        else:
            own.append(run)
    names = [name_without_seed(group[0].name) for group in members] if by == "name" else _names_by_settings(members)
    groups = [
        RunGroup(name, tuple(sorted(group, key=lambda run: run.seed)))
        for name, group in zip(names, members, strict=True)
    ]
    for group in groups:
        _check_group(group)
    return groups


def settings_that_differ(runs: Iterable[ComparedRun]) -> dict[str, list[Any]]:
    """Return the settings that not all runs share, other than those in `NOT_COMPARED`, with a value for each run.

    A run from before a setting existed lacks it. It is then taken to share the others' value, and its own is None.
    """
    runs = list(runs)
    differing = {}
    for name in _names_of(runs):
        known = [run.settings[name] for run in runs if name in run.settings]
        if any(value != known[0] for value in known):
            differing[name] = [run.settings.get(name) for run in runs]
    return differing


def settings_that_are_missing(runs: Iterable[ComparedRun]) -> list[str]:
    """Return the settings that some runs lack, since they are from before there was a choice."""
    runs = list(runs)
    return [name for name in _names_of(runs) if any(name not in run.settings for run in runs)]


def _names_of(runs: Sequence[ComparedRun]) -> list[str]:
    have_opponents = any(str(run.settings.get(_KERNEL, "")).strip("0,") for run in runs)
    left_out = set(NOT_COMPARED) - set(_CHOOSE_OPPONENTS if have_opponents else ())
    return list(dict.fromkeys(name for run in runs for name in run.settings if name not in left_out))


def _described(runs: Sequence[ComparedRun]) -> ComparedRun:
    settings: dict[str, Any] = {}
    for run in runs:
        settings = run.settings | settings  # what an earlier run says counts
    return replace(runs[0], settings=settings)


def name_without_seed(name: str) -> str:
    """Return the name of a training without the number of its seed at the end, as in A_1 and A_seed1."""
    return _SEED_AT_THE_END.sub("", name) or name


def _names_by_settings(groups: Sequence[Sequence[ComparedRun]]) -> list[str]:
    """Name each group after the settings that set it apart, without their section where that is clear."""
    differing = settings_that_differ(map(_described, groups))
    short = [name.rpartition(".")[2] for name in differing]
    shown = [last if short.count(last) == 1 else name for name, last in zip(differing, short, strict=True)]
    if not differing:
        return [name_without_seed(groups[0][0].name)]
    parts = [
        [str(value) if name == AGENT else f"{name}={value}" for value in values]
        for name, values in zip(shown, differing.values(), strict=True)
    ]  # by setting, then by group
    return [", ".join(labels) for labels in zip(*parts, strict=True)]


def _check_group(group: RunGroup) -> None:
    for first, other in combinations(group.runs, 2):  # not the first with each: it may lack a setting that others have
        for name, (before, now) in settings_that_differ((first, other)).items():
            raise UserError(
                f"{first.folder} and {other.folder} are in one group, {group.name!r}, but differ in {name} ({before} "
                f"and {now}): give them names that differ before the seed, or use --group-by settings"
            )
    seeds = [run.seed for run in group.runs]
    for run, following in zip(group.runs, group.runs[1:], strict=False):
        if run.seed == following.seed:
            raise UserError(
                f"{run.folder} and {following.folder} are in one group, {group.name!r}, and both have {SEED} "
                f"{run.seed} (seeds: {', '.join(map(str, seeds))}): repetitions need different seeds; leave one out"
            )
