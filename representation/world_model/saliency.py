"""What a number of a simulated tick depends on: the memory by component and the own row, up to some ticks before.

Each influence is a derivative, per standard deviation of the input. It is taken twice in the same simulations: through
everything, and with the world cut, where the policy sees simulated scenes as given. The difference passes through the
world: the memory leads to an action, which changes what the policy sees later.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from activation_store.directions import Direction
from activation_store.layers import LSTM_CELL, LSTM_HIDDEN
from activation_store.reader import read_dump
from activation_store.subsample import Subsample
from agent_zoo.distribution import ILLEGAL
from representation.attribution.components import fitted_components
from representation.attribution.targets import Action, ReadOut, Target, Value
from representation.sparse_autoencoder.scores import Estimate, Units
from representation.world_model.held_out import starts
from representation.world_model.imagination import MOVE_HEAD, ImaginedTick
from representation.world_model.made_at_once import STYLE_HEAD
from representation.world_model.model import Origin, WorldModel
from representation.world_model.outcomes import over_lives
from representation.world_model.recorded_states import EVERYTHING_BUT_STATES
from representation.world_model.scene import own_columns
from representation.world_model.taps import Number, Patterns, Slopes, slopes
from user_error import UserError

MEMORY, OWN_ROW = "memory", "own row"
_ONE_IN = 10


@dataclass(frozen=True)
class Influence:
    """Mean derivative of the number by an input, with 95% intervals over recorded lives.

    Attributes:
        of: memory or own row.
        input: name of the component, which is moved after the tick, or of the column, which is moved in it.
        lag: ticks from that tick to the one of the number.
        whole: through everything, per standard deviation of the input.
        whole_low, whole_high: its interval.
        memory_alone: with the world cut.
        memory_alone_low, memory_alone_high: its interval.
        through_world: the difference.
        through_world_low, through_world_high: its interval.
        lives: recorded lives.
    """

    of: str
    input: str
    lag: int
    whole: float
    whole_low: float
    whole_high: float
    memory_alone: float
    memory_alone_low: float
    memory_alone_high: float
    through_world: float
    through_world_low: float
    through_world_high: float
    lives: int


@dataclass(frozen=True)
class ByLag:
    """How large the derivatives by all components, or all columns, are together: the mean length of their vector.

    Attributes:
        of: memory or own row.
        lag: in ticks.
        whole: through everything.
        memory_alone: with the world cut.
        through_world: of the difference.
        share: of what passes through the world: its length, divided by that and the length with the world cut.
        share_low, share_high: its 95% interval over recorded lives.
        lives: recorded lives.
    """

    of: str
    lag: int
    whole: float
    memory_alone: float
    through_world: float
    share: float
    share_low: float
    share_high: float
    lives: int


@dataclass(frozen=True, eq=False)
class Components:
    """Components of the memory.

    Attributes:
        names: of them, K.
        patterns: what a standard deviation of each adds to the states.
    """

    names: tuple[str, ...]
    patterns: Patterns


def components_of(model: WorldModel, origin: Origin, recorded: Path, chosen: Sequence[Direction]) -> Components:
    """Find what a standard deviation of each direction adds to recorded states, as `saliency.py --components`.

    Raises:
        UserError: they cannot be told apart.
    """
    states = read_dump(
        recorded, subsample=Subsample(_ONE_IN), layers=[LSTM_HIDDEN, LSTM_CELL], columns=[],
        leave_out=EVERYTHING_BUT_STATES, episodes=origin.test,
    ).activations  # fmt: skip
    found = fitted_components(chosen, model.policy, dict(states))
    spread = torch.tensor([[float(each.read_out(states[each.layer]).std())] for each in chosen])
    hidden, cell = (spread * found.pattern).float().chunk(2, dim=1)
    return Components(found.names, Patterns(hidden, cell))


def number_of(target: Target, model: WorldModel, asked: str) -> Number:
    """Return a target of saliency.py as a number of a simulated tick.

    Args:
        target: which.
        model: in which it is computed.
        asked: what the user wrote, for messages.

    Raises:
        UserError: simulated ticks have no such number.
    """
    if isinstance(target, Value):
        return lambda tick: tick.choices.value
    if isinstance(target, ReadOut):
        return _read_out(target.direction, asked)
    assert isinstance(target, Action)
    head = model.layout.heads[target.head].name
    if head not in (MOVE_HEAD, STYLE_HEAD):
        raise UserError(f"--saliency {asked}: options of {head} are rows, which simulated views do not share: give "
                        f"{MOVE_HEAD} or {STYLE_HEAD}")  # fmt: skip

    def log_probability(tick: ImaginedTick) -> torch.Tensor:
        table = tick.choices.log_probabilities[head]
        own = tick.options[head] if target.option is None else torch.full((len(table),), target.option)
        found = table.gather(1, own.unsqueeze(1)).squeeze(1)
        return found if target.other is None else found - table[:, target.other]

    return log_probability


def _read_out(direction: Direction, asked: str) -> Number:
    if direction.layer not in (LSTM_HIDDEN, LSTM_CELL):
        raise UserError(f"--saliency {asked}: a direction of {direction.layer}, which is no state of the memory")
    weight = torch.from_numpy(direction.weight)

    def read_out(tick: ImaginedTick) -> torch.Tensor:
        state = tick.memory.cell if direction.layer == LSTM_CELL else tick.memory.hidden
        return state[-1] @ weight + direction.bias

    return read_out


def influences(
    model: WorldModel, origin: Origin, recorded: Path, number: Number, components: Components, lives: int, lags: int,
    seed: int, report: Callable[[float], None] = lambda _: None,
) -> tuple[list[Influence], list[ByLag]]:  # fmt: skip
    """Simulate lives from recorded starts on test maps, and differentiate a number of their last tick.

    Args:
        model: to simulate with.
        origin: of the model.
        recorded: its dump.
        number: to differentiate.
        components: of the memory.
        lives: to simulate.
        lags: the largest, in ticks.
        seed: of starts and dice.
        report: called with the share done.

    Raises:
        UserError: no simulation lasts long enough, or the number has no finite value.
    """
    parts: list[tuple[Slopes, Slopes]] = []
    life, own = [], []
    for place, batch in enumerate(starts(model, origin, recorded, "informed", lives, seed)):
        found = [
            slopes(model, batch.start, number, components.patterns, lags, seed + place, each) for each in (True, False)
        ]
        kept = found[0].alive & np.isfinite(found[0].number) & (found[0].number > ILLEGAL / 2)
        parts.append((_take(found[0], kept), _take(found[1], kept)))
        life.append(batch.origin[kept])
        own.append(batch.start.scene.own.numpy())
        report(min(1.0, sum(map(len, own)) / lives))
    if not sum(map(len, life)):
        raise UserError("the number exists in the last tick of no simulated life: give another, or fewer --lags")
    units = over_lives(np.concatenate(life), seed)
    spread = np.concatenate(own).std(axis=0)
    by_component = [np.concatenate([each[side].components for each in parts]) for side in (0, 1)]
    by_column = [np.concatenate([each[side].own for each in parts]) * spread for side in (0, 1)]
    kinds = {MEMORY: (components.names, by_component), OWN_ROW: (own_columns(model.layout), by_column)}
    rows, sums = list[Influence](), list[ByLag]()
    for of, (names, (whole, cut)) in kinds.items():
        for lag in range(lags + 1):
            sums.append(_by_lag(of, lag, whole[:, lag], cut[:, lag], units))
            rows += [
                _influence(of, name, lag, whole[:, lag, place], cut[:, lag, place], units)
                for place, name in enumerate(names)
            ]
    return rows, sums


def _take(found: Slopes, kept: np.ndarray) -> Slopes:
    return Slopes(found.components[kept], found.own[kept], found.number[kept], found.alive[kept])


def _influence(of: str, name: str, lag: int, whole: np.ndarray, cut: np.ndarray, units: Units) -> Influence:
    one, other, rest = (units.mean(each.astype(np.float64)) for each in (whole, cut, whole - cut))
    return Influence(
        of, name, lag, one.value, one.low, one.high, other.value, other.low, other.high, rest.value, rest.low,
        rest.high, units.draws.shape[1],
    )  # fmt: skip


def _by_lag(of: str, lag: int, whole: np.ndarray, cut: np.ndarray, units: Units) -> ByLag:
    """Sum up derivatives of simulations, (S, inputs) each."""
    lengths = [np.linalg.norm(each.astype(np.float64), axis=1) for each in (whole, cut, whole - cut)]
    below = lengths[1] + lengths[2]
    share = units.mean(lengths[2], below) if below.any() else Estimate(np.nan, np.nan, np.nan)
    through, alone, world = (float(each.mean()) for each in lengths)
    return ByLag(of, lag, through, alone, world, share.value, share.low, share.high, units.draws.shape[1])
