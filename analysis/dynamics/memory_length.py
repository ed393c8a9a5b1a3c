"""How far back an observation changes what the policy does: by behaviour, by age, and in situations of need."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy import stats

from activation_store.layers import LSTM_HIDDEN
from activation_store.lives import places_of
from activation_store.reader import read_dump
from activation_store.schema import DumpMetadata, Records
from agent_zoo.base import RecurrentPolicy
from agent_zoo.network_parts.distribution import ActionDistribution
from agent_zoo.observation import ObservationLayout, PackedObservation
from analysis.dynamics.tracks import Tracks, Update, tensor
from analysis.features import feature_matrix, features_named
from analysis.lives import places_among
from analysis.recorded.recorded_observation import packed_observation
from analysis.statistics.resampling import jackknife, means_over_lives

_STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
WHOLE = "whole memory"
WHOLE_ALIKE = "whole memory, by one of the same situation"
MOVED = "whole memory, moved as far in random directions"
BEYOND_MOVED = "whole memory, by one of the same situation, as a multiple of random directions"
OBSERVATION = "observation"
OUTCOMES = ("kl", "value", "kl of moves")
_MOVE = "Move.Direction"
PHASES = ("first third", "second third", "last third")
NEED = 20
"""Points of food or water below which an agent is in need."""
SITUATIONS = (
    f"food or water below {NEED}", f"food and water {NEED} or more", "in combat", "not in combat", "water in view",
    "no water in view",
)  # fmt: skip
_DRAWS = 20
_FEWEST_LIVES = 5
_ENDS = (0.025, 0.975)


@dataclass(frozen=True, eq=False)
class MemoryLength:
    """Effects of replaced observations on n decisions."""

    ticks: np.ndarray  # how many ticks before the decision the observation was, (L,), ascending from 1
    # divergence: KL(as recorded || replaced) of the distribution over actions, sum of all heads, in nats, (n, L)
    divergence: np.ndarray
    value: np.ndarray  # |change of the value|, (n, L)
    # whole: `OUTCOMES` if the whole memory is replaced by another life's, (n, 3): these two numbers, and the divergence
    # of the head of moves alone, which always has the same options
    whole: np.ndarray
    # alike: the same if that life is in the same situation then, (n, SITUATIONS, 3), mean over `_DRAWS` lives; NaN for
    # decisions that are not in it, and where no other life is
    alike: np.ndarray
    # moved: the same if each state of the memory is moved as far as for `alike`, but in random directions
    moved: np.ndarray
    situation: np.ndarray  # in which situations each decision is, (n, SITUATIONS) bool
    life: np.ndarray  # of each decision, (n,)
    age: np.ndarray  # ticks that the agent has lived by then, (n,)


def lags_up_to(reach: int) -> np.ndarray:
    """Return the ticks back that are measured: 1, 2, 3, 4, 6, 8, 12 and so on up to `reach`."""
    return np.array([step for step in _STEPS if step <= reach], np.int64)


def situations(records: Records, metadata: DumpMetadata) -> np.ndarray:
    """Return in which of `SITUATIONS` records are, (B, SITUATIONS) bool.

    Raises:
        UserError: the dump lacks what a feature needs.
    """
    features = features_named(("self_food", "self_water", "in_combat", "n_water_tiles"))
    food, water, in_combat, in_view = feature_matrix(records, metadata, features).T
    holds = [np.minimum(food, water) < NEED, in_combat > 0, in_view > 0]
    return np.stack([column for held in holds for column in (held, ~held)], axis=1)


@torch.no_grad()
def memory_length(
    policy: RecurrentPolicy, update: Update, tracks: Tracks, situation: np.ndarray, records: np.ndarray,
    observation: PackedObservation, reach: int, seed: int, progress: Callable[[float], None],
) -> MemoryLength:  # fmt: skip
    """Replace what the memory read some ticks ago by what another life's memory read, and decide again.

    Everything else, the observations in between and that of the decision, stays as recorded.

    Args:
        tracks: recorded lives, of two at least.
        situation: of every record of the tracks, as `situations` returns it.
        records: the decisions, (n,), each with `reach` + 1 ticks before it.
        observation: the policy's, of these records.
    """
    random = np.random.default_rng([seed, 8])
    donors = _of_other_lives(tracks, records, random, np.arange(len(tracks)))
    _, candidates = policy.encode(observation)
    last = update.place(LSTM_HIDDEN)

    def decide(state: torch.Tensor) -> tuple[ActionDistribution, torch.Tensor]:
        return policy.decode(state[:, last].float(), candidates, observation)

    def replay(back: int, read: torch.Tensor | None) -> torch.Tensor:
        """The state after the decision's tick, having read something else `back` ticks before."""
        state = tensor(tracks.state[tracks.ahead(records, -back - 1)])
        for tick in range(-back, 1):
            own = tensor(tracks.read[tracks.ahead(records, tick)])
            state = update(state, read if read is not None and tick == -back else own)
        return state

    def change(after: tuple[ActionDistribution, torch.Tensor]) -> np.ndarray:
        """`OUTCOMES`, (n, 3)."""
        apart = before.divergence(after[0])  # (n, heads)
        return np.stack([apart.sum(dim=1).numpy(), (after[1] - value).abs().numpy(), apart[:, move].numpy()], axis=1)

    before, value = decide(replay(0, None))
    move = [head.name for head in before.heads].index(_MOVE)
    ticks = lags_up_to(reach)
    differences = np.empty((len(records), len(ticks), 2))
    for number, back in enumerate(ticks.tolist()):
        differences[:, number] = change(decide(replay(back, tensor(tracks.read[donors]))))[:, :2]
        progress(0.5 * (number + 1) / len(ticks))
    read = tensor(tracks.read[records])

    def remembering(state: torch.Tensor) -> np.ndarray:
        return change(decide(update(state, read)))

    whole = remembering(tensor(tracks.state[donors]))
    alike, moved = _by_situation(
        tracks, records, situation, update.units, random, remembering, lambda share: progress(0.5 + 0.5 * share)
    )
    return MemoryLength(
        ticks, differences[:, :, 0], differences[:, :, 1], whole, alike, moved, situation[records],
        tracks.lives.index[records], tracks.place[records],
    )  # fmt: skip


