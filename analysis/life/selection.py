"""Choose lives of a dump to look at: one long but not extreme life, or a sample of the longer half."""

import numpy as np

from activation_store.lives import number_lives
from activation_store.schema import LIFE_KEY
from common.user_error import UserError

PERCENTILE = 75


def life_spans(identity: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Find all lives from the output of `read_identity`, shortest first; ties are ordered by slot, agent and episode.

    Returns slot, agent and episode of each, (L, 3) int64, and its ticks from the first record to the last, (L,) int64.
    """
    key, index = number_lives(identity)
    first, last = np.full(len(key), np.iinfo(np.int64).max), np.zeros(len(key), np.int64)
    np.minimum.at(first, index, identity["tick"])
    np.maximum.at(last, index, identity["tick"])
    ticks = last - first + 1
    order = np.argsort(ticks, kind="stable")
    return key[order], ticks[order]


def matching(lives: np.ndarray, agent: int | None, episode: int | None, dump: str) -> np.ndarray:
    """Keep the lives of an agent, of an episode, or of both, (L, 3) to (kept, 3).

    Raises:
        UserError: there is none; the message lists what the dump holds.
    """
    kept = np.ones(len(lives), bool)
    for name, wanted in (("agent_id", agent), ("episode", episode)):
        if wanted is not None:
            kept &= lives[:, LIFE_KEY.index(name)] == wanted
    if not kept.any():
        conditions = [f"agent {agent}"] * (agent is not None) + [f"episode {episode}"] * (episode is not None)
        agents, episodes = (lives[:, LIFE_KEY.index(name)] for name in ("agent_id", "episode"))
        raise UserError(
            f"{dump} holds no life of {' in '.join(conditions)}: it holds {len(lives)} lives, of "
            f"{len(np.unique(agents))} agents ({agents.min()} to {agents.max()}) in {len(np.unique(episodes))} "
            f"episodes ({episodes.min()} to {episodes.max()})"
        )
    return lives[kept]


def choose(lives: np.ndarray, number: int, seed: int) -> np.ndarray:
    """Choose among lives, (L, 3) to (chosen, 3), shortest first.

    A single life is the one at the 75th percentile of lifespan. Several are drawn at random without replacement from
    the longer half, which includes the middle life if their number is odd. Fewer are returned if there are fewer.
    """
    if number == 1:
        return lives[[np.percentile(np.arange(len(lives)), PERCENTILE, method="higher")]]
    longer = np.arange(len(lives) // 2, len(lives))
    return lives[np.sort(np.random.default_rng(seed).choice(longer, min(number, len(longer)), replace=False))]
