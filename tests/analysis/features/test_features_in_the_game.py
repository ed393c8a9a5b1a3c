"""Every feature equals the engine's own state at every tick of real episodes, and a computation record by record."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from activation_store.exchange.original_tools import ENTITY_COLUMNS
from activation_store.reader import read_dump, read_metadata
from activation_store.schema import ActionHead, DumpMetadata, Records
from activation_store.selection import Subsample
from analysis.features import (
    EXTENDED_FEATURES,
    FEATURE_NAMES,
    FEATURES,
    as_markdown,
    feature_matrix,
    features_named,
    needs_history,
    read_history,
    with_heads_of,
)
from analysis.features.registry import CATEGORIES
from tests.command import assert_refuses
from tests.hand_made_lives import HandMade, hand_made
from tests.planted import Planted, planted_dump, write_planted
from tests.witness import Witness, keys

NAMES = [feature.name for feature in EXTENDED_FEATURES]
OF_THEIR_OWN = [feature.name for feature in EXTENDED_FEATURES if not feature.choice]
WITNESSED = {
    "move": 5, "moved": 5, "attack_target": 3, "use": 4, "buy": 2, "nearest_water": 4, "nearest_foilage": 5,
    "nearest_player": 5, "nearest_npc": 5, "nearest_enemy": 5,
}  # fmt: skip
"""Categorical features that the engine's own state tells, and how many of their options must occur."""


@pytest.fixture(scope="module")
def records(witnessed: tuple[Path, Witness]) -> Records:
    return read_dump(witnessed[0])


@pytest.fixture(scope="module")
def metadata(witnessed: tuple[Path, Witness]) -> DumpMetadata:
    return read_metadata(witnessed[0])


@pytest.fixture(scope="module")
def computed(records: Records, metadata: DumpMetadata) -> np.ndarray:
    return feature_matrix(records, metadata, EXTENDED_FEATURES)


def test_simulated_lives_are_in_combat_by_the_clock_of_the_game_which_their_ticks_are_not() -> None:
    """A simulated life that begins in tick 200 counts its ticks from 0; when it last fought is a tick of the game."""
    fought = HandMade(
        [9] * 4, [9] * 4, own={"time_alive": [200, 201, 202, 203], "latest_combat_tick": [0, 150, 201, 201]}
    )
    records, metadata = hand_made([fought])
    simulated = dataclasses.replace(metadata, origin="simulated", world_model_sha256="0" * 64)
    features = features_named(("in_combat", "ticks_since_combat"))
    values = feature_matrix(records, dataclasses.replace(simulated, combat_status_ticks=2), features, records)
    assert values.tolist() == [[0, 200], [0, 51], [1, 1], [0, 2]]


@pytest.mark.parametrize("name", OF_THEIR_OWN)
def test_feature_equals_the_engines_own_value_at_every_tick(
    name: str, computed: np.ndarray, records: Records, witnessed: tuple[Path, Witness]
) -> None:
    truth = np.array([witnessed[1].truth[key][name] for key in keys(records)], dtype=float)
    np.testing.assert_allclose(computed[:, NAMES.index(name)], truth, rtol=1e-12)
    assert len(np.unique(truth)) > 1, f"{name} never changed: equality proves little"


@pytest.mark.parametrize("name", WITNESSED)
def test_option_is_what_the_engine_saw_at_every_tick(
    name: str, computed: np.ndarray, records: Records, witnessed: tuple[Path, Witness]
) -> None:
    truth = [witnessed[1].options[key][name] for key in keys(records)]
    for option in CATEGORIES[name].options:
        column = computed[:, NAMES.index(f"{name}_{option}")]
        np.testing.assert_array_equal(column, [is_it == option for is_it in truth], err_msg=option)
    assert len(set(truth)) >= WITNESSED[name], f"only {set(truth)} occurred: equality proves little"


def test_every_record_has_one_option_of_each_choice_and_no_feature_is_missing(computed: np.ndarray) -> None:
    assert np.isfinite(computed).all()
    for name, category in CATEGORIES.items():
        columns = [NAMES.index(f"{name}_{option}") for option in category.options]
        np.testing.assert_array_equal(computed[:, columns].sum(axis=1), 1, err_msg=name)


