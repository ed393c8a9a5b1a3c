"""saliency.py as users run it, on a small real dump, and its page in a browser."""

import json
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest

from activation_store.directions import Direction, Source, write_directions
from activation_store.reader import read_dump
from activation_store.selection import Subsample
from analysis.runs.cluster_run import read_cluster_run
from common.array_files import arrays_of
from common.files import sha256
from tests.browser import opened, said_of_damage
from tests.command import assert_refused, run_here, run_well
from tests.planted_run import labelled_run, saved_selection
from tests.recorded_policy import NAME, RecordedPolicy
from tests.shared import shared_folder

QUICK = ("--samples", 3, "--ticks", 4, "--lags", 2, "--check-states", 8)


@pytest.fixture(scope="module")
def results(recorded: RecordedPolicy, tmp_path_factory) -> Path:
    def attribute(output: Path) -> None:
        done = run_well(
            "saliency.py", *recorded.arguments, *QUICK, "--film", "--sample-ids", "0,2", "--output-dir", output,
        )  # fmt: skip
        assert "Sanity checks" in done.stdout

    return shared_folder(tmp_path_factory, "saliency", attribute) / f"{NAME}-saliency-value-gradient"


def attributed(recorded: RecordedPolicy, output: Path, *options: object) -> Path:
    """Run the script, and return the folder of the run."""
    run_well("saliency.py", *recorded.arguments, *options, "--output-dir", output)
    (folder,) = output.glob("[!.]*")
    return folder


def test_all_is_whole_and_maps_belong_to_the_records_that_they_name(results: Path, recorded: RecordedPolicy) -> None:
    done = json.loads((results / "DONE.json").read_text())["files"]
    assert set(done) >= {
        "saliency.html", "saliency.mp4", "overview.png", "sanity.png", "sanity.json", "maps.npz", "summary.txt",
        "parts.tsv",
    }  # fmt: skip
    assert all(one["sha256"] == sha256(results / name) for name, one in done.items())
    count, _ = imageio_ffmpeg.count_frames_and_secs(str(results / "saliency.mp4"))
    assert count == 2 * 4
    names = ("value", "tiles", "material", "sample", "agent_id", "episode", "tick", "memory")
    result = arrays_of((results / "maps.npz").read_bytes(), names)
    assert result["tiles"].shape == (12, 3, 225) and result["memory"].shape == (12, 32)
    records = read_dump(recorded.dump)
    place = {key: i for i, key in enumerate(zip(records.episode, records.agent_id, records.tick, strict=True))}
    rows = [place[key] for key in zip(result["episode"], result["agent_id"], result["tick"], strict=True)]
    np.testing.assert_allclose(result["value"], records.value[rows], atol=1e-5)
    assert (result["material"] == records.tile[rows, :, 2]).all()
    assert result["sample"].tolist() == np.repeat([0, 1, 2], 4).tolist()


def test_the_page_shows_ticks_lags_and_what_lies_under_the_pointer_or_that_it_is_damaged(
    browser, results: Path, tmp_path: Path
) -> None:
    with opened(browser, results / "saliency.html", "document.body.dataset.ready === 'true'") as page:
        captions = page.locator("figcaption").all_inner_texts()
        assert captions[0].startswith("overview.png. What the target depends on.") and all(
            len(c) > 40 for c in captions
        )
        result = arrays_of((results / "maps.npz").read_bytes(), ("value", "tick", "tiles", "material", "sample"))
        rows = np.flatnonzero(result["sample"] == 2)
        page.select_option("#sample", "1")
        page.wait_for_selector(f"#clock:has-text('tick {result['tick'][rows[0]]}:')")
        page.keyboard.press("ArrowRight")
        page.wait_for_selector(f"#clock:has-text('tick {result['tick'][rows[1]]}:')")
        box = page.locator("#view").bounding_box()
        page.mouse.move(box["x"] + 0.5 * box["width"] / 15, box["y"] + 0.5 * box["height"] / 15)
        described = page.text_content("#hover")
        value = float(result["tiles"][rows[1], -1, 0])
        assert "7 north, 7 west" in described
        shown = float(described.split(": ")[1].split(";")[0].replace("−", "-"))
        assert shown == pytest.approx(value, rel=0.01, abs=1e-12)
        page.keyboard.press("ArrowUp")
        assert page.text_content("#ago") == "1"
        page.mouse.move(box["x"] + 1.5 * box["width"] / 15, box["y"] + 0.5 * box["height"] / 15)
        shown = float(page.text_content("#hover").split(": ")[1].split(";")[0].replace("−", "-"))
        assert shown == pytest.approx(float(result["tiles"][rows[1], -2, 1]), rel=0.01, abs=1e-12)
    assert "cannot show its maps" in said_of_damage(browser, results / "saliency.html", "content-0", tmp_path)