def _by_situation(
    tracks: Tracks, records: np.ndarray, situation: np.ndarray, units: int, random: np.random.Generator,
    remembering: Callable[[torch.Tensor], np.ndarray], progress: Callable[[float], None],
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Return `alike` and `moved` of a `MemoryLength`.

    Args:
        situation: of every record of the tracks.
        remembering: `OUTCOMES` of the n decisions with other states before them, (n, S) -> (n, 3).
    """
    held, own = situation[records], tensor(tracks.state[tracks.ahead(records, -1)])  # (n, SITUATIONS) and (n, S)
    alike, moved = np.full((2, *held.shape, len(OUTCOMES)), np.nan)
    for number, of_group in enumerate(held.T):
        there = np.flatnonzero(situation[:, number] & (tracks.place > 0))
        if len(np.unique(tracks.lives.index[there])) > 1:
            effects = np.zeros((2, len(records), len(OUTCOMES)))
            for _ in range(_DRAWS):
                of_others = records.copy()
                of_others[of_group] = _of_other_lives(tracks, records[of_group], random, there)
                other = tensor(tracks.state[tracks.ahead(of_others, -1)])  # before it decides, as the agent's own
                aside = own + _in_random_directions(other - own, units, random)
                effects += [remembering(other), remembering(aside)]
            alike[of_group, number], moved[of_group, number] = effects[:, of_group] / _DRAWS
        progress((number + 1) / held.shape[1])
    return alike, moved


def _in_random_directions(way: torch.Tensor, units: int, random: np.random.Generator) -> torch.Tensor:
    """Return random vectors, (n, S), each of whose states of so many units is as long as that of `way`."""
    drawn = torch.from_numpy(random.normal(size=(len(way), way.shape[1] // units, units)))
    length = way.unflatten(1, (-1, units)).norm(dim=2, keepdim=True)  # (n, states, 1)
    return (drawn * (length / drawn.norm(dim=2, keepdim=True))).flatten(1)


def read_observations(
    dump: Path, tracks: Tracks, records: np.ndarray, layout: ObservationLayout, policy: RecurrentPolicy
) -> PackedObservation:
    """Read the policy's observations of some records of tracks, episode by episode, in the order of `records`.

    Raises:
        UserError: the dump lacks a part of the observation.
    """
    parts, order = [], []
    wanted = {name: values[records] for name, values in places_of(tracks.records).items()}
    for episode in np.unique(wanted["episode"]):
        (own,) = (wanted["episode"] == episode).nonzero()
        lives = np.unique(np.stack([wanted[name][own] for name in ("env_id", "agent_id", "episode")], axis=1), axis=0)
        read = read_dump(dump, layers=[], columns=["task", "legal"], lives=lives.tolist())
        place = places_among({name: values[own] for name, values in wanted.items()}, places_of(read))
        parts.append(packed_observation(read.take(place), layout, policy.mask))
        order.append(own)
    back = np.argsort(np.concatenate(order), kind="stable")
    return PackedObservation.concatenate(parts).take(torch.from_numpy(back))


def _of_other_lives(tracks: Tracks, records: np.ndarray, random: np.random.Generator, among: np.ndarray) -> np.ndarray:
    """Draw a record of another life for each record, (n,), among records of two lives at least."""
    life = tracks.lives.index
    others = among[random.integers(0, len(among), len(records))]
    while (same := life[others] == life[records]).any():
        others[same] = among[random.integers(0, len(among), int(same.sum()))]
    return others


@dataclass(frozen=True)
class MemoryUse:
    """How much a group of decisions changes once something in the memory is another life's."""

    group: str  # of decisions: all, a behaviour, a third of them by the agent's age, or a situation
    decisions: int  # decisions, lives: how many there are
    lives: int
    first_tick: int  # first_tick, last_tick: of the ages of the group, in ticks of life from 0
    last_tick: int
    replaced: str  # what is other: the whole memory or one observation, and how
    ticks_ago: int  # of the observation; 0 for the whole memory
    # outcome: kl, of the distribution over actions, all heads, in nats; value, the size of its change; or kl of moves,
    # of the head that says where to go
    outcome: str
    # mean over decisions, or over lives of the difference between situations; as a multiple of random directions, how
    # many times as large that multiple is in the situation as outside of it
    value: float
    # low, high: 95% interval over resampled lives, NaN with fewer than five; of a difference, that of its t-test
    low: float
    high: float
    p: float = np.nan  # two-sided, that situations do not differ; NaN where the row does not compare them


def memory_use(length: MemoryLength, behaviour: np.ndarray) -> list[MemoryUse]:
    """Average over all decisions, over those of each behaviour, over thirds of them by age, and by situation.

    Args:
        behaviour: of each decision, (n,).
    """
    groups = [use for name, own in _groups(behaviour, length.age) for use in _uses(length, name, own, {})]
    return [*groups, *use_by_situation(length), *situations_compared(length)]


def use_by_situation(length: MemoryLength) -> list[MemoryUse]:
    """Average over the decisions in each of `SITUATIONS` that there are."""
    return [
        use
        for number, name in enumerate(SITUATIONS)
        if (own := length.situation[:, number]).any()
        for use in _uses(length, name, own, {WHOLE_ALIKE: length.alike[own, number], MOVED: length.moved[own, number]})
    ]


def situations_compared(length: MemoryLength) -> list[MemoryUse]:
    """Compare decisions in each situation with those in its opposite, within lives, by what else is in the memory.

    Each life that was in both counts once, by its mean in the situation less its mean outside of it. Where actions are
    easily changed, any change of the memory matters more. So the same is said of a memory that is moved as far in
    random directions, and of how many times as much as that another life's memory matters. Situations with fewer than
    five such lives are left out.
    """
    return [
        use
        for inside in range(0, len(SITUATIONS), 2)
        for column, outcome in enumerate(OUTCOMES)
        for use in _compared(length, inside, outcome, column)
    ]


def _compared(length: MemoryLength, inside: int, outcome: str, column: int) -> Iterator[MemoryUse]:
    """Compare an outcome in a situation, given its number, with that in the next, its opposite."""
    at_hand = [np.isfinite(length.alike[:, number, 0]) for number in (inside, inside + 1)]
    lives = np.intersect1d(*(length.life[own] for own in at_hand))
    if len(lives) < _FEWEST_LIVES:
        return
    here, there = (own & np.isin(length.life, lives) for own in at_hand)
    group, age = f"{SITUATIONS[inside]}, less {SITUATIONS[inside + 1]}", length.age[here | there]
    start = (group, int(here.sum() + there.sum()), len(lives), int(age.min()), int(age.max()))
    alike, moved = (
        [_mean_of_each(effect[own, number, column], length.life[own])
         for own, number in ((here, inside), (there, inside + 1))]
        for effect in (length.alike, length.moved)
    )  # each of two arrays, (lives,)  # fmt: skip
    for replaced, (in_it, outside) in ((WHOLE_ALIKE, alike), (MOVED, moved)):
        test = stats.ttest_1samp(in_it - outside, 0)
        numbers = ((in_it - outside).mean(), *test.confidence_interval(), test.pvalue)
        yield MemoryUse(*start, replaced, 0, outcome, *map(float, numbers))
    yield MemoryUse(*start, BEYOND_MOVED, 0, outcome, *_ratio_of_ratios(np.stack([*alike, *moved])))


def _ratio_of_ratios(effects: np.ndarray) -> tuple[float, ...]:
    """Return (a / c) / (b / d) of the means over lives of effects a, b, c and d, (4, lives).

    Returns:
        The ratio, its 95% interval and a two-sided p-value that it is 1, those of its logarithm by the jackknife over
        lives. NaN if a mean is not positive.
    """
    lives = effects.shape[1]
    left_out = (effects.sum(axis=1, keepdims=True) - effects) / (lives - 1)  # means without one life, (4, lives)
    means = np.column_stack([effects.mean(axis=1), left_out])
    if not (means > 0).all():
        return (np.nan,) * 4
    value, *without = np.array([1, -1, -1, 1]) @ np.log(means)
    low, high, p = jackknife(value, np.array(without))
    return *np.exp([value, low, high]).tolist(), p


def _mean_of_each(values: np.ndarray, life: np.ndarray) -> np.ndarray:
    _, number = np.unique(life, return_inverse=True)
    return np.bincount(number, values) / np.bincount(number)


def _uses(length: MemoryLength, name: str, own: np.ndarray, more: Mapping[str, np.ndarray]) -> Iterator[MemoryUse]:
    """Yield the means over a group of decisions.

    Args:
        own: which decisions are of the group, (n,) bool.
        more: effects of other replacements of the whole memory on these, (own, 3); left out where they are NaN.
    """
    life, age = length.life[own], length.age[own]
    start = (name, int(own.sum()), len(np.unique(life)), int(age.min()), int(age.max()))
    wholes = {WHOLE: length.whole[own], **{kind: effect for kind, effect in more.items() if np.isfinite(effect).all()}}
    replaced = [*((kind, 0) for kind in wholes), *((OBSERVATION, ticks) for ticks in length.ticks.tolist())]
    of_one = {"kl": length.divergence[own], "value": length.value[own]}
    for number, outcome in enumerate(OUTCOMES):
        effects = of_one.get(outcome, np.empty((int(own.sum()), 0)))  # of single observations, where they are known
        columns = np.column_stack([*(whole[:, number] for whole in wholes.values()), effects])
        means, (low, high) = columns.mean(axis=0), interval_over_lives(columns, life)
        for place, (kind, ticks) in enumerate(replaced[: columns.shape[1]]):
            yield MemoryUse(*start, kind, ticks, outcome, *(float(ends[place]) for ends in (means, low, high)))


def _groups(behaviour: np.ndarray, age: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield names and members, (n,) bool, of groups that have any."""
    yield "all", np.ones(len(age), bool)
    for number in np.unique(behaviour):
        yield f"behaviour {number}", behaviour == number
    third = np.searchsorted(np.quantile(age, [1 / 3, 2 / 3]), age)
    for number, name in enumerate(PHASES):
        if (third == number).any():
            yield name, third == number


def interval_over_lives(values: np.ndarray, life: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of the 95% intervals of means over decisions, (n, columns); NaN with fewer than five lives."""
    if len(np.unique(life)) < _FEWEST_LIVES:
        nothing = np.full(values.shape[1], np.nan)
        return nothing, nothing
    low, high = np.quantile(means_over_lives(values, life), _ENDS, axis=0)
    return low, high
