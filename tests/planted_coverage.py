"""Lives in which groups decide what happens, and a list of features holds all, half or nothing of these groups."""

from dataclasses import dataclass

import numpy as np

from tests.planted_lives import smooth, values_of

RECORDS, FEATURES = 25, 6


@dataclass(frozen=True)
class Told:
    """Lives with groups. B records."""

    listed: np.ndarray  # (B, FEATURES)
    groups: np.ndarray  # (B,) int64 in 0 to 3
    targets: dict[str, np.ndarray]  # two parts that the groups decide, with noise
    unit: np.ndarray  # the life of each record, (B,)


def told(rng: np.random.Generator, how: str, lives: int = 40) -> Told:
    """Draw lives with groups of two yes-or-no questions each.

    Args:
        how: "one feature": quarters of a listed feature; "two features": whether two of them are near their means, so
            that no straight line tells it; "half hidden": one question of each kind; "hidden": of nothing listed;
            "noise": hidden, and nothing follows from them.
    """
    lengths = [RECORDS] * lives
    listed, hidden = values_of(smooth, rng, lengths, FEATURES), values_of(smooth, rng, lengths, 2)
    near = np.abs(listed) < 0.67
    answers = {
        "one feature": (np.abs(listed[:, 0]) < 0.67, listed[:, 0] > 0),
        "two features": (near[:, 0], near[:, 1]),
        "half hidden": (listed[:, 0] > 0, hidden[:, 1] > 0),
    }.get(how, (hidden[:, 0] > 0, hidden[:, 1] > 0))
    decide = np.stack(answers, axis=1).astype(np.float64)
    noise = rng.normal(size=(len(decide), 2))
    outcome = noise + decide * (how != "noise")
    unit = np.repeat(np.arange(lives), lengths)
    return Told(listed, 2 * answers[0] + answers[1], {"first": outcome[:, :1], "second": outcome[:, 1:]}, unit)
