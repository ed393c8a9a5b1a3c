"""What a number of a simulated tick depends on: the memory by component and the own row, up to some ticks before.

Each influence is a derivative, per standard deviation of the input. It is taken twice in the same simulations: through
everything, and with the world cut, where the policy sees simulated scenes as given. The difference passes through the
world: the memory leads to an action, which changes what the policy sees later.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from activation_store.directions import Direction
from agent_zoo.memory import Hook, MemoryState
from agent_zoo.network_parts.distribution import ILLEGAL
from analysis.attribution.targets import Target, fitted_components
from analysis.figures.style import cluster_colour, new_figure, style
from analysis.recorded.recorded_observation import state_layers
from analysis.runs.run_folder import write_figure
from analysis.sparse.scores import Estimate, Units
from analysis.world_model.held_out import HeldOut
from analysis.world_model.imagination import (
    MOVE_HEAD,
    STYLE_HEAD,
    ImaginedTick,
    Number,
    Start,
    imagine,
    read_out,
)
from analysis.world_model.model import WorldModel
from analysis.world_model.outcomes import Row, concatenated, over_lives
from analysis.world_model.scene import SoftScene, own_columns
from analysis.world_model.simulation import value
from common.user_error import UserError

Patterns = Mapping[str, torch.Tensor]
"""What a unit of each of K components adds to the policy's hidden and cell state after a tick, (K, units) by layer. The
hidden state follows a changed cell in the same tick, as in interventions."""


class Taps:
    """Zeros that are added to the components after each tick, and to the agents' own rows in each tick.

    Attributes:
        strengths: of the components after each tick, (S, K) each, with gradients.
        own: of the own row's columns in each tick, (S, columns) each, with gradients.
    """

    def __init__(self, patterns: Patterns, start: Start, ticks: int, through_world: bool):
        """Make them for so many ticks of S simulations.

        Args:
            through_world: whether gradients pass from what the world model decodes to what the policy sees.
        """
        components = len(next(iter(patterns.values())))
        self.strengths = [torch.zeros(len(start), components, requires_grad=True) for _ in range(ticks)]
        self.own = [torch.zeros_like(start.scene.own, requires_grad=True) for _ in range(ticks)]
        self._patterns = patterns
        self._through_world, self._tick = through_world, 0

    def begin(self, memory: MemoryState, tick: int, own: torch.Tensor) -> MemoryState:
        """See `imagination.TickEdits`."""
        self._tick = tick
        return memory

    def hooks(self, before: MemoryState) -> dict[str, Hook]:
        """See `imagination.TickEdits`."""
        return {layer: self._hook(pattern) for layer, pattern in self._patterns.items() if pattern.any()}

    def shown(self, scene: SoftScene, tick: int) -> tuple[SoftScene, SoftScene]:
        """See `imagination.Shown`."""
        if self._through_world:
            scene = replace(scene, own=scene.own + self.own[tick])
            return scene, scene
        seen = scene.detach()
        return scene, replace(seen, own=seen.own + self.own[tick])

    def _hook(self, pattern: torch.Tensor) -> Hook:
        strength = self.strengths[self._tick]
        return lambda states: states + strength @ pattern


def slopes(
    model: WorldModel, start: Start, number: Number, taps: Taps, seed: int, soft: bool = False
) -> dict[str, np.ndarray]:
    """Simulate the ticks that are tapped, and differentiate a number of the last one.

    Actions and latent states are drawn. They pass gradients on as if they were their probabilities (straight-through).
    The dice do not depend on the taps, so simulations are the same.

    Returns:
        `number`, (S,); its derivatives by `components` after the tick L ticks before, (S, lags + 1, K) by lag L from 0,
        and by the `own` row seen in that tick, (S, lags + 1, columns); and `alive`: lives not over by then, (S,) bool.
    """
    generator, lags = torch.Generator().manual_seed(seed), len(taps.own) - 1
    alive = torch.ones(len(start), dtype=torch.bool)
    with torch.enable_grad():
        for place, tick in enumerate(imagine(model, start, lags + 1, generator, (), taps, taps.shown, soft)):
            last = tick
            if place < lags:
                alive &= torch.rand(len(start), generator=generator) >= tick.end.detach()
        values = number(last)
        leaves = [*taps.strengths, *taps.own]
        gradients = torch.autograd.grad(values.sum(), leaves, allow_unused=True, materialize_grads=True)
    by_lag = [gradient.numpy() for gradient in gradients]
    components, own = (np.stack(half[::-1], axis=1) for half in (by_lag[: lags + 1], by_lag[lags + 1 :]))
    return {"components": components, "own": own, "number": values.detach().numpy(), "alive": alive.numpy()}


MEMORY, OWN_ROW = "memory", "own row"


@dataclass(frozen=True)
class ByLag:
    """How large the derivatives by all components, or all columns, are together: the mean length of their vector."""

    of: str
    lag: int
    whole: float
    memory_alone: float
    through_world: float
    # share: of what passes through the world: its length, divided by that and the length with the world cut; with its
    # 95% interval over recorded lives
    share: Estimate
    lives: int


def components_of(held_out: HeldOut, chosen: Sequence[Direction]) -> tuple[tuple[str, ...], Patterns]:
    """Name directions, and find what a standard deviation of each adds to recorded states, as `saliency.py`.

    Raises:
        UserError: they cannot be told apart.
    """
    names = state_layers(held_out.model.policy)
    states = held_out.states(names)
    fitted = fitted_components(chosen, held_out.model.policy, dict(states))
    spread = torch.tensor([[float(component.read_out(states[component.layer]).std())] for component in chosen])
    patterns = (spread * fitted.pattern).float().chunk(len(names), dim=1)
    return fitted.names, dict(zip(names, patterns, strict=True))


def number_of(target: Target, model: WorldModel, request: str) -> Number:
    """Return a target of saliency.py as a number of a simulated tick.

    Raises:
        UserError: simulated ticks have no such number.
    """
    if target.direction is not None:
        return read_out(target.direction)
    if target.head is None:
        return value
    head = model.layout.heads[target.head].name
    if head not in (MOVE_HEAD, STYLE_HEAD):
        raise UserError(
            f"the target is {request}: options of {head} are rows, which simulated views do not share: give "
            f"{MOVE_HEAD} or {STYLE_HEAD}"
        )

    def log_probability(tick: ImaginedTick) -> torch.Tensor:
        table = tick.choices.log_probabilities[head]
        own = tick.options[head] if target.option is None else torch.full((len(table),), target.option)
        log_p = table.gather(1, own.unsqueeze(1)).squeeze(1)
        if target.other is None:
            return log_p
        other = table[:, target.other]
        return torch.where(torch.minimum(log_p, other) > ILLEGAL / 2, log_p - other, ILLEGAL)

    return log_probability


def influences(
    held_out: HeldOut, number: Number, components: tuple[tuple[str, ...], Patterns], lives: int, lags: int, seed: int,
    report: Callable[[float], None],
) -> tuple[list[Row], list[ByLag]]:  # fmt: skip
    """Simulate lives from recorded starts on test maps, and differentiate a number of their last tick.

    Returns:
        Mean derivatives by each input, per standard deviation of it, through everything, with the world cut, and the
        difference, with intervals over recorded lives; and their sizes by lag. An input is a component, which is moved
        after the tick so many before, or a column of the own row, which is moved in it.

    Raises:
        UserError: no simulation lasts long enough, or the number has no finite value.
    """
    names_of_components, patterns = components
    parts = list[list[dict[str, np.ndarray]]]()
    life, own = [], []
    for place, (start, origin, _) in enumerate(held_out.starts("informed", lives, seed)):
        measured = [
            slopes(held_out.model, start, number, Taps(patterns, start, lags + 1, through), seed + place)
            for through in (True, False)
        ]
        numbers = measured[0]["number"]  # the same in both
        kept = measured[0]["alive"] & np.isfinite(numbers) & (numbers > ILLEGAL / 2)
        parts.append([{name: array[kept] for name, array in side.items()} for side in measured])
        life.append(origin[kept])
        own.append(start.scene.own.numpy())
        report(min(1.0, sum(map(len, own)) / lives))
    if not sum(map(len, life)):
        raise UserError("the number exists in the last tick of no simulated life: give another, or fewer --lags")
    units = over_lives(np.concatenate(life), seed)
    spread = np.concatenate(own).std(axis=0)
    sides = [concatenated(side) for side in zip(*parts, strict=True)]
    by_component, by_column = [side["components"] for side in sides], [side["own"] * spread for side in sides]
    kinds = {MEMORY: (names_of_components, by_component), OWN_ROW: (own_columns(held_out.model.layout), by_column)}
    rows, sums = list[Row](), list[ByLag]()
    for of, (names, (all_through, all_alone)) in kinds.items():
        for lag in range(lags + 1):
            whole, cut = all_through[:, lag], all_alone[:, lag]
            sums.append(_by_lag(of, lag, whole, cut, units))
            for place, name in enumerate(names):
                through, alone, world = (
                    units.mean(side[:, place].astype(np.float64)) for side in (whole, cut, whole - cut)
                )
                rows.append({
                    "of": of, "input": name, "lag": lag, "whole": through, "memory_alone": alone,
                    "through_world": world, "lives": units.draws.shape[1],
                })  # fmt: skip
    return rows, sums


def _by_lag(of: str, lag: int, whole: np.ndarray, cut: np.ndarray, units: Units) -> ByLag:
    """Sum up derivatives of simulations, (S, inputs) each."""
    lengths = [np.linalg.norm(values.astype(np.float64), axis=1) for values in (whole, cut, whole - cut)]
    below = lengths[1] + lengths[2]
    share = units.mean(lengths[2], below) if below.any() else Estimate(np.nan)
    through, alone, world = (float(length.mean()) for length in lengths)
    return ByLag(of, lag, through, alone, world, share, units.draws.shape[1])


_SIDES = {"whole": "through everything", "memory_alone": "world cut", "through_world": "through the world"}


def draw_by_lag(rows: Sequence[ByLag], heading: str, target: Path) -> None:
    """Draw lengths of derivatives for the memory and the own row, and the share that passes through the world."""
    with style():
        figure = new_figure(11, 3.6)
        panels = figure.subplots(1, 3)
        for place, of in enumerate((MEMORY, OWN_ROW)):
            mine = [row for row in rows if row.of == of]
            lags = [row.lag for row in mine]
            for number, (side, label) in enumerate(_SIDES.items()):
                values = [getattr(row, side) or float("nan") for row in mine]  # 0 has no logarithm
                panels[place].plot(lags, values, marker="o", markersize=3, color=cluster_colour(number), label=label)
            panels[place].set(title=f"{of}: size of derivatives", xlabel="ticks before", yscale="log")
            panels[2].plot(lags, [row.share.value for row in mine], marker="o", markersize=3, label=of)
            panels[2].fill_between(lags, [row.share.low for row in mine], [row.share.high for row in mine], alpha=0.2)
        panels[2].set(title="share through the world", xlabel="ticks before", ylim=(0, 1))
        panels[0].legend()
        panels[2].legend()
        figure.suptitle(heading.replace("$", r"\$"))
        write_figure(target, figure)
