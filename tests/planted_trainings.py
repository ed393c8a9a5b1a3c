"""What trainings reach in worlds that they share, or that are their own, with the part that is common known."""

import numpy as np

from analysis.statistics.over_trainings import over_trainings


def trainings_in_worlds(
    rng: np.random.Generator, trainings: int, worlds: int, common: float, interaction: float
) -> np.ndarray:
    """Return values of trainings in worlds whose mean is 0, (T, W); the mean of each training has the variance 1.

    Args:
        common: share of that variance that comes from the worlds, and so is the same in all trainings.
        interaction: share of the rest that comes from how a training does in a world; what is left is the training's.
    """
    own, meeting = (1 - common) * (1 - interaction), (1 - common) * interaction
    return (
        np.sqrt(own) * rng.standard_normal((trainings, 1))
        + np.sqrt(common * worlds) * rng.standard_normal((1, worlds))
        + np.sqrt(meeting * worlds) * rng.standard_normal((trainings, worlds))
    )


def differs(
    rng: np.random.Generator, trainings: int, worlds: int, common: float, interaction: float,
    shared: bool, effect: float = 0.0,
) -> bool:  # fmt: skip
    """Return whether the mean of planted trainings is found to differ from 0 at 5%.

    Args:
        shared: whether all trainings play the same worlds; otherwise each plays its own.
        effect: in standard deviations of the mean of one training.
        trainings, worlds, common, interaction: as in `trainings_in_worlds`.
    """
    if shared:
        values = trainings_in_worlds(rng, trainings, worlds, common, interaction)
    else:
        own = [trainings_in_worlds(rng, 1, worlds, common, interaction) for _ in range(trainings)]
        values = np.concatenate(own).mean(axis=1, keepdims=True)  # (T, 1)
    return over_trainings([values + effect], "shared" if shared else "own", 0.95).p <= 0.05


def null_rate(
    trainings: int, worlds: int, common: float, interaction: float, *, shared: bool, runs: int, effect: float = 0.0
) -> float:
    """Return the share of runs in which something is found; arguments as in `differs`."""
    rng = np.random.default_rng([trainings, worlds, runs])
    settings = trainings, worlds, common, interaction, shared, effect
    return float(np.mean([differs(rng, *settings) for _ in range(runs)]))
