"""Run a world model over recorded windows with the recorded actions, and say what it costs in nats.

Latent states are drawn from the posterior, which sees each tick, in some windows and from the prior in the others. Only
the latter teach the model to foresee several ticks, as it must in simulations: with the posterior, what a tick shows
need never be worked out from the ticks and actions before it. How others drift is fitted in the end.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from agent_zoo.data_parallel import ALONE, Processes
from agent_zoo.memory import MemoryState
from agent_zoo.soft_path import ReadsProbabilities
from analysis.world_model.imagination import informed_state
from analysis.world_model.model import (
    HEADS,
    LONGEST,
    REACH,
    WIDTH,
    Sightings,
    Statistics,
    WorldModel,
    last_seen,
    logit,
    no_drift,
)
from analysis.world_model.network import Prediction, Sizes, WorldNetwork, WorldState, drawn, spread_levels
from analysis.world_model.policy_interface import Surroundings, imagined_view
from analysis.world_model.scene import KINDS, Rows, Scene, SoftScene, displacement
from analysis.world_model.windows import CONTEXT, FIRST_END, Windows


@dataclass(frozen=True)
class Dice(Rows):
    """Random numbers for W windows of T ticks."""

    # latent: uniform, of the latent states of the last given tick and of each predicted one, (W, T - 1, groups)
    latent: torch.Tensor
    bottleneck: torch.Tensor  # normal, (W, dimensions)
    imagined: torch.Tensor  # uniform, decides which windows go on from the bottleneck, (W,)
    foreseen: torch.Tensor  # uniform, decides in which windows latent states are drawn from the prior, (W,)

    @staticmethod
    def thrown(windows: Windows, sizes: Sizes, generator: torch.Generator) -> "Dice":
        """Draw the numbers of a whole batch."""
        count = len(windows)
        return Dice(
            torch.rand((count, windows.ticks - CONTEXT + 2, sizes.groups), generator=generator),
            torch.randn((count, sizes.bottleneck), generator=generator),
            torch.rand(count, generator=generator),
            torch.rand(count, generator=generator),
        )


Costs = dict[str, torch.Tensor]
"""For each of `HEADS`, the cost of each prediction in nats, (B,)."""


def scene_costs(prediction: Prediction, scene: Scene, stats: Statistics, vitals: list[int]) -> Costs:
    """Return the costs of predicted scenes.

    A number that is off by x units of `Statistics.own_step` costs log(1 + x^2 / 2): x^2 / 2 where it is near, as in a
    normal distribution, and little more the further it is off.

    Args:
        vitals: places of the vitals in `Scene.own`.
    """
    occupied = (scene.kinds.sum(dim=1) > 0).float()
    carried = (scene.item_type > 0).float()
    own = _distance(prediction.scene.own - scene.own, stats.own_step)
    items = _distance(prediction.scene.items - scene.items, stats.item_step)
    levels = spread_levels(scene.own[:, vitals])
    return {
        "material": functional.cross_entropy(prediction.material, scene.material, reduction="none").sum(dim=1),
        "kinds": _flags(prediction.kinds, scene.kinds),
        "target": _flags(prediction.target, scene.target),
        "health": ((prediction.health - scene.health).square() * occupied).sum(dim=1) / (2 * 0.2**2),
        "vitals": -(levels * prediction.vitals.log_softmax(dim=2)).sum(dim=(1, 2)),
        "own": own.sum(dim=1),
        "item_type": functional.cross_entropy(
            prediction.item_type.transpose(1, 2), scene.item_type, reduction="none"
        ).sum(dim=1),
        "items": (items.sum(dim=2) * carried).sum(dim=1),
        "legal": _flags(prediction.legal, scene.legal),
    }


def memory_costs(predicted: MemoryState, recorded: MemoryState, stats: Statistics) -> Costs:
    """Return half the squared distance of the policy's memory from the recorded one, as a share of its variance."""
    pairs = {"hidden": (predicted.hidden, recorded.hidden), "cell": (predicted.cell, recorded.cell)}
    return {
        name: (mine - other).square().mean(dim=(0, 2)) / (2 * variance)
        for (name, (mine, other)), variance in zip(pairs.items(), stats.memory, strict=True)
    }


