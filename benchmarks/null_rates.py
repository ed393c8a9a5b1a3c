"""False findings where there is nothing to find, and power where there is: the tables of docs/benchmarks.md.

    python -m benchmarks.null_rates
    python -m benchmarks.null_rates --runs 400 --only "six states" --orders 999 -o null_rates.json

Each case draws synthetic lives anew in every run and passes them to the functions that cluster_life_phase.py and
analyze_activations.py use; cases called "verdicts" pass lives of planted edits to those of intervene.py. A run has a
finding if any of its tests has q <= 0.05 and whatever else the scripts ask for. Intervals of the shares are exact
(Clopper and Pearson 1934), 95%. Planted cases run on the same kind of lives, with something to find. Progress goes to
standard error.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from scipy import stats

from analysis.statistics.inference import LEVEL, Inference
from benchmarks.measure import Output
from benchmarks.null_rates_controls import blindness, floors, ranked_pairs, saliency_checks, verdict_cases
from benchmarks.null_rates_lives import (
    LIMIT,
    NULL,
    ORDERS,
    POWER,
    Case,
    null_differences,
    null_orders,
    planted_differences,
    planted_orders,
    trainings,
)
from common import command_line, progress_view
from common.user_error import UserError

HEAD = "| case | looked for | runs | found | share | 95% interval |\n|---|---|---|---|---|---|"


@dataclass(frozen=True)
class Arguments(Output):
    """Arguments of benchmarks/null_rates.py."""

    runs: int = 200
    """Number of synthetic dumps per case, at least 10."""
    orders: int = 199
    """Random orders of visits per test of what follows what, at least 99; cluster_life_phase.py draws 1000."""
    permutations: int = 999
    """Shifts per test of a difference, and resamples per interval, at least 99; 999 as in analyze_activations.py."""
    only: str = ""
    """Only run cases whose name contains this text, such as "orders:" or "differences:"."""
    seed: int = 0
    """Seed of the synthetic dumps."""


def main() -> None:
    """Parse, run all cases, print a row for each as it is finished."""
    arguments = command_line.parse(Arguments, __doc__)
    if arguments.runs < 10 or min(arguments.orders, arguments.permutations) < 99:
        raise UserError("--runs must be at least 10, --orders and --permutations at least 99")
    cases = [case for case in all_cases() if arguments.only in case[1]]
    if not cases:
        raise UserError(f"no case has a name that contains {arguments.only!r}")
    rows: list[dict[str, Any]] = []
    for kind in (NULL, LIMIT, POWER):
        chosen = [case for case in cases if case[0] == kind]
        if chosen:
            print(f"\n{kind}:\n\n{HEAD}")
        for case in chosen:
            rows += measured(case, arguments)
    above = [f"{row['case']} ({row['looked_for']})" for row in rows if row["kind"] == NULL and row["low"] > LEVEL]
    print(f"\nnulls with more than {LEVEL:.0%} beyond doubt: {'; '.join(above) or 'none'}")
    settings = {name: getattr(arguments, name) for name in ("runs", "orders", "permutations", "seed")}
    arguments.write({**settings, "rows": rows})


def measured(case: Case, arguments: Arguments) -> list[dict[str, Any]]:
    """Run one case as often as asked for, and print its rows: `found` of `runs` runs, and the share's 95% interval."""
    kind, name, run_once = case
    counts: Counter[str] = Counter()
    with progress_view.progress(name, "runs", Console(stderr=True)) as report:
        for run in range(arguments.runs):
            number = arguments.orders if name.startswith(ORDERS) else arguments.permutations
            settings = Inference(number, number, seed=run)
            counts.update(run_once(np.random.default_rng([arguments.seed, run]), settings))
            report(run + 1, arguments.runs)
    rows = []
    for looked_for, times in counts.items():
        interval = stats.binomtest(times, arguments.runs).proportion_ci()
        rows.append({
            "kind": kind, "case": name, "looked_for": looked_for, "runs": arguments.runs, "found": times,
            "low": interval.low, "high": interval.high,
        })  # fmt: skip
        print(
            f"| {name} | {looked_for} | {arguments.runs} | {times} | {times / arguments.runs:.1%} "
            f"| {interval.low:.1%} to {interval.high:.1%} |",
            flush=True,
        )
    return rows


def all_cases() -> list[Case]:
    """Return all cases, in the order of the tables."""
    return [
        *null_orders(), *null_differences(), *ranked_pairs(), *planted_orders(), *planted_differences(), *trainings(),
        *verdict_cases(), *saliency_checks(), *floors(), *blindness(),
    ]  # fmt: skip


if __name__ == "__main__":
    command_line.run(main)
