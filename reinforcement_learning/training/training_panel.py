"""Format one update's metrics: a panel for a terminal, one line for a log."""

from datetime import timedelta

from rich.console import Group
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table

Metrics = dict[str, float]

PHASES = ("environment", "inference", "learning", "copying")
MOST_ON_PANEL = 6
MOST_ON_LINE = 3
_LOSSES = ("policy", "value", "entropy", "approximate_kl", "clip_fraction", "explained_variance")
_WAITING = "none ended yet"


def training_panel(metrics: Metrics, agent_steps: int, total: int, seconds: float, seconds_left: float | None) -> Panel:
    """Return a panel with the progress of training.

    Args:
        metrics: of the latest update; empty before the first.
        agent_steps: trained and collected so far.
        seconds_left: estimated; None if unknown.
    """
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column()
    for name, text in _rows(metrics):
        table.add_row(name, text)
    update = f"update {metrics['update']:,.0f}" if metrics else "first update"
    return Panel(Group(_progress(agent_steps, total, seconds, seconds_left), table), title=f"training: {update}")


def update_line(metrics: Metrics) -> str:
    """Summarise an update in one line."""
    parts = [
        f"{metrics['agent_steps']:>11,.0f} agent-steps",
        f"{metrics['agent_steps_per_second']:,.0f}/s ({_time(metrics)})",
        *(f"{name} {metrics[f'loss/{name}']:.4g}" for name in ("policy", "value", "entropy")),
    ]
    if "lives/ticks" in metrics:
        parts.append(f"life {metrics['lives/ticks']:.1f} ticks, task {metrics['lives/task_progress']:.3f}")
        parts.append(f"died: {_deaths(metrics, MOST_ON_LINE)}")
        parts.append(f"a life: {_events(metrics, MOST_ON_LINE)}")
    else:
        parts.append("no life ended")
    if "semantic/perplexity" in metrics:
        parts.append(f"codes in use {metrics['semantic/perplexity']:.1f}, weight {metrics['semantic/weight']:.2f}")
    return "  ".join(parts)


def _progress(agent_steps: int, total: int, seconds: float, seconds_left: float | None) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    table.add_column(no_wrap=True)
    left = f"{_clock(seconds_left)} left" if seconds_left is not None else "-:--:-- left"
    table.add_row(
        f"{agent_steps:,} of {total:,} agent-steps",
        ProgressBar(total=total, completed=agent_steps),
        f"{_clock(seconds)} so far, {left}",
    )
    table.expand = True
    return table


def _rows(metrics: Metrics) -> list[tuple[str, str]]:
    if not metrics:
        return [("speed", "known after the first update")]
    rows = [
        ("speed", f"{metrics['agent_steps_per_second']:,.0f} agent-steps/s: {_time(metrics)}"),
        ("losses", ", ".join(f"{_words(name)} {metrics[f'loss/{name}']:.4g}" for name in _LOSSES)),
        ("lives", _lives(metrics)),
        ("deaths", _deaths(metrics, MOST_ON_PANEL)),
        ("events a life", _events(metrics, MOST_ON_PANEL)),
    ]
    return [*rows, ("codes", _codes(metrics))] if "semantic/perplexity" in metrics else rows


def _codes(metrics: Metrics) -> str:
    return (
        f"{metrics['semantic/perplexity']:.1f} in use, {metrics['semantic/restarted_codes']:.0f} restarted, weight of "
        f"their losses {metrics['semantic/weight']:.2f}"
    )


def _time(metrics: Metrics) -> str:
    return ", ".join(f"{phase} {metrics.get(f'time/{phase}', 0):.0%}" for phase in PHASES)


def _lives(metrics: Metrics) -> str:
    if "lives/ticks" not in metrics:
        return _WAITING
    return (
        f"{metrics['lives/ended']:.0f} ended after {metrics['lives/ticks']:.1f} ticks "
        f"(median {metrics['lives/ticks_median']:.0f}), reward {metrics['lives/total_reward']:.3f}, "
        f"task progress {metrics['lives/task_progress']:.3f}, completed {metrics['lives/task_completed']:.0%}"
    )


def _deaths(metrics: Metrics, most: int) -> str:
    largest = _largest(metrics, "death/")[:most]
    return ", ".join(f"{_words(name)} {share:.0%}" for name, share in largest) or _WAITING


def _events(metrics: Metrics, most: int) -> str:
    largest = _largest(metrics, "events/")[:most]
    return ", ".join(f"{_words(name).lower()} {count:.2g}" for name, count in largest) or _WAITING


def _largest(metrics: Metrics, prefix: str) -> list[tuple[str, float]]:
    """Return the non-zero metrics of a group, largest first."""
    entries = [(key.removeprefix(prefix), value) for key, value in metrics.items() if key.startswith(prefix) and value]
    return sorted(entries, key=lambda entry: -entry[1])


def _words(name: str) -> str:
    return name.replace("_", " ").replace("npc", "NPC").replace(" kl", " KL")


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
