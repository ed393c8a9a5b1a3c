"""What a run of probes leaves: tables, figures, read-outs, and the lines that a terminal shows."""

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from analysis.runs.run_folder import RunFolder
from representation.probes.figure_advantage import LEVEL, probe_advantage
from representation.probes.figure_emergence import probe_emergence
from representation.probes.figure_summary import probe_summary
from representation.probes.inputs import INPUTS
from representation.probes.report import AdvantageRow, CKARow, DumpReport, GivenRow, ScoreRow, table

_SHOWN = 12
_TABLES = {"scores": ScoreRow, "advantages": AdvantageRow, "given": GivenRow, "cka": CKARow}


def save_tables(folder: RunFolder, reports: Sequence[DumpReport]) -> None:
    """Write probes.json and a tab-separated table for every kind of row that there is."""
    folder.save_json("probes.json", {"dumps": [report.to_json() for report in reports]})
    for name, kind in _TABLES.items():
        rows = [row for report in reports for row in getattr(report, name)]
        if rows:
            folder.save_text(f"probe_{name}.tsv", table(rows, kind))


def save_figures(folder: RunFolder, reports: Sequence[DumpReport], emergence: bool) -> None:
    """Draw the summary, the advantages, and on request how they came about."""
    memory, probe = headline_of(reports)
    folder.save_figure("probe_summary.png", probe_summary(reports))
    folder.save_figure("probe_advantage.png", probe_advantage(reports, memory, probe))
    if emergence:
        in_order = sorted(reports, key=lambda report: report.steps_trained or 0)
        folder.save_figure("probe_emergence.png", probe_emergence(in_order, memory, probe))


def headline_of(reports: Sequence[DumpReport]) -> tuple[str, str]:
    """Return the memory and the probe that the headline is about: the first memory that all dumps hold, linear."""
    shared = set.intersection(*(set(report.inputs) for report in reports))
    everywhere = [each.name for each in INPUTS if each.kind == "memory" and each.name in shared]
    memories = everywhere or [each.name for each in INPUTS if each.kind == "memory" and each.name in reports[0].inputs]
    return memories[0], reports[0].scores[0].probe


def headline(report: DumpReport) -> Table:
    """Return a table of the largest advantages of a dump."""
    memory, probe = headline_of([report])
    rows = [r for r in report.advantages if (r.memory, r.probe) == (memory, probe) and r.advantage is not None]
    rows.sort(key=lambda row: -(row.advantage or 0.0))
    found = sum(row.q is not None and row.q < LEVEL and (row.advantage or 0) > 0 for row in rows)
    skipped = [target["name"] for target in report.targets if target["reason"]]
    caption = f"{found} of {len(rows)} targets have an advantage at a false discovery rate of {LEVEL:.0%}"
    caption += f"; not probed: {', '.join(skipped)}" if skipped else ""
    caption += f"; not in the dump: {', '.join(report.missing)}" if report.missing else ""
    shown = Table(
        title=escape(f"{report.name}: {memory}, {probe} probe, {report.worlds} {report.worlds_are}"),
        title_justify="left", caption=escape(caption), caption_justify="left",
    )  # fmt: skip
    for name in ("target", "score", "best baseline", "advantage", "q", "selectivity"):
        # Names begin alike: cut short, they could not be told apart.
        shown.add_column(
            name, justify="left" if name in ("target", "best baseline") else "right", no_wrap=name == "target",
            overflow="fold",
        )  # fmt: skip
    for row in rows[:_SHOWN]:
        shown.add_row(*_cells(row))
    return shown


def _cells(row: AdvantageRow) -> tuple[str, ...]:
    interval = f" ({_number(row.low)} to {_number(row.high)})" if row.low is not None else ""
    return (
        row.target,
        f"{_number(row.score)} {row.measure}",
        f"{row.best_baseline} ({row.best_baseline_probe})",
        _number(row.advantage) + interval,
        _number(row.q),
        _number(row.selectivity),
    )


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3f}"
