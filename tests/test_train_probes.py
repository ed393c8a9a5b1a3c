"""train_probes.py as users run it, on small real dumps of a policy at two stages of training."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from activation_store.directions import Source, read_directions
from activation_store.reader import read_dump, read_metadata
from analysis.probes.probe_run import check_dumps, wanted_of
from analysis.probes.settings import ProbeSettings
from common.files import sha256
from common.user_error import UserError
from tests.command import assert_refused, assert_refuses, rows_of, run_here, run_well
from tests.recorded_probes import record_for_probes, shared_probe_dump
from tests.shared import shared_folder

STEPS = (0, 5000)
TARGETS = "self_food,tick,is_moving,n_visible_npcs,is_buying"
QUICK = "lstm_hidden,action_decoder,encoder_output,observation,untrained"
MEMORIES = ("lstm_hidden", "action_decoder")


@pytest.fixture(scope="module")
def dumps(small_world, task, maps, tmp_path_factory) -> list[Path]:
    return [shared_probe_dump(tmp_path_factory, small_world, task, maps, steps) for steps in STEPS]


@pytest.fixture(scope="module")
def results(dumps: list[Path], tmp_path_factory) -> Path:
    def train_probes(output: Path) -> None:
        done = run_well(
            "train_probes.py", *dumps, "--targets", TARGETS, "--emergence", "--given", "tick", "--inputs", QUICK,
            "--probes", "linear", "--resamples", 200, "--output-dir", output,
        )  # fmt: skip
        assert "the memory adds to every baseline for" in " ".join(done.stdout.split())
        (folder,) = output.iterdir()
        assert str(folder) in done.stdout.replace("\n", "")

    (folder,) = shared_folder(tmp_path_factory, "trained_probes", train_probes).iterdir()
    return folder


def rows(results: Path, name: str) -> list[dict[str, str]]:
    return rows_of(results / name)


def test_everything_is_there_and_whole_and_the_report_and_the_tables_say_the_same(results: Path) -> None:
    figures = {f"probe_{name}.png" for name in ("summary", "advantage", "increment", "emergence")}
    tables = {
        f"probe_{name}.tsv" for name in ("scores", "advantages", "increments", "increments_given", "given", "cka")
    }
    others = {"probes.json", "run.json", "directions.safetensors"}
    done = json.loads((results / "DONE.json").read_text())["files"]
    assert set(done) == figures | tables | others
    assert all(item["sha256"] == sha256(results / name) for name, item in done.items())
    report = json.loads((results / "probes.json").read_text())["dumps"]
    assert [item["steps_trained"] for item in report] == list(STEPS)
    for name in ("scores", "advantages", "increments", "increments_given", "given", "cka"):
        output = [row for item in report for row in item[name]]
        table = rows(results, f"probe_{name}.tsv")
        assert len(output) == len(table)
        for one, other in zip(output, table, strict=True):
            for key, value in one.items():
                shown = "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
                assert other[key] == shown
    reasons = {item["name"]: item["reason"] for item in report[0]["targets"]}
    # Agents cannot buy from an empty market.
    assert reasons["is_buying"] and [name for name, reason in reasons.items() if reason] == ["is_buying"]


def test_scores_are_what_they_can_be(results: Path) -> None:
    scores = rows(results, "probe_scores.tsv")
    inputs = set(QUICK.split(","))
    assert {row["input"] for row in scores} == inputs and {row["probe"] for row in scores} == {"linear"}
    known = {(r["dump"], r["target"], r["probe"], r["input"]): r for r in scores if r["score"]}
    assert len(known) == 2 * 4 * len(inputs)
    for row in known.values():
        assert float(row["score"]) <= 1 and (not row["low"] or float(row["low"]) <= float(row["score"]))
    for dump in ("tiny_0000000000", "tiny_0000005000"):
        # Visible entities are in the observation; food and the tick are hidden from it.
        assert float(known[dump, "n_visible_npcs", "linear", "observation"]["score"]) > 0.99
        assert float(known[dump, "self_food", "linear", "observation"]["score"]) < 0.9
        assert float(known[dump, "tick", "linear", "observation"]["score"]) < 0.9


@pytest.mark.slow
def test_every_baseline_is_probed_and_a_look_back_is_drawn(dumps: list[Path], tmp_path: Path) -> None:
    run_well(
        "train_probes.py", dumps[0], "--targets", "self_food,is_moving", "--history", "4,2", "--resamples", 100,
        "--subsample", 4, "--output-dir", tmp_path,
    )  # fmt: skip
    (folder,) = tmp_path.iterdir()
    assert (folder / "probe_history.png").stat().st_size > 10_000
    baselines = {"encoder_output", "observation", "history_2", "history_4", "traces", "reservoir", "untrained"}
    scores = rows(folder, "probe_scores.tsv")
    assert {row["input"] for row in scores} == baselines | {"lstm_cell", *MEMORIES}
    assert {row["probe"] for row in scores} == {"linear", "mlp"}
    assert all(bool(row["average_precision"]) == (row["target"] == "is_moving") for row in scores)
    added = rows(folder, "probe_increments.tsv")
    assert {row["baseline"] for row in added} == baselines | {"every"}
    for row in added:
        if row["baseline"] == "every":
            alike = [r for r in added if all(r[key] == row[key] for key in ("target", "probe", "memory"))]
            (least,) = [r for r in alike if r["baseline"] == row["least_over"]]
            assert (least["increment"], least["p"]) == (row["increment"], row["p"])
            assert float(row["p"]) == max(float(r["p"]) for r in alike) and row["q"] and row["q_run"]


def test_read_outs_work_on_raw_activations(results: Path, dumps: list[Path]) -> None:
    directions, name = read_directions(results / "directions.safetensors"), dumps[1].name
    records, metadata = read_dump(dumps[1]), read_metadata(dumps[1])
    scores = rows(results, "probe_scores.tsv")
    held_out = {(r["dump"], r["target"], r["probe"], r["input"]): r["score"] for r in scores}
    for layer in MEMORIES:
        tick = directions.named(f"{name}/{layer}/tick")
        value = tick.read_out(records.activations[layer])
        error = value - records.tick
        # Fitted to these records, it predicts them better than the probes that had not seen them.
        fit = 1 - (error**2).sum() / ((records.tick - records.tick.mean()) ** 2).sum()
        assert fit > float(held_out[name, "tick", "linear", layer])
        assert (tick.mean, tick.spread) == pytest.approx((value.mean(), value.std()))
        assert (tick.records, tick.lives, tick.episodes) == (len(records), metadata.lives, 4)
        assert tick.unit == "ticks" and directions.named(f"{name}/{layer}/is_moving").unit == "log-odds"
        assert tick.source == Source("probe", results.name, name, metadata.policy, metadata.checkpoint_sha256)
    assert not any("is_buying" in direction.name for direction in directions)


def test_given_parts_add_up_and_similarity_is_of_networks_on_one_stream(results: Path) -> None:
    parts: dict[tuple[str, ...], dict[str, float]] = {}
    for row in rows(results, "probe_given.tsv"):
        if row["value"]:
            parts.setdefault((row["dump"], row["target"], row["memory"]), {})[row["part"]] = float(row["value"])
    assert len(parts) == 2 * 4 * len(MEMORIES)
    for (_, target, _), item in parts.items():
        assert item["only_memory"] + item["only_given"] + item["common"] == pytest.approx(item["both"], abs=1e-4)
        if target == "tick":
            assert item["given"] > 0.99 and item["only_memory"] < 0.01
    result = {(row["dump"], row["one"], row["other"]): float(row["cka"]) for row in rows(results, "probe_cka.tsv")}
    assert len(result) == 2 * 6
    assert all(-0.2 < value <= 1 for value in result.values())


def test_bad_input_and_dumps_that_do_not_do_are_refused(
    dumps: list[Path], tmp_path: Path, small_world, task, maps
) -> None:
    out = ("--output-dir", tmp_path / "out")
    assert_refused(
        run_here("train_probes.py", dumps[0], "--targets", "self_foot", *out), "no target 'self_foot'", "self_food"
    )
    assert_refused(run_here("train_probes.py", tmp_path / "none", *out), "does not exist")
    assert not (tmp_path / "out").exists()
    assert_refuses("two dumps are called", arguments(dumps[0], dumps[0]).check)
    metadata = {dumps[0].name: read_metadata(dumps[0])}
    with pytest.raises(UserError, match="--emergence needs checkpoints after different numbers"):
        check_dumps(arguments(dumps[0], emergence=True), metadata)
    short = record_for_probes(tmp_path / "short", small_world, task, maps, episodes=2)
    with pytest.raises(UserError, match="short holds 2 episodes: probes are fitted, tuned and tested"):
        check_dumps(arguments(short), {"short": read_metadata(short)})


def arguments(*dumps: Path, **changes: object) -> ProbeSettings:
    return ProbeSettings(dumps=dumps, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"history": "1"}, "--history is 1: must be 2 to 32"),
        ({"history": "4,many"}, "--history is 4,many: must be 2 to 32"),
        ({"history": ","}, "--history is empty"),
        ({"subsample": 0}, "--subsample is 0"),
        ({"skip_first": -1}, "--skip-first is -1"),
        ({"seed": 2**32}, "--seed is 4294967296"),
        ({"resamples": 10}, "--resamples is 10"),
    ],
)
def test_values_are_checked(dumps: list[Path], changes: dict, message: str) -> None:
    assert_refuses(message, arguments(dumps[0], **changes).check)


def test_what_a_dump_lacks_is_told(dumps: list[Path]) -> None:
    metadata = read_metadata(dumps[0])
    del metadata.layers["untrained_lstm_cell"]
    assert "untrained" not in {item.name for item in wanted_of(arguments(*dumps), dumps[0], metadata).inputs}
    with pytest.raises(UserError, match="lacks layers untrained_lstm_hidden, untrained_lstm_cell"):
        wanted_of(arguments(*dumps, inputs="lstm_hidden,untrained"), dumps[0], metadata)
    del metadata.layers["lstm_cell"]  # as in a dump of a memory without cell states
    named = {item.name: item.layers for item in wanted_of(arguments(*dumps), dumps[0], metadata).inputs}
    assert named["untrained"] == ("untrained_lstm_hidden",) and "lstm_cell" not in named
    metadata = read_metadata(dumps[0])
    with pytest.raises(UserError, match="--inputs observation names no memory"):
        wanted_of(arguments(*dumps, inputs="observation"), dumps[0], metadata)
    bare = replace(metadata, layers={"encoder_output": 4})
    with pytest.raises(UserError, match="holds none of lstm_hidden, lstm_cell, action_decoder"):
        wanted_of(arguments(*dumps), dumps[0], bare)
    with pytest.raises(UserError, match="--given remembered_water_rows: it does not apply to every record"):
        wanted_of(arguments(*dumps, given="remembered_water_rows"), dumps[0], metadata)
    assert np.isfinite(metadata.steps_trained)
