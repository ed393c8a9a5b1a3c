"""Every feature in the registry equals the engine's own state at every tick of real episodes."""

from pathlib import Path

import numpy as np
import pytest

from activation_store.reader import read_dump, read_metadata
from activation_store.schema import DumpMetadata, Records
from activation_store.selection import Subsample
from analysis.features import EXTENDED_FEATURES, feature_matrix, features_named, read_history
from analysis.features.registry import CATEGORIES
from tests.command import assert_refuses
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


def test_no_feature_looks_ahead(records: Records, metadata: DumpMetadata, computed: np.ndarray) -> None:
    """Cutting all lives off at some tick changes nothing before it."""
    early = records.tick < 25
    np.testing.assert_array_equal(feature_matrix(records.take(early), metadata, EXTENDED_FEATURES), computed[early])


def test_lives_with_missing_ticks_are_refused_only_where_ticks_matter(records: Records, metadata: DumpMetadata) -> None:
    thinned = records.take(records.tick % 2 == 0)
    late = records.take(records.tick > 3)
    for torn, names, tick in ((thinned, ["has_moved", "age"], "2, which has_moved need"), (late, ["food_change"], "4")):
        message = f"no record of the tick before {tick}"
        assert_refuses(message, feature_matrix, torn, metadata, features_named(names))
    assert feature_matrix(thinned, metadata, features_named(["age"])).shape == (len(thinned), 1)
