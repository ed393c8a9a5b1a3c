"""Smallest differences that dumps of different numbers of lives and episodes can detect: the table of docs/analysis.md.

    python -m benchmarks.power
    python -m benchmarks.power --runs 100 -o power.json

The dumps are synthetic: lives of 30 records each, features that follow an AR(1) process with a correlation of 0.9
between successive records, and one cluster that follows another such process. Half of the runs estimate the d that is
detected with 80% power, as the verdict of an analysis does; the other half plant that d and count how often it is
found. Worlds do not differ here, and agents do not affect each other: real dumps with as many lives have less power.
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats
from scipy.signal import lfilter

from analysis.lives import Lives
from analysis.statistics.circular_shift import circular_shift_test
from analysis.statistics.effect_intervals import detectable, effect_intervals
from analysis.statistics.inference import LEVEL, POWER, Inference
from benchmarks.measure import Output
from common import command_line
from common.user_error import UserError

LIVES_AND_EPISODES = ((30, 1), (100, 1), (500, 1), (100, 4), (500, 4), (100, 10), (500, 10))
SHARES = (0.1, 0.3)
RECORDS, FEATURES, CORRELATION = 30, 4, 0.9


@dataclass(frozen=True)
class Arguments(Output):
    """Arguments of benchmarks/power.py."""

    runs: int = 60
    """Number of synthetic dumps per row of the table, at least 10."""
    seed: int = 0
    """Seed of the synthetic dumps."""


def main() -> None:
    """Parse, measure, print."""
    arguments = command_line.parse(Arguments, __doc__)
    if arguments.runs < 10:
        raise UserError("--runs must be at least 10")
    rows = []
    print(f"| lives | episodes | cluster's share | d with {POWER:.0%} power | interval without 0 | survives |")
    print("|---|---|---|---|---|---|")
    for lives, episodes in LIVES_AND_EPISODES:
        for share in SHARES:
            row = measured(lives, episodes, share, arguments)
            found = f"{row['d']:.2f} | {row['by_interval']:.0%} | {row['survives']:.0%}"
            print(f"| {lives} | {episodes} | {share:.0%} | {found} |", flush=True)
            rows.append(row)
    arguments.write({"runs": arguments.runs, "seed": arguments.seed, "rows": rows})


def measured(lives: int, episodes: int, share: float, arguments: Arguments) -> dict[str, float]:
    """Estimate the d that such a dump detects, then how often it is detected.

    Args:
        share: of the records that are in the cluster, 0 to 1.

    Returns:
        The arguments; d: detected with 80% power; by_interval: share of dumps with that d whose interval excludes 0;
        survives: share of them in which the difference survives, as the only one among the features.
    """
    half = arguments.runs // 2
    d_values: list[float] = []
    by_interval: list[bool] = []
    survives: list[bool] = []
    for run in range(2 * half):
        rng, settings = np.random.default_rng([arguments.seed, run]), Inference(seed=run)
        d = float(np.nanmedian(d_values)) if run >= half else 0.0
        values, labels, planted_lives = planted(rng, lives, share, d)
        episode = planted_lives.index % episodes
        intervals = effect_intervals(values, labels, planted_lives, episode, settings)
        if run < half:
            d_values.append(float(np.median(detectable(intervals, settings.confidence))))
            continue
        test = circular_shift_test(values, labels, planted_lives, settings.permutations, run, episode)
        by_interval.append(bool(intervals.complement_low[0, 0] > 0))
        survives.append(by_interval[-1] and bool(test.q[0, 0] <= LEVEL) and bool(test.direction[0, 0] > 0))
    return {
        "lives": lives, "episodes": episodes, "share": share, "d": float(np.nanmedian(d_values)),
        "by_interval": float(np.mean(by_interval)), "survives": float(np.mean(survives)),
    }  # fmt: skip


def planted(rng: np.random.Generator, lives: int, share: float, d: float) -> tuple[np.ndarray, np.ndarray, Lives]:
    """Return features, of which the first is higher by d in the cluster, labels and lives."""
    noise = rng.normal(size=(lives, RECORDS, FEATURES + 1)) * np.sqrt(1 - CORRELATION**2)
    noise[:, 0] /= np.sqrt(1 - CORRELATION**2)
    values = lfilter([1], [1, -CORRELATION], noise, axis=1).reshape(-1, FEATURES + 1)
    inside = values[:, -1] > stats.norm.isf(share)
    values[:, 0] += d * inside
    index = np.repeat(np.arange(lives), RECORDS)
    return (
        values[:, :-1],
        np.where(inside, 0, -1),
        Lives(index, np.arange(len(index)), np.arange(lives) * RECORDS, np.full(lives, RECORDS)),
    )


if __name__ == "__main__":
    command_line.run(main)
