"""Measure what a policy's hidden state knows, and whether it knows more than its input says.

    python train_probes.py activation_data/NAME
    python train_probes.py activation_data/A activation_data/B --targets self_health,self_food,hidden
    python train_probes.py activation_data/NAME_* --emergence           # checkpoints of a training
    python train_probes.py activation_data/NAME --given tick,self_row   # what is left once these are known

Record with --layers encoder_output,lstm_hidden,lstm_cell,action_decoder --untrained-twin, and 8 episodes or more.
Figures, tables, probes.json and directions.safetensors go to analysis_results/RUN/; docs/probes.md explains them.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

import command_line
from activation_store.files import sha256
from activation_store.reader import read_metadata
from activation_store.schema import METADATA_FILE, DumpMetadata
from user_error import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from activation_store.directions import Direction
    from analysis.runs.run_folder import RunFolder
    from representation.probes.dataset import Wanted
    from representation.probes.report import DumpReport

SEEDS = 2**32
LONGEST_HISTORY = 32


@dataclass(frozen=True)
class Arguments:
    """Arguments of train_probes.py."""

    dumps: tyro.conf.Positional[tuple[Path, ...]]
    """Folders that extract_activations.py wrote: policies, or checkpoints of one."""
    targets: str = "default"
    """What to predict, with commas: default (49), hidden (7 that no registry feature is), extended (all), or names."""
    inputs: str = "all"
    """What to predict it from, with commas: lstm_hidden, lstm_cell, action_decoder, encoder_output, observation,
    history, untrained; all takes what the dump holds."""
    probes: Literal["linear", "both"] = "both"
    """linear: ridge regressions, and logistic ones of yes-or-no targets; both: networks with a hidden layer too."""
    history: int = 4
    """Observations in the input `history`, the present one among them, 2 to 32."""
    subsample: int = 1
    """Keep every so many-th record of each life, from 1 (all). Fewer records favour small inputs over large ones."""
    emergence: bool = False
    """Draw scores and advantages against the agent-steps trained; needs two checkpoints or more."""
    given: str = ""
    """Names of targets, with commas: also split each R2 into what these tell, what only the memory tells, and both."""
    resamples: int = 2000
    """Of the worlds, for intervals, from 100."""
    seed: int = 0
    """Of the control tasks, the networks and the resamples, 0 to 4294967295."""
    name: str | None = None
    """Of the run's folder; by default the first dump's, with -probes."""
    output_dir: Path = Path("analysis_results")
    """Folder that the run's own folder is made in."""

    @property
    def run_name(self) -> str:
        """The run's folder."""
        return self.name or f"{self.dumps[0].resolve().name}-probes"


def main() -> None:
    """Parse, check, probe, and say where the results lie."""
    arguments = command_line.parse(Arguments, __doc__)
    check_values(arguments)
    metadata = {folder.resolve().name: read_metadata(folder) for folder in arguments.dumps}
    check_dumps(arguments, metadata)

    from analysis.runs.run_folder import RunFolder

    wanted = {name: wanted_of(arguments, each) for name, each in metadata.items()}
    run = {
        "arguments": {key: _plain(value) for key, value in asdict(arguments).items()},
        "seed": arguments.seed,
        "input": {str(folder): sha256(folder / METADATA_FILE) for folder in arguments.dumps},
    }
    with RunFolder(arguments.output_dir / arguments.run_name, run) as folder:
        probe_dumps(arguments, metadata, wanted, folder)


def check_values(arguments: Arguments) -> None:
    """Refuse values that no dump could make sense of."""
    allowed = {
        "history": (2 <= arguments.history <= LONGEST_HISTORY, f"2 to {LONGEST_HISTORY}"),
        "subsample": (arguments.subsample >= 1, "1 or more"),
        "resamples": (arguments.resamples >= 100, "100 or more"),
        "seed": (0 <= arguments.seed < SEEDS, f"0 to {SEEDS - 1}"),
    }
    for name, (fits, values) in allowed.items():
        if not fits:
            raise UserError(f"--{name} is {getattr(arguments, name)}: allowed is {values}")
    names = [folder.resolve().name for folder in arguments.dumps]
    if not names:
        raise UserError("no dump is named: give the folders that extract_activations.py wrote")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"two dumps are called {twice[0]}: results could not be told apart; rename one of the folders")


def check_dumps(arguments: Arguments, metadata: dict[str, DumpMetadata]) -> None:
    """Refuse dumps that are too small to split, or that do not belong side by side."""
    from representation.probes.dataset import check_enough_episodes
    from representation.probes.inputs import inputs_named, recorded

    for folder, each in zip(arguments.dumps, metadata.values(), strict=True):
        check_enough_episodes(folder, each)
    if not arguments.emergence:
        return
    first = next(iter(metadata.values()))
    for name, each in metadata.items():
        if each.steps_trained is None:
            raise UserError(f"--emergence: {name} does not say how long its policy was trained; leave it out")
        inputs = [recorded(inputs_named(["all"]), one) for one in (each, first)]
        if each.agent != first.agent or inputs[0] != inputs[1]:
            raise UserError(f"--emergence: {name} and {first.policy} differ in agent or layers: probe them in two runs")
    if len({each.steps_trained for each in metadata.values()}) < 2:
        raise UserError("--emergence needs checkpoints after different numbers of agent-steps: record --checkpoint all")


