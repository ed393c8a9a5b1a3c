"""Rules that carry labels and selections to other records are right where they can be checked, and say how often."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from activation_store.lives import places_of
from activation_store.schema import IDENTITY, METADATA_FILE
from activation_store.selection import Subsample
from analysis.labels import NOISE
from analysis.lives import places_among
from analysis.runs.cluster_run import ClusterRun, read_cluster_run
from analysis.runs.propagated_labels import (
    CarryingRule,
    PropagatedLabels,
    fit_rule,
    propagate_labels,
    read_selection,
    rule_from,
    save_propagated,
)
from analysis.runs.run_folder import RunFolder
from common.files import sha256
from tests.command import assert_refuses
from tests.planted import Planted, planted_dump, write_planted
from tests.planted_run import labelled_run, saved_selection

STRIDE, SKIP_FIRST, SEED = 5, 2, 7


@pytest.fixture(scope="module")
def planted() -> Planted:
    return planted_dump(agents=8, episodes=2, ticks=60)


@pytest.fixture(scope="module")
def dump(planted: Planted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_planted(tmp_path_factory.mktemp("dumps") / "planted", planted)


def truth_at(planted: Planted, places: dict[str, np.ndarray]) -> np.ndarray:
    """The planted behaviours, the last one labelled as noise."""
    behaviour = planted.behaviour[places_among(places, vars(planted.records))]
    return np.where(behaviour == 2, NOISE, behaviour)


@pytest.fixture(scope="module")
def run(dump: Path, planted: Planted, tmp_path_factory: pytest.TempPathFactory) -> ClusterRun:
    path, kept = tmp_path_factory.mktemp("results") / "run", Subsample(STRIDE, SKIP_FIRST, SEED)
    return read_cluster_run(labelled_run(path, dump, lambda some: truth_at(planted, places_of(some)), kept), dump)


@pytest.fixture(scope="module")
def propagated(run: ClusterRun, dump: Path) -> PropagatedLabels:
    return propagate_labels(run, dump, fit_rule(run, dump))


def test_every_record_gets_the_behaviour_that_was_planted_and_the_runs_own_labels_are_marked(
    propagated: PropagatedLabels, planted: Planted, run: ClusterRun
) -> None:
    assert len(propagated.label) == len(planted.records)
    np.testing.assert_array_equal(propagated.label, truth_at(planted, propagated.places))
    assert NOISE in propagated.label
    place = places_among(run.places, propagated.places)
    assert propagated.exact[place].all() and propagated.exact.sum() == len(run.label)
    np.testing.assert_array_equal(propagated.label[place], run.label)


def test_an_own_label_stays_even_where_all_neighbours_disagree(run: ClusterRun, dump: Path) -> None:
    odd = run.label.copy()
    odd[0] = 7
    propagated = propagate_labels(replace(run, label=odd), dump, fit_rule(replace(run, label=odd), dump))
    first = places_among({name: column[:1] for name, column in run.places.items()}, propagated.places)
    assert propagated.label[first] == 7 and propagated.exact[first]


def test_some_lives_alone_get_the_labels_that_they_get_among_all(
    propagated: PropagatedLabels, run: ClusterRun, dump: Path
) -> None:
    some = propagate_labels(run, dump, propagated.rule, lives=[(2, 3, 1)])
    assert set(zip(some.places["agent_id"].tolist(), some.places["episode"].tolist(), strict=True)) == {(3, 1)}
    np.testing.assert_array_equal(some.label, propagated.label[places_among(some.places, propagated.places)])
    assert_refuses("no record of the requested lives", propagate_labels, run, dump, propagated.rule, lives=[(99, 1, 1)])


def test_agreement_on_held_out_lives_is_what_it_is_on_new_ones() -> None:
    """For labels that activations predict only in part, the reported accuracy holds on unseen lives."""
    rng = np.random.default_rng(0)
    life = np.repeat(np.arange(80), 50)
    label = rng.integers(0, 2, len(life))
    activations = rng.normal(size=(len(life), 3)).astype(np.float32)
    activations[:, 0] += 2 * label
    seen = life < 40
    rule = rule_from(activations[seen], label[seen], life[seen])
    assert rule.held_out is not None
    agreement = float((rule.labels_of(activations[~seen]) == label[~seen]).mean())
    assert rule.held_out.agreement == pytest.approx(agreement, abs=0.04) and 0.6 < agreement < 0.9


def test_a_life_does_not_vote_for_itself() -> None:
    """Labels specific to each life: without its own votes a life's label is a guess."""
    rng = np.random.default_rng(1)
    life = np.repeat(np.arange(60), 20)
    activations = (3 * rng.normal(size=(60, 8))[life] + 0.1 * rng.normal(size=(len(life), 8))).astype(np.float32)
    rule = rule_from(activations, rng.integers(0, 2, 60)[life], life)
    assert rule.held_out is not None and rule.held_out.agreement < 0.7


