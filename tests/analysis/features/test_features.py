"""Features equal a straightforward computation record by record."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from activation_store.exchange.original_tools import ENTITY_COLUMNS
from activation_store.reader import read_dump, read_metadata
from activation_store.schema import ActionHead, DumpMetadata, RaggedRows, Records
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
from tests.planted import Planted, planted_dump, write_planted


@pytest.fixture(scope="module")
def planted() -> Planted:
    return planted_dump()


def by_hand(records: Records, metadata: DumpMetadata, i: int) -> dict[str, Any]:
    """Compute the features of record `i` with plain loops over dictionaries."""
    first, last = records.entity.offsets[i : i + 2]
    rows = records.entity.values[first:last].tolist()
    entities = [dict(zip(metadata.entity_columns, row, strict=True)) for row in rows]
    (own,) = (entity for entity in entities if entity["id"] == records.agent_id[i])
    others = [entity for entity in entities if entity is not own]
    tick = int(records.tick[i])
    heads = {head.name: head for head in metadata.action_heads}
    actions = dict(zip(heads, records.action[i].tolist(), strict=True))
    chose = {name: actions[name] != heads[name].noop for name in heads}
    return {
        "n_visible_entities": len(others),
        "n_visible_npcs": sum(entity["npc_type"] > 0 for entity in others),
        "n_visible_players": sum(entity["npc_type"] <= 0 for entity in others),
        **{f"self_{name}": own[name] for name in ("health", "food", "water", "gold")},
        "max_combat_level": max(own["melee_level"], own["range_level"], own["mage_level"]),
        "in_combat": own["latest_combat_tick"] > 0 and tick - own["latest_combat_tick"] < metadata.combat_status_ticks,
        "n_inventory_items": records.inventory.offsets[i + 1] - records.inventory.offsets[i],
        "tick": tick,
        "is_moving": chose["Move.Direction"],
        "is_attacking": chose["Attack.Target"],
        "is_trading": chose["Buy.MarketItem"]
        or chose["Sell.InventoryItem"]
        or chose["GiveGold.Target"]
        or (chose["Give.InventoryItem"] and chose["Give.Target"]),
    }


def test_every_feature_of_every_record(planted: Planted) -> None:
    features = feature_matrix(planted.records, planted.metadata)
    expected = [by_hand(planted.records, planted.metadata, i) for i in range(len(planted.records))]
    assert features.dtype == np.float64
    for column, name in enumerate(FEATURE_NAMES):
        np.testing.assert_array_equal(features[:, column], [float(row[name]) for row in expected], err_msg=name)
    assert (features.std(axis=0) > 0).all(), "the planted dump exercises every feature"
    npc_type = planted.records.entity.values[:, planted.metadata.entity_columns.index("npc_type")]
    assert (npc_type < 0).any() and (npc_type == 0).any() and (npc_type > 0).any()
    in_combat = features[:, FEATURE_NAMES.index("in_combat")]
    assert in_combat.any() and not in_combat[planted.records.tick == 0].any(), "nobody fights before the first hit"


def test_columns_and_heads_are_found_by_name(planted: Planted) -> None:
    rng = np.random.default_rng(3)
    columns = rng.permutation(len(planted.metadata.entity_columns))
    heads = rng.permutation(len(planted.metadata.action_heads))
    entity = dataclasses.replace(planted.records.entity, values=planted.records.entity.values[:, columns])
    records = dataclasses.replace(planted.records, entity=entity, action=planted.records.action[:, heads])
    shuffled = tuple(planted.metadata.entity_columns[i] for i in columns)
    others = tuple(planted.metadata.action_heads[i] for i in heads)
    metadata = dataclasses.replace(planted.metadata, entity_columns=shuffled, action_heads=others)
    np.testing.assert_array_equal(feature_matrix(records, metadata), feature_matrix(planted.records, planted.metadata))


@pytest.mark.parametrize(("latest", "fighting"), [(0, False), (1, False), (7, False), (8, True), (10, True)])
def test_combat_lasts_as_long_as_the_engine_says(planted: Planted, latest: int, fighting: bool) -> None:
    values = planted.records.entity.values.copy()
    values[:, planted.metadata.entity_columns.index("latest_combat_tick")] = latest
    entity = dataclasses.replace(planted.records.entity, values=values)
    records = dataclasses.replace(planted.records, tick=np.full(len(planted.records), 10), entity=entity)
    in_combat = feature_matrix(records, planted.metadata)[:, FEATURE_NAMES.index("in_combat")]
    assert (in_combat == fighting).all()


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


def test_features_are_found_by_name_and_by_set() -> None:
    assert features_named(["default"]) == FEATURES
    assert features_named(["extended"]) == features_named(["default", "extended"]) == EXTENDED_FEATURES
    names = [feature.name for feature in features_named(["max_level", "tick", "max_level"])]
    assert names == ["max_level", "tick"]


def test_choices_of_heads_that_a_policy_lacks_are_left_out(planted: Planted) -> None:
    few = dataclasses.replace(planted.metadata, action_heads=planted.metadata.action_heads[:1])
    (head,) = few.action_heads
    kept = with_heads_of(few, EXTENDED_FEATURES)
    assert {CATEGORIES[f.choice].head for f in kept if f.choice} == {head.name, ""}
    assert [f for f in kept if not f.choice] == [f for f in EXTENDED_FEATURES if not f.choice]
    assert with_heads_of(planted.metadata, EXTENDED_FEATURES) == EXTENDED_FEATURES
    assert_refuses("none of the action heads", with_heads_of, few, features_named(["gold_amount"]))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["self_heath", "tick"], r"no feature 'self_heath': did you mean self_health\?"),
        (["life_fraction", "zzz"], r"no feature 'life_fraction', 'zzz': .*docs/features.md"),
        ([], "no features given"),
    ],
)
def test_unknown_features_are_refused_by_name(names: list[str], message: str) -> None:
    assert_refuses(message, features_named, names)


def test_features_come_in_the_order_in_which_they_are_asked_for(planted: Planted) -> None:
    asked = features_named(["has_moved", "tick", "ticks_since_eating", "self_food"])
    values = feature_matrix(planted.records, planted.metadata, asked)
    food = feature_matrix(planted.records, planted.metadata, features_named(["self_food"]))
    np.testing.assert_array_equal(values[:, 1], planted.records.tick)
    np.testing.assert_array_equal(values[:, [3]], food)


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_features_over_time_of_a_thinned_dump_come_from_every_tick(form: str, planted: Planted, tmp_path: Path) -> None:
    folder = write_planted(tmp_path / "dump", planted, format=form, environment={"map_size": 96})
    metadata, whole = read_metadata(folder), read_dump(folder)
    over_time = [feature for feature in EXTENDED_FEATURES if feature.over_time]
    assert needs_history(over_time, Subsample(3)) and needs_history(over_time, Subsample(skip_first=1))
    assert not needs_history(over_time, Subsample()) and not needs_history(FEATURES, Subsample(3))
    every = feature_matrix(whole, metadata, over_time)
    value = dict(zip(zip(whole.step, whole.env_id, strict=True), every, strict=True))
    kept = read_dump(folder, subsample=Subsample(3))
    thinned = feature_matrix(kept, metadata, over_time, read_history(folder))
    expected = [value[key] for key in zip(kept.step, kept.env_id, strict=True)]
    np.testing.assert_array_equal(thinned, expected)
    assert len(kept) < len(whole) / 2 and (every.std(axis=0) > 0).sum() > 4


def test_what_is_out_of_view_is_just_beyond_it(planted: Planted) -> None:
    """Without any entities or water in view, distances are 8 tiles and health is 0; no value is missing."""
    records = planted.records.take(np.arange(20))
    number = records.entity.values[:, planted.metadata.entity_columns.index("id")]
    alone = number == records.agent_id[records.entity.owner]
    counts = np.bincount(records.entity.owner[alone], minlength=len(records))
    entity = RaggedRows(records.entity.values[alone], np.concatenate([[0], np.cumsum(counts)]))
    bare = dataclasses.replace(records, entity=entity, tile=np.full_like(records.tile, 2))
    names = ["distance_to_player", "distance_to_npc", "distance_to_water", "lowest_player_health", "nearest_npc_type"]
    values = feature_matrix(bare, planted.metadata, features_named(names))
    np.testing.assert_array_equal(values, np.tile([8, 8, 8, 0, 0], (20, 1)))


WITHOUT_HEALTH = tuple(name.replace("health", "vigour") for name in ENTITY_COLUMNS)


@pytest.mark.parametrize(
    ("message", "of_records", "of_metadata", "features"),
    [
        ("appears 0 times", {"agent_id": 500}, {}, FEATURES),
        ("'health'", {}, {"entity_columns": WITHOUT_HEALTH}, FEATURES),
        (r"Move\.Direction", {}, {"action_heads": (ActionHead("Move.Direction", 5, None),)}, FEATURES),
        (r"Move\.Direction", {}, {"action_heads": (ActionHead("Other", 5, 4),)}, FEATURES),
        ("does not record the size of its maps", {}, {}, features_named(["distance_to_edge"])),
    ],
    ids=["no own agent", "no column", "no noop", "no head", "no size of maps"],
)
def test_what_a_dump_lacks_is_named(
    planted: Planted, message: str, of_records: dict[str, int], of_metadata: dict[str, Any], features: Any
) -> None:
    shifted = {name: getattr(planted.records, name) + by for name, by in of_records.items()}
    records = dataclasses.replace(planted.records, **shifted)
    assert_refuses(message, feature_matrix, records, dataclasses.replace(planted.metadata, **of_metadata), features)


def test_records_of_another_dump_are_no_history(planted: Planted) -> None:
    later = dataclasses.replace(planted.records, episode=planted.records.episode + 5)
    with pytest.raises(ValueError, match="not in the history"):
        feature_matrix(later, planted.metadata, features_named(["has_moved"]), planted.records)
