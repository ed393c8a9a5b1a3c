"""What probes are given, on a real dump of a policy that is shown neither its body nor the clock nor its place."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import train_probes
from activation_store.exchange.conversion import convert
from activation_store.reader import read_dump, read_metadata
from activation_store.records import Records
from activation_store.schema import LIFE_KEY, DumpMetadata
from activation_store.subsample import Subsample
from analysis.features.choices import CHOICES
from analysis.features.observed import Observed
from analysis.materials import MATERIAL_NAMES
from analysis.probes.baselines import as_seen, digest, in_one_observation, last_observations, traces, whole_view
from analysis.probes.dataset import ProbeData, Wanted, read_probe_data
from analysis.probes.inputs import inputs_named, recorded
from analysis.probes.settings import ProbeSettings
from analysis.probes.targets import remembered_water, targets_named
from tests.command import assert_refuses
from tests.planted import planted_dump, write_planted
from tests.recorded_probes import shared_probe_dump

TARGETS = targets_named(
    ["next_health_change", "rows_from_spawn", "remembered_water_rows", "remembered_water_cols",
     "remembered_water_distance", "self_food", "is_starving_or_dehydrated", "ticks_since_eating"]
)  # fmt: skip
NAMES = [target.name for target in TARGETS]


@pytest.fixture(scope="module")
def dump(small_world, task, maps, tmp_path_factory) -> Path:
    return shared_probe_dump(tmp_path_factory, small_world, task, maps)


@pytest.fixture(scope="module")
def metadata(dump: Path) -> DumpMetadata:
    return read_metadata(dump)


@pytest.fixture(scope="module")
def records(dump: Path) -> Records:
    """In order of lives and ticks, as probe data are."""
    records = read_dump(dump)
    return records.take(np.lexsort((records.tick, records.agent_id, records.env_id, records.episode)))


@pytest.fixture(scope="module")
def wanted(metadata: DumpMetadata) -> Wanted:
    inputs = recorded(inputs_named(["all"], [2, 3]), metadata)
    return Wanted(inputs, TARGETS, targets_named(["tick"]), Subsample(), 0, ("lstm_hidden", "untrained_lstm_hidden"))


@pytest.fixture(scope="module")
def data(dump: Path, wanted: Wanted) -> ProbeData:
    return read_probe_data(dump, wanted)


def column(data: ProbeData, name: str) -> np.ndarray:
    return data.targets[:, NAMES.index(name)]


def by_life(records: Records) -> list[np.ndarray]:
    key = np.stack([records.episode, records.env_id, records.agent_id], axis=1)
    _, index = np.unique(key, axis=0, return_inverse=True)
    return [np.flatnonzero(index == life) for life in range(index.max() + 1)]


def test_records_are_all_there_with_their_worlds(data: ProbeData, records: Records, dump: Path) -> None:
    assert len(data) == len(records) > 1500 and len(data.lives) == 64
    assert data.worlds == 4 and not data.by_map  # two maps only, so episodes are the worlds
    np.testing.assert_array_equal(data.world, records.episode)
    np.testing.assert_array_equal(data.inputs["lstm_hidden"], records.activations["lstm_hidden"])
    twin = [records.activations[f"untrained_{layer}"] for layer in ("lstm_hidden", "lstm_cell")]
    np.testing.assert_array_equal(data.inputs["untrained"], np.concatenate(twin, axis=1))
    np.testing.assert_array_equal(data.given[:, 0], records.tick)


def test_hidden_targets_are_worked_out_life_by_life(data: ProbeData, records: Records) -> None:
    health, row = records.columns["truth/health"].astype(float), records.columns["row"].astype(float)
    for life in by_life(records):
        np.testing.assert_array_equal(column(data, "next_health_change")[life], [*np.diff(health[life]), np.nan])
    np.testing.assert_array_equal(column(data, "rows_from_spawn"), row - records.columns["truth/spawn_row"])
    food, water = records.columns["truth/food"], records.columns["truth/water"]
    np.testing.assert_array_equal(column(data, "is_starving_or_dehydrated"), (food == 0) | (water == 0))
    np.testing.assert_array_equal(column(data, "self_food"), food)
    assert column(data, "is_starving_or_dehydrated").any() and np.nanmin(column(data, "next_health_change")) < 0


OFFSETS = np.array([(row, col) for row in range(-7, 8) for col in range(-7, 8)])


def assert_remembered(records: Records, reach: np.ndarray, output: np.ndarray) -> None:
    """Compare ways to water with a plain walk through every life with a set of all water tiles seen so far.

    Args:
        reach: tiles in view in each direction, (B,).
        output: distance, rows and columns, (B, 3).
    """
    water = MATERIAL_NAMES.index("water")
    for life in by_life(records):
        known: set[tuple[int, int]] = set()
        for i in life:
            place = int(records.columns["row"][i]), int(records.columns["col"][i])
            ways = [(r - place[0], c - place[1]) for r, c in known]
            hidden = [way for way in ways if max(map(abs, way)) > reach[i]]
            if hidden:
                nearest = min((max(map(abs, way)), way[0] ** 2 + way[1] ** 2) for way in hidden)
                assert output[i, 0] == nearest[0] and tuple(output[i, 1:].astype(int)) in hidden
                assert (output[i, 1:] ** 2).sum() == nearest[1]
            else:
                assert np.isnan(output[i]).all()
            known |= {(place[0] + r, place[1] + c) for r, c in OFFSETS[records.tile[i, :, 2] == water].tolist()}
    assert np.isfinite(output[:, 0]).sum() > 100


def test_remembered_water_is_the_nearest_that_was_seen_and_is_not(data: ProbeData, records: Records) -> None:
    output = np.stack([column(data, f"remembered_water_{case}") for case in ("distance", "rows", "cols")], axis=1)
    assert_remembered(records, np.full(len(records), 7), output)


def test_where_the_view_narrows_water_beside_the_agent_is_remembered(records: Records, metadata: DumpMetadata) -> None:
    """The same lives, seen whole until tick 3 and then two tiles far."""
    narrow = records.tick >= 3
    tile = records.tile.copy()
    tile[np.ix_(narrow, np.abs(OFFSETS).max(axis=1) > 2, [2])] = MATERIAL_NAMES.index("void")
    world = {**metadata.environment, "view_radius": 2, "narrow_from": 3}
    seen = Observed(replace(records, tile=tile), replace(metadata, environment=world))
    way = remembered_water(seen)
    assert_remembered(seen.records, np.where(narrow, 2, 7), np.column_stack([np.abs(way).max(axis=1), way]))
    assert (np.abs(way[narrow]).max(axis=1) <= 7).any()


def test_nothing_withheld_reaches_the_observation(records: Records, metadata: DumpMetadata, data: ProbeData) -> None:
    """Truth is scrambled, and neither the observation nor the last ones notice."""
    rng = np.random.default_rng(0)
    hidden = {name: rng.permutation(values) for name, values in records.columns.items() if name != "task"}
    scrambled = replace(records, columns=hidden, tick=rng.permutation(records.tick))
    for make in (digest, whole_view):
        before, after = (make(as_seen(of, metadata)) for of in (records, scrambled))
        np.testing.assert_array_equal(before, after, err_msg=make.__name__)
    # And it was there to leak: the same features of the records as they are do notice.
    unmasked = Observed(records, metadata)
    assert not np.array_equal(digest(unmasked), digest(as_seen(records, metadata)))


def test_the_observation_holds_what_was_seen(records: Records, metadata: DumpMetadata, data: ProbeData) -> None:
    seen = as_seen(records, metadata)
    gist, view = digest(seen), whole_view(seen)
    features = list(in_one_observation())
    number = [feature.name for feature in features].index("distance_to_water")
    expected = features[number].compute(seen)
    assert gist[:, number].tolist() == expected.tolist() and len(set(expected.tolist())) > 3
    materials = view[:, :400].reshape(len(records), 5, 5, 16)  # blocks of 3 x 3 tiles
    assert (materials.sum(axis=3) == 9).all()
    first = (records.tile[:, :, 2].reshape(-1, 15, 15)[:, :3, 12:15] == 2).sum(axis=(1, 2))
    np.testing.assert_array_equal(materials[:, 0, 4, 2], first)
    assert data.inputs["observation"].shape[1] < data.inputs["history_2"].shape[1] < data.inputs["history_3"].shape[1]
    assert (np.ptp(data.inputs["history_3"], axis=0) > 0).all()
    # What the agent chose comes after what it saw: no baseline may be given it.
    assert not {feature.choice for feature in features} & {category.name for category in CHOICES}


def test_baselines_of_the_past_start_with_the_present_and_know_their_columns(
    data: ProbeData, records: Records, metadata: DumpMetadata
) -> None:
    present = data.inputs["observation"]
    for name in ("history_2", "history_3", "traces"):
        np.testing.assert_array_equal(data.inputs[name][:, : present.shape[1]], present)
    reservoir, encoded = data.inputs["reservoir"], data.inputs["encoder_output"]
    np.testing.assert_array_equal(reservoir[:, : encoded.shape[1]], encoded)
    assert reservoir.shape[1] == encoded.shape[1] + 512
    bands = data.bands["traces"]
    assert bands.shape == (4, data.inputs["traces"].shape[1]) and set(data.bands) == {"traces"}
    assert bands[:, : present.shape[1]].all() and bands[3].all()
    # Every trace belongs to one time constant, and the slowest is the last one: it moves least from tick to tick.
    assert (bands[:3, present.shape[1] :].sum(axis=0) == 1).all()
    seen = as_seen(records, metadata)
    slow = traces(digest(seen), seen.lives)[:, -digest(seen).shape[1] :]
    np.testing.assert_array_equal(data.inputs["traces"][:, bands[2] > bands[0]], slow[:, np.ptp(slow, axis=0) > 0])


def test_the_last_observations_are_those_of_the_same_life(records: Records, metadata: DumpMetadata) -> None:
    seen = as_seen(records, metadata)
    gist = digest(seen)
    past = last_observations(gist, Observed(records, metadata).lives, 2)
    width = gist.shape[1]
    for life in by_life(records):
        for back in (1, 2):
            source = life[np.maximum(np.arange(len(life)) - back, 0)]
            np.testing.assert_array_equal(past[life, (back - 1) * width : back * width], gist[source])


def in_order(records: Records) -> list[tuple[int, ...]]:
    """Episode, slot, agent and tick of every record, as probe data has them: one episode after the other."""
    return sorted(zip(*(getattr(records, name).tolist() for name in ("episode", *LIFE_KEY[:2], "tick")), strict=True))


def test_a_subsample_keeps_what_happened_between(dump: Path, wanted: Wanted, data: ProbeData) -> None:
    subsample = Subsample(5, skip_first=1, seed=3)
    part = read_probe_data(dump, replace(wanted, subsample=subsample))
    thinned, all_of_them = (read_dump(dump, subsample=case, layers=[]) for case in (subsample, Subsample()))
    place = {key: row for row, key in enumerate(in_order(all_of_them))}
    kept = [place[key] for key in in_order(thinned)]
    assert len(kept) < len(data) / 4
    np.testing.assert_array_equal(part.targets, data.targets[kept])
    np.testing.assert_array_equal(part.inputs["lstm_cell"], data.inputs["lstm_cell"][kept])


def test_both_formats_give_the_same(dump: Path, wanted: Wanted, data: ProbeData, tmp_path: Path) -> None:
    convert(dump, tmp_path / "json", "json", None, report=lambda share: None)
    again = read_probe_data(tmp_path / "json", wanted)
    for name, values in data.inputs.items():
        np.testing.assert_array_equal(values, again.inputs[name], err_msg=name)
    np.testing.assert_array_equal(data.targets, again.targets)


def test_too_few_episodes_are_refused(wanted: Wanted, tmp_path: Path) -> None:
    one = write_planted(tmp_path / "one", planted_dump(agents=2, ticks=10, episodes=1))
    message = "one holds 1 episode: probes are fitted, tuned and tested on different ones"
    assert_refuses(message, read_probe_data, one, wanted)


def test_the_memory_of_a_record_follows_from_the_inputs(dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed: list[float] = []
    monkeypatch.setattr(train_probes, "limited", lambda *arguments: needed.append(arguments[-1]))
    for inputs, history in (("lstm_hidden", "32"), ("observation", "32"), ("traces", "32"), ("all", "8")):
        settings = ProbeSettings((dump,), inputs=inputs, history=history)
        train_probes.thinned(settings, {dump.resolve().name: read_metadata(dump)})
    assert needed == [10_000, 24_000, 30_000, 38_000]
