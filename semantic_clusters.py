"""Codes of skills in a policy's states: fit them, or read those that the policy learnt itself, and look at them.

    python semantic_clusters.py fit activation_data/NAME --codes 8         # fit a plane and a codebook to a dump
    python semantic_clusters.py fit activation_data/NAME --recorded        # codes of train.py --semantic.codes
    python semantic_clusters.py COMMAND --help                             # options of a command

A run is a folder analysis_results/NAME-semantic-k8, which all scripts for clusters read too: explore.py,
cluster_life_phase.py, agent_life_visualization.py, render_replay.py and intervene.py. See docs/semantic_clusters.md.
"""

import environment_check  # isort: skip  # noqa: F401 (must come first)

import sys
from collections.abc import Callable
from functools import partial

import command_line
from argument_checks import did_you_mean
from user_error import UserError


def fit(arguments: list[str]) -> None:
    """Find codes in a dump, compare them, and print where the results are."""
    from activation_store.reader import read_metadata
    from representation.semantic_clusters.settings import FitSettings

    settings = command_line.parse(FitSettings, __doc__, args=arguments, prog="semantic_clusters.py fit")
    settings.check()
    metadata = read_metadata(settings.dump)
    settings.check_against(metadata)
    features = settings.analysis.choose_features()

    from rich.console import Console

    from analysis.runs.run_folder import RunFolder, description
    from analysis.terminal import cluster_table, step, verdict_lines

    console = Console()
    told = description(settings, settings.dump, metadata, script="semantic_clusters.py fit")
    told["arguments"]["layer"] = settings.read_layer
    with RunFolder(settings.run_folder, told) as folder:
        with step(console, "loading the libraries"):
            from representation.semantic_clusters.run import run_fit
        summary = run_fit(settings, metadata, features, folder, partial(step, console))
    console.print(cluster_table(summary))
    console.print(verdict_lines(summary), highlight=False)
    console.print(f"figures, codes and summary.txt: {folder.path}", highlight=False, markup=False, soft_wrap=True)


COMMANDS: dict[str, Callable[[list[str]], None]] = {"fit": fit}


def main() -> None:
    """Run one command."""
    name, arguments = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else ("--help", [])
    if name in ("-h", "--help"):
        print(__doc__)
        return
    if name not in COMMANDS:
        raise UserError(f"there is no command {name!r}; there are: {', '.join(COMMANDS)}{did_you_mean(name, COMMANDS)}")
    COMMANDS[name](arguments)


if __name__ == "__main__":
    command_line.run(main)
