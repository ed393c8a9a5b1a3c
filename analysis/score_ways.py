"""Say how often agents go the right way: scores of policies on tasks to go to a side of the map or to water.

    python analysis/score_ways.py activation_data/lstm_* activation_data/none_*     # kinds lstm and none
    python analysis/score_ways.py activation_data/A_* activation_data/B_* --against B -o scores.tsv

A life goes the right way if its steps lead it towards its goal, on balance, after the task was hidden and after all
agents were moved, if they were. Who goes at random does so in half of its lives. On the way to water, a life does so if
it arrives. See docs/tasks.md.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

if __package__ is None:  # run as a file: Python then looks for modules in analysis/ instead of the project's root
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import common.environment_check  # isort: skip  # noqa: F401 (must come before what is not in the standard library)

import tyro

from common import argument_checks, command_line
from common.user_error import UserError

if TYPE_CHECKING:
    from analysis.training_runs.right_way import KindScore


@dataclass(frozen=True)
class Arguments:
    """Arguments of score_ways.py."""

    dumps: tyro.conf.Positional[tuple[Path, ...]]
    """Dumps of policies that were given tasks such as those of two_ways or to_water. Dumps whose names differ in a
    number at their end only, such as lstm_1 and lstm_2, are trainings of one kind."""
    against: str | None = None
    """Kind that the others are compared with; by default the last one named."""
    confidence: float = 0.95
    """Confidence level of the intervals, above 0 and below 1."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """File to write the scores to, as tab-separated text; by default they are only printed."""


def main() -> None:
    """Parse, score, write and say."""
    arguments = command_line.parse(Arguments, __doc__)
    check(arguments)

    from analysis.tables import tab_separated
    from analysis.training_runs.right_way import lives_of_dump, score_kinds
    from common.files import atomic_file

    dumps = {}
    for folder in arguments.dumps:
        print(f"reading {folder}", file=sys.stderr)
        dumps[folder.name] = lives_of_dump(folder)
    scores = score_kinds(dumps, arguments.against, arguments.confidence)
    if arguments.output:
        with atomic_file(arguments.output) as file:
            file.write(tab_separated([score.row() for score in scores]).encode())
    report(scores)


def check(arguments: Arguments) -> None:
    """Refuse values that make no sense, before anything is read."""
    if not arguments.dumps:
        raise UserError("name dumps, for example: python analysis/score_ways.py activation_data/NAME")
    names = [folder.name for folder in arguments.dumps]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"two dumps are called {twice[0]}: give each policy once")
    confidence = (0 < arguments.confidence < 1, "above 0 and below 1, for example 0.95")
    argument_checks.check(arguments, confidence=confidence)


def report(scores: list["KindScore"]) -> None:
    """Print a table of the kinds."""
    heads = ("kind", "trainings", "lives", "go the right way", "against", "difference", "p")
    command_line.print_table(heads, [score.cells() for score in scores])


if __name__ == "__main__":
    command_line.run(main)
