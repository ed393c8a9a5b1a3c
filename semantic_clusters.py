"""Codes of skills in a policy's states: fit them, or read those that the policy learnt itself, and look at them.

    python semantic_clusters.py fit activation_data/NAME --codes 8         # fit a plane and a codebook to a dump
    python semantic_clusters.py fit activation_data/NAME --recorded        # codes of train.py --semantic.codes
    python semantic_clusters.py describe analysis_results/RUN              # a card for each code, and names for them
    python semantic_clusters.py plot analysis_results/RUN                  # the plane beside t-SNE and UMAP
    python semantic_clusters.py videos analysis_results/RUN                # a film of each code, and of all in a grid
    python semantic_clusters.py compare analysis_results/RUN               # codes beside UMAP and HDBSCAN, and others
    python semantic_clusters.py agreement activation_data/NAME --policies A,B   # do other trainings find these codes?
    python semantic_clusters.py COMMAND --help                             # options of a command

A run is a folder analysis_results/NAME-semantic-k8, which all scripts for clusters read too: explore.py,
cluster_life_phase.py, agent_life_visualization.py, render_replay.py and intervene.py. See docs/semantic_clusters.md.
"""

import common.environment_check  # isort: skip  # noqa: F401 (must come first)

import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from analysis.codes.options import (
    AgreementArguments,
    Command,
    CompareArguments,
    DescribeArguments,
    FitSettings,
    PlotArguments,
    VideoArguments,
)
from common import command_line
from common.progress_view import Step, say, step

if TYPE_CHECKING:
    from rich.console import Console


def main() -> None:
    """Run one command."""
    name, options = command_line.parse_command(COMMANDS, Command, __doc__, sys.argv[1:])
    options.check()

    from rich.console import Console

    console = Console()
    COMMANDS[name](options, console, partial(step, console))


def fit(options: FitSettings, console: "Console", step: Step) -> None:
    """Find codes in a dump, compare them, and print where the results are."""
    from activation_store.reader import read_metadata
    from analysis.clusters.settings import BYTES_A_RECORD
    from analysis.clusters.summary_text import cluster_table, verdict_lines
    from analysis.runs.record_limit import limited
    from analysis.runs.run_folder import RunFolder, description

    metadata = read_metadata(options.dump)
    options = limited(options, options.dump, metadata, BYTES_A_RECORD)
    options.check_against(metadata)
    features = options.analysis.choose_features(metadata)
    described = description(options, options.dump, metadata, script="semantic_clusters.py fit")
    described["arguments"]["layer"] = options.read_layer
    with RunFolder(options.run_folder, described) as folder:
        with step("loading the libraries"):
            from analysis.codes.run import run_fit
        summary = run_fit(options, metadata, features, folder, step)
    console.print(cluster_table(summary))
    console.print(verdict_lines(summary), highlight=False)
    say(console, f"figures, codes and summary.txt: {folder.path}")


def describe(options: DescribeArguments, console: "Console", step: Step) -> None:
    """Write a card for each code, a map of where they are, and labels.yaml for their names."""
    from analysis.codes.cards import cards_markdown, cards_of, code_places
    from analysis.codes.content import coded_dump
    from analysis.position import positions
    from analysis.runs.codebook_rule import called, keep_names
    from analysis.runs.run_folder import write_figure
    from analysis.statistics.resampling import Bootstrap
    from common.files import write_json, write_text

    coded = coded_dump(options.run, options.dump, step)
    with step("comparing codes with chance"):
        cards = cards_of(coded, Bootstrap(resamples=options.bootstraps, seed=options.seed), options.permutations)
    labels = keep_names(options.run, coded.labels)
    text = cards_markdown(coded.run.name, cards, coded.names, coded.run.summary["verdict"])
    write_text(options.run / "cards.md", text)
    write_json(options.run / "cards.json", [asdict(card) for card in cards])
    with step("drawing where codes are"):
        names = [f"code {called(label, coded.names)}" for label in coded.labels]
        figure = code_places(*positions(coded.records), coded.label, names, coded.run.name)
        write_figure(options.run / "code_places.png", figure)
    console.print(text, highlight=False, markup=False)
    say(console, f"cards: {options.run / 'cards.md'}")
    say(console, f"names of codes, for you to write: {labels}")


