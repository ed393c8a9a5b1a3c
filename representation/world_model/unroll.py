"""Run a world model over recorded windows, with the posterior and the recorded actions, and say what it costs."""

from dataclasses import dataclass

import torch

from agent_zoo.memory import MemoryState
from agent_zoo.soft_path import ReadsProbabilities
from representation.world_model.imagined_view import Surroundings, imagined_view
from representation.world_model.losses import (
    Costs,
    balanced_divergence,
    divergence,
    gaussian_divergence,
    memory_costs,
    scene_costs,
    spreading,
)
from representation.world_model.model import WorldModel
from representation.world_model.moves import displacement
from representation.world_model.network import drawn
from representation.world_model.scene import SoftScene
from representation.world_model.states import Prediction, WorldState
from representation.world_model.statistics import HEADS
from representation.world_model.windows import CONTEXT, Windows

PRIORS_SHARE = 0.8
SPREADING = 0.1
STARTS_WEIGHT = 0.25
FROM_BOTTLENECK = 0.25
"""Share of the training windows that go on from the scene and the memory that the bottleneck gives."""


@dataclass(frozen=True, eq=False)
class Unrolled:
    """What a batch of windows costs.

    Attributes:
        loss: to minimise.
        costs: of each of `HEADS` in nats in a predicted tick, on average.
        start_costs: likewise of the tick that the bottleneck describes.
        divergence: of the posterior from the prior in nats, on average.
        bottleneck: the spreading penalty, or the KL of a Gaussian bottleneck in nats.
        ticks: predicted.
    """

    loss: torch.Tensor
    costs: dict[str, float]
    start_costs: dict[str, float]
    divergence: float
    bottleneck: float
    ticks: int


class _Means:
    """Mean costs over predictions of all ticks."""

    def __init__(self) -> None:
        self._parts: dict[str, list[torch.Tensor]] = {}

    def add(self, costs: Costs) -> None:
        """Add the costs of some predictions."""
        for name, each in costs.items():
            self._parts.setdefault(name, []).append(each)

    def means(self) -> Costs:
        """Return the means by name."""
        return {name: torch.cat(parts).mean() for name, parts in self._parts.items()}


def unroll(model: WorldModel, windows: Windows, generator: torch.Generator) -> Unrolled:
    """Predict every tick of the windows after their context.

    Args:
        model: to run.
        windows: of its policy's lives.
        generator: of latent states and of which windows go on from the bottleneck.
    """
    network = model.network
    encoded = network.encode(windows.scene.soft(network.shape.materials))  # (N, embedding)
    grid = encoded.new_zeros(len(windows) * windows.ticks, encoded.shape[1]).index_copy(0, windows.place, encoded)
    embedded = grid.view(len(windows), windows.ticks, -1)
    mean, log_variance = network.bottleneck(embedded[:, :CONTEXT])
    vector = mean
    if log_variance is not None:
        vector = mean + (log_variance / 2).exp() * torch.randn(mean.shape, generator=generator)
    hidden, memory = network.start(vector)
    start, ticks = _Means(), _Means()
    recorded = windows.memory(CONTEXT - 2)
    start.add({f"given_{name}": each for name, each in memory_costs(memory, recorded, model.stats).items()})
    prior = network.prior_logits(hidden)
    posterior = network.posterior_logits(hidden, embedded[:, CONTEXT - 1])
    state = WorldState(hidden, drawn(posterior, generator))
    nothing = hidden.new_zeros(len(windows), network.action)
    prediction = network.decode(state, network.blank(len(windows)), nothing)
    real = windows.at(CONTEXT - 1)[1]
    start.add(scene_costs(prediction, real, model.stats, network.vitals))
    start.add({"divergence": divergence(posterior, prior)})
    start.add({"balanced": balanced_divergence(posterior, prior, PRIORS_SHARE)})
    memory = remember(model, prediction.scene, windows.around, memory)
    start.add(memory_costs(memory, windows.memory(CONTEXT - 1), model.stats))
    imagined = torch.rand(len(windows), generator=generator) < FROM_BOTTLENECK
    scene = prediction.scene.where(imagined, real.soft(network.shape.materials))
    memory = _mixed(imagined, memory, windows.memory(CONTEXT - 1))
    _follow(model, windows, embedded, state, scene, memory, ticks, generator)
    return _sum_up(model, start.means(), ticks.means(), vector, log_variance, windows)


def remember(model: WorldModel, scene: SoftScene, around: Surroundings, memory: MemoryState) -> MemoryState:
    """Let the frozen policy see scenes, and return its memory afterwards."""
    assert isinstance(model.policy.policy, ReadsProbabilities)
    view = imagined_view(scene, model.stats.kind_means, around, model.layout)
    return model.policy.remember(model.policy.policy.encode_soft(view.observation)[0], memory)[1]