def test_an_interrupted_run_goes_on_with_the_same_numbers(
    recorded: RecordedPolicy, results: Path, tmp_path: Path, monkeypatch
) -> None:
    arguments = (*recorded.arguments, *QUICK, "--output-dir", tmp_path)

    def stop(*_: object) -> None:
        raise RuntimeError("stopped")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="stopped"):
        patch.setattr("analysis.attribution.saliency_run.check_maps", stop)
        run_here("saliency.py", *arguments)
    done = run_here("saliency.py", *arguments)
    assert done.returncode == 0 and "going on after 3 samples" in done.stdout
    for name in ("maps.npz", "sanity.json", "summary.txt"):
        assert (tmp_path / results.name / name).read_bytes() == (results / name).read_bytes(), name


@pytest.mark.parametrize("method", ["integrated", "smooth", "occlusion"])
def test_other_methods_and_targets(browser, recorded: RecordedPolicy, tmp_path: Path, method: str) -> None:
    source = Source("probe", "run", "dump", NAME, sha256(recorded.checkpoint))
    weight = np.random.default_rng(0).normal(size=16).astype(np.float32)
    file = tmp_path / "directions.safetensors"
    write_directions(file, [Direction("food", "lstm_cell", weight, 0.0, "points", 0.0, 1.0, 9, 3, 1, source)])
    folder = attributed(
        recorded, tmp_path / "results", "--samples", 2, "--ticks", 2, "--lags", 1, "--check-states", 8, "--method",
        method, "--of", "direction:food", "--directions", file, "--film", "--combine-samples",
    )  # fmt: skip
    result = arrays_of((folder / "maps.npz").read_bytes(), ("value", "agent_id", "episode", "tick"))
    records = read_dump(recorded.dump, layers=["lstm_cell"])
    place = {key: i for i, key in enumerate(zip(records.episode, records.agent_id, records.tick, strict=True))}
    rows = [place[key] for key in zip(result["episode"], result["agent_id"], result["tick"], strict=True)]
    np.testing.assert_allclose(result["value"], records.activations["lstm_cell"][rows] @ weight, atol=1e-4)
    count, _ = imageio_ffmpeg.count_frames_and_secs(str(folder / "saliency.mp4"))
    assert count == 2
    if method == "integrated":
        assert "add up to the difference within" in (folder / "summary.txt").read_text()
    with opened(browser, folder / "saliency.html", "document.body.dataset.ready === 'true'") as page:
        said = page.inner_text("#bars")
        assert "tiles" in said and "inventory" in said
        known = [part in said for part in ("own row", "task", "Memory before")]
        assert known == [method != "occlusion"] * 3, "what a method says nothing of is not 0"


