"""What simulated ticks depend on: a number on the memory and the own row before, and components on each other.

Each derivative is taken twice in the same simulations: through everything, and with the world cut, where the policy
sees simulated scenes as given. The difference passes through the world: the memory leads to an action, which changes
what the policy sees later. Influences on a number are per standard deviation of the input. Components that move each
other, behaviours and lagged correlations are those of a finished run of analyze_dynamics.py on the same dump.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from activation_store.directions import Direction
from activation_store.layers import LSTM_CELL, LSTM_HIDDEN
from activation_store.schema import METADATA_FILE
from agent_zoo.memory import Hook, MemoryState
from agent_zoo.network_parts.distribution import ILLEGAL
from analysis.attribution.targets import Target, fitted_components
from analysis.dynamics.jacobians import Agreement, Probes, mean_jacobians, sign_agreement
from analysis.figures.style import cluster_colour, new_figure, style
from analysis.recorded.recorded_observation import state_layers
from analysis.runs.finished_files import FinishedFiles, open_finished
from analysis.runs.run_folder import write_figure
from analysis.sparse.scores import Estimate, Units
from analysis.statistics.inference import LEVEL
from analysis.world_model.held_out import LIVES_IN_EPISODE, HeldOut
from analysis.world_model.imagination import (
    MOVE_HEAD,
    STYLE_HEAD,
    ImaginedTick,
    Number,
    Start,
    imagine,
    informed_start,
    lived,
    read_out,
    value,
)
from analysis.world_model.model import Origin, WorldModel
from analysis.world_model.outcomes import Row, concatenated, over_lives
from analysis.world_model.scene import SoftScene, own_columns
from analysis.world_model.windows import CONTEXT, as_windows, chosen_sequences
from common.array_files import arrays_of
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


def tapped(
    model: WorldModel, start: Start, taps: Taps, seed: int, soft: bool = False
) -> Iterator[tuple[ImaginedTick, torch.Tensor]]:
    """Simulate the ticks that are tapped; yields them, and which lives are not over by each, (S,) bool.

    Actions and latent states are drawn. They pass gradients on as if they were their probabilities (straight-through).
    The dice do not depend on the taps, so simulations are the same.
    """
    generator = torch.Generator().manual_seed(seed)
    ticks = imagine(model, start, len(taps.own), generator, (), taps, taps.shown, soft)
    for tick, alive, _ in lived(ticks, generator):
        yield tick, alive


def slopes(
    model: WorldModel, start: Start, number: Number, taps: Taps, seed: int, soft: bool = False
) -> dict[str, np.ndarray]:
    """Simulate the ticks that are tapped, and differentiate a number of the last one.

    Returns:
        `number`, (S,); its derivatives by `components` after the tick L ticks before, (S, lags + 1, K) by lag L from 0,
        and by the `own` row seen in that tick, (S, lags + 1, columns); and `alive`: lives not over by then, (S,) bool.
    """
    with torch.enable_grad():
        for last, alive in tapped(model, start, taps, seed, soft):  # noqa: B007 (the last ones)
            pass
        values = number(last)
        leaves = [*taps.strengths, *taps.own]
        gradients = torch.autograd.grad(values.sum(), leaves, allow_unused=True, materialize_grads=True)
    by_lag = [gradient.numpy() for gradient in gradients]
    components, own = (np.stack(half[::-1], axis=1) for half in (by_lag[: len(taps.own)], by_lag[len(taps.own) :]))
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


Side = Literal["whole", "memory alone", "recorded inputs"]
"""Through everything; with the world cut; and of the run of analyze_dynamics.py, where inputs are held as recorded."""
_STRIDE = 4
_ALIGNED = 1e-2
_ARRAYS = ("agent_id", "episode", "tick", "behaviour", "r", "q", "jacobian_records", "jacobians")


@dataclass(frozen=True, eq=False)
class Dynamics:
    """What a run of analyze_dynamics.py found. K components, L lags from 0."""

    probes: Probes
    r: np.ndarray  # r, q: as `behaviours.lagged_correlations` returns them, (behaviours, L, K, K) each
    q: np.ndarray
    # label: behaviour of each recorded tick, by episode, agent and tick; only of those in a behaviour
    label: dict[tuple[int, int, int], int]
    jacobians: np.ndarray  # of the policy alone, (n, L, K, K)
    jacobian_label: np.ndarray  # behaviour of each of these states, (n,)


def read_dynamics(folder: Path, origin: Origin) -> Dynamics:
    """Read a finished run of analyze_dynamics.py on the dump that simulations start from.

    Raises:
        UserError: the run is unfinished, damaged, or of another dump or layer.
    """
    finished = open_finished(folder, "analyze_dynamics.py")
    run = finished.description()
    if run.input.get(METADATA_FILE) != origin.dump_sha256:
        raise UserError(
            f"{folder} is of another dump than {origin.dump}, which simulations start from: run analyze_dynamics.py on "
            "that dump, or give its own with --dump"
        )
    layer = str(run.arguments.get("layer"))
    if layer not in (LSTM_HIDDEN, LSTM_CELL):
        raise UserError(f"{folder} is of {layer}: give a run on {LSTM_HIDDEN} or {LSTM_CELL}")
    motion = _arrays(finished, "motion.npz", _ARRAYS)
    states = _arrays(finished, "states.npz", ("ica_patterns", "spread"))
    patterns = states["ica_patterns"] * states["spread"]
    directions = finished.directions()
    weights = np.stack([directions.named(f"ic_{number + 1}").weight for number in range(len(patterns))])
    if np.abs(weights @ patterns.T - np.eye(len(patterns))).max() > _ALIGNED:
        raise UserError(f"{folder} holds components that do not fit its directions: run analyze_dynamics.py again")
    places = zip(*(motion[name].tolist() for name in ("episode", "agent_id", "tick")), strict=True)
    label = {key: int(behaviour) for key, behaviour in zip(places, motion["behaviour"], strict=True) if behaviour >= 0}
    return Dynamics(
        Probes(layer, weights, patterns), motion["r"], motion["q"], label, motion["jacobians"],
        motion["behaviour"][motion["jacobian_records"]],
    )  # fmt: skip


def _arrays(finished: FinishedFiles, name: str, wanted: Sequence[str]) -> dict[str, np.ndarray]:
    try:
        return arrays_of(finished.read(name), wanted)
    except ValueError as error:
        raise UserError(f"{finished.path / name} is damaged ({error}): run analyze_dynamics.py again") from None


def lags_up_to(largest: int) -> tuple[int, ...]:
    """Return 1, 2, 4, 8 and so on, up to a lag."""
    return tuple(2**power for power in range(largest.bit_length()) if 2**power <= largest)


def world_jacobians(
    model: WorldModel, start: Start, probes: Probes, lags: Sequence[int], seed: int, through_world: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return how components change some ticks after a component was moved in the first tick of simulations.

    Args:
        lags: ascending, from 1.
        seed: of the dice, which do not depend on `through_world`.
        through_world: whether gradients pass from what the world model decodes to what the policy sees.

    Returns:
        d component i after the tick / d component j after the first one, (S, 1 + lags, K i, K j) float32, for lag 0 and
        the others; and which lives are not over by the last lag, (S,) bool.
    """
    weight = torch.from_numpy(probes.read_outs).float()
    taps = Taps({probes.layer: torch.from_numpy(probes.patterns).float()}, start, lags[-1] + 1, through_world)
    jacobians = []
    with torch.enable_grad():
        for place, (tick, alive) in enumerate(tapped(model, start, taps, seed)):  # noqa: B007 (the last is wanted)
            if place in (0, *lags):
                state = tick.memory.cell if probes.layer == LSTM_CELL else tick.memory.hidden
                sums = (state[-1] @ weight.T).sum(dim=0)  # (K,)
                rows = [torch.autograd.grad(output, taps.strengths[0], retain_graph=True)[0] for output in sums]
                jacobians.append(torch.stack(rows, dim=1).numpy())
    return np.stack(jacobians, axis=1), alive.numpy()