def test_at_a_tie_the_nearer_wins() -> None:
    activations = np.array([[0.0], [1.0], [10.0], [11.0]], np.float32)
    mean, components = np.zeros(1, np.float32), np.ones((1, 1), np.float32)
    rule = CarryingRule(mean, components, activations, np.array([3, 0, 0, 3]), 2, None)
    assert rule.labels_of(np.array([[0.2], [0.8], [10.9]], np.float32)).tolist() == [3, 0, 3]


def test_with_one_life_nothing_is_said_of_how_often_it_is_right() -> None:
    rng = np.random.default_rng(2)
    rule = rule_from(rng.normal(size=(9, 4)).astype(np.float32), np.arange(9) % 2, np.zeros(9, np.int64))
    assert rule.held_out is None and "accuracy of this rule is unknown" in rule.in_words()


def test_one_label_only_is_propagated_everywhere() -> None:
    rng = np.random.default_rng(3)
    activations = rng.normal(size=(40, 4)).astype(np.float32)
    rule = rule_from(activations, np.full(40, NOISE), np.arange(40) // 10)
    assert (rule.labels_of(activations) == NOISE).all()
    assert rule.held_out is not None and rule.held_out.agreement == 1


def test_rule_and_labels_are_saved_so_that_they_can_be_repeated(
    propagated: PropagatedLabels, run: ClusterRun, planted: Planted, tmp_path: Path
) -> None:
    with RunFolder(tmp_path / "out", {}) as folder:
        save_propagated(folder, propagated, run)
    output = orjson.loads((tmp_path / "out" / "propagation_rule.json").read_bytes())
    assert output["cluster_labels_sha256"] == sha256(run.path / "cluster_labels.npz")
    assert output["dump_metadata_sha256"] == run.dump_sha256
    assert output["labelled_by_the_run"] == len(run.label) and output["records"] == len(planted.records)
    with np.load(tmp_path / "out" / "propagation_rule.npz", allow_pickle=False) as arrays:
        rule = CarryingRule(**arrays, voters=output["voters"], held_out=None)
    with np.load(tmp_path / "out" / "propagated_labels.npz", allow_pickle=False) as labels:
        again = rule.labels_of(planted.records.activations["action_decoder"])
        np.testing.assert_array_equal(again[~labels["exact"]], labels["label"][~labels["exact"]])


def test_a_run_of_another_dump_is_refused_naming_both(
    run: ClusterRun, planted: Planted, dump: Path, tmp_path: Path
) -> None:
    """A converted one is another, too."""
    other = write_planted(tmp_path / "other", planted_dump(seed=1))
    assert_refuses(["another dump", str(dump), str(other)], read_cluster_run, run.path, other)
    converted = write_planted(tmp_path / "converted", planted, format="parquet")
    assert_refuses("before it was converted", read_cluster_run, run.path, converted)


def test_a_run_that_does_not_say_its_layer_and_labels_of_records_that_the_dump_lacks_are_refused(
    run: ClusterRun, dump: Path, tmp_path: Path
) -> None:
    places = {**run.places, "tick": run.places["tick"] + 1000}
    assert_refuses("does not hold", fit_rule, replace(run, places=places), dump)
    with RunFolder(tmp_path / "run", {"input": {METADATA_FILE: sha256(dump / METADATA_FILE)}}) as folder:
        empty = np.empty(0, np.int64)
        folder.save_arrays("cluster_labels.npz", **dict.fromkeys(IDENTITY, empty), label=empty)
    assert_refuses("does not name the run's", fit_rule, read_cluster_run(tmp_path / "run", dump), dump)


def test_what_was_selected_is_read_back_and_recognised(
    planted: Planted, dump: Path, run: ClusterRun, tmp_path: Path
) -> None:
    row = {key: i for i, key in enumerate(zip(*(vars(planted.records)[name] for name in IDENTITY), strict=True))}
    of_run = np.array([row[key] for key in zip(*run.places.values(), strict=True)])
    chosen = np.flatnonzero(planted.behaviour[of_run] == 1)
    twice = [*chosen.tolist(), int(chosen[0])]
    selection = read_selection(saved_selection(tmp_path / "one.json", run.path, records=twice))
    assert selection.records.tolist() == chosen.tolist() and selection.dump == dump
    assert all((column == run.places[name][chosen]).all() for name, column in selection.places.items())
    like = selection.rule().labels_of(planted.records.activations["action_decoder"]) == 1
    others = np.setdiff1d(np.arange(len(like)), of_run)
    assert (like == (planted.behaviour == 1))[others].mean() > 0.9


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "labels of clusters"}, "holds 'labels of clusters', no selection"),
        ({"records": []}, "must name records of .*, from 0 to "),
        ({"records": [-1]}, "must name records"),
        ({"records": [10**6]}, "must name records"),
        ({"records": "all"}, "holds no selection: 'records'"),
        ({"folder": "analysis_results/gone"}, "in the run analysis_results/gone, which is not there"),
        ({"runKey": "0" * 64}, "selected in another run than"),
    ],
)
def test_what_is_no_selection_of_this_run_is_refused(
    run: ClusterRun, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    assert_refuses(message, read_selection, saved_selection(tmp_path / "one.json", run.path, **changes))
