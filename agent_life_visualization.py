"""Draw an agent's life tick by tick: its state, what it saw, did and met, and the clusters of its hidden states.

    python agent_life_visualization.py activation_data/NAME
    python agent_life_visualization.py activation_data/NAME --agent 17 --episode 2
    python agent_life_visualization.py activation_data/NAME --num_agents 5 --cluster_dir analysis_results/RUN

One figure per life, and lives.json with all events, are written to agent_plots/NAME-..., named after the settings.
"""

import common.environment_check  # isort: skip  # noqa: F401 (must come first)

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from activation_store.reader import read_dump, read_identity, read_metadata
from activation_store.schema import DumpMetadata
from common import argument_checks, command_line
from common.argument_checks import at_least, result_name, seed_value
from common.number_text import plural
from common.progress_view import say, step
from common.result_places import OutputFolder

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console

    from analysis.runs.propagated_labels import PropagatedLabels
    from analysis.runs.run_folder import RunFolder


@dataclass(frozen=True)
class Arguments:
    """Arguments of agent_life_visualization.py."""

    dump: tyro.conf.Positional[Path]
    """Dump: a folder written by extract_activations.py, such as activation_data/NAME."""
    num_agents: int = 1
    """Number of lives to draw, at least 1. A single life is the one at the 75th percentile of lifespan; several are
    chosen at random from the longer half of the lives."""
    agent: int | None = None
    """Only choose lives of the agent with this id (from 1)."""
    episode: int | None = None
    """Only choose lives of the episode with this number (from 0)."""
    cluster_dir: Path | None = None
    """Show the clusters of this run of analyze_activations.py on the same dump."""
    seed: int = 42
    """Seed for choosing lives at random, 0 to 4294967295."""
    name: str | None = None
    """Name of the folder of results; by default made of the dump, the lives and the clusters."""
    output: OutputFolder = Path("agent_plots")
    """Folder that --name goes into."""

    @property
    def folder(self) -> Path:
        """Folder of results."""
        return self.output / (self.name or self.run_name)

    @property
    def run_name(self) -> str:
        """Name of the folder of figures, from the dump, the lives and the clusters."""
        chosen = [f"-{name}{value}" for name in ("agent", "episode") if (value := getattr(self, name)) is not None]
        drawn = "-p75" if self.num_agents == 1 else f"-n{self.num_agents}-seed{self.seed}"
        clusters = f"-clusters-of-{self.cluster_dir.resolve().name}" if self.cluster_dir else ""
        return "".join([self.dump.resolve().name, *chosen, drawn, clusters])


def main() -> None:
    """Parse, check, choose lives, read, draw, and print where the figures are."""
    arguments = command_line.parse(Arguments, __doc__)
    check_values(arguments)
    metadata = read_metadata(arguments.dump)

    from rich.console import Console

    from analysis.life.selection import choose, life_spans, matching
    from analysis.runs.cluster_run import read_cluster_run
    from analysis.runs.propagated_labels import label_records
    from analysis.runs.run_folder import RunFolder, description

    console = Console()
    run = read_cluster_run(arguments.cluster_dir, arguments.dump) if arguments.cluster_dir else None
    with step(console, "finding the lives"):
        lives, _ = life_spans(read_identity(arguments.dump))
        lives = matching(lives, arguments.agent, arguments.episode, str(arguments.dump))
        chosen = choose(lives, arguments.num_agents, arguments.seed)
    if len(chosen) < arguments.num_agents:
        console.print(f"only {len(chosen)} of {arguments.num_agents} lives drawn: the longer half has no more")
    with RunFolder(arguments.folder, description(arguments, arguments.dump, metadata)) as folder:
        propagated = None
        if run:
            propagated = label_records(run, arguments.dump, folder, console, chosen.tolist())
            console.print(propagated.rule.in_words(), highlight=False, soft_wrap=True)
        draw(arguments, metadata, chosen, propagated, folder, console)
    say(console, f"figures and lives.json: {folder.path}")


def check_values(arguments: Arguments) -> None:
    """Refuse values that are invalid for any dump."""
    argument_checks.check(
        arguments,
        name=result_name(arguments.name),
        num_agents=at_least(arguments.num_agents, 1),
        agent=at_least(arguments.agent, 1),
        episode=at_least(arguments.episode, 0),
        seed=seed_value(arguments.seed),
    )


def draw(
    arguments: Arguments, metadata: DumpMetadata, lives: "np.ndarray", propagated: "PropagatedLabels | None",
    folder: "RunFolder", console: "Console",
) -> None:  # fmt: skip
    """Read the episodes of the chosen lives, draw a figure of each life, and write their events."""
    from analysis.life.life_figure import life_figure
    from analysis.life.timeline import columns_used, ending, life_summary, timeline_of

    with step(console, "reading the episodes") as report:
        records = read_dump(
            arguments.dump,
            layers=[],
            columns=columns_used(metadata),
            leave_out=["tile", "tables"],
            episodes=lives[:, 2].tolist(),
            progress=report,
        )
        timeline = timeline_of(records, metadata)
    clusters_of = f"; clusters of {arguments.cluster_dir.resolve().name}" if arguments.cluster_dir else ""
    summaries = []
    with step(console, f"drawing {plural(len(lives), 'life', 'lives')}") as report:
        for done, key in enumerate(lives.tolist()):
            life = timeline.life(timeline.number_of(key))
            labels = propagated.of(life.records) if propagated else None
            heading = f"{metadata.policy}: agent {key[1]}, episode {key[2]}"
            name = f"life_agent{key[1]}_episode{key[2]}.png"
            text = f"{len(life)} ticks, {ending(life)}{clusters_of}"
            folder.save_figure(name, life_figure(life, heading, text, labels))
            summaries.append({"figure": name, **life_summary(life, labels)})
            report((done + 1) / len(lives))
    folder.save_json("lives.json", summaries)


if __name__ == "__main__":
    command_line.run(main)
