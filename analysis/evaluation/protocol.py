"""How results came about, and whether those of several files may be put together."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from analysis.evaluation.results import PolicyRun
from common.user_error import UserError

_FOLDERS = "_dir"  # where maps and embeddings lie says nothing about the game


def check_comparable(runs: Iterable[PolicyRun]) -> None:
    """Make sure that a name stands for one policy, and that a mode's runs were played by the same rules, each once.

    Raises:
        UserError: two runs do not go together; names both files.
    """
    first_played: dict[tuple, PolicyRun] = {}
    first_of_policy: dict[str, PolicyRun] = {}
    first_of_mode: dict[str, PolicyRun] = {}
    first_of_both: dict[tuple[str, str], PolicyRun] = {}
    first_by_rules: dict[str, PolicyRun] = {}
    for run in runs:
        if run.provenance is not None:
            first_by_rules.setdefault(run.provenance.protocol, run)
            check_one_protocol(first_by_rules)
        _check_not_again(first_played, run)
        if run.provenance is not None:
            _check_same_policy(first_of_policy.setdefault(run.policy, run), run)
        _check_same_rules(first_of_mode.setdefault(run.mode, run), run, _world)
        _check_same_rules(first_of_both.setdefault((run.mode, run.policy), run), run, _task)


def check_one_protocol(first: Mapping[str, PolicyRun]) -> None:
    """Make sure that all runs were played by one protocol.

    Args:
        first: protocol -> the first run that was played by it.

    Raises:
        UserError: there are two; names a file of each.
    """
    if len(first) > 1:
        (one, run), (other, another), *_ = first.items()
        raise UserError(
            f"{run.file} was played by the protocol {one!r} and {another.file} by {other!r}, which give other scores: "
            "keep them in separate folders"
        )


def _check_not_again(first_played: dict[tuple, PolicyRun], run: PolicyRun) -> None:
    """In pvp a seed is one file, since its policies share worlds; in pve policies may come one by one."""
    key = (run.mode, run.seed) if run.mode == "pvp" else (run.mode, run.seed, run.policy)
    first = first_played.setdefault(key, run)
    if first.file != run.file:
        raise UserError(
            f"{first.file} and {run.file} both hold {run.mode} results of seed {run.seed}"
            f"{'' if run.mode == 'pvp' else f' for {run.policy!r}'}: leave one of them out"
        )


def _check_same_policy(first: PolicyRun, run: PolicyRun) -> None:
    before, now = first.provenance, run.provenance
    if before is None or now is None:
        return
    if (before.agent, before.checkpoint_sha256) != (now.agent, now.checkpoint_sha256):
        raise UserError(
            f"{first.file} and {run.file} played different checkpoints under the name {run.policy!r}: "
            "give them different names, or play one of them again"
        )


def _world(run: PolicyRun) -> dict[str, Any]:
    recorded = {"episode numbers": run.episodes is not None, "provenance": run.provenance is not None}
    if run.provenance is None:
        return recorded
    return {**recorded, "episodes": run.provenance.episodes, **run.provenance.environment}


def _task(run: PolicyRun) -> dict[str, Any]:
    return {} if run.provenance is None else run.provenance.task


def _check_same_rules(first: PolicyRun, run: PolicyRun, rules_of: Callable[[PolicyRun], dict[str, Any]]) -> None:
    before, now = rules_of(first), rules_of(run)
    for key in sorted(before.keys() | now.keys()):
        if not key.endswith(_FOLDERS) and before.get(key) != now.get(key):
            raise UserError(
                f"{first.file} and {run.file} were played under different rules: {key} is {before.get(key)!r} and "
                f"{now.get(key)!r}; score them in separate folders"
            )
