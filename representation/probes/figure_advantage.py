"""How much better a memory predicts each target than the best of all baselines, and what it adds to every one."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from representation.probes.figure_effects import DumpEffects, Effect, counts, figure_of_effects
from representation.probes.inputs import is_memory, title_of
from representation.probes.report import EVERY_BASELINE, DumpReport

_DUMPS_AT_MOST = 6


def probe_advantage(reports: Sequence[DumpReport], memory: str, probe: str) -> Figure:
    """Draw the advantage of one memory and kind of probe for every target, a colour for each dump.

    Of many dumps the last ones are drawn.
    """
    shown = reports[-_DUMPS_AT_MOST:]
    dumps = [
        DumpEffects(
            each.name,
            tuple(
                Effect(row.target, row.measure, row.advantage, row.low, row.high, row.q_run)
                for row in each.advantages
                if (row.memory, row.probe) == (memory, probe) and row.advantage is not None
            ),
        )
        for each in shown
    ]
    text = (
        f"Score of the {probe} probe on {title_of(memory)} minus the score of the best baseline "
        f"({', '.join(_baselines(shown))}), on held-out worlds."
    )
    headline = _headline(dumps, f"{title_of(memory)}", "predicts {} better than every baseline", "advantage")
    return figure_of_effects(dumps, headline, text, "advantage in {measure} (left of 0: a baseline is better)")


def probe_increment(reports: Sequence[DumpReport], memory: str, probe: str) -> Figure:
    """Draw what one memory adds to the baseline to which it adds least certainly, a colour for each dump.

    Of many dumps the last ones are drawn.
    """
    shown = reports[-_DUMPS_AT_MOST:]
    dumps = [
        DumpEffects(
            each.name,
            tuple(
                Effect(row.target, row.measure, row.increment, row.low, row.high, row.q_run)
                for row in each.increments
                if (row.memory, row.probe, row.baseline) == (memory, probe, EVERY_BASELINE)
                and row.increment is not None
            ),
        )
        for each in shown
    ]
    text = (
        f"Score of the {probe} probe on a baseline and {title_of(memory)} together minus the score of the baseline, "
        f"for the baseline with the largest p-value ({', '.join(_baselines(shown))}), on held-out worlds."
    )
    headline = _headline(dumps, f"{title_of(memory)}", "adds to every baseline for {}", "increment")
    return figure_of_effects(dumps, headline, text, "increment in {measure} (left of 0: the memory only adds noise)")


def _headline(dumps: Sequence[DumpEffects], memory: str, says: str, what: str) -> str:
    found, known = counts(dumps)
    if not known:
        return f"{memory}: no {what} is known"
    where = " in at least one dump" if len(dumps) > 1 else ""
    return f"{memory} {says.format(f'{found} of {known} targets')}{where}"


def _baselines(reports: Sequence[DumpReport]) -> list[str]:
    names = dict.fromkeys(name for report in reports for name in report.inputs)
    return [title_of(name) for name in names if not is_memory(name)]
