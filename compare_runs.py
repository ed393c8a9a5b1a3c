"""Compare groups of training runs: learning curves with intervals over seeds, and what each group reached.

    python compare_runs.py runs/A_1 runs/A_2 runs/A_3 runs/B_1 runs/B_2 runs/B_3    # groups A and B, three seeds each
    python compare_runs.py runs/A_* runs/B_*
    python compare_runs.py runs/tuned_* --group-by settings
    python compare_runs.py runs/A_* --metrics lives/ticks,events/EAT_FOOD

Checkpoints that evaluate.py has played are drawn too, on maps that they have and have not seen. Figures, tables and
comparison.json are written to analysis_results/RUN/; see docs/training.md.
"""

import common.environment_check  # isort: skip  # noqa: F401 (must come first)

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from common import argument_checks, command_line
from common.argument_checks import at_least, result_name, split
from common.result_places import OutputFolder
from common.user_error import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.runs.run_folder import RunFolder
    from analysis.training_runs.comparison import ComparedRuns
    from analysis.training_runs.run import RunGroup

_LONGEST_NAME = 80


@dataclass(frozen=True)
class Arguments:
    """Arguments of compare_runs.py."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of training runs that train.py wrote, such as runs/NAME; at least two."""
    group_by: Literal["name", "settings"] = "name"
    """Which runs are repetitions with different seeds. name: those with the same name before a number at its end, as in
    A_1 and A_2 or A_seed1 and A_seed2; settings: those with the same agent and settings."""
    against: str | None = None
    """Name of the group that all others are compared with, such as the defaults; by default each pair is compared."""
    metrics: str | None = None
    """Comma-separated names of metrics in metrics.jsonl; by default return, ticks lived, tasks, entropy, losses."""
    points: int = 50
    """Number of points per curve, at least 1: each is a mean over an equal share of the agent-steps, so fewer points
    give smoother curves. A run with fewer updates limits it."""
    last: float = 0.1
    """Share (above 0, up to 1) of the agent-steps reached by all runs that counts as the last stretch, for which groups
    are compared in numbers."""
    held_out: Path | None = None
    """Folder of results of evaluate.py for checkpoints of these runs; by default the checkpoints/ folder of each run,
    where there may be none. Needed with --mode pvp, for which checkpoints of all runs are played from one folder."""
    mode: Literal["pve", "pvp"] = "pve"
    """Which results of evaluate.py to use. pve: each checkpoint alone in its world; pvp: all in shared worlds."""
    confidence: float = 0.95
    """Confidence level of the intervals, above 0 and below 1."""
    output_dir: OutputFolder = Path("analysis_results")
    """Folder that --name goes into."""
    name: str | None = None
    """Name of the comparison's folder; by default the names of the groups, and pvp with --mode pvp."""


def main() -> None:
    """Parse, read, compare, write, and say what was found."""
    arguments = command_line.parse(Arguments, __doc__)
    check(arguments)

    from analysis.runs.run_folder import RunFolder, plain, refuse_existing_run
    from analysis.training_runs.comparison import compare, input_hashes
    from analysis.training_runs.run import chosen_metrics, group_runs, read_run

    runs = [read_run(folder) for folder in arguments.runs]
    groups = group_runs(runs, arguments.group_by)
    metrics = chosen_metrics(runs, split(arguments.metrics))
    path = arguments.output_dir / (arguments.name or default_name(groups, arguments.mode))
    if arguments.name is None and other_runs(path, arguments.runs):
        path = path.with_name(f"{path.name}-{len(runs)}-runs")
    refuse_existing_run(path)
    compared = compare(
        groups, metrics, arguments.points, arguments.last, arguments.confidence, arguments.held_out, arguments.against,
        arguments.mode,
    )  # fmt: skip
    with RunFolder(path, {"arguments": plain(arguments), "input": input_hashes(compared)}) as folder:
        write(compared, folder)
    report(compared)
    print(f"figures, tables and comparison.json: {path}")


def check(arguments: Arguments) -> None:
    """Refuse values that make no sense, before anything is read."""
    if not arguments.runs:
        raise UserError("name the folders of runs to compare, for example: python compare_runs.py runs/A_* runs/B_*")
    if arguments.mode == "pvp" and arguments.held_out is None:
        raise UserError(
            "--mode pvp needs --held-out FOLDER: copy the checkpoints of all runs into one folder, and play them with "
            "`python evaluate.py FOLDER pvp`"
        )
    argument_checks.check(
        arguments,
        name=result_name(arguments.name),
        points=at_least(arguments.points, 1),
        last=(0 < arguments.last <= 1, "above 0, up to 1"),
        confidence=(0 < arguments.confidence < 1, "above 0 and below 1, for example 0.95"),
    )


def default_name(groups: "Sequence[RunGroup]", mode: Literal["pve", "pvp"]) -> str:
    """Return a folder's name after the groups, and after pvp, so that both kinds of scores can be compared."""
    named = re.sub(r"[^A-Za-z0-9._=-]+", "-", "-".join(group.name for group in groups))[:_LONGEST_NAME]
    return f"compare-{named}{'-pvp' if mode == 'pvp' else ''}"


def other_runs(path: Path, runs: tuple[Path, ...]) -> bool:
    """Return whether a folder holds a comparison of other runs, such as of those before one more seed was trained."""
    from analysis.runs.run_folder import RUN_FILE, plain
    from common.checked_json import read_small_json

    if not (path / RUN_FILE).is_file():
        return False
    described = read_small_json(path / RUN_FILE)
    arguments = described.get("arguments") if isinstance(described, dict) else None
    return isinstance(arguments, dict) and arguments.get("runs") != plain(runs)


def write(compared: "ComparedRuns", folder: "RunFolder") -> None:
    """Write tables, comparison.json and figures."""
    from analysis.training_runs.comparison import as_json, generalisation, learning_curves

    for table in compared.tables:
        folder.save_text(f"{table.name}.tsv", table.as_text())
    folder.save_json("comparison.json", as_json(compared))
    folder.save_figure("learning_curves.png", learning_curves(compared))
    if compared.evaluations:
        folder.save_figure("generalisation.png", generalisation(compared))


def report(compared: "ComparedRuns") -> None:
    """Show what groups reached in the last stretch, how they differ, and what to know about it."""
    from analysis.training_runs.comparison import comparisons_for_terminal, levels_for_terminal
    from analysis.training_runs.run import CHECKPOINTS_FOLDER

    tables = [levels_for_terminal(compared.levels)]
    if compared.comparisons:
        tables.append(comparisons_for_terminal(compared.comparisons))
    for table in tables:
        print(f"{table.name}:")
        command_line.print_table(table.heads, [tuple(map(str, row)) for row in table.rows])
        print()
    for note in compared.notes:
        print(f"- {note}")
    if not compared.evaluations:
        folder = compared.groups[0].runs[0].folder / CHECKPOINTS_FOLDER
        hint = f"python evaluate.py {folder} pve -p CHECKPOINT,CHECKPOINT,..."
        print(f"- No evaluated checkpoints; to add held-out maps: {hint}")


if __name__ == "__main__":
    command_line.run(main)
