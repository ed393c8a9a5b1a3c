"""From a dump to what probes work on: inputs, targets, and the world that each record comes from."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from activation_store.lives import life_keys, places_of
from activation_store.reader import Progress, read_dump, read_metadata
from activation_store.schema import LIFE_KEY, DumpMetadata, Records
from activation_store.selection import Subsample
from analysis.features.feature import Feature
from analysis.features.matrix import check_unbroken
from analysis.features.observed import Observed
from analysis.features.registry import EXTENDED_FEATURES
from analysis.lives import Lives
from analysis.probes.baselines import TIME_CONSTANTS, Reservoir, as_seen, digest, last_observations, traces, whole_view
from analysis.probes.inputs import ENCODER_OUTPUT, OBSERVATION, RESERVOIR, TRACES, Input, StoredInputs
from common.user_error import UserError

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
        kept = _thinned(seen, wanted.subsample)
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


def _thinned(seen: Observed, subsample: Subsample) -> np.ndarray:
    """Return the records kept, in order of lives and ticks, (kept,) int64."""
    lives = seen.lives
    rank = np.arange(len(lives.order)) - np.repeat(lives.starts, lives.lengths)
    keys = np.stack([getattr(seen.records, name)[lives.order[lives.starts]] for name in LIFE_KEY], axis=1)
    return lives.order[subsample.keep(rank, np.repeat(subsample.first_kept(keys), lives.lengths))]


def _lives(identity: np.ndarray) -> Lives:
    """Find the lives among records of which each life's lie together, in order of ticks: (B, key) to lives."""
    begins = np.ones(len(identity), bool)
    begins[1:] = (np.diff(identity, axis=0) != 0).any(axis=1)
    starts = np.flatnonzero(begins)
    return Lives(np.cumsum(begins) - 1, np.arange(len(identity)), starts, np.diff(starts, append=len(identity)))