def divergence(posterior: torch.Tensor, prior: torch.Tensor) -> torch.Tensor:
    """KL(posterior || prior) of latent states in nats, log-probabilities (B, groups, classes) to (B,)."""
    return (posterior.exp() * (posterior - prior)).sum(dim=(1, 2))


def balanced_divergence(posterior: torch.Tensor, prior: torch.Tensor, share: float) -> torch.Tensor:
    """Return the divergence with most of its gradient going to the prior (Hafner et al. 2021, section 2.2), (B,).

    Args:
        posterior: log-probabilities, (B, groups, classes).
        share: of the prior in the gradient.
    """
    return share * divergence(posterior.detach(), prior) + (1 - share) * divergence(posterior, prior.detach())


def spreading(vectors: torch.Tensor) -> torch.Tensor:
    """Return the penalty that spreads B vectors over the sphere: the log of the mean of exp(-squared distance).

    Minimal where vectors are as far from each other as they can be; 0 if all are the same.
    """
    if len(vectors) < 2:
        return vectors.sum() * 0
    distances = torch.cdist(vectors, vectors).square()
    others = ~torch.eye(len(vectors), dtype=torch.bool)
    return (-distances[others]).exp().mean().log()


def gaussian_divergence(mean: torch.Tensor, log_variance: torch.Tensor) -> torch.Tensor:
    """KL of normal distributions from the standard one in nats, (B, dimensions) twice to (B,)."""
    return (mean.square() + log_variance.exp() - 1 - log_variance).sum(dim=1) / 2


def _flags(logits: torch.Tensor, flags: torch.Tensor) -> torch.Tensor:
    return functional.binary_cross_entropy_with_logits(logits, flags, reduction="none").flatten(1).sum(dim=1)


