"""Score the results of evaluate.py: tables, confidence intervals, comparisons and a figure.

    python analysis/proc_eval_result.py policies              # all eval_<mode>_<seed>.json in the folder
    python analysis/proc_eval_result.py eval_pvp_1.json eval_pvp_2.json --output-dir scores

Tables (score_*.tsv) and score_summary.png are written next to the results. docs/evaluation.md explains them.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if __package__ is None:  # run as a file: Python then looks for modules in analysis/ instead of the project's root
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import common.environment_check  # isort: skip  # noqa: F401 (must come before what is not in the standard library)

import tyro

from common import argument_checks, command_line
from common.argument_checks import at_least, seed_value
from common.figure_settings import save_figure
from common.user_error import UserError, one_line

if TYPE_CHECKING:
    from analysis.evaluation.scores import PolicyResults
    from analysis.statistics.resampling import Bootstrap
    from analysis.tables import Table

FIGURE_FILE = "score_summary.png"
FEWEST_RESAMPLES = 100
DOTS_PER_INCH = 200


@dataclass(frozen=True)
class Arguments:
    """Arguments of proc_eval_result.py."""

    results: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of result files, or individual files eval_<pvp|pve>_<seed>.json."""
    output_dir: Path | None = None
    """Folder for the tables and the figure; by default that of the first results."""
    confidence: float = 0.95
    """Confidence level of the intervals, above 0 and below 1."""
    resamples: int = 2000
    """Number of bootstrap resamples for the intervals, at least 100."""
    seed: int = 0
    """Seed of the bootstrap, 0 to 4294967295."""


def main() -> None:
    """Parse, read, score, write and say."""
    arguments = command_line.parse(Arguments, __doc__)
    check(arguments)

    from rich.console import Console

    from analysis.statistics.resampling import Bootstrap
    from common.files import make_folder

    first = arguments.results[0]
    folder = arguments.output_dir or (first if first.is_dir() else first.parent)
    progress = Console(stderr=True)
    with progress.status("reading"):
        policies, sentences = read(arguments.results)
    make_folder(folder)
    with progress.status("resampling"):
        tables = report(policies, Bootstrap(arguments.confidence, arguments.resamples, arguments.seed), folder)
    for table in tables:
        print(f"{table.name}:")
        command_line.print_table(table.heads, [tuple(map(str, row)) for row in table.rows])
        print()
    for sentence in sentences:  # after the scores, which nobody would find below them
        print(one_line(sentence), file=sys.stderr)
    Console().print(f"tables and figure: {folder}", highlight=False, markup=False, soft_wrap=True)


def check(arguments: Arguments) -> None:
    """Refuse values that make no sense, before anything is read."""
    if not arguments.results:
        raise UserError("name a folder of result files, for example: python analysis/proc_eval_result.py policies")
    argument_checks.check(
        arguments,
        confidence=(0 < arguments.confidence < 1, "above 0 and below 1, for example 0.95"),
        resamples=at_least(arguments.resamples, FEWEST_RESAMPLES),
        seed=seed_value(arguments.seed),
    )


def read(paths: tuple[Path, ...]) -> tuple[list["PolicyResults"], list[str]]:
    """Read all result files, make sure that they go together, and return the policies that have a score.

    Also sentences about policies without one, and about files without a life at some task.
    """
    from analysis.evaluation.results import check_comparable, find_result_files, read_results
    from analysis.evaluation.scores import gather, scorable

    runs = [run for file in find_result_files(paths) for run in read_results(file)]
    check_comparable(runs)
    return scorable(gather(runs))


def report(policies: list["PolicyResults"], bootstrap: "Bootstrap", folder: Path) -> list["Table"]:
    """Score, compare, and once all is computed, write it; returns the tables for the terminal."""
    from analysis.evaluation import tables
    from analysis.evaluation.results import MODES
    from analysis.evaluation.scores import improvements, ranking, score
    from common.files import atomic_file

    scores = [score(results, bootstrap) for results in policies]
    scores.sort(key=lambda score: (MODES.index(score.results.mode), -score.weighted_score.value))
    modes = {mode: [score.results for score in scores if score.results.mode == mode] for mode in MODES}
    compared = {mode: improvements(playing, bootstrap) for mode, playing in modes.items() if playing}
    comparisons = [tables.improvement_tables(compared)] if any(compared.values()) else []
    if len(modes["pvp"]) > 1:
        comparisons.append(tables.ranking_tables(ranking(modes["pvp"], bootstrap)))
    files = [*tables.score_tables(scores), *(written for written, _ in comparisons)]
    shown = [tables.summary_for_terminal(scores), tables.categories_for_terminal(scores)]
    shown += [to_show for _, to_show in comparisons]
    with atomic_file(folder / FIGURE_FILE) as file:
        save_figure(tables.score_summary(scores, bootstrap.confidence), file, DOTS_PER_INCH)
    tables.write_tables(folder, files)
    return shown


if __name__ == "__main__":
    command_line.run(main)
