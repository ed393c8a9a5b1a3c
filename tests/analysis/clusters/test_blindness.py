"""The meter of blindness on a dump in which something hidden decides each next move."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from activation_store.reader import read_dump
from activation_store.selection import Subsample
from analysis.clusters import listed
from analysis.clusters.blindness import Blindness
from analysis.clusters.components import principal_components
from analysis.clusters.dataset import Dataset
from analysis.clusters.listed import BEHAVIOUR, STATE, Listed, blindness, next_ticks, read_listed
from analysis.clusters.summary_text import as_text
from analysis.clusters.verdict import verdict
from analysis.features import EXTENDED_FEATURES
from analysis.features.body import later
from analysis.features.observed import Observed
from analysis.statistics.inference import Inference
from tests.planted import Planted, planted_dump, write_planted
from tests.planted_lives import make_lives
from tests.planted_summary import planted_dataset, planted_summary

FAST = Inference(bootstraps=99)
EVERY = Subsample(2, skip_first=1)


def deciding(seed: int, in_gold: bool) -> tuple[Planted, np.ndarray]:
    """Plant a number of each record, drawn anew at every tick, that is the direction of the next tick's move.

    Args:
        in_gold: whether the agent's gold, which is a feature, is that number.

    Returns:
        The dump and the number, (B,) int64.
    """
    planted = planted_dump(seed, agents=8, episodes=3, ticks=50)
    records, metadata = planted.records, planted.metadata
    rng = np.random.default_rng(seed)
    number = rng.integers(0, 4, len(records))
    seen = Observed(records, metadata)
    action, entity = records.action.copy(), records.entity.values.copy()
    order, lives = seen.lives.order, seen.lives
    follows = np.diff(lives.index_in_order) == 0
    heads = [head.name for head in metadata.action_heads]
    action[order[1:][follows], heads.index("Move.Direction")] = number[order[:-1][follows]]
    if in_gold:
        entity[seen.own_rows, metadata.entity_columns.index("gold")] = number
    units = (5 * (number[:, None] == np.arange(16)) + rng.normal(size=(len(records), 16))).astype(np.float32)
    rows, layers = replace(records.entity, values=entity), {"action_decoder": units}
    return replace(planted, records=replace(records, action=action, entity=rows, activations=layers)), number


def dataset(planted: Planted, folder: Path) -> Dataset:
    """Write a planted dump, and read what an analysis keeps of it."""
    write_planted(folder, planted)
    return planted_dataset(replace(planted, records=read_dump(folder, subsample=EVERY)))


def read(data: Dataset, folder: Path) -> Listed:
    return read_listed(folder, EVERY, data, 0, lambda share: None)


def numbers_of(planted: Planted, number: np.ndarray, data: Dataset) -> np.ndarray:
    """Return the planted number of each record kept."""
    of = dict(zip(zip(planted.records.step, planted.records.env_id, strict=True), number, strict=True))
    return np.array([of[key] for key in zip(data.records.step, data.records.env_id, strict=True)])


Told = tuple[Dataset, np.ndarray, Listed]
"""What an analysis keeps of a planted dump, the planted number of each record, and what the list of features tells."""


def told(folder: Path, in_gold: bool) -> Told:
    planted, number = deciding(0, in_gold)
    data = dataset(planted, folder)
    return data, numbers_of(planted, number, data), read(data, folder)


def meter(data: Dataset, labels: np.ndarray, there: Listed) -> Blindness:
    return blindness(there, data, principal_components(data.activations), "clusters", labels, FAST)


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return told(tmp_path_factory.mktemp("hidden") / "dump", in_gold=False)


def test_clusters_of_what_no_feature_holds_say_that_the_list_is_too_short(hidden: Told) -> None:
    """And so do the verdict and the text of a summary."""
    result = meter(*hidden)
    behaviour, state = result.measures
    assert (behaviour.about, state.about) == (BEHAVIOUR, STATE)
    move = next(part for part in behaviour.parts if part.name == "Move.Direction")
    assert move.studied > 0.8 and move.listed < 0.1 and behaviour.uncovered > 0.8
    first, second, last = result.sentences
    assert first.startswith(f"In lives held out, clusters tell {behaviour.studied:.1%} (")
    assert f"variance of {BEHAVIOUR}; all {result.features} listed features together cover " in first
    assert STATE in second
    assert last.startswith("The list of features is too short: ")
    assert f"of what clusters tell about {BEHAVIOUR} (most of all Move.Direction) and " in last
    assert "are in none of them" in last
    assert any("Move.Direction" in line and f"{move.studied:.1%}" in line for line in result.table)
    planted = planted_dump()
    summary = replace(planted_summary(planted, planted.behaviour), blindness=result)
    assert any(sentence.startswith("The list of features is too short") for sentence in verdict(summary))
    assert "Move.Direction" in as_text(summary) and "nan" not in as_text(summary)
    output = summary.to_json()["blindness"]
    assert [measure["about"] for measure in output["measures"]] == [BEHAVIOUR, STATE]


def test_clusters_of_a_listed_feature_are_covered(tmp_path: Path) -> None:
    result = meter(*told(tmp_path / "dump", in_gold=True))
    assert result.features + len(result.left_out) == len(EXTENDED_FEATURES) and "self_gold" not in result.left_out
    assert "distance_to_centre" in result.left_out and "distance_to_centre" in result.table[-1]  # no size of the map
    assert all(measure.reliable and measure.uncovered < 0.1 for measure in result.measures)
    assert len(result.sentences) == 2 and "too short" not in " ".join(result.sentences)


def test_of_clusters_at_random_no_share_is_told(hidden: Told) -> None:
    data, number, there = hidden
    result = meter(data, np.random.default_rng(5).permutation(number), there)
    assert not any(measure.reliable for measure in result.measures) and len(result.sentences) == 2
    assert all("is not reliably more than nothing" in sentence for sentence in result.sentences)


def test_components_are_measured_too(hidden: Told) -> None:
    data, _, there = hidden
    components = principal_components(data.activations)
    scores = components.scores(data.activations, 16)
    result = blindness(there, data, components, "the first 16 components", scores, FAST)
    assert result.measures[0].uncovered > 0.7 and result.measures[1].studied > 0.99
    assert "listed features together cover" in result.sentences[1] and "tell" not in result.sentences[1]


def test_too_few_lives_and_a_missing_tick_give_a_reason(tmp_path: Path) -> None:
    planted, number = deciding(0, in_gold=False)
    records = planted.records
    few = records.agent_id <= 1  # three lives
    torn = ~((records.tick == 10) & (records.agent_id == 3))
    missing = "agent 3 in episode 0 has no record of the tick before 11"
    for kept, reason in ((few, "fewer than 6 lives"), (torn, missing)):
        part = replace(planted, records=records.take(kept))
        data = dataset(part, tmp_path / str(kept.sum()))
        labels = numbers_of(part, number[kept], data)
        there = read(data, tmp_path / str(kept.sum()))
        result = meter(data, labels, there)
        assert not result.measures and not result.table and reason in result.reason
        (sentence,) = result.sentences
        assert sentence == f"Whether the listed features cover what clusters tell is unknown: {result.reason}."


def test_of_many_records_whole_lives_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, number, everything = told(tmp_path / "dump", in_gold=False)
    monkeypatch.setattr(listed, "MOST_RECORDS", 200)
    some = read(data, tmp_path / "dump")
    lives = data.lives.index
    assert 150 < some.kept.sum() < 240 < everything.kept.sum()
    both = np.isin(lives, lives[some.kept]) & everything.kept
    np.testing.assert_array_equal(some.kept, both)
    again, moves = both[everything.kept], some.behaviour["Move.Direction"]
    np.testing.assert_array_equal(some.values, everything.values[again])
    np.testing.assert_array_equal(moves, everything.behaviour["Move.Direction"][again])
    np.testing.assert_array_equal(moves.argmax(axis=1), number[some.kept])


def test_what_comes_later_never_crosses_into_another_life() -> None:
    lives = make_lives([4, 3], seed=1)
    values = np.empty(7, np.int64)
    values[lives.order] = [0, 1, 2, 3, 10, 11, 12]
    assert later(values, lives, 1)[lives.order].tolist() == [1, 2, 3, 3, 11, 12, 12]
    assert later(values, lives, 10)[lives.order].tolist() == [3, 3, 3, 3, 12, 12, 12]


def test_behaviour_ahead_is_computed_as_by_hand() -> None:
    planted = planted_dump(agents=3, episodes=1, ticks=40)
    records, metadata = planted.records, planted.metadata
    seen = Observed(records, metadata)
    place = np.flatnonzero(records.tick < 5)
    parts = next_ticks(seen, place)
    heads = [head.name for head in metadata.action_heads]
    health = seen.own("health").astype(int)
    for row, now in enumerate(place):
        mine = records.agent_id == records.agent_id[now]
        (after,) = np.flatnonzero(mine & (records.tick == records.tick[now] + 1))
        (ahead,) = np.flatnonzero(mine & (records.tick == records.tick[now] + 10))
        chosen = records.action[after, heads.index("Move.Direction")]
        options = np.unique(later(records.action[:, heads.index("Move.Direction")], seen.lives, 1)[place])
        np.testing.assert_array_equal(parts["Move.Direction"][row], options == chosen)
        assert parts["change of health"][row, 0] == health[ahead] - health[now]
    assert "Sell.Price" not in parts  # 99 options and no no-op
    assert "displacement" not in parts  # nobody of this dump moves
    assert not math.isnan(parts["change of food"].sum())
