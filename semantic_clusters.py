"""Codes of skills in a policy's states: fit them, or read those that the policy learnt itself, and look at them.

    python semantic_clusters.py fit activation_data/NAME --codes 8         # fit a plane and a codebook to a dump
    python semantic_clusters.py fit activation_data/NAME --recorded        # codes of train.py --semantic.codes
    python semantic_clusters.py describe analysis_results/RUN              # a card for each code, and names for them
    python semantic_clusters.py plot analysis_results/RUN                  # the plane beside t-SNE and UMAP
    python semantic_clusters.py videos analysis_results/RUN                # a film of each code, and of all in a grid
    python semantic_clusters.py hover analysis_results/RUN                 # a page to point at states and open lives
    python semantic_clusters.py compare analysis_results/RUN               # codes beside UMAP and HDBSCAN, and others
    python semantic_clusters.py agreement activation_data/NAME --policies A,B   # do other trainings find these codes?
    python semantic_clusters.py COMMAND --help                             # options of a command

A run is a folder analysis_results/NAME-semantic-k8, which all scripts for clusters read too: explore.py,
cluster_life_phase.py, agent_life_visualization.py, render_replay.py and intervene.py. See docs/semantic_clusters.md.
"""

import environment_check  # isort: skip  # noqa: F401 (must come first)

import sys
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import command_line
from argument_checks import did_you_mean
from representation.semantic_clusters.options import (
    AgreementArguments,
    CompareArguments,
    DescribeArguments,
    HoverArguments,
    PlotArguments,
    RunArguments,
    VideoArguments,
)
from user_error import UserError

Options = TypeVar("Options", bound=RunArguments | AgreementArguments)


def fit(arguments: list[str]) -> None:
    """Find codes in a dump, compare them, and print where the results are."""
    from activation_store.reader import read_metadata
    from representation.semantic_clusters.settings import FitSettings

    settings = command_line.parse(FitSettings, __doc__, args=arguments, prog="semantic_clusters.py fit")
    settings.check()
    metadata = read_metadata(settings.dump)
    settings.check_against(metadata)
    features = settings.analysis.choose_features(metadata)

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


