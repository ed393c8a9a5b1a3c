"""Cases of `benchmarks.null_rates` on planted edits: verdicts beside random directions, and which edit ranks first."""

import functools
import math
from collections.abc import Iterator

import numpy as np

from activation_store.interventions import Arm, LivesTable
from analysis.interventions.effects.effects import Effect, effects_of_edits
from analysis.interventions.effects.inference import OUTCOMES, PAIRED_SPREAD, OverEpisodes
from analysis.interventions.effects.outcomes import Margins
from analysis.interventions.effects.pairs import paired
from analysis.interventions.effects.predicted import options_that_follow
from analysis.interventions.effects.study import ranking, study_effects
from analysis.statistics.inference import Inference
from benchmarks.null_rates_lives import NULL, POWER, Case
from tests.planted_interventions import Planted, plant

TWIN = Arm("unedited", "unedited", "trained", None, "unedited")
AGENTS, EDITED = 128, 64
SPREAD = 30.0
"""Standard deviation between directions of their effects, in ticks."""

OPTIONS = 20
MARGIN = 20.0


def verdict_cases() -> Iterator[Case]:
    """Directions that differ among each other, shares that follow a variable, and true effects."""
    for randoms in (3, 8, 20):
        run = functools.partial(all_random, randoms=randoms, outcomes=1)
        yield NULL, f"verdicts: directions that differ by {SPREAD:g} ticks, {randoms} random ones, 24 episodes", run
    many = functools.partial(all_random, randoms=8, outcomes=OUTCOMES)
    yield NULL, f"verdicts: the same in each of {OUTCOMES} outcomes, 8 random ones", many
    heavy = functools.partial(all_random, randoms=8, outcomes=1, freedom=3)
    yield NULL, "verdicts: a few directions do far more (Student's t, 3 degrees of freedom), 8 random ones", heavy
    yield NULL, f"verdicts: shares of {OPTIONS} options, all directions random, 20 random ones", shares_at_random
    at_margin = functools.partial(planted_effect, effect=-MARGIN, episodes=24, margin=MARGIN)
    yield NULL, f"verdicts: an effect of {MARGIN:g} ticks is called smaller, 24 episodes", at_margin
    for episodes in (4, 8, 24):
        for effect in (-25.0, -50.0):
            run = functools.partial(planted_effect, effect=effect, episodes=episodes)
            yield POWER, f"verdicts: {effect:g} ticks, 8 random directions, {episodes} episodes", run
        run = functools.partial(stated_effect, episodes=episodes)
        yield POWER, f"verdicts: the effect that would be found in 80%, {episodes} episodes", run
    none = functools.partial(planted_effect, effect=0.0, episodes=24, margin=MARGIN)
    yield POWER, f"verdicts: no effect, called smaller than {MARGIN:g} ticks, 24 episodes", none


def all_random(
    rng: np.random.Generator, settings: Inference, randoms: int, outcomes: int, freedom: int = 0
) -> dict[str, bool]:
    """Draw the studied direction like the others; any effect that is called one is false."""
    size = (1 + randoms, outcomes)
    drawn = rng.standard_t(freedom, size) / np.sqrt(freedom / (freedom - 2)) if freedom else rng.normal(size=size)
    return {"effect": any(effect.verdict == "effect" for effect in measured(rng, settings, SPREAD * drawn, 24))}


def planted_effect(
    rng: np.random.Generator, settings: Inference, effect: float, episodes: int, margin: float = np.nan
) -> dict[str, bool]:
    """Plant an effect on the first of all outcomes; random directions do nothing."""
    effects = np.zeros((9, OUTCOMES))
    effects[0, 0] = effect
    first = measured(rng, settings, effects, episodes, Margins(named={"outcome_00": margin}))[0]
    if np.isfinite(margin):
        return {"equivalent to none": first.verdict == "equivalent to none"}
    return {"effect": first.verdict == "effect"}


def stated_effect(rng: np.random.Generator, settings: Inference, episodes: int) -> dict[str, bool]:
    """Plant the effect that runs without one state as detectable."""
    return planted_effect(rng, settings, -stated(episodes), episodes)


