"""Cases of `benchmarks.null_rates` for directions that are edited one by one: which one is ranked first?"""

import math
from collections.abc import Callable, Iterator

import numpy as np

from analysis.interventions.effects.study import ranking, study_effects
from analysis.statistics.inference import Inference
from tests.planted_interventions import Planted, plant

TOTAL = {"slow": 0.022, "fast": 0.016}
"""KL in total, in nats, of the edits of two units, of which the memory keeps one for longer; measured by hand. Their
ratio is planted; lives differ by a third."""
IN_PLAY = {"slow": 0.0063, "fast": 0.0073}
"""The same in play."""

RankingCase = tuple[str, Callable[[np.random.Generator, Inference], dict[str, bool]]]


def ranked_pairs() -> Iterator[RankingCase]:
    """Return the name and the run of each case; whatever is looked for is false."""
    yield "ranking: KL of .022 and .016 in total, of .0063 and .0073 in play, 4 episodes", wrong_one_first


def wrong_one_first(rng: np.random.Generator, settings: Inference) -> dict[str, bool]:
    """Rank a run of both units."""
    planted = Planted(
        doses=(None,), kinds=(), episodes=4, agents=16, edited=8,
        directions={name: math.sqrt(kl / TOTAL["fast"]) for name, kl in TOTAL.items()},
        in_play={name: IN_PLAY[name] / kl for name, kl in TOTAL.items()},
    )  # fmt: skip
    table, arms = plant(planted, int(rng.integers(2**31)))
    first = ranking(study_effects(table, arms, settings))[0]
    return {"the weaker one first": first.direction == "fast"}
