"""From a dump to what probes work on: inputs, targets, and the world that each record comes from.

Some inputs are what a memory has to beat. The raw observation is thousands of integers, which a linear probe makes
little of. So that this baseline has its best chance, it is given every feature of the registry that one observation
tells, and the view by distance and direction. Traces and a reservoir are recurrent sums of the past without any
training: a trained memory that knows no more than they do has not learnt to remember.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from activation_store.columns import TRUTH
from activation_store.lives import life_keys, places_of
from activation_store.reader import Progress, read_dump, read_metadata
from activation_store.schema import LIFE_KEY, DumpMetadata, Records
from activation_store.selection import Subsample
from analysis.features import observed
from analysis.features.body import earlier
from analysis.features.choices import ACTIONS
from analysis.features.feature import Feature
from analysis.features.observed import Observed
from analysis.features.registry import EXTENDED_FEATURES, THEMES, check_unbroken
from analysis.features.surroundings import RADIUS, SIDE, TILE_OFFSETS
from analysis.lives import Lives
from analysis.materials import MATERIAL_NAMES
from analysis.probes.inputs import ENCODER_OUTPUT, OBSERVATION, RESERVOIR, TRACES, Input, StoredInputs
from common.user_error import UserError

_BLOCK = 3
_BLOCKS = SIDE // _BLOCK
_MATERIALS = len(MATERIAL_NAMES)
_SOUGHT = ("void", "water", "foilage", "stone", "ore", "tree", "crystal", "herb", "fish")
TIME_CONSTANTS = (8, 32, 128)
"""Of the traces, in ticks."""
_UNITS = 512
_FASTEST, _SLOWEST = 2.0, 256.0
_SPECTRAL_RADIUS = 0.95
_INPUT_GAIN = 0.5


def as_seen(records: Records, metadata: DumpMetadata) -> Observed:
    """Return records as the policy saw them: without the columns beside the observation, or a clock that was withheld.

    What reads the agent's own row then reads what the policy was shown of it.
    """
    clock_withheld = f"{TRUTH}time_alive" in metadata.columns  # the own age is withheld exactly where the clock is
    tick = np.zeros_like(records.tick) if clock_withheld else records.tick
    shown = {name: values for name, values in records.columns.items() if name == "task"}
    described = {name: column for name, column in metadata.columns.items() if name in shown}
    return Observed(replace(records, columns=shown, tick=tick), replace(metadata, columns=described))


def in_one_observation() -> tuple[Feature, ...]:
    """Return the features that a single observation tells: neither what was done nor what happened over time."""
    chosen = {feature.name for feature in (*ACTIONS, *THEMES["Choices"])} | {"is_moving", "is_attacking", "is_trading"}
    return tuple(f for f in EXTENDED_FEATURES if not f.over_time and f.name not in chosen)


def digest(seen: Observed) -> np.ndarray:
    """Return the gist of an observation: registry features, the own row, and where things are, (B, columns) float32."""
    # Where a dump does not say how large its maps are, two features of the place cannot be told.
    unknown = () if "map_size" in seen.metadata.environment else ("distance_to_centre", "distance_to_edge")
    features = [feature.compute(seen) for feature in in_one_observation() if feature.name not in unknown]
    own = [seen.own_as_seen(name) for name in seen.metadata.entity_columns]
    ways = []  # rows and columns to the nearest tile of each material in view, (B, 2); zeros where there is none
    rank = np.abs(TILE_OFFSETS).max(axis=0) * 1000 + (TILE_OFFSETS**2).sum(axis=0)
    for name in _SOUGHT:
        there = seen.material == MATERIAL_NAMES.index(name)
        nearest = np.where(there, rank.astype(np.int32), np.iinfo(np.int32).max).argmin(axis=1)
        ways.append(np.where(there.any(axis=1)[:, None], TILE_OFFSETS[:, nearest].T, 0))
    others = [_way_to_entity(seen, who) for who in (seen.is_player, seen.is_npc)]
    return np.column_stack([*features, *own, *ways, *others]).astype(np.float32)


def whole_view(seen: Observed) -> np.ndarray:
    """Return the view in detail: materials and entities by distance and direction, and the task where it is recorded.

    Materials and kinds of entities are counted in blocks of 3 x 3 tiles; the nine tiles around the agent have columns
    of their own: (B, columns) float32.
    """
    count, cells = len(seen), _BLOCKS**2 * _MATERIALS
    cell = _block_of(TILE_OFFSETS.T)[None] * _MATERIALS + seen.material  # (B, tiles)
    place = np.arange(count)[:, None] * cells + cell
    around = np.abs(TILE_OFFSETS).max(axis=0) <= 1
    parts = [
        np.bincount(place.ravel(), minlength=count * cells).reshape(count, cells),
        (seen.material[:, around, None] == np.arange(_MATERIALS)).reshape(count, -1),
    ]
    apart = _apart(seen)
    for who in (seen.is_player, seen.is_npc):
        inside = who & (np.abs(apart).max(axis=1, initial=0) <= RADIUS)
        place = seen.entity_owner[inside] * _BLOCKS**2 + _block_of(apart[inside])
        parts.append(np.bincount(place, minlength=count * _BLOCKS**2).reshape(count, -1))
    if "task" in seen.records.columns:
        parts.append(seen.records.columns["task"])
    return np.concatenate([part.astype(np.float32) for part in parts], axis=1)


def last_observations(gist: np.ndarray, lives: Lives, ticks: int) -> np.ndarray:
    """Return the gists of so many earlier ticks side by side, (B, ticks x columns); before a life, that of its birth.

    Gists are of every tick of whole lives, (B, columns).
    """
    return np.concatenate([gist[:, :0], *(earlier(gist, lives, back) for back in range(1, ticks + 1))], axis=1)


def _apart(seen: Observed) -> np.ndarray:
    """Return rows and columns from the agent to each visible entity, (E, 2) int64."""
    sides = [seen.entity(axis).astype(np.int64) - seen.own_as_seen(axis)[seen.entity_owner] for axis in ("row", "col")]
    return np.stack(sides, axis=1)


def _way_to_entity(seen: Observed, who: np.ndarray) -> np.ndarray:
    """Return rows and columns to the nearest of some entities, its health and its level, (B, 4); zeros without one."""
    apart, owner = _apart(seen)[who], seen.entity_owner[who]
    steps = np.abs(apart).max(axis=1)
    rows = len(owner)
    # Distance first; then the row, so that the smallest number also tells which row it is.
    first = observed.extreme(steps * (rows + 1) + np.arange(rows), owner, len(seen), -1)
    way = np.zeros((len(seen), 4))
    there = first >= 0
    nearest = first[there] % (rows + 1)
    way[there, :2] = apart[nearest]
    way[there, 2] = seen.entity("health")[who][nearest]
    way[there, 3] = seen.combat_level[who][nearest]
    return way


def _block_of(rows_and_columns: np.ndarray) -> np.ndarray:
    """Return the number of the block that each place relative to the agent lies in, (N, 2) to (N,)."""
    block = (rows_and_columns + RADIUS) // _BLOCK
    return block[:, 0] * _BLOCKS + block[:, 1]


def ticks_of(lives: Lives) -> Iterator[tuple[int, np.ndarray]]:
    """Walk through all lives at once, longest first.

    Yields the tick within the lives, and the records of all lives that last so long, (n,) int64: life i of the longest
    stays at place i, and n never rises.
    """
    longest_first = np.argsort(-lives.lengths, kind="stable")
    starts, lengths = lives.starts[longest_first], lives.lengths[longest_first]
    for tick in range(int(lengths.max(initial=0))):
        alive = int(np.searchsorted(-lengths, -tick, side="left"))
        yield tick, lives.order[starts[:alive] + tick]


def traces(values: np.ndarray, lives: Lives) -> np.ndarray:
    """Average exponentially over the past of each life: trace = trace + (value - trace) / time constant.

    A trace starts at the first value of the life. Values are of every tick of whole lives, (B, C); the traces of each
    time constant of `TIME_CONSTANTS` lie side by side, (B, constants * C) float32.
    """
    traced = np.empty((len(values), len(TIME_CONSTANTS), values.shape[1]), np.float32)
    rate = 1 / np.array(TIME_CONSTANTS, np.float64)[None, :, None]
    trace = np.empty((0, 0, 0))
    for tick, records in ticks_of(lives):
        now = values[records, None].astype(np.float64)  # (n, 1, C)
        trace = np.repeat(now, len(TIME_CONSTANTS), axis=1) if tick == 0 else trace[: len(records)]
        trace = trace + (now - trace) * rate
        traced[records] = trace
    return traced.reshape(len(values), -1)


@dataclass(frozen=True, eq=False)
class Reservoir:
    """A recurrent network with random weights and slow units: an echo state network with leaky units.

    Jaeger et al. 2007, "Optimization and applications of echo state networks with leaky-integrator neurons", equation
    1: state = state + (tanh(W input + V state) - state) / time constant. Time constants are spread evenly on a
    logarithmic scale from 2 to 256 ticks.

    Attributes:
        centre, per_unit: that standardise the input, (C,).
        inward: W, (C, units).
        recurrent: V, (units, units).
        rate: one over the time constant of each unit, (units,).
    """

    centre: np.ndarray
    per_unit: np.ndarray
    inward: np.ndarray
    recurrent: np.ndarray
    rate: np.ndarray

    @staticmethod
    def draw(example: np.ndarray, seed: int) -> "Reservoir":
        """Draw the weights; the input is standardised by example records, (B, C)."""
        rng = np.random.default_rng(seed)
        columns = example.shape[1]
        deviation = example.std(axis=0, dtype=np.float64)
        per_unit = np.divide(1, deviation, out=np.zeros_like(deviation), where=deviation > 0)
        recurrent = rng.normal(size=(_UNITS, _UNITS))
        recurrent *= _SPECTRAL_RADIUS / np.abs(np.linalg.eigvals(recurrent)).max()
        inward = _INPUT_GAIN * rng.normal(size=(columns, _UNITS)) / np.sqrt(max(1, columns))
        return Reservoir(
            example.mean(axis=0, dtype=np.float64), per_unit, inward, recurrent,
            1 / np.geomspace(_FASTEST, _SLOWEST, _UNITS),
        )  # fmt: skip

    def run(self, values: np.ndarray, lives: Lives) -> np.ndarray:
        """Return the state at every tick of whole lives, (B, C) to (B, units) float32; it starts at 0."""
        states = np.empty((len(values), _UNITS), np.float32)
        state = np.zeros((len(lives), _UNITS))
        for _, records in ticks_of(lives):
            state = state[: len(records)]
            drive = ((values[records] - self.centre) * self.per_unit) @ self.inward  # (n, units)
            state = state + (np.tanh(drive + state @ self.recurrent) - state) * self.rate
            states[records] = state
        return states


FEWEST_WORLDS = 3
"""One to test on, one to choose the regularisation on, one to fit on."""

_UNKNOWN_MAP = -1


@dataclass(frozen=True, eq=False)
class ProbeData:
    """What the probes of one dump work on. B records, T targets, G given variables, W worlds."""

    inputs: Mapping[str, np.ndarray]
    """Name -> (B, columns) float32, without columns that never change; read from disk at each access."""
    varying: dict[str, np.ndarray]  # name -> which of all columns these are, (all columns,) bool
    bands: dict[str, np.ndarray]
    """Name -> sets of columns to choose from within the folds, (K, columns) float64, 1 for a column that is in; for
    inputs that have no such choice nothing."""
    targets: np.ndarray  # (B, T) float64, NaN where a target does not apply
    given: np.ndarray  # variables to hold against the memory, (B, G) float64
    world: np.ndarray  # the world of each record, (B,) int64 in [0, W): its map, or its episode
    episode: np.ndarray  # of each record, (B,) int64, as the dump numbers them
    lives: Lives
    by_map: bool  # whether worlds are maps; otherwise they are episodes, and maps may come again in another one
    networks: dict[str, np.ndarray]  # other networks' memories on the same stream, layer -> (B, units) float32

    def __len__(self) -> int:
        return len(self.world)

    @property
    def worlds(self) -> int:
        """How many there are."""
        return int(self.world.max()) + 1


@dataclass(frozen=True)
class Wanted:
    """What to take from a dump."""

    inputs: tuple[Input, ...]  # to build, of which the dump has the layers
    targets: tuple[Feature, ...]
    given: tuple[Feature, ...]
    subsample: Subsample  # whose seed is that of the reservoir, too
    networks: tuple[str, ...] = ()  # further layers to keep


def read_probe_data(
    folder: Path, wanted: Wanted, progress: Progress | None = None, inputs: StoredInputs | None = None
) -> ProbeData:
    """Read a dump, episode by episode, and keep only what probes need.

    Args:
        inputs: where to keep the inputs; by default in the folder of temporary files.

    Raises:
        UserError: the dump cannot be read, lacks ticks or a column that a target needs, or has too few episodes.
    """
    metadata = read_metadata(folder)
    check_enough_episodes(folder, metadata)
    parts, inputs = [], StoredInputs() if inputs is None else inputs
    reservoir: Reservoir | None = None
    gist = 0
    for records in _episodes(folder, metadata, wanted, progress):
        seen = Observed(records, metadata)
        check_unbroken(seen, [feature for feature in EXTENDED_FEATURES if feature.over_time][:1])
        if reservoir is None and any(source.name == RESERVOIR for source in wanted.inputs):
            reservoir = Reservoir.draw(records.activations[ENCODER_OUTPUT], wanted.subsample.seed)
        if not gist and any(source.name == TRACES for source in wanted.inputs):
            gist = digest(as_seen(records.take(np.arange(1)), metadata)).shape[1]
        lives = seen.lives
        rank = np.arange(len(lives.order)) - np.repeat(lives.starts, lives.lengths)
        keys = np.stack([getattr(records, name)[lives.order[lives.starts]] for name in LIFE_KEY], axis=1)
        first = np.repeat(wanted.subsample.first_kept(keys), lives.lengths)
        kept = lives.order[wanted.subsample.keep(rank, first)]
        computed = _computed(seen, wanted, reservoir, kept)
        for source in wanted.inputs:
            inputs.append(source.name, computed.pop(source.name))
        parts.append(computed)
    columns = {name: np.concatenate([part.pop(name) for part in parts]) for name in list(parts[0])}
    identity = columns.pop("identity")
    episode = identity[:, LIFE_KEY.index("episode")]
    _check_enough(folder, len(np.unique(episode)))
    map_number = columns.pop("map")
    # Worlds are maps where they are known and there are enough of them, else episodes.
    by_map = len(np.unique(map_number)) >= FEWEST_WORLDS and _UNKNOWN_MAP not in map_number
    _, world = np.unique(map_number if by_map else episode, return_inverse=True)
    varying = {name: inputs.varying(name) for name in inputs}
    return ProbeData(
        inputs=inputs,
        varying=varying,
        bands=_bands(varying, gist),
        targets=columns.pop("targets"),
        given=columns.pop("given"),
        world=world.astype(np.int64),
        episode=episode,
        lives=_lives(identity),
        by_map=by_map,
        networks={layer: columns.pop(f"network/{layer}") for layer in wanted.networks},
    )


def check_enough_episodes(folder: Path, metadata: DumpMetadata) -> None:
    """Refuse a dump that cannot be split, before it is read; an imported one may not say how many episodes it holds.

    Raises:
        UserError: there are fewer than three episodes.
    """
    if metadata.episodes or metadata.format == "parquet":
        _check_enough(folder, len(metadata.episodes) or len(metadata.files))


def _check_enough(folder: Path, episodes: int) -> None:
    if episodes < FEWEST_WORLDS:
        raise UserError(
            f"{folder} holds {episodes} episode{'s' * (episodes != 1)}: probes are fitted, tuned and tested on "
            f"different ones, so they need {FEWEST_WORLDS}, better 8 or more: extract again with --episodes 8"
        )


def _episodes(folder: Path, metadata: DumpMetadata, wanted: Wanted, progress: Progress | None) -> Iterator[Records]:
    """Read one episode after the other where that is cheap; a JSON dump is small and read once."""
    layers = list(dict.fromkeys([layer for source in wanted.inputs for layer in source.layers] + list(wanted.networks)))
    columns = [name for name in metadata.columns if name not in ("legal", "logits")]
    if metadata.format == "json":
        records = read_dump(folder, layers=layers, columns=columns, leave_out=["tables"], progress=progress)
        for episode in np.unique(records.episode):
            yield records.take(records.episode == episode)
        return
    numbers = sorted(file.episode for file in metadata.files.values() if file.episode is not None)
    for done, episode in enumerate(numbers):
        yield read_dump(folder, layers=layers, columns=columns, leave_out=["tables"], episodes=[episode])
        if progress:
            progress((done + 1) / len(numbers))


def _computed(seen: Observed, wanted: Wanted, reservoir: Reservoir | None, kept: np.ndarray) -> dict[str, np.ndarray]:
    """Return inputs, targets, given variables, lives and maps of the records kept; worked out from every tick."""
    records, nothing = seen.records, np.empty((len(seen), 0))
    columns = {
        "targets": np.column_stack([nothing, *(target.compute(seen).astype(np.float64) for target in wanted.targets)]),
        "given": np.column_stack([nothing, *(target.compute(seen).astype(np.float64) for target in wanted.given)]),
        "identity": life_keys(places_of(records)),
        "map": records.columns.get("map", np.full(len(records), _UNKNOWN_MAP)),
        **{f"network/{layer}": records.activations[layer] for layer in wanted.networks},
    }
    for source in wanted.inputs:
        if source.layers:
            columns[source.name] = np.concatenate([records.activations[layer] for layer in source.layers], axis=1)
    if reservoir:
        encoded = records.activations[ENCODER_OUTPUT]
        columns[RESERVOIR] = np.concatenate([encoded, reservoir.run(encoded, seen.lives)], axis=1)
    thinned = {name: values[kept] for name, values in columns.items()}
    return thinned | _of_observations(seen, [source for source in wanted.inputs if not source.layers], kept)


def _of_observations(seen: Observed, inputs: Sequence[Input], kept: np.ndarray) -> dict[str, np.ndarray]:
    """Return the inputs that are made of observations alone; each starts with the present observation."""
    if not inputs:
        return {}
    gist = digest(as_seen(seen.records, seen.metadata))
    view = whole_view(as_seen(seen.records.take(kept), seen.metadata))
    present = np.concatenate([gist[kept], view], axis=1)
    arrays = {}
    for source in inputs:
        past = gist[:, :0]
        if source.name == TRACES:
            past = traces(gist, seen.lives)
        elif source.name != OBSERVATION:
            past = last_observations(gist, seen.lives, source.observations - 1)
        arrays[source.name] = np.concatenate([present, past[kept]], axis=1) if past.shape[1] else present
    return arrays


def _bands(varying: dict[str, np.ndarray], gist: int) -> dict[str, np.ndarray]:
    """Offer the traces of each time constant alone, and all of them, beside the observation."""
    if TRACES not in varying:
        return {}
    varies = varying[TRACES]
    # The traces are the last columns: those of each time constant together.
    constant = np.full(len(varies), -1)
    constant[len(varies) - gist * len(TIME_CONSTANTS) :] = np.repeat(np.arange(len(TIME_CONSTANTS)), gist)
    choices = [np.isin(constant, (-1, number)) for number in range(len(TIME_CONSTANTS))]
    return {TRACES: np.stack([*choices, np.ones(len(varies), bool)])[:, varies].astype(np.float64)}


def _lives(identity: np.ndarray) -> Lives:
    """Find the lives among records of which each life's lie together, in order of ticks: (B, key) to lives."""
    begins = np.ones(len(identity), bool)
    begins[1:] = (np.diff(identity, axis=0) != 0).any(axis=1)
    starts = np.flatnonzero(begins)
    return Lives(np.cumsum(begins) - 1, np.arange(len(identity)), starts, np.diff(starts, append=len(identity)))
