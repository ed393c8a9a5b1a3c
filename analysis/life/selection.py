"""Choose lives of a dump to look at: one long but not extreme life, or a sample of the longer half."""

from dataclasses import dataclass

import numpy as np

from activation_store.lives import number_lives
from activation_store.schema import LIFE_KEY
from common.user_error import UserError

PERCENTILE = 75


@dataclass(frozen=True)
class LifeSpans:
    """Every life of a dump. L lives, shortest first; ties are ordered by slot, agent and episode.

    `key` is slot, agent and episode, (L, 3) int64; `ticks` count from the first record to the last, (L,) int64.
    """

    key: np.ndarray
    ticks: np.ndarray

    def __len__(self) -> int:
        return len(self.ticks)


def life_spans(identity: dict[str, np.ndarray]) -> LifeSpans:
    """Find the lives and their lengths from the output of `read_identity`."""
    key, index = number_lives(identity)
    first, last = np.full(len(key), np.iinfo(np.int64).max), np.zeros(len(key), np.int64)
    np.minimum.at(first, index, identity["tick"])
    np.maximum.at(last, index, identity["tick"])
    ticks = last - first + 1
    order = np.argsort(ticks, kind="stable")
    return LifeSpans(key[order], ticks[order])


def matching(spans: LifeSpans, agent: int | None, episode: int | None, dump: str) -> LifeSpans:
    """Keep the lives of an agent, of an episode, or of both.

    Raises:
        UserError: there is none; the message lists what the dump holds.
    """
    kept = np.ones(len(spans), bool)
    for name, wanted in (("agent_id", agent), ("episode", episode)):
        if wanted is not None:
            kept &= spans.key[:, LIFE_KEY.index(name)] == wanted
    if not kept.any():
        conditions = [f"agent {agent}"] * (agent is not None) + [f"episode {episode}"] * (episode is not None)
        raise UserError(f"{dump} holds no life of {' in '.join(conditions)}: it holds {_ranges(spans)}")
    return LifeSpans(spans.key[kept], spans.ticks[kept])


def choose(spans: LifeSpans, number: int, seed: int) -> np.ndarray:
    """Choose lives, (chosen,) indices, shortest first.

    A single life is the one at the 75th percentile of lifespan. Several are drawn at random without replacement from
    the longer half, which includes the middle life if their number is odd. Fewer are returned if there are fewer.
    """
    if number == 1:
        return np.array([np.percentile(np.arange(len(spans)), PERCENTILE, method="higher")], np.int64)
    longer = np.arange(len(spans) // 2, len(spans))
    return np.sort(np.random.default_rng(seed).choice(longer, min(number, len(longer)), replace=False))


def _ranges(spans: LifeSpans) -> str:
    agents, episodes = (spans.key[:, LIFE_KEY.index(name)] for name in ("agent_id", "episode"))
    return (
        f"{len(spans)} lives, of {len(np.unique(agents))} agents ({agents.min()} to {agents.max()}) in "
        f"{len(np.unique(episodes))} episodes ({episodes.min()} to {episodes.max()})"
    )
