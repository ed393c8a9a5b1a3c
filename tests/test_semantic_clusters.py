"""semantic_clusters.py as users run it: a fit on a real recording, read by every script for clusters."""

import itertools
import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from activation_store.directions import read_directions
from activation_store.reader import read_dump
from analysis.codes.content import CodedDump, coded_dump
from analysis.codes.films import From, best_lives, draw_frame, read_scenes, stretches_of
from analysis.life.events import endings
from analysis.materials import PALETTE
from analysis.runs.cluster_run import read_cluster_run, read_run
from analysis.runs.codebook_rule import read_names
from analysis.runs.finished_files import open_finished
from analysis.runs.propagated_labels import fit_rule, propagate_labels
from reinforcement_learning.play.extraction import RecordingPlan
from tests.command import assert_refused, assert_refuses, run_here, run_well
from tests.planted_run import rewrite
from tests.recorded import Recording, record
from tests.tiny_policies import tiny_contest

LAYER = "action_decoder"
QUICK = ("--subsample", 2, "--permutations", 99, "--bootstraps", 99)
FIT = (*QUICK, "--codes", 4, "--layer", LAYER, "--steps", 120, "--states", 64)


@pytest.fixture(scope="module")
def run(recording: Recording, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fit of four codes to every second record."""
    results = tmp_path_factory.mktemp("results")
    done = run_well("semantic_clusters.py", "fit", recording.dump, *FIT, "-o", results)
    assert "codes fitted to its states are in use" in " ".join(done.stdout.split())
    (folder,) = results.iterdir()
    assert folder.name.startswith(f"{recording.dump.name}-semantic-k4-action_decoder-sub2-steps120-n64")
    return folder


def test_a_run_is_a_cluster_run_with_a_plane(run: Path, recording: Recording) -> None:
    result = read_run(run, recording.dump)
    plane, summary = np.load(run / "plane.npy"), result.summary
    assert np.array_equal(plane, result.embedding) and plane.shape[1] == 2
    assert summary["codes"]["asked"] == 4 and summary["codes"]["used"] == len(result.clusters.clusters)
    assert summary["noise_records"] == 0 and summary["layer"] == LAYER
    names = {direction.name for direction in read_directions(run / "directions.safetensors")}
    assert {f"cluster_{label}" for label in result.clusters.clusters} <= names
    report = (run / "report.html").read_text()
    assert "python semantic_clusters.py fit" in report and "fitted along with the codes" in report


def test_every_record_has_the_nearest_code(run: Path, recording: Recording) -> None:
    clusters = read_cluster_run(run, recording.dump)
    rule = fit_rule(clusters, recording.dump)
    propagated = propagate_labels(clusters, recording.dump, rule)
    records = read_dump(recording.dump, layers=[LAYER])
    label, exact = propagated.of(records)
    assert exact.all() and len(label) == len(records) > len(clusters.label)
    plane = records.activations[LAYER] @ rule.weight + rule.bias
    assert np.array_equal(label, rule.label[np.square(plane[:, None] - rule.places).sum(axis=2).argmin(axis=1)])


@pytest.mark.parametrize(
    "command",
    [
        ("explore.py", "{run}", "--dump", "{dump}", "-o", "{out}/page.html"),
        ("cluster_life_phase.py", "{dump}", "--cluster-dir", "{run}", "--min-lifespan", "5", "--permutations", "19",
         "--bootstraps", "100", "--output", "{out}"),
        ("agent_life_visualization.py", "{dump}", "--cluster-dir", "{run}", "--output", "{out}"),
    ],
    ids=lambda command: command[0],
)  # fmt: skip
def test_scripts_for_clusters_take_it(run: Path, recording: Recording, tmp_path: Path, command: tuple) -> None:
    script, *arguments = (item.format(run=run, dump=recording.dump, out=tmp_path) for item in command)
    run_well(script, *arguments)
    assert any(tmp_path.iterdir())


def test_a_damaged_codebook_is_refused(run: Path, recording: Recording, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    rewrite(copy, "codebook.npz", b"PK\x05\x06" + b"\x00" * 18)
    assert_refuses(r"codebook\.npz is no codebook", fit_rule, read_cluster_run(copy, recording.dump), recording.dump)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (("--codes", 1), ("--codes is 1", "2 to 512")),
        (("--plane-dimensions", 1), ("--plane-dimensions is 1", "2 to 3")),
        (("--plane-dimensions", 4), ("--plane-dimensions is 4", "2 to 3")),
        (("--layer", "lstm_hiden"), ("no layer 'lstm_hiden'",)),
        (("--layer", LAYER, "--codes", 500), ("too few states", "--codes 500 needs 5000")),
        (("--recorded",), ("holds no layer semantic_code", "leave out --recorded")),
        (("--layer", LAYER, "--steps", 3), ("--steps is 3", "100 or more")),
        (("--layer", LAYER, "--features", "nonsense"), ("nonsense",)),
    ],
)
def test_bad_input_is_refused_in_one_line(recording: Recording, tmp_path: Path, options: tuple, parts: tuple) -> None:
    done = run_here("semantic_clusters.py", "fit", recording.dump, *options, "-o", tmp_path / "results")
    assert_refused(done, *parts)
    assert not (tmp_path / "results").exists()


def test_an_unknown_command_and_a_run_without_a_codebook_are_refused(analysed) -> None:
    assert_refused(run_here("semantic_clusters.py", "fti"), "no command 'fti'", "did you mean fit?")
    assert "semantic_clusters.py fit" in run_here("semantic_clusters.py", "--help").stdout
    for command in ("describe", "plot"):
        assert_refused(
            run_here("semantic_clusters.py", command, analysed.run), "codebook.npz", "semantic_clusters.py fit"
        )


@pytest.fixture(scope="module")
def coded(run: Path, recording: Recording) -> CodedDump:
    return coded_dump(run, recording.dump, lambda _: nullcontext(lambda _: None))


@pytest.fixture(scope="module")
def described(run: Path, recording: Recording) -> list[dict]:
    """The cards of the run."""
    (run / "labels.yaml").write_text("0: forages\n1: ''\n")
    run_well("semantic_clusters.py", "describe", run, "--permutations", 19, "--bootstraps", 100)
    assert "## Code 0 (forages)" in (run / "cards.md").read_text()
    assert (run / "code_places.png").read_bytes().startswith(b"\x89PNG")
    return json.loads((run / "cards.json").read_text())


def test_cards_count_what_the_dump_holds(coded: CodedDump, described: list[dict]) -> None:
    seen, label = coded.seen, coded.label
    assert sum(card["share"] for card in described) == pytest.approx(1)
    moves = seen.chose("Move.Direction")
    gives, names = seen.chose("Give.InventoryItem") & seen.chose("Give.Target"), seen.chose("Give.InventoryItem")
    assert 0 < gives.sum() < names.sum()  # an item that nobody is to get is not given
    dead = list(endings(seen))
    for card in described:
        own = label == card["label"]
        act = next(item for item in card["acts"] if item["name"] == "moves")
        assert act["inside"] == pytest.approx(moves[own].mean())
        assert act["elsewhere"] == pytest.approx(moves[~own].mean())
        assert act["low"] <= act["inside"] - act["elsewhere"] <= act["high"]
        act = next(item for item in card["acts"] if item["name"] == "gives an item")
        assert act["inside"] == pytest.approx(gives[own].mean())
        assert card["deaths"] == sum(label[record] == card["label"] for record, _ in dead)
        assert sum(count for _, count in card["causes"]) == card["deaths"]
        assert card["lives"] == len(np.unique(coded.lives.index[own])) and card["number"] == card["label"]
    assert sum(card["deaths"] for card in described) == len(dead) > 0


def test_dwell_times_are_those_of_the_visits(coded: CodedDump, described: list[dict]) -> None:
    """Counted in a plain loop: ticks in a code over visits that end before the life does."""
    lives, left = coded.lives, dict.fromkeys(coded.labels, 0)
    for start, length in zip(lives.starts, lives.lengths, strict=True):
        own = coded.label[lives.order[start : start + length]]
        for before, after in itertools.pairwise(own.tolist()):
            left[before] += before != after
    for card in described:
        ticks = int((coded.label == card["label"]).sum())
        assert card["dwell"]["mean"] == pytest.approx(ticks / left[card["label"]])


def test_names_are_kept_and_shown_elsewhere(run: Path, recording: Recording, described: list[dict]) -> None:
    assert described[0]["name"] == "forages" and read_names(run) == {0: "forages"}
    assert len((run / "labels.yaml").read_text().splitlines()) == 1 + len(described)
    clusters = read_run(run, recording.dump).summary["clusters"]
    assert clusters[0]["description"].startswith("forages: ") and ": " not in clusters[1]["description"][:9]


@pytest.mark.parametrize("source", ["best", "all"])
def test_stretches_are_of_one_life_and_one_code(coded: CodedDump, source: From) -> None:
    result = stretches_of(coded, source, seed=1)
    best = best_lives(coded)
    assert result.keys() == set(coded.labels) and sum(map(len, result.values())) > 1
    for code, stretches in result.items():
        assert sum(len(stretch) + 4 for stretch in stretches) <= 480 + 4 + 20
        for stretch in stretches:
            assert 5 <= len(stretch) <= 20 and (coded.label[stretch] == code).all()
            assert (coded.lives.index[stretch] == coded.lives.index[stretch[0]]).all()
            assert (np.diff(coded.records.tick[stretch]) == 1).all()
            assert source == "all" or coded.lives.index[stretch[0]] in best
        lives = [coded.lives.index[stretch[0]] for stretch in stretches]
        assert len(set(lives[: len(set(lives))])) == len(set(lives)), "each life once before any twice"
    reward = np.bincount(coded.lives.index, weights=coded.records.reward)
    assert len(best) == round(0.2 * len(reward)) and reward[best].min() >= np.delete(reward, best).max()


def test_frames_show_ground_self_and_code(coded: CodedDump, recording: Recording) -> None:
    stretches = stretches_of(coded, "all", seed=1)
    seen, by_code = read_scenes(coded, stretches, lambda _: nullcontext(lambda _: None))
    code, parts = next((code, parts) for code, parts in by_code.items() if parts)
    kept = stretches[code][0]
    assert np.array_equal(seen.records.tick[parts[0]], coded.records.tick[kept])
    assert np.array_equal(seen.records.agent_id[parts[0]], coded.records.agent_id[kept])
    record = int(parts[0][0])
    frame, other = (draw_frame(seen, record, title, "me", "#ff00ff") for title in ("code 3", "code 4"))
    assert frame.shape == (256, 256, 3) and not np.array_equal(frame, other)
    material = seen.records.tile[record, :, 2].reshape(15, 15)
    corners = {(0, 0), (0, 14), (14, 0), (14, 14)}
    for down, right in corners:
        assert frame[18 + 14 * down + 1, 23 + 14 * right + 1].tolist() == PALETTE[material[down, right]].tolist()
    assert (np.abs(frame[116:130, 121:135].astype(int) - (255, 0, 255)).sum(axis=2) < 30).any(), "the agent itself"
    message = "has 5 ticks in a row in one code"
    assert_refuses(message, read_scenes, coded, {0: [], 1: []}, lambda _: nullcontext(lambda _: None))


@pytest.mark.slow
def test_films_are_written(run: Path, recording: Recording) -> None:
    run_well("semantic_clusters.py", "videos", run, "--from", "all", "--formats", "gif")
    films = {path.name for path in (run / "videos-all").iterdir()}
    assert "all.gif" in films and any(name.startswith("code-") for name in films)
    assert_refused(run_here("semantic_clusters.py", "videos", run, "--formats", "avi"), "--formats", "mp4, gif or both")


@pytest.mark.slow
def test_codes_are_compared_with_other_methods(run: Path, recording: Recording) -> None:
    run_well("semantic_clusters.py", "compare", run, "--states", 300, "--bootstraps", 100)
    result = json.loads((run / "leaderboard.json").read_text())
    names = [row["name"] for row in result["rows"]]
    assert names == [
        "codes of this run", "UMAP and HDBSCAN", "k-means on the state", "behaviours (trajectories, Ward)",
        "strongest sparse feature", "strongest component (ICA)",
    ]  # fmt: skip
    table = (run / "leaderboard.tsv").read_text().splitlines()
    assert len(table) == 1 + sum(len(row["measures"]) for row in result["rows"])
    assert {"codes_1", "kmeans_1", "behaviours_1", "sparse_1"} <= {
        direction.name for direction in read_directions(run / "axes.safetensors")
    }
    for row in result["rows"]:
        for name, measure in row["measures"].items():
            assert measure["low"] <= measure["high"], (row["name"], name)
        assert 1 <= row["measures"]["perplexity"]["value"] <= row["clusters"]
    assert_refused(run_here("semantic_clusters.py", "compare", run, "--states", 100), "--states is 100", "200 to")


@pytest.mark.slow
def test_planes_are_drawn_and_measured(run: Path, recording: Recording, analysed) -> None:
    run_well("semantic_clusters.py", "plot", run, "--states", 200, "--bootstraps", 100)
    kept = json.loads((run / "planes.json").read_text())
    assert [item["name"] for item in kept][:3] == ["semantic plane", "t-SNE", "UMAP"]
    assert all(item["trustworthiness_low"] <= item["trustworthiness"] <= item["trustworthiness_high"] for item in kept)


@pytest.fixture(scope="module")
def learnt(small_world, task, maps, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """A recording of a policy with a codebook of its own, whose codes lie where its states are."""
    world = replace(small_world, spawn_immunity=0)
    contest = tiny_contest(world, task, maps, codes=6)
    plan = RecordingPlan(2, None, seed=4, layers=("lstm_hidden", "semantic_plane", "semantic_code"))
    before = record(contest, replace(plan, episodes=1), tmp_path_factory.mktemp("before"), episode=0)
    plane = read_dump(before.dump).activations["semantic_plane"]
    codebook = contest.entrants[0].policy.semantic.codebook
    with torch.no_grad():
        codebook[:5] = torch.from_numpy(np.quantile(plane, [0.1, 0.3, 0.5, 0.7, 0.9], axis=0))
        codebook[5] = 1e3
    return record(contest, plan, tmp_path_factory.mktemp("learnt"), episode=1)


def test_codes_that_the_policy_learnt_are_read(learnt: Recording, tmp_path: Path) -> None:
    few = ("--features", "is_moving,tick")
    run_well("semantic_clusters.py", "fit", learnt.dump, "--recorded", *QUICK, *few, "-o", tmp_path)
    (folder,) = tmp_path.iterdir()
    result = read_run(folder, learnt.dump)
    codes = result.summary["codes"]
    assert codes["recorded"] and codes["asked"] == 6 and codes["used"] == len(codes["numbers"]) < 6
    assert json.loads((folder / "run.json").read_text())["arguments"]["layer"] == "semantic_code"
    propagated = propagate_labels(result.clusters, learnt.dump, fit_rule(result.clusters, learnt.dump))
    records = read_dump(learnt.dump)
    number = records.activations["semantic_code"].argmax(axis=1)
    label, exact = propagated.of(records)
    assert exact.all() and np.array_equal(np.array(codes["numbers"])[label], number)
    assert "codebook.npz" in open_finished(folder)


def test_the_explorer_shows_the_plane_of_a_run(run: Path) -> None:
    run_well("explore.py", run)
    page = (run / "explorer.html").read_text()
    assert '"axes":"plane"' in page.replace(" ", "") and "strip" in page
