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


def limit_cases() -> Iterator[tuple[str, Run]]:
    """A t-test over trainings that played the same worlds, which the scripts no longer make."""
    for common in COMMON[1:]:
        name = (
            f"{OVER_TRAININGS}a t-test over 4 that played the same 8 worlds, {common:.0%} of their variance in common"
        )
        yield name, partial(_t_test, common)


def planted_cases() -> Iterator[tuple[str, Run]]:
    """Means of three standard deviations of a training's mean."""
    for trainings in TRAININGS:
        for common in (0.0, 0.5):
            name = f"{OVER_TRAININGS}{trainings}, 8 worlds, {common:.0%} of their variance in common, an effect of 3"
            yield name, partial(_run, trainings, 8, common, _EFFECT)


def _run(
    trainings: int, worlds: int, common: float, effect: float, rng: np.random.Generator, settings: Inference
) -> dict[str, bool]:
    """Return whether a mean is found, with the same worlds and with worlds of their own."""
    planted = partial(found, rng, trainings, worlds, common, _INTERACTION, effect=effect)
    return {"the same worlds": planted(shared=True), "worlds of their own": planted(shared=False)}


def _t_test(common: float, rng: np.random.Generator, settings: Inference) -> dict[str, bool]:
    from scipy import stats

    means = trainings_in_worlds(rng, 4, 8, common, _INTERACTION).mean(axis=1)
    return {"mean": bool(stats.ttest_1samp(means, 0).pvalue <= 0.05)}
