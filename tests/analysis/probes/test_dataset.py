"""What probes are given and asked, also of the future: on a real dump of a blindfolded policy, and hand-made lives."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import train_probes
from activation_store.exchange.export import convert
from activation_store.reader import read_dump, read_metadata
from activation_store.records import Records
from activation_store.schema import LIFE_KEY, DumpMetadata
from activation_store.selection import Subsample
from analysis.features.choices import CHOICES
from analysis.features.observed import Observed
from analysis.life.events import died
from analysis.materials import MATERIAL_NAMES
from analysis.probes.dataset import (
    ProbeData,
    Wanted,
    as_seen,
    digest,
    in_one_observation,
    last_observations,
    read_probe_data,
    traces,
    whole_view,
)
from analysis.probes.inputs import inputs_named, recorded
from analysis.probes.settings import ProbeSettings
from analysis.probes.targets import (
    DEATH_WITHIN,
    FUTURE,
    HORIZONS,
    NOT_EVERYWHERE,
    RESOURCES,
    remembered_water,
    targets_named,
)
from analysis.probes.targets import TARGETS as EVERY_TARGET
from tests.command import assert_refuses
from tests.hand_made_lives import STAY, HandMade, hand_made, write_hand_made
from tests.planted import planted_dump, write_planted
from tests.recorded_probes import shared_probe_dump

TARGETS = targets_named(
    ["next_health_change", "rows_from_spawn", "remembered_water_rows", "remembered_water_cols",
     "remembered_water_distance", "self_food", "is_starving_or_dehydrated", "ticks_since_eating", "rows_in_10_ticks"]
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
    return Wanted(inputs, TARGETS, targets_named(["tick"]), Subsample(), ("lstm_hidden", "untrained_lstm_hidden"))


@pytest.fixture(scope="module")
def data(dump: Path, wanted: Wanted) -> ProbeData:
    return read_probe_data(dump, wanted)


def column(data: ProbeData, name: str) -> np.ndarray:
    return data.targets[:, NAMES.index(name)]


def by_life(records: Records) -> list[np.ndarray]:
    key = np.stack([records.episode, records.env_id, records.agent_id], axis=1)
    _, index = np.unique(key, axis=0, return_inverse=True)
    return [np.flatnonzero(index == life) for life in range(index.max() + 1)]


def test_records_are_all_there_and_hidden_targets_are_worked_out_life_by_life(
    data: ProbeData, records: Records, dump: Path
) -> None:
    assert len(data) == len(records) > 1500 and len(data.lives) == 64
    assert data.worlds == 4 and not data.by_map  # two maps only, so episodes are the worlds
    np.testing.assert_array_equal(data.world, records.episode)
    np.testing.assert_array_equal(data.inputs["lstm_hidden"], records.activations["lstm_hidden"])
    twin = [records.activations[f"untrained_{layer}"] for layer in ("lstm_hidden", "lstm_cell")]
    np.testing.assert_array_equal(data.inputs["untrained"], np.concatenate(twin, axis=1))
    np.testing.assert_array_equal(data.given[:, 0], records.tick)
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


def test_remembered_water_is_the_nearest_that_was_seen_and_is_not(
    data: ProbeData, records: Records, metadata: DumpMetadata
) -> None:
    output = np.stack([column(data, f"remembered_water_{case}") for case in ("distance", "rows", "cols")], axis=1)
    assert_remembered(records, np.full(len(records), 7), output)
    narrow = records.tick >= 3  # the same lives, seen whole until tick 3 and then two tiles far
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


def test_a_subsample_keeps_what_happened_between_and_the_true_future(
    dump: Path, wanted: Wanted, data: ProbeData
) -> None:
    """Records are thinned after targets are worked out from every tick."""
    subsample = Subsample(5, skip_first=1, seed=3)
    part = read_probe_data(dump, replace(wanted, subsample=subsample))
    thinned, all_of_them = (read_dump(dump, subsample=case, layers=[]) for case in (subsample, Subsample()))
    place = {key: row for row, key in enumerate(in_order(all_of_them))}
    kept = [place[key] for key in in_order(thinned)]
    assert len(kept) < len(data) / 4
    np.testing.assert_array_equal(part.targets, data.targets[kept])
    np.testing.assert_array_equal(part.inputs["lstm_cell"], data.inputs["lstm_cell"][kept])


def test_the_memory_of_a_record_follows_from_the_inputs(dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed: list[float] = []
    monkeypatch.setattr(train_probes, "limited", lambda *arguments: needed.append(arguments[-1]))
    for inputs, history in (("lstm_hidden", "32"), ("observation", "32"), ("traces", "32"), ("all", "8")):
        settings = ProbeSettings((dump,), inputs=inputs, history=history)
        train_probes.thinned(settings, {dump.resolve().name: read_metadata(dump)})
    assert needed == [10_000, 24_000, 30_000, 38_000]


NAN = float("nan")
NORTH, _, EAST, _ = range(4)
OF_THE_FUTURE = Wanted(inputs_named(["lstm_hidden"], [2]), targets_named(["future"]), (), Subsample())


def values(name: str, *lives: HandMade) -> np.ndarray:
    """Return a target of hand-made lives, in their order; shuffling the records must not change it."""
    result = FUTURE[name].compute(Observed(*hand_made(lives)))
    order = np.random.default_rng(3).permutation(len(result))
    np.testing.assert_array_equal(FUTURE[name].compute(Observed(*hand_made(lives, shuffle=3))), result[order])
    return result


def still(ticks: int, **changes: object) -> HandMade:
    return HandMade(row=[5] * ticks, col=[5] * ticks, **changes)  # type: ignore[arg-type]


def test_meals_drinks_and_harvests_that_follow() -> None:
    own = {
        "food": [90, 85, 100, 95, 90, 85],  # ate before tick 2
        "water": [90, 85, 80, 75, 100, 95],  # drank before tick 4
        "fishing_exp": [0, 0, 0, 0, 5, 5],  # fished in the same tick as drinking
    }
    life = still(6, own=own), still(3, own={"food": [9, 8, 7], "water": [9, 8, 7]}, agent=2)
    assert values("ticks_to_eating", *life).tolist() == pytest.approx([2, 1, *[NAN] * 7], nan_ok=True)
    assert values("ticks_to_drinking", *life).tolist() == pytest.approx([4, 3, 2, 1, *[NAN] * 5], nan_ok=True)
    output = {name: values(f"next_resource_is_{name}", *life).tolist() for name in RESOURCES}
    assert output["food"] == pytest.approx([1, 1, 0, 0, *[NAN] * 5], nan_ok=True)
    for name in ("water", "fish"):
        assert output[name] == pytest.approx([0, 0, 1, 1, *[NAN] * 5], nan_ok=True)
    assert output["ore"] == pytest.approx([0, 0, 0, 0, *[NAN] * 5], nan_ok=True)


def test_the_next_target_is_found_where_it_stands_now() -> None:
    npc, player = (-7, 2, 8, 4), (30, 0, 5, 6)
    others = {0: [npc], 1: [player, npc], 2: [(-7, 2, 7, 4)], 3: [player], 4: [player]}
    life = still(5, others=others, attacks={0: 0, 2: 0, 4: 0})
    # Tick 2 hits the NPC, tick 4 the player; what tick 0 hits is in nobody's future.
    assert values("next_target_is_player", life).tolist() == pytest.approx([0, 0, 1, 1, NAN], nan_ok=True)
    assert values("next_target_rows", life).tolist() == pytest.approx([3, 3, NAN, 0, NAN], nan_ok=True)
    assert values("next_target_cols", life).tolist() == pytest.approx([-1, -1, NAN, 1, NAN], nan_ok=True)


def test_death_is_known_where_the_recording_tells() -> None:
    name = f"dies_within_{DEATH_WITHIN}_ticks"
    # The last record is the moment before the tick of death: that tick and the nine before it are within ten.
    assert values(name, still(13)).tolist() == [0] * 3 + [1] * 10
    assert values(name, still(4)).tolist() == [1] * 4
    # The recording was cut off, so whether the agent outlives ten ticks is unknown near its end.
    assert values(name, still(13, done=False)).tolist() == pytest.approx([0] * 3 + [NAN] * 10, nan_ok=True)
    # At the episode's last tick everyone is done, alive or not.
    assert values(name, still(1024)).tolist() == pytest.approx([0] * 1014 + [NAN] * 10, nan_ok=True)
    both = values(name, still(12), still(11, done=False, agent=2))
    assert both.tolist() == pytest.approx([0] * 2 + [1] * 10 + [0] + [NAN] * 10, nan_ok=True)


def test_every_future_is_described_and_the_present_action_is_known() -> None:
    assert (len(FUTURE), len(targets_named(["action"]))) == (26, 17)  # as --help says
    assert set(FUTURE) <= set(NOT_EVERYWHERE) and targets_named(["future"]) == tuple(FUTURE.values())
    assert all("nknown" in target.definition for target in FUTURE.values())
    curves = {(target.curve, target.ticks_ahead) for target in FUTURE.values() if target.curve}
    assert {ticks for _, ticks in curves} == set(HORIZONS) and len(curves) == 2 * len(HORIZONS)
    npc = (-7, 2, 8, 4)
    life = still(3, moves=[EAST, STAY, NORTH], others={1: [npc]}, attacks={1: 0})
    seen = Observed(*hand_made([life]))
    output = {target.name: target.compute(seen).astype(float).tolist() for target in targets_named(["action"])}
    assert output["is_moving_east"] == [1, 0, 0] and output["is_moving_north"] == [0, 0, 1]
    assert output["is_attacking_npc"] == [0, 1, 0] and output["is_attacking_player"] == [0, 0, 0]
    assert output["attacked_rows"] == [0, 3, 0] and output["attacked_cols"] == [0, -1, 0]
    assert all(np.isfinite(item).all() for item in output.values())
    assert not set(output) & set(NOT_EVERYWHERE) and set(output) <= set(EVERY_TARGET)


def test_lives_with_a_missing_tick_and_too_few_episodes_are_refused(wanted: Wanted, tmp_path: Path) -> None:
    """As in a dump that holds only some of each life's ticks: two ticks on is then not the next but one record."""
    states = {"lstm_hidden": np.random.default_rng(0).normal(size=(18, 2))}
    records, metadata = hand_made([still(6, episode=number) for number in range(3)], states)
    whole = write_hand_made(tmp_path / "whole", records, metadata)
    data = read_probe_data(whole, OF_THE_FUTURE)
    assert len(data) == 18
    convert(whole, tmp_path / "json", "json", None, report=lambda share: None)
    again = read_probe_data(tmp_path / "json", OF_THE_FUTURE)  # read in one go, and taken apart into episodes
    for name in ("targets", "world", "episode"):
        np.testing.assert_array_equal(getattr(data, name), getattr(again, name), err_msg=name)
    np.testing.assert_array_equal(data.inputs["lstm_hidden"], again.inputs["lstm_hidden"])
    thinned = write_hand_made(tmp_path / "thinned", records.take(records.tick % 2 == 0), metadata)
    assert_refuses("has no record of the tick before 2", read_probe_data, thinned, OF_THE_FUTURE)
    one = write_planted(tmp_path / "one", planted_dump(agents=2, ticks=10, episodes=1))
    message = "one holds 1 episode: probes are fitted, tuned and tested on different ones"
    assert_refuses(message, read_probe_data, one, wanted)