def test_agents_drink_where_they_are_beside_water_and_fish_quench_no_thirst(
    computed: np.ndarray, records: Records, witnessed: tuple[Path, Witness]
) -> None:
    """The game's own log of drinking decides which tiles count as water."""
    drank = np.array([witnessed[1].drank[key] for key in keys(records)])
    beside_water = computed[:, NAMES.index("is_beside_water")] == 1
    only_fish = (computed[:, NAMES.index("is_beside_fish")] == 1) & ~beside_water
    np.testing.assert_array_equal(drank, beside_water)
    assert drank.sum() > 50 and only_fish.sum() > 5


@pytest.mark.parametrize("subsample", [2, 7])
def test_subsampled_records_have_the_values_of_every_tick(
    subsample: int, computed: np.ndarray, records: Records, metadata: DumpMetadata, witnessed: tuple[Path, Witness]
) -> None:
    """Features over time use the previous tick, not the previous record."""
    kept = read_dump(witnessed[0], subsample=Subsample(subsample))
    values = feature_matrix(kept, metadata, EXTENDED_FEATURES, read_history(witnessed[0]))
    place = {key: i for i, key in enumerate(keys(records))}
    np.testing.assert_array_equal(values, computed[[place[key] for key in keys(kept)]])


def test_no_feature_looks_ahead_and_only_those_over_time_need_all_ticks(
    records: Records, metadata: DumpMetadata, computed: np.ndarray
) -> None:
    """Cutting all lives off at some tick changes nothing before it."""
    early = records.tick < 25
    np.testing.assert_array_equal(feature_matrix(records.take(early), metadata, EXTENDED_FEATURES), computed[early])
    thinned = records.take(records.tick % 2 == 0)
    late = records.take(records.tick > 3)
    for torn, names, tick in ((thinned, ["has_moved", "age"], "2, which has_moved need"), (late, ["food_change"], "4")):
        message = f"no record of the tick before {tick}"
        assert_refuses(message, feature_matrix, torn, metadata, features_named(names))
    assert feature_matrix(thinned, metadata, features_named(["age"])).shape == (len(thinned), 1)


@pytest.fixture(scope="module")
def planted() -> Planted:
    return planted_dump()


def test_columns_and_heads_are_found_by_name_or_left_out(
    planted: Planted,
) -> None:
    rng = np.random.default_rng(3)
    columns = rng.permutation(len(planted.metadata.entity_columns))
    heads = rng.permutation(len(planted.metadata.action_heads))
    entity = dataclasses.replace(planted.records.entity, values=planted.records.entity.values[:, columns])
    records = dataclasses.replace(planted.records, entity=entity, action=planted.records.action[:, heads])
    shuffled = tuple(planted.metadata.entity_columns[i] for i in columns)
    others = tuple(planted.metadata.action_heads[i] for i in heads)
    metadata = dataclasses.replace(planted.metadata, entity_columns=shuffled, action_heads=others)
    np.testing.assert_array_equal(feature_matrix(records, metadata), feature_matrix(planted.records, planted.metadata))
    few = dataclasses.replace(planted.metadata, action_heads=planted.metadata.action_heads[:1])
    (head,) = few.action_heads
    kept = with_heads_of(few, EXTENDED_FEATURES)
    assert {CATEGORIES[f.choice].head for f in kept if f.choice} == {head.name, ""}
    assert [f for f in kept if not f.choice] == [f for f in EXTENDED_FEATURES if not f.choice]
    assert with_heads_of(planted.metadata, EXTENDED_FEATURES) == EXTENDED_FEATURES
    assert_refuses("none of the action heads", with_heads_of, few, features_named(["gold_amount"]))


ORIGINAL = (
    "n_visible_entities n_visible_npcs n_visible_players self_health self_food self_water self_gold max_combat_level "
    "in_combat n_inventory_items tick is_moving is_attacking is_trading"
)
PAGE = Path(__file__).parents[3] / "docs" / "features.md"


