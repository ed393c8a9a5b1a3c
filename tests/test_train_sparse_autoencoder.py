"""train_sparse_autoencoder.py as users run it, on a small real dump, and its page in a real browser."""

import json
from pathlib import Path

import numpy as np
import pytest

from activation_store.directions import read_directions
from activation_store.sparse_dictionary import read_dictionary
from analysis.sparse import fitting
from common.files import sha256
from tests.browser import opened, said_of_damage, scripts_that_ran
from tests.command import assert_refused, rows_of, run_here, run_well
from tests.recorded_features import MORE, POLICY, UNITS, RecordedFeatures, sparse_arguments

NAMES = ("topk_2x_k4", "topk_2x_k4_seed1", "jumprelu_2x_k4", "jumprelu_2x_k4_seed1")
PAGE = "sparse_features.html"
BASELINES = ("pca_k4", "ica_k4", "k_means_2x_k4")


def rows(sparse_run: Path, name: str) -> dict[str, dict[str, str]]:
    return {next(iter(row.values())): row for row in rows_of(sparse_run / name)}


def test_everything_is_there_and_whole(sparse_run: Path) -> None:
    assert sparse_run.name == f"{POLICY}-sparse"
    done = json.loads((sparse_run / "DONE.json").read_text())["files"]
    assert all(item["sha256"] == sha256(sparse_run / name) for name, item in done.items())
    fitted = [*NAMES, *BASELINES]
    untrained = [f"untrained_{name}" for name in fitted if "seed" not in name]
    assert {name.removesuffix(".safetensors") for name in done if name.endswith(".safetensors")} >= {
        *fitted, *untrained
    }  # fmt: skip
    assert {
        "sparse.json", "sparse_scores.tsv", "sparse_comparisons.tsv", "sparse_stability.tsv", "curves.jsonl",
    } <= set(done)  # fmt: skip
    assert {"training_curves.png", "feature_density.png", "reconstruction.png", "stability.png"} <= set(done)
    assert {f"sae_lens/{name}/{file}" for name in NAMES for file in ("cfg.json", "sae_weights.safetensors")} <= set(
        done
    )
    assert not list(sparse_run.parent.glob(".*unfinished"))


def test_dictionaries_say_what_they_are_of_and_directions_read_their_features(
    sparse_run: Path, features_dump: RecordedFeatures
) -> None:
    for name in (*NAMES, *BASELINES):
        result = read_dictionary(sparse_run / f"{name}.safetensors")
        source = result.source
        assert (source.run, source.dump, source.layer) == (sparse_run.name, features_dump.dump.name, "lstm_cell")
        assert source.checkpoint_sha256 == sha256(features_dump.policies / f"{POLICY}.safetensors")
        assert source.dump_sha256 == sha256(features_dump.dump / "metadata.json")
        assert result.units == UNITS and result.k == 4 and source.episodes == 3
    assert read_dictionary(sparse_run / "untrained_topk_2x_k4.safetensors").source.layer == "untrained_lstm_cell"
    dictionary = read_dictionary(sparse_run / "topk_2x_k4.safetensors")
    first = next(iter(read_directions(sparse_run / "directions.safetensors")))
    assert first.source.kind == "sparse feature" and first.layer == "lstm_cell"
    np.testing.assert_array_equal(first.weight, dictionary.decoder[dictionary.number(first.name)])
    assert first.read_out(dictionary.centre[None])[0] == pytest.approx(0, abs=1e-5)


def test_scores_are_what_they_can_be(sparse_run: Path) -> None:
    scores = rows(sparse_run, "sparse_scores.tsv")
    for row in scores.values():
        assert 0 < float(row["unexplained"]) < 1.5 and int(row["alive"]) <= int(row["features"])
        assert float(row["unexplained_low"]) <= float(row["unexplained"]) <= float(row["unexplained_high"])
        assert float(row["kl"]) > 0
    assert float(scores["topk_2x_k4"]["active"]) <= 4 and scores["pca_k4"]["features"] == str(UNITS)
    output = json.loads((sparse_run / "sparse.json").read_text())
    assert len(output["train_episodes"]) == 3 and len(output["test_episodes"]) == 1
    assert output["intervals_are_over"] == "lives"
    compared = rows_of(sparse_run / "sparse_comparisons.tsv")
    for row in compared:
        own, its = (float(scores[row[side]]["unexplained"]) for side in ("autoencoder", "baseline"))
        assert float(row["unexplained_less"]) == pytest.approx(its - own, abs=1e-5)
    pairs = [(row["autoencoder"], row["baseline"]) for row in compared]
    assert {pair for pair in pairs if not pair[0].startswith("untrained")} == {
        (name, other) for name in ("topk_2x_k4", "jumprelu_2x_k4") for other in BASELINES
    }
    stabilities = rows(sparse_run, "sparse_stability.tsv")
    assert stabilities.keys() == {"topk_2x_k4", "jumprelu_2x_k4"}
    for row in stabilities.values():
        assert 0 < float(row["gaussian"]) < 1 and 0 <= float(row["stable"]) <= 1
    assert not [name for name in sparse_run.rglob("*") if "gaussian" in name.name], "nothing else is left of Gaussians"


