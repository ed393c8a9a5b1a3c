"""Cases of `benchmarks.null_rates`: means over trainings that played the same worlds, or worlds of their own."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from analysis.statistics.inference import Inference
from tests.planted_trainings import found, trainings_in_worlds

Run = Callable[[np.random.Generator, Inference], dict[str, bool]]

OVER_TRAININGS = "over trainings: "
TRAININGS, WORLDS, COMMON = (3, 4, 8), (4, 8, 24), (0.0, 0.25, 0.5, 0.75)
_INTERACTION = 0.5
_EFFECT = 3.0


def null_cases() -> Iterator[tuple[str, Run]]:
    """Means of 0, with a share of the variance of trainings' means that comes from the worlds."""
    for trainings in TRAININGS:
        for worlds in WORLDS:
            for common in COMMON:
                name = f"{OVER_TRAININGS}{trainings}, {worlds} worlds, {common:.0%} of their variance in common"
                yield name, partial(_run, trainings, worlds, common, 0.0)


def planted_cases() -> Iterator[tuple[str, Run]]:
    """The same with means of three standard deviations of a training's mean."""
    for trainings in TRAININGS:
        for common in (0.0, 0.5):
            name = f"{OVER_TRAININGS}{trainings}, 8 worlds, {common:.0%} of their variance in common, an effect of 3"
            yield name, partial(_run, trainings, 8, common, _EFFECT)


def _run(
    trainings: int, worlds: int, common: float, effect: float, rng: np.random.Generator, settings: Inference
) -> dict[str, bool]:
    """Return whether a mean is found: with the same worlds, a t-test over these, and with worlds of their own."""
    planted = partial(found, rng, trainings, worlds, common, _INTERACTION, effect=effect)
    same = planted(shared=True)
    means = trainings_in_worlds(rng, trainings, worlds, common, _INTERACTION).mean(axis=1) + effect
    return {"the same worlds": same, "worlds of their own": planted(shared=False)} | (
        {} if common == 0 or effect else {"the same worlds, by a t-test over trainings (not used)": _t_test(means)}
    )


def _t_test(means: np.ndarray) -> bool:
    from scipy import stats

    return bool(stats.ttest_1samp(means, 0).pvalue <= 0.05)
