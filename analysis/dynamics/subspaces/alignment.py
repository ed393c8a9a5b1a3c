"""Learning the subspace of a memory in which a variable acts: distributed alignment search.

A rotation of a state is learnt such that, once a few rotated coordinates of a base take the values of a source, the
policy acts as agents with the source's value of a variable do (Geiger et al. 2024, "Finding alignments between
interpretable causal variables and distributed neural representations"). A logistic
regression, fitted to the logits of unedited ticks and then kept, says which value the actions belong to. Everything
that a base reads stays as recorded, so nothing passes through the game.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from agent_zoo.base import RecurrentPolicy
from agent_zoo.memory import MemoryState
from analysis.interventions.edits.linear_readings import leading_components
from analysis.recorded.recorded_observation import SHOWN

AHEAD = 4
"""Ticks after the exchange whose actions count too."""
STARTS = 3
"""Rotations that learning starts from; the one with the smallest loss is taken."""
STEPS = 250
_PAIRS_AT_ONCE = 256
_RATE = 0.02

Exchange = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Gives states of bases, (N, units), something of those of their sources."""


@dataclass(frozen=True, eq=False)
class Situations:
    """N recorded ticks of a policy."""

    before: MemoryState  # memory before the tick
    read: torch.Tensor  # by the memory in the tick and in the `AHEAD` ticks after it, (1 + AHEAD, N, units)
    states: torch.Tensor  # of the layer under study after the tick, (N, units) float32
    label: np.ndarray  # number of the variable's value, (N,) int64
    life: np.ndarray  # (N,) int64
    tick: np.ndarray  # of the episode, (N,) int64

    def __len__(self) -> int:
        return len(self.label)

    def take(self, rows: np.ndarray) -> "Situations":
        """Return some of them."""
        place = torch.from_numpy(rows)
        return Situations(
            self.before.take(place), self.read[:, place], self.states[place], self.label[rows], self.life[rows],
            self.tick[rows],
        )  # fmt: skip


def decisions(
    policy: RecurrentPolicy, layer: str, bases: Situations, edit: Callable[[torch.Tensor], torch.Tensor] | None = None
) -> torch.Tensor:
    """Return logits of the small heads, less their means, over the tick and those after it, (N, options).

    Args:
        edit: of the layer's states, in the first of these ticks.
    """
    with policy.hooked({layer: edit} if edit else {}):
        hidden, memory = policy.remember(bases.read[0], bases.before)
    total = _logits(policy, hidden)
    for read in bases.read[1:]:
        hidden, memory = policy.remember(read, memory)
        total = total + _logits(policy, hidden)
    return total / len(bases.read)


def _logits(policy: RecurrentPolicy, hidden: torch.Tensor) -> torch.Tensor:
    decoder, read = policy.policy.action_decoder, policy.read(hidden)
    heads = [head for head in decoder.layout.heads if head.candidates is None and head.name in SHOWN]
    scores = [decoder.own_scores(head, read) for head in heads]
    return torch.cat([score - score.mean(dim=1, keepdim=True) for score in scores], dim=1)


Reader = Callable[[torch.Tensor], torch.Tensor]
"""Gives the score of each of the variable's values, (N, values), from logits, (N, options)."""


def fitted_reader(logits: torch.Tensor, label: np.ndarray) -> Reader:
    """Fit a logistic regression that tells the variable's value from the logits of unedited ticks."""
    from sklearn.linear_model import LogisticRegression

    values = logits.numpy().astype(np.float64)
    mean, spread = values.mean(axis=0), values.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    model = LogisticRegression(max_iter=1000).fit((values - mean) / spread, label)
    weight, bias = model.coef_ / spread, model.intercept_
    if len(weight) == 1:  # of two values only the second has weights
        weight, bias = np.concatenate([np.zeros_like(weight), weight]), np.array([0.0, *bias])
    weights, biases = torch.from_numpy(weight.T).float(), torch.from_numpy(bias - weight @ mean).float()
    return lambda shown: shown @ weights + biases


def right(reader: Reader, logits: torch.Tensor, label: np.ndarray) -> np.ndarray:
    """Say where the actions tell this value, (N,) bool."""
    return (reader(logits).argmax(dim=1) == torch.from_numpy(label)).numpy()