def test_an_interrupted_run_continues_with_the_same_result(
    features_dump: RecordedFeatures, sparse_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, wanted = "train_sparse_autoencoder.py", sparse_arguments(features_dump, tmp_path, *MORE)
    trained, calls = fitting.train, []

    def interrupted(*parts, **named):
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("interrupted")
        return trained(*parts, **named)

    with monkeypatch.context() as patch:
        patch.setattr(fitting, "train", interrupted)
        with pytest.raises(RuntimeError, match="interrupted"):
            run_here(stage, *wanted)
    assert_refused(run_here(stage, *wanted), "add --resume")
    assert_refused(run_here(stage, *wanted, "--resume", "--seed", 1), "started with other arguments")
    run_well(stage, *wanted, "--resume")
    for name in (*NAMES, *BASELINES):
        one, other = (
            read_dictionary(case / f"{name}.safetensors") for case in (sparse_run, tmp_path / sparse_run.name)
        )
        for part, array in one.arrays.items():
            np.testing.assert_array_equal(array, other.arrays[part])
    assert_refused(run_here(stage, *wanted), "already holds a run")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--k", 40), "--k 40 is above --width 2x, which is 32 features of 16 units"),
        (("--k", "4,x"), "--k is 4,x: must be numbers from 1"),
        (("--width", "2y"), "--width is 2y: must be numbers of features"),
        (("--width", "4096x"), "too few for 65,536 features"),
        (("--width", "1000000x"), "must be at most 1,048,576"),
        (("--kind", "topkk"), "did you mean topk"),
        (("--layer", "lstm_hiden"), "did you mean lstm_hidden"),
        (("--layer", "lstm_cell_1"), "holds no layer 'lstm_cell_1'"),
        (("--erase", "self_fod"), "did you mean self_food"),
        (("--erase", "self_food", "--no-meaning"), "give only one of the two"),
        (("--epochs", 0), "--epochs is 0: must be 1 or more"),
        (("--policies-dir", "nowhere"), "is not there: give --policies-dir"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    features_dump: RecordedFeatures, tmp_path: Path, options: tuple[object, ...], message: str
) -> None:
    assert_refused(
        run_here("train_sparse_autoencoder.py", *sparse_arguments(features_dump, tmp_path), *options), message
    )
    assert not (tmp_path / f"{POLICY}-sparse").exists()


def test_what_features_do_and_how_variables_are_erased(sparse_run: Path) -> None:
    output = json.loads((sparse_run / "attribution.json").read_text())
    assert output.keys() == {"value", "action"} and all(direction["value"] > 0.5 for direction in output.values())
    erased = {row["by"]: row for row in rows_of(sparse_run / "erasure.tsv")}
    assert erased.keys() == {"nothing", "leace", "nulling", "1 feature", "4 features", "16 features"}
    assert float(erased["nothing"]["moved"]) == 0 and float(erased["nothing"]["kl"]) < 1e-6
    assert float(erased["leace"]["r2"]) < 0.1 and float(erased["leace"]["kl"]) >= 0
    names = [direction.name for direction in read_directions(sparse_run / "directions.safetensors")]
    rows = (sparse_run / "sparse_features.tsv").read_text().splitlines()[1:]
    assert names == [row.split("\t")[0] for row in rows]


def test_cards_are_found_sorted_and_opened(browser, sparse_run: Path) -> None:
    from playwright.sync_api import expect

    with opened(browser, sparse_run / PAGE, "document.querySelector('article') !== null", 1200, 900) as page:
        rows = (sparse_run / "sparse_features.tsv").read_text().splitlines()[1:]
        assert page.inner_text("#count") == f"{len(rows)} of {len(rows)} features"
        names = [row.split("\t")[0] for row in rows]
        page.select_option("#sort", "number")
        assert page.locator("article h2").first.inner_text().startswith(f"{names[0]}:")
        page.fill("#search", names[-1])
        expect(page.locator("article")).to_have_count(1)
        card = page.locator("article")
        density = float(rows[-1].split("\t")[1])
        assert card.get_attribute("id") == names[-1] and f"{100 * density:.2f}% of ticks" in card.inner_text()
        views = card.locator(".top")
        assert 1 <= views.count() <= 6
        # A view is drawn: its canvas holds more than one colour.
        colours = (
            "c => new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size"
        )
        assert views.first.locator("canvas").evaluate(colours) > 2
        views.first.click()
        assert page.locator("#life").is_visible() and names[-1] in page.inner_text("#life-name")
        page.hover("#life-chart")
        page.wait_for_selector("#life-pointer:has-text('strength')")
        assert "agent_life_visualization.py" in page.inner_text("#life-command")
        page.keyboard.press("Escape")
        assert page.locator("#life").is_hidden()
        page.fill("#search", "no such feature")
        expect(page.locator("article")).to_have_count(0)


def test_a_damaged_page_says_so_and_no_foreign_script_runs(browser, sparse_run: Path, tmp_path: Path) -> None:
    assert "cannot show its features" in said_of_damage(browser, sparse_run / PAGE, "page-content", tmp_path)
    assert scripts_that_ran(browser, sparse_run / PAGE, tmp_path) == []
