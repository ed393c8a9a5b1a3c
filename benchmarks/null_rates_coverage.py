"""Cases of null_rates for the meter of blindness: how often it is wrong about what a list of features covers."""

import functools
from collections.abc import Iterator

import numpy as np

from analysis.clusters.blindness import TOO_SHORT
from analysis.statistics.coverage import coverage
from analysis.statistics.inference import Inference
from tests.planted_coverage import told

NULLS = {
    "noise": "clusters that nothing follows from",
    "one feature": "clusters that are quarters of a listed feature",
    "two features": "clusters that need two listed features at once",
}
PLANTED = {
    "half hidden": "clusters of which half is in no feature",
    "hidden": "clusters that are in no feature",
}


def cases(names: dict[str, str]) -> Iterator[tuple[str, functools.partial[dict[str, bool]]]]:
    """Yield the name and the run of each case."""
    for how, name in names.items():
        yield f"coverage: {name}", functools.partial(measured, how=how)


def measured(rng: np.random.Generator, settings: Inference, how: str) -> dict[str, bool]:
    """Measure planted lives as analyze_activations.py does: whether clusters tell anything, and the list is short."""
    drawn = told(rng, how)
    studied = (drawn.groups[:, None] == np.arange(4)).astype(np.float64)
    (measure,) = coverage(drawn.listed, studied, drawn.groups, {"what happens": drawn.targets}, drawn.unit, settings)
    reliable = {"clusters tell something": measure.reliable} if how == "noise" else {}
    return {**reliable, "the list is too short": bool(measure.uncovered_low > TOO_SHORT)}
