"""A run of probes: which dumps go together, what to take from each, fitting, comparing, and writing what was found."""

from pathlib import Path

from rich.console import Console

from activation_store.directions import DIRECTIONS_FILE, Direction, Source, write_directions
from activation_store.recording import record_again
from activation_store.schema import DumpMetadata
from analysis.probes import outputs
from analysis.probes.dataset import Wanted, check_enough_episodes, read_probe_data
from analysis.probes.findings import commonality, findings
from analysis.probes.inputs import inputs_named, recorded
from analysis.probes.outputs import directions_of
from analysis.probes.probing import PROBES, probe
from analysis.probes.report import DumpReport, chance, corrected_over_run, report_dump
from analysis.probes.scores import Resamples
from analysis.probes.settings import ProbeSettings
from analysis.probes.similarity import comparable, similarities
from analysis.probes.targets import NOT_EVERYWHERE, targets_named
from analysis.runs.run_folder import RunFolder
from common.progress_view import step
from common.user_error import UserError


def check_dumps(settings: ProbeSettings, metadata: dict[str, DumpMetadata]) -> None:
    """Refuse dumps that are too small to split, or that do not belong side by side."""
    for folder, dump in zip(settings.dumps, metadata.values(), strict=True):
        check_enough_episodes(folder, dump)
    if not settings.emergence:
        return
    first = next(iter(metadata.values()))
    for name, dump in metadata.items():
        if dump.steps_trained is None:
            raise UserError(f"--emergence: {name} does not say how long its policy was trained; leave it out")
        inputs = [recorded(inputs_named(["all"], [2]), one) for one in (dump, first)]
        if dump.agent != first.agent or inputs[0] != inputs[1]:
            raise UserError(f"--emergence: {name} and {first.policy} differ in agent or layers: probe them in two runs")
    if len({dump.steps_trained for dump in metadata.values()}) < 2:
        raise UserError("--emergence needs checkpoints after different numbers of agent-steps: record --checkpoint all")


def wanted_of(settings: ProbeSettings, dump: Path, metadata: DumpMetadata) -> Wanted:
    """Decide what to take from a dump, a folder."""
    named = settings.input_names
    inputs = inputs_named(named, settings.histories)
    there = recorded(inputs, metadata)
    names = {source.name for source in there}
    lacking = [source for source in inputs if source.name not in names]
    if lacking and named != ("all",):
        raise UserError(
            f"{dump} lacks layers {', '.join(lacking[0].layers)} for the input {lacking[0].name}: leave it out, or "
            f"{record_again(dump, metadata)}"
        )
    if not any(source.kind == "memory" for source in there):
        raise UserError(f"{dump} holds none of lstm_hidden, lstm_cell, action_decoder: {record_again(dump, metadata)}")
    given = targets_named(settings.given_names) if settings.given else ()
    if everywhere := [target.name for target in given if target.name in NOT_EVERYWHERE]:
        raise UserError(
            f"--given {everywhere[0]}: it does not apply to every record, so it cannot be held against them"
        )
    return Wanted(
        there, targets_named(settings.target_names), given, settings.thinning, settings.seed,
        comparable(metadata.layers),
    )  # fmt: skip


def probe_dumps(
    settings: ProbeSettings, metadata: dict[str, DumpMetadata], wanted: dict[str, Wanted], folder: RunFolder
) -> None:
    """Probe one dump after the other, then write tables and figures of all."""
    console = Console()
    reports: list[DumpReport] = []
    directions: list[Direction] = []
    for (name, dump), path in zip(metadata.items(), settings.dumps, strict=True):
        report, dump_directions = probe_dump(settings, path, name, dump, wanted[name], console)
        reports.append(report)
        directions += dump_directions
    reports = corrected_over_run(reports)
    with step(console, "writing tables and drawing"):
        outputs.save_tables(folder, reports)
        write_directions(folder.path / DIRECTIONS_FILE, directions)
        outputs.save_figures(folder, reports, settings.emergence)
    for report in reports:
        console.print(outputs.headline(report))


def probe_dump(
    settings: ProbeSettings, path: Path, name: str, metadata: DumpMetadata, wanted: Wanted, console: Console
) -> tuple[DumpReport, list[Direction]]:
    """Read a dump, fit all probes, and compare them; return the report and the linear read-outs."""
    with step(console, f"{name}: reading") as progress:
        data = read_probe_data(path, wanted, progress)
    kinds = PROBES if settings.probes == "both" else PROBES[:1]
    with step(console, f"{name}: {len(data):,} records, {data.worlds} worlds: fitting probes") as progress:
        probed = probe(data, wanted.targets, wanted.inputs, kinds, settings.seed, progress)
    with step(console, f"{name}: comparing"):
        resamples = Resamples.draw(data.worlds, settings.resamples, settings.seed)
        results = findings(probed, wanted.inputs, resamples, chance(wanted.targets))
        memories = [source.name for source in wanted.inputs if source.kind == "memory"] if wanted.given else []
        given = {memory: commonality(data, memory, probed.usable, resamples) for memory in memories}
        similar = similarities(data.networks, data.lives, data.world, settings.seed)
    requested = inputs_named(settings.input_names, settings.histories)
    report = report_dump(name, metadata, data, wanted.targets, requested, probed, results, given, similar)
    source = Source("probe", settings.run_folder.name, name, metadata.policy, metadata.checkpoint_sha256)
    return report, directions_of(data, wanted.targets, probed.read_outs, source)
