"""Time to fit all probes of a dump, and our logistic regression compared with scikit-learn's.

    python -m benchmarks.probes activation_data/NAME
    python -m benchmarks.probes activation_data/NAME --output probes.json

Wall-clock and processor time on all cores of this machine; run it while nothing else is running. The binary targets are
also classified from every layer with scikit-learn's logistic regression on the same folds, with five penalties and a
limited number of steps each. For both implementations the best penalty is used, so the scores should be equal.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import tyro

from activation_store.reader import read_metadata
from activation_store.selection import Subsample
from analysis.features.feature import Feature
from analysis.probes.dataset import ProbeData, Wanted, read_probe_data
from analysis.probes.inputs import Input, inputs_named, recorded
from analysis.probes.logistic import fit_logistic
from analysis.probes.probing import PROBES, mean_of_the_rest, probe, why_not
from analysis.probes.ridge import ALL_FOLDS, Choice
from analysis.probes.scores import losses
from analysis.probes.targets import targets_named
from analysis.runs.run_folder import versions
from analysis.statistics.resampling import folds_of
from benchmarks.measure import Output
from common import command_line
from common.user_error import UserError

PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
LIBRARY_STEPS = 300
Value = TypeVar("Value")
Seconds = dict[str, float]
"""Wall-clock and total processor seconds of one piece of work: `clock` and `processor`."""


@dataclass(frozen=True)
class Arguments(Output):
    """Arguments of benchmarks/probes.py."""

    dump: tyro.conf.Positional[Path]
    """Dump with all layers: a folder written by extract_activations.py."""
    subsample: int = 1
    """Keep one in this many records of each life, at least 1 (all)."""
    logistic_records: int = 10_000
    """Maximum number of records for the comparison of logistic regressions; 0 skips it."""


def main() -> None:
    """Parse, measure, print."""
    arguments = command_line.parse(Arguments, __doc__)
    if arguments.subsample < 1 or arguments.logistic_records < 0:
        raise UserError("--subsample must be at least 1, --logistic-records at least 0")
    inputs, targets = recorded(inputs_named(["all"], [4]), read_metadata(arguments.dump)), targets_named(["default"])
    wanted = Wanted(inputs, targets, (), Subsample(arguments.subsample))
    data, reading = timed(read_probe_data, arguments.dump, wanted)
    seconds, pairs = {"reading": reading}, list[dict[str, Any]]()
    fit_all(data, inputs, targets, seconds)
    total: Seconds = {kind: sum(used[kind] for used in seconds.values()) for kind in ("clock", "processor")}
    show_seconds({**seconds, f"all {len(data):,} records, {len(targets)} targets": total})
    if arguments.logistic_records:
        pairs = compare_classifiers(arguments, data, inputs, targets, seconds)
        show_classifiers(seconds, pairs)
    content = {"records": len(data), "targets": len(targets), "pairs": pairs, "versions": versions()}
    arguments.write({**content, "seconds": seconds})


def fit_all(data: ProbeData, inputs: Sequence[Input], targets: Sequence[Feature], seconds: dict[str, Seconds]) -> None:
    """Fit all probes of each input, and add the time of each."""
    for source in inputs:
        for kind in PROBES:
            print(f"{kind} probes of {source.name}", flush=True)
            _, seconds[f"{kind} {source.name}"] = timed(probe, data, targets, [source], [kind], 0, lambda share: None)


def compare_classifiers(
    arguments: Arguments, data: ProbeData, inputs: Sequence[Input], targets: Sequence[Feature],
    seconds: dict[str, Seconds],
) -> list[dict[str, Any]]:  # fmt: skip
    """Classify every yes-or-no target from every layer by both logistic regressions, and add the time of each.

    Returns:
        AUC of each target and input by our logistic regression and by scikit-learn's, at the best penalty of each.
    """
    pairs: list[dict[str, Any]] = []
    step = -(-len(data) // arguments.logistic_records)
    fold = folds_of(data.world)[::step]
    y, world = data.targets[::step], data.world[::step]
    chosen = [i for i, target in enumerate(targets) if target.yes_or_no and why_not(target, y[:, i], fold) is None]
    y = y[:, chosen]
    mean, ranked = mean_of_the_rest(y, fold), np.ones(len(chosen), bool)
    ways = {"our": our_logistic, "library": library_logistic}
    for source in (one for one in inputs if one.layers):
        print(f"both classifiers of {source.name}", flush=True)
        x, scores = data.inputs[source.name][::step], {}
        for name, fit in ways.items():
            predictions, seconds[f"{name} classifier of {source.name}"] = timed(fit, x, y, fold)
            fits = [losses(p, y, mean, world, data.worlds, ranked).score for p in predictions]
            scores[name] = np.max(fits, axis=0)
        best = zip(chosen, scores["our"], scores["library"], strict=True)
        pairs += [
            {"input": source.name, "target": targets[place].name, "ours": float(ours), "library": float(library)}
            for place, ours, library in best
        ]
    return pairs


def our_logistic(x: np.ndarray, y: np.ndarray, fold: np.ndarray) -> list[np.ndarray]:
    """Return the predictions of unseen records for every penalty."""
    folds, every, scales = np.unique(fold).tolist(), np.ones(y.shape[1]), np.ones((y.shape[1], x.shape[1]))
    same = [Choice(penalty * every, scales) for penalty in PENALTIES]
    return [fit_logistic(x, y, fold, dict.fromkeys([*folds, ALL_FOLDS], choice)).predicted for choice in same]


def library_logistic(x: np.ndarray, y: np.ndarray, fold: np.ndarray) -> list[np.ndarray]:
    """Do the same with scikit-learn's logistic regression, stopped after `LIBRARY_STEPS`."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    predictions = []
    for penalty in PENALTIES:
        predicted = np.empty(y.shape)
        for test in np.unique(fold):
            held_out = fold == test
            for column in range(y.shape[1]):
                answers = y[~held_out, column]
                strength = penalty * answers.mean() * (1 - answers.mean()) * len(answers)
                model = make_pipeline(StandardScaler(), LogisticRegression(C=1 / strength, max_iter=LIBRARY_STEPS))
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    model.fit(x[~held_out], answers)
                predicted[held_out, column] = model.decision_function(x[held_out])
        predictions.append(predicted)
    return predictions


