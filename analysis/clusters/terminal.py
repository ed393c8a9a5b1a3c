"""The table and the verdict that an analysis prints at its end."""

from rich.markup import escape
from rich.table import Table

from analysis.clusters.summary import ClusterSummary, Summary
from analysis.share_text import share_text

_CLUSTERS_SHOWN = 12


def cluster_table(summary: Summary) -> Table:
    """Return a table of the largest clusters: their size, flagged confounds and description."""
    shown = summary.clusters[:_CLUSTERS_SHOWN]
    left_out = len(summary.clusters) - len(shown)
    table = Table(
        title=escape(f"{summary.policy}, {summary.layer}"),
        title_justify="left",
        caption=f"smaller clusters: {left_out}, in summary.txt" if left_out else None,
        caption_justify="left",
    )
    for name in ("cluster", "records", "share"):
        table.add_column(name, justify="right")
    table.add_column("confounds", style="red")
    table.add_column("about")
    for cluster in shown:
        table.add_row(*_cells(cluster))
    return table


def verdict_lines(summary: Summary) -> str:
    """Return the verdict without the table's content: clusters found, stability, surviving differences, flags."""
    return "\n".join(line for line in summary.verdict if not line.startswith("Cluster "))


def _cells(cluster: ClusterSummary) -> tuple[str, ...]:
    flagged = escape(", ".join(cluster.flagged)) or "-"
    about = escape(cluster.description)
    return str(cluster.label), f"{cluster.records:,}", share_text(cluster.share), flagged, about