@functools.cache
def stated(episodes: int, runs: int = 15) -> float:
    """Return the detectable effect that runs of so many episodes state: the median of some."""
    values = []
    for run in range(runs):
        rng = np.random.default_rng([23, run])
        values.append(measured(rng, Inference(999, 99, seed=run), np.zeros((9, OUTCOMES)), episodes)[0].detectable)
    return float(np.median(values))


def measured(
    rng: np.random.Generator, settings: Inference, effects: np.ndarray, episodes: int, margins: Margins | None = None
) -> list[Effect]:
    """Judge an edit beside random directions.

    Args:
        effects: on each outcome of edited lives in ticks, of the edit first, (1 + K, outcomes).
    """
    lives = episodes * AGENTS
    edited = np.concatenate([rng.permutation(AGENTS) < EDITED for _ in range(episodes)])
    twin = rng.normal(0, PAIRED_SPREAD, (lives, effects.shape[1]))
    # Lives of unedited agents change too, since they meet edited ones, but less.
    spread = np.where(edited, PAIRED_SPREAD, PAIRED_SPREAD / 2)[:, None]
    arms = [twin + spread * rng.normal(size=twin.shape) + edited[:, None] * effect for effect in effects]
    values = np.concatenate([twin, *arms])  # ((2 + K) * lives, outcomes)
    names = [f"outcome_{place:02d}" for place in range(effects.shape[1])]
    table, listed = _table(edited, episodes, len(effects) - 1, dict(zip(names, values.T, strict=True)))
    over = OverEpisodes(settings)
    return effects_of_edits(paired(table, listed), names, over, margins or Margins(), pairing_works=True)


def shares_at_random(rng: np.random.Generator, settings: Inference) -> dict[str, bool]:
    """Let every direction move every option nearly always in the same way, or in the other: shares near 0 and 1."""
    episodes, randoms = 8, 20
    edited = np.tile(np.arange(AGENTS) < EDITED, episodes)
    follows = rng.beta(0.5, 0.5, (1 + randoms, OPTIONS))
    outcomes = {}
    for option in range(OPTIONS):
        for side in ("lower", "higher"):
            noise = rng.normal(0, 0.1, (1 + randoms, len(edited)))
            shares = np.clip(follows[:, option, None] + noise, 0, 1)
            columns = [np.full(len(edited), np.nan), *np.where(edited, shares, np.nan)]
            outcomes[f"follows_{side}/self_food/Head/{option:02d}"] = np.concatenate(columns)
    table, arms = _table(edited, episodes, randoms, outcomes)
    judged = options_that_follow(table, paired(table, arms), OverEpisodes(settings), Margins(), pairing_works=True)
    return {"effect": any(follow.verdict == "effect" for follow in judged)}


def _table(
    edited: np.ndarray, episodes: int, randoms: int, outcomes: dict[str, np.ndarray]
) -> tuple[LivesTable, list[Arm]]:
    """Return lives of the twin, the edit and random directions, in this order, and their arms."""
    arms = [TWIN, Arm("edit", "edit", "trained", None, TWIN.name)]
    for number in range(1, randoms + 1):
        arms.append(Arm(f"random direction {number}", "random direction", "trained", None, TWIN.name))
    count = len(arms)
    table = LivesTable(
        arm=np.repeat([arm.name for arm in arms], len(edited)),
        episode=np.tile(np.repeat(np.arange(episodes), AGENTS), count),
        agent=np.tile(np.arange(AGENTS), episodes * count),
        edited=np.tile(edited, count),
        outcomes=outcomes,
    )
    return table, arms


TOTAL = {"slow": 0.022, "fast": 0.016}
"""KL in total, in nats, of the edits of two units, of which the memory keeps one for longer; measured by hand. Their
ratio is planted; lives differ by a third."""
IN_PLAY = {"slow": 0.0063, "fast": 0.0073}
"""The same in play."""


def ranked_pairs() -> Iterator[Case]:
    """Directions that are edited one by one; whatever is looked for is false."""
    yield NULL, "ranking: KL of .022 and .016 in total, of .0063 and .0073 in play, 4 episodes", wrong_one_first


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