def wanted_of(arguments: Arguments, metadata: DumpMetadata) -> "Wanted":
    """Decide what to take from a dump."""
    from representation.probes.dataset import Wanted
    from representation.probes.inputs import inputs_named, recorded
    from representation.probes.similarity import comparable
    from representation.probes.targets import NOT_EVERYWHERE, targets_named

    named = _split(arguments.inputs)
    inputs = inputs_named(named)
    there = recorded(inputs, metadata)
    lacking = [each for each in inputs if each not in there]
    if lacking and named != ("all",):
        raise UserError(
            f"the dump of {metadata.policy} lacks layers {', '.join(lacking[0].layers)} for the input "
            f"{lacking[0].name}: leave it out, or extract again with --layers or --untrained-twin"
        )
    if not any(each.kind == "memory" for each in there):
        raise UserError(f"the dump of {metadata.policy} holds none of lstm_hidden, lstm_cell, action_decoder")
    given = targets_named(_split(arguments.given)) if arguments.given else ()
    if everywhere := [target.name for target in given if target.name in NOT_EVERYWHERE]:
        raise UserError(
            f"--given {everywhere[0]}: it does not apply to every record, so it cannot be held against them"
        )
    return Wanted(
        there, targets_named(_split(arguments.targets)), given, arguments.history, arguments.subsample,
        comparable(metadata.layers),
    )  # fmt: skip


def probe_dumps(
    arguments: Arguments, metadata: dict[str, DumpMetadata], wanted: dict[str, "Wanted"], folder: "RunFolder"
) -> None:
    """Probe one dump after the other, then write tables and figures of all."""
    from rich.console import Console

    from activation_store.directions import DIRECTIONS_FILE, write_directions
    from analysis.terminal import step
    from representation.probes import outputs

    console = Console()
    reports: list[DumpReport] = []
    directions: list[Direction] = []
    for (name, each), path in zip(metadata.items(), arguments.dumps, strict=True):
        report, found = probe_dump(arguments, path, name, each, wanted[name], console)
        reports.append(report)
        directions += found
    with step(console, "writing tables and drawing"):
        outputs.save_tables(folder, reports)
        write_directions(folder.path / DIRECTIONS_FILE, directions)
        outputs.save_figures(folder, reports, arguments.emergence)
    for report in reports:
        console.print(outputs.headline(report))
    console.print(f"figures, tables and probes.json: {folder.path}", highlight=False, markup=False, soft_wrap=True)


def probe_dump(
    arguments: Arguments, path: Path, name: str, metadata: DumpMetadata, wanted: "Wanted", console: "Console"
) -> "tuple[DumpReport, list[Direction]]":
    """Read a dump, fit all probes, and compare them; return the report and the linear read-outs."""
    from activation_store.directions import Source
    from analysis.terminal import step
    from representation.probes.commonality import commonality
    from representation.probes.dataset import read_probe_data
    from representation.probes.directions import directions_of
    from representation.probes.findings import findings
    from representation.probes.inference import Resamples
    from representation.probes.inputs import inputs_named
    from representation.probes.probing import PROBES, probe
    from representation.probes.report import chance, report_dump
    from representation.probes.similarity import similarities

    with step(console, f"{name}: reading") as progress:
        data = read_probe_data(path, wanted, progress)
    kinds = PROBES if arguments.probes == "both" else PROBES[:1]
    with step(console, f"{name}: {len(data):,} records, {data.worlds} worlds: fitting probes") as progress:
        probed = probe(data, wanted.targets, wanted.inputs, kinds, arguments.seed, progress)
    with step(console, f"{name}: comparing"):
        resamples = Resamples.draw(data.worlds, arguments.resamples, arguments.seed)
        found = findings(probed, wanted.inputs, resamples, chance(wanted.targets))
        memories = [each.name for each in wanted.inputs if each.kind == "memory"] if wanted.given else []
        given = {memory: commonality(data, memory, probed.usable, resamples) for memory in memories}
        similar = similarities(data.networks, data.lives, data.world, arguments.seed)
    asked = inputs_named(_split(arguments.inputs))
    report = report_dump(name, metadata, data, wanted.targets, asked, probed, found, given, similar)
    source = Source("probe", arguments.run_name, name, metadata.policy, metadata.checkpoint_sha256)
    return report, directions_of(data, wanted.targets, probed.read_outs, source)


def _split(names: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in names.split(",") if name.strip())


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [str(each) for each in value]
    return str(value) if isinstance(value, Path) else value


if __name__ == "__main__":
    command_line.run(main)
