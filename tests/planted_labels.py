"""Label sequences whose order is known: at random, a Markov chain, or one that remembers two states."""

import numpy as np

from analysis.labels import NOISE
from analysis.life.phases.visits import LabelSequences, label_sequences

FREQUENCIES: dict[str, dict[int, float]] = {
    "two states": {0: 0.8, 1: 0.2}, "three states": {0: 0.8, 1: 0.1, 2: 0.1},
    "four states": {0: 0.6, 1: 0.2, 2: 0.1, 3: 0.1}, "five states": {0: 0.5, 1: 0.2, 2: 0.1, 3: 0.1, 4: 0.1},
    "six states": {0: 0.4, 1: 0.2, 2: 0.1, 3: 0.1, 4: 0.1, 5: 0.1},
    "one dominant state": {0: 0.94, 1: 0.02, 2: 0.02, 3: 0.02}, "mostly noise": {NOISE: 0.5, 0: 0.3, 1: 0.1, 2: 0.1},
}  # fmt: skip
"""How often each label occurs; unequal, since that is what makes what follows what look like a finding."""


def sequences_of(lives: list[list[int]], episodes: list[int] | None = None, shortest: int = 1) -> LabelSequences:
    """Label sequences of lives given as their labels tick by tick, in shuffled order as records may come."""
    episodes = episodes or [0] * len(lives)
    rows = [
        (agent, episode, tick, label)
        for agent, (life, episode) in enumerate(zip(lives, episodes, strict=True))
        for tick, label in enumerate(life)
    ]
    agent, episode, tick, label = np.random.default_rng(0).permutation(np.array(rows, np.int64)).T
    places = {"step": tick, "env_id": agent, "agent_id": agent + 1, "episode": episode, "tick": tick}
    return label_sequences(places, label, shortest)


def chain(rng: np.random.Generator, ticks: int, leave: list[float], to: np.ndarray) -> list[int]:
    """A Markov chain: begun in any state alike, each is left with its own chance for another by its row of `to`."""
    states = [int(rng.integers(len(leave)))]
    while len(states) < ticks:
        now = states[-1]
        states.append(int(rng.choice(len(leave), p=to[now])) if rng.random() < leave[now] else now)
    return states


def labels_at_random(rng: np.random.Generator, frequencies: dict[int, float], lives: int = 20) -> LabelSequences:
    """Labels drawn at every tick anew, in lives of 5 to 79 ticks: frequencies alone decide what follows what."""
    labels, shares = list(frequencies), list(frequencies.values())
    return sequences_of([rng.choice(labels, rng.integers(5, 80), p=shares).tolist() for _ in range(lives)])


def lasting_labels(rng: np.random.Generator, frequencies: dict[int, float]) -> LabelSequences:
    """Labels kept from tick to tick with a probability of 80%, and else left for another by its frequency.

    Lives begin in any state alike: unlike what they go on with, as at birth.
    """
    labels, shares = np.array(list(frequencies)), np.array(list(frequencies.values()))
    to = np.where(np.eye(len(labels), dtype=bool), 0, shares)
    to /= to.sum(axis=1, keepdims=True)
    leave = [0.2] * len(labels)
    return sequences_of([labels[chain(rng, int(rng.integers(20, 200)), leave, to)].tolist() for _ in range(20)])


def favoured_pair(rng: np.random.Generator, states: int, times: float, lives: int = 20) -> LabelSequences:
    """State 1 follows state 0 so many times as often as each other state does; all other changes are at random."""
    to = 1.0 - np.eye(states)
    to[0, 1] = times
    to /= to.sum(axis=1, keepdims=True)
    return sequences_of([chain(rng, int(rng.integers(5, 80)), [0.7] * states, to) for _ in range(lives)])


def memory_of_two_steps(rng: np.random.Generator, states: int, back: float) -> LabelSequences:
    """A path that returns to the state before the last with a given probability: single steps are even, two are not."""
    paths = []
    for _ in range(20):
        path = [0, 1]
        for _ in range(60):
            rest = [state for state in range(states) if state not in path[-2:]]
            path.append(path[-2] if rng.random() < back else int(rng.choice(rest)))
        paths.append(np.repeat(path, rng.integers(1, 4, len(path))).tolist())
    return sequences_of(paths)


def drifting_odds(rng: np.random.Generator, states: int, drift: float = 3.0) -> LabelSequences:
    """Labels left by their odds at the moment, which change evenly over each life: no order beyond that.

    The odds of the first state over the last fall by `drift`, in logarithms; those of the others lie between.
    """
    slope, paths = np.linspace(drift / 2, -drift / 2, states), []
    for _ in range(20):
        ticks = int(rng.integers(60, 200))
        path = [int(rng.integers(states))]
        for tick in range(1, ticks):
            odds = np.exp(slope * (1 - 2 * tick / ticks))
            odds[path[-1]] = 0
            path.append(int(rng.choice(states, p=odds / odds.sum())) if rng.random() < 0.3 else path[-1])
        paths.append(path)
    return sequences_of(paths)
