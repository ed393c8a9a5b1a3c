"""A run of probes: which dumps go together, what to take from each, fitting, comparing, and writing what was found."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from activation_store.directions import DIRECTIONS_FILE, Direction, Source, write_directions
from activation_store.recording import record_again
from activation_store.schema import DumpMetadata
from analysis.features.feature import Feature
from analysis.probes.dataset import ProbeData, Wanted, check_enough_episodes, read_probe_data
from analysis.probes.figures_curves import (
    has_history_curve,
    has_horizons,
    probe_emergence,
    probe_history,
    probe_horizon,
)
from analysis.probes.figures_targets import probe_advantage, probe_increment, probe_summary
from analysis.probes.inputs import MEMORIES, NAMES, StoredInputs, inputs_named, recorded
from analysis.probes.probing import PROBES, do_here, do_on_ray, probe
from analysis.probes.report import (
    EVERY_BASELINE,
    AdvantageRow,
    DumpReport,
    IncrementRow,
    chance,
    commonality,
    corrected_over_run,
    findings,
    is_found,
    report_dump,
)  # fmt: skip
from analysis.probes.ridge import ReadOuts
from analysis.probes.scores import comparable, draw_worlds, similarities
from analysis.probes.settings import ProbeSettings
from analysis.probes.targets import NOT_EVERYWHERE, targets_named
from analysis.runs.run_folder import RunFolder
from analysis.statistics.inference import LEVEL
from analysis.tables import tab_separated
from common.argument_checks import split
from common.command_line import terminal_table
from common.number_text import format_p, plural, share_text
from common.progress_view import step
from common.user_error import UserError

_SHOWN = 12
_TABLES = ("scores", "advantages", "increments", "increments_given", "given", "cka")
LOG_ODDS = "log-odds"


def save_figures(folder: RunFolder, reports: Sequence[DumpReport], emergence: bool) -> None:
    """Draw the summary, advantages and increments, and where asked for the look back, the horizon and the training."""
    memory, probe = headline_of(reports)
    folder.save_figure("probe_summary.png", probe_summary(reports))
    folder.save_figure("probe_advantage.png", probe_advantage(reports, memory, probe))
    folder.save_figure("probe_increment.png", probe_increment(reports, memory, probe))
    if has_history_curve(reports):
        folder.save_figure("probe_history.png", probe_history(reports, memory, probe))
    if has_horizons(reports):
        folder.save_figure("probe_horizon.png", probe_horizon(reports, memory, probe))
    if emergence:
        in_order = sorted(reports, key=lambda report: report.steps_trained or 0)
        folder.save_figure("probe_emergence.png", probe_emergence(in_order, memory, probe))


def headline_of(reports: Sequence[DumpReport]) -> tuple[str, str]:
    """Return the memory and the probe that the headline is about: the first memory that all dumps hold, linear."""
    shared = set.intersection(*(set(report.inputs) for report in reports))
    everywhere = [name for name in MEMORIES if name in shared]
    memories = everywhere or [name for name in MEMORIES if name in reports[0].inputs]
    return memories[0], reports[0].scores[0].probe


def headline(report: DumpReport) -> Table:
    """Return a table of the targets of a dump to which the memory adds most; selectivity is in the tables of files."""
    memory, probe = headline_of([report])
    rows = [r for r in report.advantages if (r.memory, r.probe) == (memory, probe)]
    rows = [row for row in rows if row.advantage is not None] or rows
    wanted = (memory, probe, EVERY_BASELINE)
    added = {r.target: r for r in report.increments if (r.memory, r.probe, r.baseline) == wanted}
    most = {target: row.increment for target, row in added.items() if row.increment is not None}
    rows.sort(key=lambda row: -most.get(row.target, -math.inf))
    skipped = [target["name"] for target in report.targets if target["reason"]]
    caption = "\n".join(_statements(report, memory))
    caption += f"; not probed: {', '.join(skipped)}" if skipped else ""
    caption += f"; not in the dump: {', '.join(report.missing)}" if report.missing else ""
    return terminal_table(
        ("target", "score", "best baseline", "advantage", "increment", "its q"),
        [_cells(row, added.get(row.target)) for row in rows[:_SHOWN]],
        left=("target", "best baseline"),
        title=f"{report.name}: {memory}, {probe} probe, {report.worlds} {report.worlds_are}",
        caption=caption,
    )


def _statements(report: DumpReport, memory: str) -> list[str]:
    """Say for how many targets the memory is better than every baseline, or adds to it; and how much is unknown."""
    known = len({row.target for row in report.advantages if row.advantage is not None})
    if not known:
        return [
            "No baseline is among the inputs, so nothing is compared: add some, such as --inputs observation,history"
        ]
    probes = list(dict.fromkeys(row.probe for row in report.advantages))
    by = "both kinds of probe" if len(probes) > 1 else f"the {probes[0]} probe"

    def count(rows: Iterable[AdvantageRow | IncrementRow]) -> int:
        found = {(row.target, row.probe) for row in rows if row.memory == memory and is_found(row)}
        return sum(all((target, probe) in found for probe in probes) for target in {target for target, _ in found})

    adds, adds_given = (
        count(row for row in rows if row.baseline == EVERY_BASELINE)
        for rows in (report.increments, report.increments_given)
    )
    statements = [
        f"By {by}, at a false discovery rate of {LEVEL:.0%} over the run: the memory adds to every baseline for "
        f"{adds} of {known} targets, and is better than every baseline for {count(report.advantages)}"
    ]
    if report.increments_given:
        statements.append(f"Once the given variables are known, it adds to every baseline for {adds_given}")
    unknown = [1 - target["records"] / report.records for target in report.targets if not target["reason"]]
    if partly := [share for share in unknown if share > 0]:
        low, high = share_text(min(partly)), share_text(max(partly))
        statements.append(
            f"For {plural(len(partly), 'target')}, {low} to {high} of the records are left out: there, the target "
            "does not apply or its future was not recorded (probe_scores.tsv has the numbers)"
        )
    return statements


def _cells(row: AdvantageRow, added: IncrementRow | None) -> tuple[str, ...]:
    return (
        row.target,
        f"{_number(row.score)} {row.measure}",
        f"{row.best_baseline} ({row.best_baseline_probe})" if row.best_baseline else "none",
        _with_interval(row.advantage, row.low, row.high),
        _with_interval(added.increment, added.low, added.high) if added else "n/a",
        format_p(math.nan if added is None or added.q_run is None else added.q_run),
    )


def _with_interval(value: float | None, low: float | None, high: float | None) -> str:
    return _number(value) + (f" ({_number(low)} to {_number(high)})" if low is not None else "")


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3f}"


def directions_of(
    data: ProbeData, targets: Sequence[Feature], read_outs: dict[str, ReadOuts], source: Source
) -> list[Direction]:
    """Return a direction `DUMP/LAYER/TARGET` of every linear probe that was fitted.

    Its read-out is the probe's prediction: of the target in its own unit, or of the log-odds of a yes. A probe whose
    weights are all zero is left out: it predicts the same of every record. Targets are in the order of the columns, as
    are the read-outs of each memory, fitted to all records; NaN where a target was not.
    """
    directions = []
    for layer, read_out in read_outs.items():
        x = data.inputs[layer]  # (B, C)
        centre = x.mean(axis=0, dtype=np.float64)
        for column, target in enumerate(targets):
            weight = read_out.weight[:, column].astype(np.float32)  # (C,)
            if not np.isfinite(read_out.bias[column]) or not weight.any():
                continue
            # What rounding the weights took from the mean record's read-out goes into the bias.
            bias = float(read_out.bias[column] + centre @ (read_out.weight[:, column] - weight))
            every_unit = np.zeros(len(data.varying[layer]), np.float32)
            every_unit[data.varying[layer]] = weight
            applies = np.isfinite(data.targets[:, column])  # (B,)
            value = np.einsum("bc,c->b", x, weight, dtype=np.float64)[applies] + bias
            lives, episodes = (len(np.unique(of[applies])) for of in (data.lives.index, data.episode))
            directions.append(
                Direction(
                    f"{source.dump}/{layer}/{target.name}", layer, every_unit, bias,
                    LOG_ODDS if target.yes_or_no else target.unit, float(value.mean()), float(value.std()),
                    int(applies.sum()), lives, episodes, source,
                )
            )  # fmt: skip
    return directions


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
    named = split(settings.inputs)
    inputs = settings.requested
    if not any(source.kind == "memory" for source in inputs):
        raise UserError(f"--inputs {settings.inputs} names no memory, which probes are about: add {MEMORIES[0]}, say")
    there = recorded(inputs, metadata)
    names = {source.name for source in there}
    optional = set(NAMES) - set(named) if "all" in named else set()
    lacking = [source for source in inputs if source.name not in names | optional]
    if lacking:
        raise UserError(
            f"{dump} lacks layers {', '.join(lacking[0].layers)} for the input {lacking[0].name}: leave it out, or "
            f"{record_again(dump, metadata)}"
        )
    if not any(source.kind == "memory" for source in there):
        raise UserError(f"{dump} holds none of lstm_hidden, lstm_cell, action_decoder: {record_again(dump, metadata)}")
    given = targets_named(split(settings.given)) if settings.given else ()
    if everywhere := [target.name for target in given if target.name in NOT_EVERYWHERE]:
        raise UserError(
            f"--given {everywhere[0]}: it does not apply to every record, so it cannot be held against them"
        )
    return Wanted(there, targets_named(split(settings.targets)), given, settings.thinning, comparable(metadata.layers))


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
        plain = [asdict(report) for report in reports]
        folder.save_json("probes.json", {"dumps": plain})
        for table in _TABLES:
            if rows := [row for report in plain for row in report[table]]:
                folder.save_text(f"probe_{table}.tsv", tab_separated(rows))
        write_directions(folder.path / DIRECTIONS_FILE, directions)
        save_figures(folder, reports, settings.emergence)
    for report in reports:
        console.print(headline(report))


def probe_dump(
    settings: ProbeSettings, path: Path, name: str, metadata: DumpMetadata, wanted: Wanted, console: Console
) -> tuple[DumpReport, list[Direction]]:
    """Read a dump, fit all probes, and compare them; return the report and the linear read-outs."""
    kinds = PROBES if settings.probes == "both" else PROBES[:1]
    source = Source("probe", settings.run_folder.name, name, metadata.policy, metadata.checkpoint_sha256)
    # Closed before the run's folder is finished or removed, though a traceback may hold on to the data.
    with StoredInputs(settings.run_folder) as inputs:
        with step(console, f"{name}: reading") as progress:
            data = read_probe_data(path, wanted, progress, inputs)
        with step(console, f"{name}: {len(data):,} records, {data.worlds} worlds: fitting probes") as progress:
            do = do_here if settings.ray_address is None else do_on_ray
            probed = probe(data, wanted.targets, wanted.inputs, kinds, settings.seed, progress, do)
        with step(console, f"{name}: comparing"):
            weights = draw_worlds(data.worlds, settings.resamples, settings.seed)
            results = findings(probed, wanted.inputs, weights, chance(wanted.targets))
            memories = [source.name for source in wanted.inputs if source.kind == "memory"] if wanted.given else []
            given = {memory: commonality(data, memory, probed.usable, weights) for memory in memories}
            similar = similarities(data.networks, data.lives, data.world, settings.seed)
        report = report_dump(name, metadata, data, wanted.targets, settings.requested, probed, results, given, similar)
        return report, directions_of(data, wanted.targets, probed.read_outs, source)