class Sources:
    """Draws the source of a base: in another life in the same tick, with the same value as often as with another."""

    def __init__(self, situations: Situations):
        ticks, values = situations.tick.tolist(), situations.label.tolist()
        self._places: dict[tuple[int, int], list[int]] = {}
        for place, key in enumerate(zip(ticks, values, strict=True)):
            self._places.setdefault(key, []).append(place)
        self._keys = list(zip(ticks, values, strict=True))
        self._values = sorted(set(values))

    def pairs(self, count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw at most so many pairs: bases and sources, (n,) each; those without a possible source are left out."""
        bases, sources = [], []
        for base in random.integers(len(self._keys), size=count).tolist():
            tick, value = self._keys[base]
            wanted = value
            if random.random() < 0.5:
                wanted = int(random.choice([other for other in self._values if other != value]))
            there = self._places.get((tick, wanted), [])
            if len(there) > (wanted == value):
                source = base
                while source == base:
                    source = there[int(random.integers(len(there)))]
                bases.append(base)
                sources.append(source)
        return np.array(bases, np.int64), np.array(sources, np.int64)


def along(subspace: torch.Tensor) -> Exchange:
    """Exchange the coordinates in a subspace, (dimensions, units) orthonormal."""
    return lambda bases, sources: bases + (sources - bases) @ subspace.T @ subspace


def learnt_subspace(
    policy: RecurrentPolicy, layer: str, situations: Situations, reader: Reader, dimensions: int, seed: int,
    progress: Callable[[float], None] = lambda share: None,
) -> np.ndarray:  # fmt: skip
    """Learn the subspace whose exchange makes the policy act as with the source's value, (dimensions, units).

    Its rows are orthonormal, and lie in the span of the principal components that hold nearly all variance of the
    states: an exchange along what never varies may act through paths that are never active (Makelov, Lange and Nanda
    2024, "Is this the subspace you are looking for?").
    """
    basis = torch.from_numpy(varying(situations.states.numpy()))
    random, sources = np.random.default_rng([seed, 1]), Sources(situations)
    best, smallest = np.empty(0), np.inf
    for start in range(STARTS):
        draw = random.standard_normal((len(basis), dimensions))
        raw = torch.from_numpy(draw).float().requires_grad_()
        optimizer = torch.optim.Adam([raw], _RATE)
        losses = []
        for number in range(STEPS):
            pairs = sources.pairs(_PAIRS_AT_ONCE, random)
            with torch.enable_grad():
                exchange = along(torch.linalg.qr(raw).Q.T @ basis)  # the columns' span, orthonormal
                logits = _exchanged(policy, layer, situations, exchange, pairs)
                loss = functional.cross_entropy(reader(logits), torch.from_numpy(situations.label[pairs[1]]))
                (raw.grad,) = torch.autograd.grad(loss, [raw])
            optimizer.step()
            losses.append(float(loss.detach()))
            progress((start + (number + 1) / STEPS) / STARTS)
        if (last := float(np.mean(losses[-STEPS // 5 :]))) < smallest:
            best, smallest = (torch.linalg.qr(raw.detach()).Q.T @ basis).numpy(), last
    return best


def varying(states: np.ndarray) -> np.ndarray:
    """Return the leading principal components of states, (N, units), as `leading_components`, (K, units) float32."""
    covariance = np.cov(states.astype(np.float64), rowvar=False)
    return np.ascontiguousarray(leading_components(covariance).astype(np.float32))


@torch.no_grad()
def follows(
    policy: RecurrentPolicy, layer: str, situations: Situations, reader: Reader, exchange: Exchange,
    pairs: tuple[np.ndarray, np.ndarray],
) -> np.ndarray:  # fmt: skip
    """Say after which exchanges the actions tell the source's value, (pairs,) bool: interchange accuracy, by pair."""
    logits = _exchanged(policy, layer, situations, exchange, pairs)
    return right(reader, logits, situations.label[pairs[1]])


def _exchanged(
    policy: RecurrentPolicy, layer: str, situations: Situations, exchange: Exchange,
    pairs: tuple[np.ndarray, np.ndarray],
) -> torch.Tensor:  # fmt: skip
    """Logits of the bases of pairs once they have something of their sources, (pairs, options)."""
    bases, sources = pairs
    donors = situations.states[torch.from_numpy(sources)]
    return decisions(policy, layer, situations.take(bases), lambda own: exchange(own, donors))
