"""What an analysis shows on the terminal: the step it is at, and at the end a table."""

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from analysis.summary import ClusterSummary, Summary, format_number

_CLUSTERS_SHOWN = 12
_EFFECTS_SHOWN = 3


@contextlib.contextmanager
def step(console: Console, description: str) -> Iterator[Callable[[float], None]]:
    """Show that a step runs, then say how long it took; yields a callback for the share done, from 0 to 1.

    The bar only pulses until the callback is first called. Off a terminal only the closing line appears.
    """
    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    started = time.monotonic()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(description, total=None)
        yield lambda share: bar.update(task, completed=share, total=1.0)
    console.print(f"{description}: {time.monotonic() - started:.1f} s", highlight=False)


def cluster_table(summary: Summary) -> Table:
    """Return one row for each of the largest clusters: its size, the confounds that are low, its strongest effects."""
    shown = summary.clusters[:_CLUSTERS_SHOWN]
    left_out = len(summary.clusters) - len(shown)
    table = Table(
        title=escape(f"{summary.policy}, {summary.layer}"),
        title_justify="left",
        caption=f"{left_out} smaller clusters are in summary.txt" if left_out else None,
        caption_justify="left",
    )
    for name in ("cluster", "records", "share"):
        table.add_column(name, justify="right")
    table.add_column("LOW evenness", style="red")
    table.add_column("strongest effects (Cohen's d)")
    for cluster in shown:
        table.add_row(*_cells(cluster))
    return table


def coverage_line(summary: Summary) -> str:
    """Return how many clusters there are, and how much of the records they leave out."""
    return (
        f"{len(summary.clusters)} clusters hold {summary.coverage:.1%} of {summary.records:,} records; "
        f"{summary.noise_share:.1%} are noise"
    )


def _cells(cluster: ClusterSummary) -> tuple[str, ...]:
    effects = (f"{e.name} {format_number(e.d_baseline, sign=True)}" for e in cluster.strongest[:_EFFECTS_SHOWN])
    low = ", ".join(cluster.low) or "-"
    return str(cluster.label), f"{cluster.records:,}", f"{cluster.share:.1%}", low, "\n".join(effects)
