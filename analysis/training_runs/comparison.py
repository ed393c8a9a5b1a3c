"""A comparison of groups of training runs: everything is computed first, then written."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from analysis.evaluation.results import Mode
from analysis.evaluation.tables import Table
from analysis.training_runs.curves import Curve, curves_of, fewest_updates
from analysis.training_runs.groups import Group, settings_that_differ
from analysis.training_runs.held_out import (
    EvaluationCurve,
    evaluation_curves,
    final_scores,
    generalisation_gaps,
    read_evaluated,
)
from analysis.training_runs.last_stretch import Comparison, Level, comparisons_of, last_stretch, levels_of
from analysis.training_runs.notes import notes_on, notes_on_evaluations
from analysis.training_runs.run import CHECKPOINTS_FOLDER, METRICS_FILE, TrainingRun
from analysis.training_runs.tables import comparison_table, curve_table, evaluation_table, level_table
from common.files import sha256
from common.user_error import UserError

COMPARISON_FILE = "comparison.json"
CURVES_FIGURE = "learning_curves.png"
GENERALISATION_FIGURE = "generalisation.png"


@dataclass(frozen=True)
class ComparedRuns:
    """All that a comparison found.

    Attributes:
        points: of each curve.
        stretch: agent-steps at which the last stretch begins and ends.
        mode: of the evaluations: each checkpoint alone in its world, or all in shared worlds.
        evaluations: of checkpoints; empty if there are none.
        gaps: scores on training maps minus those on held-out maps; empty where one of them is missing.
        notes: what a reader must know beside the numbers.
        evaluation_files: SHA-256 of each file of results that was used, by path.
    """

    groups: Sequence[Group]
    metrics: Sequence[str]
    confidence: float
    points: int
    curves: Sequence[Curve]
    stretch: tuple[float, float]
    mode: Mode
    levels: Sequence[Level]
    comparisons: Sequence[Comparison]
    evaluations: Sequence[EvaluationCurve]
    gaps: Sequence[EvaluationCurve]
    notes: Sequence[str]
    evaluation_files: dict[str, str]

    @property
    def tables(self) -> list[Table]:
        """The tables that are written."""
        tables = [curve_table(self.curves), level_table(self.levels)]
        if self.comparisons:
            tables.append(comparison_table(self.comparisons))
        if self.evaluations:
            tables.append(evaluation_table(self.evaluations, self.gaps))
        return tables


def compare(
    groups: Sequence[Group], metrics: Sequence[str], points: int, last: float, confidence: float, held_out: Path | None,
    against: str | None = None, mode: Mode = "pve",
) -> ComparedRuns:  # fmt: skip
    """Compare groups.

    Args:
        metrics: names.
        points: of each curve; fewer if a run has fewer updates.
        last: share of the agent-steps that all runs reached, 0 to 1, over which final levels are means.
        held_out: folder of evaluations; by default those in the runs' own folders of checkpoints.
        against: name of the group that all others are compared with; by default each is compared with each.

    Raises:
        UserError: evaluations are damaged, there are none in the folder given, or no group has the name given.
    """
    names = [group.name for group in groups]
    if against is not None and against not in names:
        raise UserError(f"no group is called {against!r}: the groups are {', '.join(names)}")
    points = min(points, fewest_updates(groups))
    stretch = last_stretch(groups, last)
    evaluated = read_evaluated([run for group in groups for run in group.runs], held_out, mode)
    evaluations = evaluation_curves(evaluated, groups, confidence)
    scores = final_scores(evaluations, groups, confidence)
    levels = [*levels_of(groups, metrics, stretch, confidence), *scores]
    return ComparedRuns(
        groups,
        metrics,
        confidence,
        points,
        curves_of(groups, metrics, points, confidence),
        stretch,
        mode,
        levels,
        comparisons_of(levels, confidence, against),
        evaluations,
        generalisation_gaps(evaluations, confidence),
        [*notes_on(groups, metrics, stretch), *notes_on_evaluations(evaluated, scores, mode)],
        {str(file): sha256(file) for file in sorted({file for evaluation in evaluated for file in evaluation.files})},
    )


def as_json(compared: ComparedRuns) -> dict[str, Any]:
    """Return what comparison.json holds; numbers that the seeds do not allow become null."""
    first_runs = [group.runs[0] for group in compared.groups]
    return {
        "groups": [{"name": group.name, "runs": [_run(run) for run in group.runs]} for group in compared.groups],
        "settings_that_differ": settings_that_differ(first_runs),
        "confidence": compared.confidence,
        "points": compared.points,
        "mode": compared.mode,
        "last_stretch": {"from": compared.stretch[0], "to": compared.stretch[1]},
        "levels": [asdict(level) for level in compared.levels],
        "comparisons": [asdict(comparison) for comparison in compared.comparisons],
        "evaluations": [asdict(evaluation) for evaluation in compared.evaluations],
        "gaps": [asdict(gap) for gap in compared.gaps],
        "notes": list(compared.notes),
    }


def input_hashes(compared: ComparedRuns) -> dict[str, str]:
    """Return the SHA-256 of each run's metrics and of each file of results, by path."""
    metrics = {str(run.folder / METRICS_FILE): run.sha256 for group in compared.groups for run in group.runs}
    return metrics | compared.evaluation_files


def evaluate_hint(compared: ComparedRuns) -> str:
    """Return how to get evaluations of a run's checkpoints."""
    folder = compared.groups[0].runs[0].folder
    return f"python evaluate.py {folder / CHECKPOINTS_FOLDER} pve -p CHECKPOINT,CHECKPOINT,..."


def _run(run: TrainingRun) -> dict[str, Any]:
    return {
        "name": run.name, "folder": str(run.folder), "seed": run.seed, "agent_steps": run.end,
        "updates": len(run.steps), "finished": run.finished,
    }  # fmt: skip
