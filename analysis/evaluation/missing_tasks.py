"""Tasks that no life of a policy had, in one seed or in all: what that means for its score, in words."""

from collections.abc import Sequence

import numpy as np

from analysis.evaluation.held_out_tasks import PREFIX, TASK_NAMES
from analysis.evaluation.scores import PolicyResults
from common.user_error import UserError

_TASKS_NAMED = 3
_GAPS_NAMED = 3


def scorable(policies: Sequence[PolicyResults]) -> tuple[list[PolicyResults], list[str]]:
    """Return the policies that have a score, and a sentence for each that has none and about gaps in the others.

    A policy has no score if no life had some task in any of its files. A gap is a file without a life at tasks that
    the policy's other files have.

    Raises:
        UserError: no policy has a score.
    """
    scored = [results for results in policies if results.has_task.all()]
    left_out = [_why_no_score(results) for results in policies if not results.has_task.all()]
    if not scored:
        raise UserError(left_out[0])
    gaps = [gap for score in scored for gap in _gaps(score)]
    return scored, [*(f"left out: {reason}" for reason in left_out), *_few(gaps)]


def _few(gaps: list[str]) -> list[str]:
    """Return one sentence instead of many that differ in files and tasks alone."""
    if len(gaps) <= _GAPS_NAMED:
        return gaps
    return [f"{gaps[0]}; likewise in {len(gaps) - 1} more results of a policy and a seed: evaluate.py -n fills them"]


def _why_no_score(results: PolicyResults) -> str:
    first, *others = results.runs
    files = f"{first.file}{f' and {len(others)} more' if others else ''}"
    return (
        f"{files}, policy {results.policy!r}: no life had {_named(~results.has_task)}, so it has no score: play more "
        "episodes with evaluate.py -n; an evaluation on a single task has no score"
    )


def _gaps(results: PolicyResults) -> list[str]:
    return [
        f"warning: {run.file}, policy {run.policy!r}: no life had {_named(~run.has_task)}: progress there is the mean "
        "over the policy's other seeds"
        for run in results.runs
        if not run.has_task.all()
    ]


def _named(tasks: np.ndarray) -> str:
    """Name some of the tasks that are marked, (T,) bool."""
    places = np.flatnonzero(tasks).tolist()
    names = ", ".join(TASK_NAMES[place].removeprefix(PREFIX) for place in places[:_TASKS_NAMED])
    more = ", ..." if len(places) > _TASKS_NAMED else ""
    return f"{len(places)} of the {len(TASK_NAMES)} held-out tasks ({names}{more})"