def labelled_starts(
    held_out: HeldOut, label: dict[tuple[int, int, int], int], count: int, seed: int
) -> Iterator[tuple[Start, np.ndarray]]:
    """Yield recorded starts on test maps whose tick is in a behaviour, and their behaviours."""
    model, left = held_out.model, count
    for batch in held_out.sequences(_STRIDE, seed, LIVES_IN_EPISODE * 8):
        first = np.cumsum(batch.lengths) - batch.lengths + CONTEXT - 1
        keys = zip(
            *(getattr(batch.records, name)[first].tolist() for name in ("episode", "agent_id", "tick")), strict=True
        )
        labels = np.array([label.get(key, -1) for key in keys])
        (kept,) = (labels >= 0).nonzero()
        kept = kept[: min(left, LIVES_IN_EPISODE)]
        if len(kept):
            chosen = np.isin(np.arange(len(labels)), kept)
            windows = as_windows(chosen_sequences(batch, chosen), model.policy, model.info)
            with torch.no_grad():
                yield informed_start(model, windows, torch.Generator().manual_seed(seed + left)), labels[kept]
        left -= len(kept)
        if left <= 0:
            return


def compare_jacobians(
    held_out: HeldOut, dynamics: Dynamics, states: int, largest_lag: int, seed: int,
    report: Callable[[float], None] = lambda _: None,
) -> tuple[list[Row], list[Row]]:  # fmt: skip
    """Compute Jacobians in simulated lives, and compare their signs with lagged correlations in each behaviour.

    Args:
        largest_lag: in ticks; lags are 1, 2, 4, 8 and so on, up to it.

    Returns:
        `Agreement` by side, behaviour and lag; and at each lag, over all behaviours, see `_at_lag`.

    Raises:
        UserError: the run has no lag of 1, or no start is in a behaviour.
    """
    lags = lags_up_to(min(largest_lag, dynamics.r.shape[1] - 1))
    if not lags:
        raise UserError("the run of analyze_dynamics.py has no correlations at lag 1: run it with --lags")
    parts: dict[Side, list[np.ndarray]] = {"whole": [], "memory alone": []}
    labels: list[np.ndarray] = []
    for number, (start, label) in enumerate(labelled_starts(held_out, dynamics.label, states, seed)):
        for side, blocks in parts.items():
            jacobians, alive = world_jacobians(
                held_out.model, start, dynamics.probes, lags, seed + number, side == "whole"
            )
            blocks.append(jacobians[alive])
        labels.append(label[alive])
        report(min(1.0, sum(map(len, labels)) / states))
    if not sum(map(len, labels)):
        raise UserError(
            f"no tick of {held_out.dump} on test maps is in a behaviour of the run: run it with more --lives"
        )
    places = [0, *lags]
    sides: dict[Side, tuple[np.ndarray, np.ndarray]] = {
        side: (np.concatenate(blocks), np.concatenate(labels)) for side, blocks in parts.items()
    }
    sides["recorded inputs"] = dynamics.jacobians[:, places], dynamics.jacobian_label
    r, q = dynamics.r[:, places], dynamics.q[:, places]
    rows, by_lag = list[Row](), list[Row]()
    for side, (jacobians, label) in sides.items():
        agreements = sign_agreement(r, q, jacobians, label, seed)
        rows += [{**vars(row), "lag": places[row.lag], "side": side} for row in agreements]
        for place, lag in enumerate(lags, start=1):
            at_lag = _at_lag([row for row in agreements if row.lag == place], sides, side, place)
            by_lag.append({"side": side, "lag": lag, **at_lag})
    return rows, by_lag