def test_the_memory_by_component_before_and_after_an_event(recorded: RecordedPolicy, tmp_path: Path) -> None:
    source = Source("independent component", "run", "dump", NAME, sha256(recorded.checkpoint))
    random = np.random.default_rng(0)
    file = tmp_path / "directions.safetensors"
    weights = random.normal(size=(3, 16)).astype(np.float32)
    write_directions(file, [
        Direction(f"ic_{number + 1}", "lstm_cell", weight, 0.0, "SD", 0.0, 1.0, 9, 3, 1, source)
        for number, weight in enumerate(weights)
    ])  # fmt: skip
    folder = attributed(
        recorded, tmp_path / "results", "--samples", 4, "--ticks", 6, "--lags", 1, "--check-states", 8, "--components",
        "ic", "--directions", file, "--event", "tick >= 7",
    )  # fmt: skip
    assert folder.name.endswith("-at-tick>=7")
    result = arrays_of((folder / "maps.npz").read_bytes(), ("tick", "components", "component_names", "entity_kind"))
    assert result["tick"].reshape(4, 6).tolist() == [[4, 5, 6, 7, 8, 9]] * 4
    assert result["component_names"].tolist() == ["ic_1", "ic_2", "ic_3"] and result["components"].any(axis=0).all()
    summary = (folder / "summary.txt").read_text()
    assert "Before and after tick >= 7" in summary and "in 100% of which it does" in summary
    assert "Components of the memory before the window" in summary and "hidden states" in summary
    assert {"event.tsv", "event.png", "components.png"} <= set(json.loads((folder / "DONE.json").read_text())["files"])
    assert "attribution of ic_2 of the memory" in (folder / "event.tsv").read_text()


def test_samples_are_taken_around_selected_points(recorded: RecordedPolicy, tmp_path: Path) -> None:
    run = labelled_run(tmp_path / "run", recorded.dump, lambda records: 0 * records.tick, Subsample(), "lstm_cell")
    labels = read_cluster_run(run, recorded.dump)
    tick, agent = labels.places["tick"], labels.places["agent_id"]
    life = labels.places["episode"] * 100 + agent
    # A sample ends with its life at the latest, so it is around points of lives that go on.
    goes_on = np.isin(life, life[tick == 12])
    chosen = np.flatnonzero(np.isin(tick, (5, 8)) & (agent % 2 == 1) & goes_on)
    file = saved_selection(tmp_path / "odd.json", run, records=chosen.tolist())
    folder = attributed(recorded, tmp_path / "results", *QUICK, "--selection", file)
    assert folder.name.endswith("-at-odd")
    result = arrays_of((folder / "maps.npz").read_bytes(), ("tick", "agent_id"))
    assert (result["agent_id"] % 2 == 1).all() and set(result["tick"].reshape(3, 4)[:, 2].tolist()) <= {5, 8}
    assert_refused(
        run_here(
            "saliency.py", *recorded.arguments, *QUICK, "--samples", 99, "--selection", file, "--output-dir",
            tmp_path / "elsewhere",
        ),
        "lives with points of --selection of 6 ticks or more", "--samples 99 needs", "select points of more lives",
    )  # fmt: skip


def test_bad_input_is_refused_in_one_line(recorded: RecordedPolicy, recording, three_policies, tmp_path: Path) -> None:
    def refused(*arguments: object, parts: tuple[str, ...]) -> None:
        assert_refused(run_here("saliency.py", *arguments, "--output-dir", tmp_path / "results"), *parts)

    ours = recorded.arguments
    refused(*ours, "--of", "valeu", parts=("--of is valeu", "did you mean value"))
    refused(*ours, "--of", "direction:x", parts=("name the file that holds it with --directions",))
    refused(*ours, "--lags", 31, parts=("--lags is 31: must be 0 to 30",))
    refused(*ours, "--samples", 3, "--sample-ids", "0,3", parts=("--sample-ids is 0,3: give numbers from 0 to 2",))
    refused(*ours, "--ticks", 900, parts=("has 0 lives of 908 ticks or more", "--samples 20 needs as many"))
    refused(*ours, "--components", "ic", parts=("--components is ic: name the file",))
    refused(*ours, "--event", "distance_to_ncp < 3", parts=("there is no feature", "did you mean distance_to_npc"))
    quick = ("--ticks", 4, "--lags", 1)
    refused(*ours, *quick, "--event", "tick >= 900", parts=("only 0 lives", "the last 2 without it"))
    refused(*ours, "--clusters", tmp_path, parts=(str(tmp_path),))
    refused(recorded.dump, "--policies-dir", three_policies, parts=("does not exist: name the checkpoint",))
    refused(
        recorded.dump, "--policy", three_policies / "kit.safetensors", parts=("is not the checkpoint", "hashes differ")
    )
    refused(recording.dump, parts=("without a checkpoint",))
    assert not list(tmp_path.glob("results/[!.]*"))