def test_recorded_lives_go_where_they_went(dump: Path, metadata: DumpMetadata) -> None:
    """Against a plain look-up of the same agent's later records in a dump of the real game."""
    recorded = Observed(read_dump(dump, episodes=[1]), metadata)
    records, dead = recorded.records, died(recorded)
    key = list(zip(records.agent_id.tolist(), records.tick.tolist(), strict=True))
    place = {item: number for number, item in enumerate(key)}
    own = {name: records.columns[name].astype(float) for name in ("row", "col", "truth/food", "truth/water")}
    output = {name: target.compute(recorded) for name, target in FUTURE.items()}
    checked = moved = 0
    for number, (agent, tick) in enumerate(key):
        for axis in ("row", "col"):
            for ahead in HORIZONS:
                then = place.get((agent, tick + ahead))
                expected = NAN if then is None else own[axis][then] - own[axis][number]
                assert output[f"{axis}s_in_{ahead}_ticks"][number] == pytest.approx(expected, nan_ok=True)
                moved += bool(expected > 0)
        then = place.get((agent, tick + 1))
        for option, name in enumerate(("north", "south", "east", "west", "none")):
            expected = NAN if then is None else float(recorded.option("Move.Direction")[then] == option)
            assert output[f"next_direction_is_{name}"][number] == pytest.approx(expected, nan_ok=True)
        following = [place[agent, t] for t in range(tick + 1, tick + 70) if (agent, t) in place]
        for doing, level in (("eating", "truth/food"), ("drinking", "truth/water")):
            amounts = [own[level][number], *(own[level][item] for item in following)]
            waits = [t for t in range(1, len(amounts)) if 0 < amounts[t] >= amounts[t - 1]]
            assert output[f"ticks_to_{doing}"][number] == pytest.approx(waits[0] if waits else NAN, nan_ok=True)
            checked += bool(waits)
        life = recorded.lives.index[number]
        expected = 0.0 if len(following) >= DEATH_WITHIN else 1.0 if dead[life] else NAN
        assert output[f"dies_within_{DEATH_WITHIN}_ticks"][number] == pytest.approx(expected, nan_ok=True)
    assert moved > 50 and checked > 50 and dead.sum() > 0