def _follow(
    model: WorldModel, windows: Windows, embedded: torch.Tensor, state: WorldState, scene: SoftScene,
    memory: MemoryState, ticks: _Means, generator: torch.Generator,
) -> None:  # fmt: skip
    """Predict tick after tick, and add up what it costs."""
    network = model.network
    left = torch.arange(len(windows))  # windows that are not over
    for tick in range(CONTEXT, windows.ticks + 1):
        going = windows.going(left, tick)
        if not len(going):
            return
        left = left[going]
        there = windows.lengths[left] > tick
        action = windows.action[left, tick - 1]
        hidden = network.step(state.take(going), action)
        prior = network.prior_logits(hidden)
        (seen,) = there.nonzero(as_tuple=True)
        logits = prior
        if len(seen):
            posterior = network.posterior_logits(hidden[seen], embedded[left[seen], tick])
            ticks.add({"divergence": divergence(posterior, prior[seen])})
            ticks.add({"balanced": balanced_divergence(posterior, prior[seen], PRIORS_SHARE)})
            logits = prior.index_copy(0, seen, posterior)
        state = WorldState(hidden, drawn(logits, generator))
        prediction = network.decode(state, scene_of(scene, going), action)
        ticks.add(_outcome_costs(model, prediction, windows.reward[left, tick - 1], (~there).float()))
        if not len(seen):
            return
        left, state, scene = left[seen], state.take(seen), scene_of(prediction.scene, seen)
        memory = remember(model, scene, windows.around.take(left), memory.take(going[seen]))
        ticks.add(memory_costs(memory, windows.memory(tick, left), model.stats))
        prediction = _taken(prediction, seen)
        _, real = windows.at(tick)
        ticks.add(scene_costs(prediction, real, model.stats, network.vitals))
        moved = displacement(windows.where[left, tick - 1], windows.where[left, tick])
        ticks.add({"move": torch.nn.functional.cross_entropy(prediction.move, moved, reduction="none")})


def _outcome_costs(model: WorldModel, prediction: Prediction, reward: torch.Tensor, over: torch.Tensor) -> Costs:
    mean, deviation = model.stats.reward
    distance = prediction.reward - (reward - mean) / deviation
    end = torch.nn.functional.binary_cross_entropy_with_logits(prediction.end, over, reduction="none")
    huber = torch.nn.functional.smooth_l1_loss(distance, torch.zeros_like(distance), reduction="none")
    return {"reward": huber, "end": end}


def _sum_up(
    model: WorldModel, start: Costs, ticks: Costs, vector: torch.Tensor, log_variance: torch.Tensor | None,
    windows: Windows,
) -> Unrolled:  # fmt: skip
    """Weigh all costs: each part counts 1 if no more is known of it than how often its values occur."""
    nats = dict(zip(HEADS, model.stats.nats, strict=True))
    a_nat = 1 / nats["material"]  # a nat of the latent state costs as much as a nat of tiles
    shares = sum(ticks[name] / nats[name] for name in HEADS if name in ticks) + a_nat * ticks.get("balanced", 0.0)
    started = sum(start[name] / nats[name] for name in HEADS if name in start) + a_nat * start["balanced"]
    started = started + sum(start[f"given_{name}"] / nats[name] for name in ("hidden", "cell"))
    if log_variance is None:
        bottleneck = spreading(vector)
        penalty = SPREADING * bottleneck
    else:
        bottleneck = gaussian_divergence(vector, log_variance).mean()
        penalty = a_nat * bottleneck
    loss = torch.as_tensor(shares + STARTS_WEIGHT * started + penalty)
    return Unrolled(
        loss, {name: float(ticks[name].detach()) for name in HEADS if name in ticks},
        {name: float(start[name].detach()) for name in HEADS if name in start},
        float(ticks["divergence"].detach()) if "divergence" in ticks else 0.0, float(bottleneck.detach()),
        int((windows.lengths - CONTEXT).sum()),
    )  # fmt: skip


def scene_of(scene: SoftScene, chosen: torch.Tensor) -> SoftScene:
    """Return some of the scenes."""
    return SoftScene(**{name: each[chosen] for name, each in vars(scene).items()})


def _taken(prediction: Prediction, chosen: torch.Tensor) -> Prediction:
    parts = {name: each[chosen] for name, each in vars(prediction).items() if name != "scene"}
    return Prediction(scene=scene_of(prediction.scene, chosen), **parts)


def _mixed(chosen: torch.Tensor, mine: MemoryState, other: MemoryState) -> MemoryState:
    choice = chosen.view(1, -1, 1)
    return MemoryState(torch.where(choice, mine.hidden, other.hidden), torch.where(choice, mine.cell, other.cell))