def _at_lag(rows: Sequence[Agreement], sides: dict[Side, tuple[np.ndarray, np.ndarray]], side: Side, place: int) -> Row:
    """Sum up one lag of one side over all behaviours.

    Returns:
        Means over behaviours of the shares of `Agreement`; `above_chance`: behaviours whose share exceeds that of
        renamed components with p < 0.05; `states`: at which Jacobians were computed; `through_world`: mean over states
        of the size (Frobenius norm) of what passes through the world, divided by that and the size with the world cut,
        NaN for other sides than `whole`; `like_recorded`: correlation of the mean Jacobian with the one for recorded
        inputs, over all pairs.
    """
    mine = [row for row in rows if np.isfinite(row.share)]
    jacobians, label = sides[side]
    through = float("nan")
    if side == "whole":
        cut = sides["memory alone"][0][:, place]
        apart, alone = (np.linalg.norm(matrices, axis=(1, 2)) for matrices in (jacobians[:, place] - cut, cut))
        through = float((apart / np.maximum(apart + alone, np.finfo(np.float32).tiny)).mean())
    means = [
        mean_jacobians(matrices[:, [place]], np.zeros(len(matrices), np.int64), 1)[0, 0].ravel()
        for matrices in (jacobians, sides["recorded inputs"][0])
    ]
    share, dealt, renamed = (
        float(np.mean([getattr(row, name) for row in mine])) if mine else float("nan")
        for name in ("share", "shuffled_behaviours", "shuffled_components")
    )
    return {
        "share": share, "shuffled_behaviours": dealt, "shuffled_components": renamed,
        "above_chance": sum(row.p < LEVEL for row in mine), "behaviours": len(mine), "states": len(label),
        "through_world": through, "like_recorded": float(np.corrcoef(*means)[0, 1]),
    }  # fmt: skip