def plot(options: PlotArguments, console: "Console", step: Step) -> None:
    """Draw the plane beside t-SNE and UMAP, and measure how well each keeps neighbourhoods."""
    from analysis.codes.content import open_run
    from analysis.runs.run_folder import write_figure
    from common.files import write_json

    run, rule = open_run(options.run, options.dump)
    with step("loading the libraries"):
        from analysis.codes.planes import code_planes, kept_by, planes_of, semantic_plane, states_of
        from analysis.lives import lives_of
    records, layer = states_of(run, options.on, options.states, step)
    states = records.activations[layer]
    planes = planes_of(states, semantic_plane(records, run.clusters.layer, rule), run.seed, step)
    with step("measuring neighbourhoods"):
        kept = kept_by(states, lives_of(records).index, planes, options.bootstraps, run.seed)
    about = "trustworthiness {trustworthiness:.3f}, neighbours kept {neighbours:.0%}"
    captions = {row["name"]: about.format(**row) for row in kept}
    other = "" if options.on is None else options.on.resolve().name
    name = f"planes-{other}" if other else "planes"
    heading = f"{run.name}: {layer}" + (f" of {other}" if other else "")
    label = rule.labels_of(records.activations[run.clusters.layer])
    write_figure(options.run / f"{name}.png", code_planes(planes, captions, label, heading))
    write_json(options.run / f"{name}.json", kept)
    rows = [
        (row["name"], *(
            f"{row[name]:{form}} ({row[f'{name}_low']:{form}} to {row[f'{name}_high']:{form}})"
            for name, form in (("trustworthiness", ".3f"), ("neighbours", ".1%"))
        ))
        for row in kept
    ]  # fmt: skip
    command_line.print_table(("plane", "trustworthiness (chance .5)", "of 15 neighbours kept"), rows)
    say(console, f"planes: {options.run / name}.png")


def videos(options: VideoArguments, console: "Console", step: Step) -> None:
    """Write a film of each code, and one of all codes in a grid."""
    from analysis.codes.content import coded_dump
    from analysis.codes.films import stretches_of, write_films

    coded = coded_dump(options.run, options.dump, step)
    stretches = stretches_of(coded, options.source, options.seed)
    folder = options.run / ("videos" if options.source == "best" else "videos-all")
    for line in write_films(coded, stretches, folder, options.format_names, step):
        say(console, line)


def compare(options: CompareArguments, console: "Console", step: Step) -> None:
    """Measure the codes, and other ways to divide the same states."""
    from activation_store.directions import write_directions
    from analysis.codes.content import open_run
    from common.files import make_folder, write_json, write_text

    run, rule = open_run(options.run, options.dump)
    with step("loading the libraries"):
        from analysis.codes.leaderboard import MEASURES, board_table, leaderboard
    rows, axes, lives = leaderboard(run, rule, options.states, options.bootstraps, step)
    states, path = len(lives.index), options.folder / "leaderboard.json"
    make_folder(options.folder)
    write_json(path, {"states": states, "lives": len(lives), "rows": [asdict(row) for row in rows]})
    write_text(options.folder / "leaderboard.tsv", board_table(rows))
    write_directions(options.folder / "axes.safetensors", axes)
    for key, meaning in MEASURES.items():
        estimates = [(row.name, row.measures[key]) for row in rows if key in row.measures]
        if not estimates:  # tasks without a goal to go to
            continue
        console.print(f"\n{meaning}, {states:,} states of {len(lives):,} lives", highlight=False)
        shown = [(name, f"{one.value:.3f}", f"{one.low:.3f} to {one.high:.3f}") for name, one in estimates]
        command_line.print_table(("method", "value", "95% interval"), shown)
    say(console, f"leaderboard: {path}")


def agreement(options: AgreementArguments, console: "Console", step: Step) -> None:
    """Show recorded lives to other trainings, and measure whether their codes divide them in the same way."""
    from activation_store.reader import read_metadata
    from agent_zoo.checkpoint_files import policy_path
    from common.files import make_folder, sha256, write_json, write_text

    metadata = read_metadata(options.dump)
    with step("loading the libraries"):
        from analysis.codes.agreement import EVERY, HEADS, agreement_of, agreement_rows, agreement_table, load_networks
    networks = load_networks(options.dump, metadata, options.names, options.policies_dir)
    hashes = {name: sha256(policy_path(options.policies_dir, name)) for name in networks}
    pairs, lives = agreement_of(
        options.dump, metadata, networks, options.states, options.bootstraps, options.seed, step
    )
    states, path = len(lives.index), options.folder / "agreement.json"
    make_folder(options.folder)
    content = {
        "dump": str(options.dump), "checkpoint_sha256": metadata.checkpoint_sha256, "policies": hashes,
        "seed": options.seed, "bootstraps": options.bootstraps, "pairs": [asdict(pair) for pair in pairs],
        "states": states, "lives": len(lives), "one_in": EVERY,
    }  # fmt: skip
    write_json(path, content)
    write_text(options.folder / "agreement.tsv", agreement_table(pairs))
    console.print(f"\n{states:,} states, one tick in {EVERY} of {len(lives):,} lives", highlight=False)
    command_line.print_table(HEADS, agreement_rows(pairs))
    say(console, f"agreement: {path}")


COMMANDS: dict[str, Callable[[Any, "Console", Step], None]] = {
    "fit": fit, "describe": describe, "plot": plot, "videos": videos, "compare": compare, "agreement": agreement,
}  # fmt: skip


if __name__ == "__main__":
    command_line.run(main)
