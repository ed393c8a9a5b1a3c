"""Features equal what a reader would work out by hand, record by record."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from activation_store.schema import ActionHead, DumpMetadata, Records
from analysis.features import FEATURE_NAMES, FEATURES, feature_matrix
from tests.planted import Planted, planted_dump
from user_error import UserError


@pytest.fixture(scope="module")
def planted() -> Planted:
    return planted_dump()


def by_hand(records: Records, metadata: DumpMetadata, i: int) -> dict[str, Any]:
    """Work out the features of record `i` with plain loops over dictionaries."""
    first, last = records.entity.offsets[i : i + 2]
    entities = [
        dict(zip(metadata.entity_columns, row, strict=True)) for row in records.entity.values[first:last].tolist()
    ]
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
        "self_health": own["health"],
        "self_food": own["food"],
        "self_water": own["water"],
        "self_gold": own["gold"],
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


def test_planted_dump_exercises_every_feature(planted: Planted) -> None:
    features = feature_matrix(planted.records, planted.metadata)
    assert (features.std(axis=0) > 0).all()
    npc_type = planted.records.entity.values[:, planted.metadata.entity_columns.index("npc_type")]
    assert (npc_type < 0).any() and (npc_type == 0).any() and (npc_type > 0).any()


def test_columns_and_heads_are_found_by_name(planted: Planted) -> None:
    rng = np.random.default_rng(3)
    columns = rng.permutation(len(planted.metadata.entity_columns))
    heads = rng.permutation(len(planted.metadata.action_heads))
    entity = dataclasses.replace(planted.records.entity, values=planted.records.entity.values[:, columns])
    records = dataclasses.replace(planted.records, entity=entity, action=planted.records.action[:, heads])
    metadata = dataclasses.replace(
        planted.metadata,
        entity_columns=tuple(planted.metadata.entity_columns[i] for i in columns),
        action_heads=tuple(planted.metadata.action_heads[i] for i in heads),
    )
    np.testing.assert_array_equal(feature_matrix(records, metadata), feature_matrix(planted.records, planted.metadata))


def test_nobody_fights_before_the_first_hit(planted: Planted) -> None:
    in_combat = feature_matrix(planted.records, planted.metadata)[:, FEATURE_NAMES.index("in_combat")]
    assert not in_combat[planted.records.tick == 0].any()
    assert in_combat.any()


@pytest.mark.parametrize(("latest", "fighting"), [(0, False), (1, False), (7, False), (8, True), (10, True)])
def test_combat_lasts_as_long_as_the_engine_says(planted: Planted, latest: int, fighting: bool) -> None:
    values = planted.records.entity.values.copy()
    values[:, planted.metadata.entity_columns.index("latest_combat_tick")] = latest
    records = dataclasses.replace(
        planted.records,
        tick=np.full(len(planted.records), 10),
        entity=dataclasses.replace(planted.records.entity, values=values),
    )
    in_combat = feature_matrix(records, planted.metadata)[:, FEATURE_NAMES.index("in_combat")]
    assert (in_combat == fighting).all()


def test_a_record_without_its_own_agent_is_refused(planted: Planted) -> None:
    records = dataclasses.replace(planted.records, agent_id=planted.records.agent_id + 500)
    with pytest.raises(UserError, match="appears 0 times"):
        feature_matrix(records, planted.metadata)


def test_a_missing_column_is_named(planted: Planted) -> None:
    columns = tuple(name.replace("health", "vigour") for name in planted.metadata.entity_columns)
    with pytest.raises(UserError, match="'health'"):
        feature_matrix(planted.records, dataclasses.replace(planted.metadata, entity_columns=columns))


@pytest.mark.parametrize("heads", [(ActionHead("Move.Direction", 5, None),), (ActionHead("Other", 5, 4),)])
def test_a_missing_head_or_noop_is_named(planted: Planted, heads: tuple[ActionHead, ...]) -> None:
    with pytest.raises(UserError, match=r"Move\.Direction"):
        feature_matrix(planted.records, dataclasses.replace(planted.metadata, action_heads=heads))


def test_the_registry_explains_itself() -> None:
    assert len(set(FEATURE_NAMES)) == len(FEATURES) == 14
    for feature in FEATURES:
        assert feature.unit and feature.definition.endswith(".")