def _distance(error: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    scaled = error[..., step > 0] / step[step > 0]
    return (scaled.square() / 2).log1p()


class Totals:
    """Adds up costs by name, so that their means are those over all processes' predictions."""

    def __init__(self, names: Sequence[str]):
        self._names = tuple(names)
        self._sums: dict[str, torch.Tensor] = {}
        self._counts = dict.fromkeys(self._names, 0)

    def add(self, costs: Costs) -> None:
        """Add the costs of some predictions, (B,) each."""
        for name, cost in costs.items():
            self._sums[name] = self._sums.get(name, 0.0) + cost.sum()
            self._counts[name] += len(cost)

    def means(self, processes: Processes) -> tuple[Costs, dict[str, float]]:
        """Return what this process adds to each mean, with gradients, and the means; costs of nothing are left out.

        The gradients of the means are the sums of the processes' gradients.
        """
        sums = torch.stack([torch.as_tensor(self._sums.get(name, 0.0)).detach().double() for name in self._names])
        counts = torch.tensor([self._counts[name] for name in self._names], dtype=torch.float64)
        total, count = processes.concatenate(torch.stack([sums, counts]).unsqueeze(0)).sum(dim=0)
        numbers = zip(self._names, total.tolist(), count.tolist(), strict=True)
        known = {name: (amount, number) for name, amount, number in numbers if number}
        own = {name: torch.as_tensor(self._sums.get(name, 0.0)) / number for name, (_, number) in known.items()}
        return own, {name: amount / number for name, (amount, number) in known.items()}


PRIORS_SHARE = 0.8
SPREADING = 0.1
STARTS_WEIGHT = 0.25
FROM_BOTTLENECK = 0.25
"""Share of the training windows that go on from the scene and the memory that the bottleneck gives."""
FORESEEN = 0.5
"""Share of the training windows in which latent states are drawn from the prior."""


Cost = Any
"""A number, or a tensor () with gradients."""
_TICK_COSTS = (*HEADS, "divergence", "balanced")
_START_COSTS = (*HEADS, "given_hidden", "given_cell", "divergence", "balanced", "bottleneck")


@dataclass(frozen=True, eq=False)
class Unrolled:
    """What a batch of windows costs."""

    # loss: what this process adds to the loss, with gradients; those of all processes add up to the gradient
    loss: torch.Tensor
    total: float  # the loss over all processes
    costs: dict[str, float]  # of each of `HEADS` in nats in a predicted tick, on average
    start_costs: dict[str, float]  # likewise of the tick that the bottleneck describes
    divergence: float  # of the posterior from the prior in nats, on average
    bottleneck: float  # the spreading penalty, or the KL of a Gaussian bottleneck in nats
    ticks: int


def unroll(model: WorldModel, windows: Windows, generator: torch.Generator, processes: Processes = ALONE) -> Unrolled:
    """Predict every tick of the windows after their context.

    Args:
        windows: of its policy's lives, the same in all processes, which share them.
        generator: of latent states and of which windows go on from the bottleneck, in the same state in all processes.
    """
    dice = Dice.thrown(windows, model.network.sizes, generator)
    first, last = (len(windows) * (processes.rank + more) // processes.size for more in (0, 1))
    start, ticks = Totals(_START_COSTS), Totals(_TICK_COSTS)
    vector = torch.zeros(0, model.network.sizes.bottleneck)
    if last > first:
        vector = _predict(model, windows.part(first, last), dice.take(torch.arange(first, last)), start, ticks)
    spread = None
    if model.network.kind == "sphere":
        everyones = processes.concatenate(vector.detach())
        spread = spreading(torch.cat([everyones[:first], vector, everyones[last:]]))
    return _sum_up(model, start, ticks, spread, int((windows.lengths - CONTEXT).sum()), processes)


def _predict(model: WorldModel, windows: Windows, dice: Dice, start: Totals, ticks: Totals) -> torch.Tensor:
    """Predict some windows and add up what that costs; returns their bottlenecks, (W, dimensions)."""
    network = model.network
    encoded = network.encode(windows.scene.soft(network.shape.materials))  # (N, embedding)
    grid = encoded.new_zeros(len(windows) * windows.ticks, encoded.shape[1]).index_copy(0, windows.place, encoded)
    embedded = grid.view(len(windows), windows.ticks, -1)
    mean, log_variance = network.bottleneck(embedded[:, :CONTEXT])
    vector = mean
    if log_variance is not None:
        vector = mean + (log_variance / 2).exp() * dice.bottleneck
        start.add({"bottleneck": gaussian_divergence(mean, log_variance)})
    hidden, memory = network.start(vector)
    recorded = windows.memory(CONTEXT - 2)
    start.add({f"given_{name}": cost for name, cost in memory_costs(memory, recorded, model.stats).items()})
    prior = network.prior_logits(hidden)
    posterior = network.posterior_logits(hidden, embedded[:, CONTEXT - 1])
    state = WorldState(hidden, drawn(posterior, dice.latent[:, 0]))
    nothing = hidden.new_zeros(len(windows), network.action)
    prediction = network.decode(state, network.blank(len(windows)), nothing)
    real = windows.at(CONTEXT - 1)[1]
    start.add(scene_costs(prediction, real, model.stats, network.vitals))
    start.add({"divergence": divergence(posterior, prior)})
    start.add({"balanced": balanced_divergence(posterior, prior, PRIORS_SHARE)})
    memory = remember(model, prediction.scene, windows.around, memory)
    start.add(memory_costs(memory, windows.memory(CONTEXT - 1), model.stats))
    imagined = dice.imagined < FROM_BOTTLENECK
    scene = prediction.scene.where(imagined, windows.last_given(network.shape.materials))
    memory = _mixed(imagined, memory, windows.memory(CONTEXT - 1))
    _follow(model, windows, embedded, state, scene, memory, ticks, dice)
    return vector


def remember(model: WorldModel, scene: SoftScene, around: Surroundings, memory: MemoryState) -> MemoryState:
    """Let the frozen policy see scenes, and return its memory afterwards."""
    assert isinstance(model.policy.policy, ReadsProbabilities)
    view = imagined_view(scene, model.stats.kind_means, around, model.layout)
    return model.policy.remember(model.policy.policy.encode_soft(view.observation)[0], memory)[1]


def _follow(
    model: WorldModel, windows: Windows, embedded: torch.Tensor, state: WorldState, scene: SoftScene,
    memory: MemoryState, ticks: Totals, dice: Dice,
) -> None:  # fmt: skip
    """Predict tick after tick, and add up what it costs."""
    network = model.network
    left = torch.arange(len(windows))  # windows that are not over
    is_foreseen = dice.foreseen >= FORESEEN  # windows whose latent states are drawn from the posterior
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
        (shown,) = (there & is_foreseen[left]).nonzero(as_tuple=True)
        logits = prior
        if len(shown):
            posterior = network.posterior_logits(hidden[shown], embedded[left[shown], tick])
            ticks.add({"divergence": divergence(posterior, prior[shown])})
            ticks.add({"balanced": balanced_divergence(posterior, prior[shown], PRIORS_SHARE)})
            logits = prior.index_copy(0, shown, posterior)
        # From the prior for all: the posterior exists only where the life goes on, and would give that away.
        foreseen = WorldState(hidden, drawn(prior, dice.latent[left, tick - CONTEXT + 1]))
        outcome, over = network.outcome(foreseen, scene.take(going)), windows.ends[left, tick - 1]
        costs = _outcome_costs(model, *outcome, windows.reward[left, tick - 1], over)
        ticks.add({"reward": costs["reward"][there | (over > 0)]})  # those that go on are in the next window
        if tick >= FIRST_END:
            ticks.add({"end": costs["end"]})
        if not len(seen):
            return
        state = WorldState(hidden, drawn(logits, dice.latent[left, tick - CONTEXT + 1]))
        prediction = network.decode(state, scene.take(going), action)
        prediction = prediction.take(seen)
        left, state, scene = left[seen], state.take(seen), prediction.scene
        memory = remember(model, scene, windows.around.take(left), memory.take(going[seen]))
        ticks.add(memory_costs(memory, windows.memory(tick, left), model.stats))
        _, real = windows.at(tick)
        ticks.add(scene_costs(prediction, real, model.stats, network.vitals))
        moved = displacement(windows.where[left, tick - 1], windows.where[left, tick])
        ticks.add({"move": functional.cross_entropy(prediction.move, moved, reduction="none")})


def _outcome_costs(
    model: WorldModel, predicted: torch.Tensor, ending: torch.Tensor, reward: torch.Tensor, over: torch.Tensor
) -> Costs:
    """Costs of predicted rewards and of logits of the end, (B,) each, given the rewards and whether lives are over."""
    mean, deviation = model.stats.reward
    distance = predicted - (reward - mean) / deviation
    end = functional.binary_cross_entropy_with_logits(ending, over, reduction="none")
    huber = functional.smooth_l1_loss(distance, torch.zeros_like(distance), reduction="none")
    return {"reward": huber, "end": end}


def _sum_up(
    model: WorldModel, start: Totals, ticks: Totals, spread: torch.Tensor | None, predicted: int, processes: Processes
) -> Unrolled:
    """Weigh all costs; `spread` is the penalty of a bottleneck on the sphere."""
    (own_start, start_means), (own_ticks, tick_means) = start.means(processes), ticks.means(processes)
    loss = torch.as_tensor(_weighed(model, own_start, own_ticks))
    total, bottleneck = _weighed(model, start_means, tick_means), start_means.get("bottleneck", 0.0)
    if spread is not None:
        loss, bottleneck = loss + SPREADING * spread, float(spread.detach())
        total += SPREADING * bottleneck
    return Unrolled(
        loss, total, {name: tick_means[name] for name in HEADS if name in tick_means},
        {name: start_means[name] for name in HEADS if name in start_means}, tick_means.get("divergence", 0.0),
        bottleneck, predicted,
    )  # fmt: skip


def _weighed(model: WorldModel, start: Mapping[str, Cost], ticks: Mapping[str, Cost]) -> Cost:
    """Weigh mean costs: each part counts 1 if no more is known of it than how often its values occur."""
    nats = dict(zip(HEADS, model.stats.nats.tolist(), strict=True))
    a_nat = 1 / nats["material"]  # a nat of the latent state costs as much as a nat of tiles
    shares = sum(ticks[name] / nats[name] for name in HEADS if name in ticks) + a_nat * ticks.get("balanced", 0.0)
    started = sum(start[name] / nats[name] for name in HEADS if name in start) + a_nat * start["balanced"]
    started = started + sum(start[f"given_{name}"] / nats[name] for name in ("hidden", "cell"))
    return shares + STARTS_WEIGHT * started + a_nat * start.get("bottleneck", 0.0)


def _mixed(chosen: torch.Tensor, mine: MemoryState, other: MemoryState) -> MemoryState:
    choice = chosen.view(1, -1, 1)
    return MemoryState(torch.where(choice, mine.hidden, other.hidden), torch.where(choice, mine.cell, other.cell))


_RIDGE = 5.0


@torch.no_grad()
def fit_sightings(network: WorldNetwork, batches: Iterable[Windows], generator: torch.Generator) -> Sightings:
    """Fit them to what came after recorded ticks, and to what a network predicts from these.

    Kernels are fitted by least squares, weights by logistic regression. Windows may be of any length; what they do not
    reach is as two ticks before.
    """
    parts: list[list[tuple[torch.Tensor, ...]]] = [[] for _ in range(LONGEST)]
    for windows in batches:
        for part, (scene, real) in zip(parts, _predicted(network, windows, generator), strict=False):
            part.append((last_seen(scene, REACH), scene.kinds, real))
    fitted = Sightings(**no_drift())
    for age, ticks in enumerate(parts):
        if not ticks:  # no window is as long
            for table in vars(fitted).values():
                table[age] = table[age - 2]
            continue
        seen, predicted, real = (torch.cat(part) for part in zip(*ticks, strict=True))
        for kind in range(len(KINDS)):
            fitted.kernel[age, kind], fitted.base[age, kind] = _kernel(seen[:, kind], real[:, kind])
        drift = fitted.drift(age, seen)
        for kind in range(len(KINDS)):
            fitted.weights[age, kind] = _weights(predicted[:, kind], drift[:, kind], real[:, kind])
    return fitted


def _predicted(
    network: WorldNetwork, windows: Windows, generator: torch.Generator
) -> Iterator[tuple[SoftScene, torch.Tensor]]:
    """Predict windows with the recorded actions, as simulations do; yields each tick's scenes, and who was there."""
    scene, (_, state) = windows.last_given(network.shape.materials), informed_state(network, windows, generator)
    left = torch.arange(len(windows))
    for tick in range(CONTEXT, windows.ticks):
        (going,) = (windows.lengths[left] > tick).nonzero(as_tuple=True)
        if not len(going):
            return
        left, state, scene = left[going], state.take(going), scene.take(going)
        action = windows.action[left, tick - 1]
        hidden = network.step(state, action)
        state = WorldState(hidden, drawn(network.prior_logits(hidden), generator))
        scene = network.decode(state, scene, action, decided=True).scene
        yield scene, windows.at(tick)[1].kinds


def _kernel(seen: torch.Tensor, real: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Fit presence, (B, V), to who was seen near, (B, side + 2 REACH, ...); returns the kernel and the constant."""
    near = functional.unfold(seen.unsqueeze(1), WIDTH).transpose(1, 2)  # (B, V, width^2)
    some = near.sum(dim=2) > 0
    base = real[~some].double().mean() if (~some).any() else torch.zeros(())
    inputs, wanted = near[some].double(), real[some].double() - base
    kernel = torch.linalg.solve(
        inputs.T @ inputs + _RIDGE * torch.eye(WIDTH**2, dtype=torch.float64), inputs.T @ wanted
    )
    return kernel.float().view(WIDTH, WIDTH), base.float()


def _weights(own: torch.Tensor, drift: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """Fit the weights of both predictions of presence, (B, V) each; of the drift alone if nobody ever was there."""
    if not real.any():
        return torch.tensor([0.0, 1.0, 0.0])
    from sklearn.linear_model import LogisticRegression

    logits = torch.stack([logit(own), logit(drift)], dim=2).flatten(0, 1).numpy()
    fitted = LogisticRegression(max_iter=1000).fit(logits, real.flatten().numpy() > 0)
    return torch.tensor([*fitted.coef_[0], fitted.intercept_[0]], dtype=torch.float32)