def timed(work: Callable[..., Value], *arguments: object) -> tuple[Value, Seconds]:
    """Do some work once; return its result and duration."""
    clock, processor = time.perf_counter(), time.process_time()
    result = work(*arguments)
    return result, {"clock": time.perf_counter() - clock, "processor": time.process_time() - processor}


def show_classifiers(all_seconds: dict[str, Seconds], pairs: Sequence[dict[str, Any]]) -> None:
    """Print the times of both classifiers and how their scores differ."""
    seconds = {name: used for name, used in all_seconds.items() if "classifier" in name}
    show_seconds(seconds)
    if pairs:
        gains = np.array([pair["ours"] - pair["library"] for pair in pairs])
        print(
            f"AUC of ours minus scikit-learn's, {len(gains)} targets and inputs: mean {gains.mean():+.4f}, "
            f"from {gains.min():+.4f} to {gains.max():+.4f}"
        )
        ours, library = (
            sum(s["clock"] for n, s in seconds.items() if n.startswith(way)) for way in ("our ", "library ")
        )
        print(f"time of scikit-learn's divided by ours: {library / ours:.1f}")


def show_seconds(seconds: dict[str, Seconds]) -> None:
    """Print a table of times."""
    rows = [(name, f"{used['clock']:.1f}", f"{used['processor']:.1f}") for name, used in seconds.items()]
    command_line.print_table(("work", "seconds", "processor seconds"), rows)


if __name__ == "__main__":
    command_line.run(main)