def describe(arguments: list[str]) -> None:
    """Write a card for each code, a map of where they are, and labels.yaml for their names."""
    options = _parsed(DescribeArguments, "describe", arguments)

    from dataclasses import asdict

    from rich.console import Console

    from activation_store.files import write_json, write_text
    from analysis.codes.cards import cards_of
    from analysis.codes.cards_text import cards_markdown
    from analysis.codes.content import coded_dump
    from analysis.figures.code_places import code_places
    from analysis.position import positions
    from analysis.runs.names import called, keep_names
    from analysis.runs.run_folder import write_figure
    from analysis.statistics.resampling import Bootstrap
    from analysis.terminal import step

    console = Console()
    coded = coded_dump(options.run, options.dump, partial(step, console))
    with step(console, "comparing codes with chance"):
        cards = cards_of(coded, Bootstrap(resamples=options.bootstraps, seed=options.seed), options.permutations)
    labels = keep_names(options.run, coded.labels)
    verdict = " ".join(coded.run.summary["verdict"][:3])
    text = cards_markdown(coded.run.name, cards, coded.names, verdict)
    write_text(options.run / "cards.md", text)
    write_json(options.run / "cards.json", [asdict(card) for card in cards])
    with step(console, "drawing where codes are"):
        names = [f"code {called(label, coded.names)}" for label in coded.labels]
        figure = code_places(*positions(coded.records), coded.label, names, coded.run.name)
        write_figure(options.run / "code_places.png", figure)
    console.print(text, highlight=False, markup=False)
    console.print(f"cards: {options.run / 'cards.md'}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"names of codes, for you to write: {labels}", highlight=False, markup=False, soft_wrap=True)


def _parsed(kind: type[Options], command: str, arguments: list[str]) -> Options:
    options = command_line.parse(kind, __doc__, args=arguments, prog=f"semantic_clusters.py {command}")
    options.check()
    return options


def plot(arguments: list[str]) -> None:
    """Draw the plane beside t-SNE and UMAP, and measure how well each keeps neighbourhoods."""
    options = _parsed(PlotArguments, "plot", arguments)

    from dataclasses import asdict

    from rich.console import Console

    from activation_store.files import write_json
    from analysis.codes.content import open_run
    from analysis.runs.run_folder import write_figure
    from analysis.terminal import step

    console = Console()
    run, rule = open_run(options.run, options.dump)
    with step(console, "loading the libraries"):
        from analysis.codes.planes import kept_by, planes_of, states_of
        from analysis.figures.code_planes import code_planes
    states = states_of(run, rule, options.on, options.states, partial(step, console))
    planes = planes_of(states, run.seed, partial(step, console))
    with step(console, "measuring neighbourhoods"):
        kept = kept_by(states, planes, options.bootstraps, run.seed)
    captions = {
        each.name: f"trustworthiness {each.trustworthiness:.3f}, neighbours kept {each.neighbours:.0%}" for each in kept
    }
    name = "planes" if options.on is None else f"planes-{options.on.resolve().name}"
    heading = f"{run.name}: {states.layer}" + (f" of {options.on.resolve().name}" if options.on else "")
    write_figure(options.run / f"{name}.png", code_planes(planes, captions, states.label, heading))
    write_json(options.run / f"{name}.json", [asdict(each) for each in kept])
    rows = [
        (each.name, f"{each.trustworthiness:.3f} ({each.trustworthiness_low:.3f} to {each.trustworthiness_high:.3f})",
         f"{each.neighbours:.1%} ({each.neighbours_low:.1%} to {each.neighbours_high:.1%})")
        for each in kept
    ]  # fmt: skip
    command_line.print_table(("plane", "trustworthiness (chance .5)", "of 15 neighbours kept"), rows)
    console.print(f"planes: {options.run / name}.png", highlight=False, markup=False, soft_wrap=True)


def videos(arguments: list[str]) -> None:
    """Write a film of each code, and one of all codes in a grid."""
    options = _parsed(VideoArguments, "videos", arguments)

    from rich.console import Console

    from analysis.codes.content import coded_dump
    from analysis.codes.films import read_scenes, write_films
    from analysis.codes.stretches import stretches_of
    from analysis.terminal import step

    console = Console()
    coded = coded_dump(options.run, options.dump, partial(step, console))
    stretches = stretches_of(coded, options.source, options.seed)
    scenes = read_scenes(coded, stretches, partial(step, console))
    folder = options.run / ("videos" if options.source == "best" else "videos-all")
    for line in write_films(scenes, folder, options.format_names, partial(step, console)):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def hover(arguments: list[str]) -> None:
    """Write the explorer's page of a run: the plane and its codes, a strip of views on hover, the life on click."""
    options = _parsed(HoverArguments, "hover", arguments)

    from rich.console import Console

    from activation_store.files import write_text
    from analysis.codes.content import open_run
    from analysis.terminal import step

    console = Console()
    run, _ = open_run(options.run, options.dump)
    with step(console, "loading the libraries"):
        from analysis.explorer_page.content import explored
        from analysis.explorer_page.page import explorer_page
    content = explored(run, options.max_ticks, partial(step, console))
    path = options.run / "hover.html"
    with step(console, f"building the page of {len(content.rows):,} states and {len(content.seen):,} ticks"):
        write_text(path, explorer_page(content))
    console.print(f"{path}: {path.stat().st_size / 1e6:.1f} MB", highlight=False, markup=False, soft_wrap=True)


def compare(arguments: list[str]) -> None:
    """Measure the codes, and other ways to divide the same states."""
    options = _parsed(CompareArguments, "compare", arguments)

    from dataclasses import asdict

    from rich.console import Console

    from activation_store.directions import write_directions
    from activation_store.files import make_folder, write_json, write_text
    from analysis.codes.content import open_run
    from analysis.terminal import step

    console = Console()
    run, rule = open_run(options.run, options.dump)
    with step(console, "loading the libraries"):
        from representation.semantic_clusters.leaderboard import MEASURES, leaderboard
    found = leaderboard(run, rule, options.states, options.bootstraps, partial(step, console))
    folder = options.output_dir or options.run
    make_folder(folder)
    path = folder / "leaderboard.json"
    write_json(path, {"states": found.states, "lives": found.lives, "rows": [asdict(row) for row in found.rows]})
    write_text(folder / "leaderboard.tsv", found.table())
    write_directions(folder / "axes.safetensors", found.axes)
    for key, meaning in MEASURES.items():
        console.print(f"\n{meaning}, {found.states:,} states of {found.lives:,} lives", highlight=False)
        estimates = [(row.name, row.measures[key]) for row in found.rows]
        shown = [(name, f"{each.value:.3f}", f"{each.low:.3f} to {each.high:.3f}") for name, each in estimates]
        command_line.print_table(("method", "value", "95% interval"), shown)
    console.print(f"leaderboard: {path}", highlight=False, markup=False, soft_wrap=True)


def agreement(arguments: list[str]) -> None:
    """Show recorded lives to other trainings, and measure whether their codes divide them in the same way."""
    options = _parsed(AgreementArguments, "agreement", arguments)

    from dataclasses import asdict

    from rich.console import Console

    from activation_store.files import make_folder, write_json, write_text
    from activation_store.reader import read_metadata
    from analysis.terminal import step

    console, metadata = Console(), read_metadata(options.dump)
    with step(console, "loading the libraries"):
        from representation.semantic_clusters.agreement import HEADS, agreement_of
        from representation.semantic_clusters.replayed import load_networks
    networks = load_networks(options.dump, metadata, options.names, options.policies_dir)
    shown = partial(step, console)
    found = agreement_of(options.dump, metadata, networks, options.states, options.bootstraps, options.seed, shown)
    make_folder(options.folder)
    path = options.folder / "agreement.json"
    hashes = {each.name: each.sha256 for each in networks}
    told = {"dump": str(options.dump), "checkpoint_sha256": metadata.checkpoint_sha256, "policies": hashes}
    write_json(path, {**told, "seed": options.seed, "bootstraps": options.bootstraps, **asdict(found)})
    write_text(options.folder / "agreement.tsv", found.table())
    console.print(f"\n{found.states:,} states, one tick in {found.one_in} of {found.lives:,} lives", highlight=False)
    command_line.print_table(HEADS, found.rows())
    console.print(f"agreement: {path}", highlight=False, markup=False, soft_wrap=True)


COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "fit": fit, "describe": describe, "plot": plot, "videos": videos, "hover": hover, "compare": compare,
    "agreement": agreement,
}  # fmt: skip


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
