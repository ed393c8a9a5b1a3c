"""Groups of runs that differ in their seed alone: by name without the seed at its end, or by settings."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from analysis.training_runs.run import AGENT, SEED, TrainingRun
from common.user_error import UserError

GroupBy = Literal["name", "settings"]

NOT_COMPARED = (
    SEED, "env.maps_dir", "task.embeddings_dir", "task.embeddings", "rollout.vectorization", "rollout.num_workers",
    "rollout.ray_address", "train.device", "train.num_checkpoints", "train.checkpoint_spacing",
    "train.checkpoint_interval", "wandb.project", "wandb.entity", "wandb.group", "wandb.mode",
)  # fmt: skip
"""Settings that runs of a group may differ in: they do not change what is learnt, but for the seed."""

_SEED_AT_THE_END = re.compile(r"(?:[-_.](?:seed|s)?|seed)?[-_.]?\d+$", re.IGNORECASE)


@dataclass(frozen=True)
class Group:
    """Runs that are repetitions of each other, ordered by seed."""

    name: str
    runs: tuple[TrainingRun, ...]

    @property
    def end(self) -> float:
        """Agent-steps that all its runs reached."""
        return min(run.end for run in self.runs)


def group_runs(runs: Sequence[TrainingRun], by: GroupBy) -> list[Group]:
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
    belongs = _has_same_name if by == "name" else _has_same_settings
    members: list[list[TrainingRun]] = []
    for run in runs:
        own = next((member for member in members if belongs(member[0], run)), None)
        if own is None:
            members.append([run])
        else:
            own.append(run)
    names = [_name_without_seed(group[0]) for group in members] if by == "name" else _names_by_settings(members)
    groups = [
        Group(name, tuple(sorted(group, key=lambda run: run.seed))) for name, group in zip(names, members, strict=True)
    ]
    for group in groups:
        _check(group)
    return groups


def settings_that_differ(runs: Iterable[TrainingRun]) -> dict[str, list[Any]]:
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


def settings_that_are_missing(runs: Iterable[TrainingRun]) -> list[str]:
    """Return the settings that some runs lack, since they are from before there was a choice."""
    runs = list(runs)
    return [name for name in _names_of(runs) if any(name not in run.settings for run in runs)]


def _names_of(runs: Sequence[TrainingRun]) -> list[str]:
    return list(dict.fromkeys(name for run in runs for name in run.settings if name not in NOT_COMPARED))


def _name_without_seed(run: TrainingRun) -> str:
    return _SEED_AT_THE_END.sub("", run.name) or run.name


def _has_same_name(first: TrainingRun, other: TrainingRun) -> bool:
    return _name_without_seed(first) == _name_without_seed(other)


def _has_same_settings(first: TrainingRun, other: TrainingRun) -> bool:
    return not settings_that_differ((first, other))


def _names_by_settings(groups: Sequence[Sequence[TrainingRun]]) -> list[str]:
    """Name each group after the settings that set it apart, without their section where that is clear."""
    differing = settings_that_differ(group[0] for group in groups)
    short = [name.rpartition(".")[2] for name in differing]
    shown = [last if short.count(last) == 1 else name for name, last in zip(differing, short, strict=True)]
    if not differing:
        return [_name_without_seed(groups[0][0])]
    parts = [
        [str(value) if name == AGENT else f"{name}={value}" for value in values]
        for name, values in zip(shown, differing.values(), strict=True)
    ]  # by setting, then by group
    return [", ".join(labels) for labels in zip(*parts, strict=True)]


def _check(group: Group) -> None:
    first, *others = group.runs
    for other in others:
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