def test_the_registry_explains_itself() -> None:
    assert as_markdown() in PAGE.read_text(), "paste what `python -m analysis.features` prints into docs/features.md"
    assert tuple(ORIGINAL.split()) == FEATURE_NAMES
    assert EXTENDED_FEATURES[:14] == FEATURES
    names = [feature.name for feature in EXTENDED_FEATURES]
    assert len(set(names)) == len(names) > 100
    for feature in EXTENDED_FEATURES:
        assert feature.unit and feature.definition.endswith(".") and feature.definition.count(". ") == 0


def test_features_are_found_by_name_and_by_set_in_the_order_asked_for(
    planted: Planted,
) -> None:
    assert features_named(["default"]) == FEATURES
    assert features_named(["extended"]) == features_named(["default", "extended"]) == EXTENDED_FEATURES
    names = [feature.name for feature in features_named(["max_level", "tick", "max_level"])]
    assert names == ["max_level", "tick"]
    for unknown, message in (
        (["self_heath", "tick"], r"no feature 'self_heath': did you mean self_health\?"),
        (["life_fraction", "zzz"], r"no feature 'life_fraction', 'zzz': .*docs/features.md"),
        ([], "no features given"),
    ):
        assert_refuses(message, features_named, unknown)
    over_time = [feature for feature in EXTENDED_FEATURES if feature.over_time]
    assert needs_history(over_time, Subsample(3)) and needs_history(over_time, Subsample(skip_first=1))
    assert not needs_history(over_time, Subsample()) and not needs_history(FEATURES, Subsample(3))
    asked = features_named(["has_moved", "tick", "ticks_since_eating", "self_food"])
    values = feature_matrix(planted.records, planted.metadata, asked)
    food = feature_matrix(planted.records, planted.metadata, features_named(["self_food"]))
    np.testing.assert_array_equal(values[:, 1], planted.records.tick)
    np.testing.assert_array_equal(values[:, [3]], food)


def test_features_over_time_of_a_thinned_json_dump_come_from_every_tick(planted: Planted, tmp_path: Path) -> None:
    """Recorded ones, above, are Parquet."""
    folder = write_planted(tmp_path / "dump", planted, environment={"map_size": 96})
    metadata, whole, kept = read_metadata(folder), read_dump(folder), read_dump(folder, subsample=Subsample(3))
    value = dict(zip(keys(whole), feature_matrix(whole, metadata, EXTENDED_FEATURES), strict=True))
    thinned = feature_matrix(kept, metadata, EXTENDED_FEATURES, read_history(folder))
    assert metadata.format == "json" and len(kept) < len(whole) / 2
    np.testing.assert_array_equal(thinned, [value[key] for key in keys(kept)])


def test_what_a_dump_or_its_history_lacks_is_named(planted: Planted) -> None:
    no_heads = (
        {"action_heads": (head,)} for head in (ActionHead("Move.Direction", 5, None), ActionHead("Other", 5, 4))
    )
    no_health = tuple(name.replace("health", "vigour") for name in ENTITY_COLUMNS)
    cases: tuple[tuple[str, dict[str, Any], Any], ...] = (
        ("'health'", {"entity_columns": no_health}, FEATURES),
        *((r"Move\.Direction", changed, FEATURES) for changed in no_heads),
        ("does not record the size of its maps", {}, features_named(["distance_to_edge"])),
    )
    for message, changed, features in cases:
        metadata = dataclasses.replace(planted.metadata, **changed)
        assert_refuses(message, feature_matrix, planted.records, metadata, features)
    others = dataclasses.replace(planted.records, agent_id=planted.records.agent_id + 500)
    assert_refuses("appears 0 times", feature_matrix, others, planted.metadata, FEATURES)
    later = dataclasses.replace(planted.records, episode=planted.records.episode + 5)
    with pytest.raises(ValueError, match="not in the history"):
        feature_matrix(later, planted.metadata, features_named(["has_moved"]), planted.records)
