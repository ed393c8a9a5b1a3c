"""simulate.py with edits, as users run it, on a tiny model of a small real dump."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import simulate
from activation_store import __main__ as store
from activation_store.directions import write_directions
from activation_store.reader import read_dump, read_metadata
from activation_store.sparse_dictionary import write_dictionary
from analysis.runs.run_folder import RunFolder
from analysis.world_model import simulation
from analysis.world_model.findings import PARTS
from analysis.world_model.model import load_model
from analysis.world_model.open_loop import HIGHER_IS_BETTER
from analysis.world_model.options import MODEL_FILE
from analysis.world_model.scene import VITALS
from common.checked_json import with_checksum
from common.user_error import UserError
from tests.command import assert_refused, rows_of, run_here, run_well
from tests.planted_features import axes
from tests.planted_interventions import unit
from tests.planted_run import rewrite
from tests.recorded_features import RecordedFeatures
from tests.trained_world_model import trained_world_model


@pytest.fixture(scope="module")
def trained(features_dump: RecordedFeatures, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulate") / "small"
    shutil.copytree(trained_world_model(tmp_path_factory, features_dump), folder)
    return folder


@pytest.fixture(scope="module")
def directions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("directions") / "directions.safetensors"
    write_directions(path, [unit(0, 16, "ic_1", "lstm_cell"), unit(1, 16, "ic_2", "lstm_cell")])
    return path


@pytest.fixture(scope="module")
def intervened(features_dump, directions, small_world, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of intervene.py with two doses, each also in single ticks."""
    folder = tmp_path_factory.mktemp("intervened") / "steered"
    run_well(
        "intervene.py", "-p", "small", "--policies-dir", features_dump.policies, "--maps-dir", small_world.maps_dir,
        "--directions", directions, "--edit", "steer", "--direction", "ic_1", "--dose", "-2,3", "--episodes", 2,
        "--controls", 0, "--share", 0.5, "--follow", 2, "--workers", 1, "-o", folder,
    )  # fmt: skip
    return folder


@pytest.mark.slow
def test_edits_are_validated_by_those_in_the_game(trained, features_dump, intervened, tmp_path: Path) -> None:
    done = run_well(
        "simulate.py", "validate", trained, intervened, "-n", 40, "--ticks", 8, "--dump", features_dump.dump,
    )  # fmt: skip
    rows = rows_of(trained / "validation" / "validation.tsv")
    assert len(rows) == 3 * 9, "two doses in every tick and the larger one once, nine quantities each"
    assert {(row["edit"], row["made"]) for row in rows} == {
        ("steer-ic_1-dose-2", "in every tick"), ("steer-ic_1-dose+3", "in every tick"), ("steer-ic_1-dose+3", "once"),
    }  # fmt: skip
    told_rows = [row for row in rows_of(intervened / "effects.tsv") if row["measure"] == "at once"]
    played = {(float(row["dose"]), row["outcome"]): row for row in told_rows}
    for dose, name in ((-2, "steer-ic_1-dose-2"), (3, "steer-ic_1-dose+3")):
        mine = {row["quantity"]: row for row in rows if row["edit"] == name and row["made"] == "in every tick"}
        north = "gain_in_play/Move.Direction/North"
        for quantity, outcome in (("value", "value_change_in_play"), ("probability of north", north)):
            shown = played[dose, outcome]
            for end, column in (("", "value"), ("_low", "low"), ("_high", "high")):
                assert float(mine[quantity][f"real{end}"]) == pytest.approx(
                    float(shown[column] or "nan"), rel=1e-3, nan_ok=True
                )
        moves = [
            float(mine[f"probability of {move}"]["simulated"]) for move in ("north", "south", "east", "west", "stay")
        ]
        assert sum(moves) == pytest.approx(0, abs=1e-6)
    once = next(row for row in rows if row["made"] == "once" and row["quantity"] == "value")
    assert float(once["replayed"]) == pytest.approx(float(once["real"]), rel=0.5), "the same policy in similar states"
    assert "sign agreement with the game" in done.stdout
    assert (trained / "validation" / "validation.png").stat().st_size > 1000


@pytest.mark.slow
def test_runs_of_one_name_in_different_folders_are_different_runs(
    trained, features_dump, intervened, tmp_path: Path
) -> None:
    other = tmp_path / intervened.name
    shutil.copytree(intervened, other)
    run_well("simulate.py", "validate", trained, intervened, other, "-n", 5, "--ticks", 6, "--dump", features_dump.dump)
    assert {row["run"] for row in rows_of(trained / "validation" / "validation.tsv")} == {str(intervened), str(other)}


@pytest.mark.slow
def test_erasers_and_sparse_features_are_validated(trained, features_dump, small_world, tmp_path: Path) -> None:
    path, folder = tmp_path / "f.safetensors", tmp_path / "run"
    write_dictionary(path, axes("lstm_hidden", 16, k=2))
    run_well(
        "intervene.py", "-p", "small", "--policies-dir", features_dump.policies, "--maps-dir", small_world.maps_dir,
        "--features", path, "--edit", "splice", "--edit", "erase", "--variable", "tick", "--layer", "lstm_cell",
        "--episodes", 2, "--controls", 0, "--share", 0.5, "--workers", 1, "-o", folder,
    )  # fmt: skip
    command = ["simulate.py", "validate", trained, folder, "-n", 20, "--ticks", 6, "--dump", features_dump.dump]
    run_well(*command)
    rows = rows_of(trained / "validation" / "validation.tsv")
    assert {row["edit"] for row in rows} == {"splice-erase-tick-lstm_cell"} and len(rows) == 9
    write_dictionary(path, axes("lstm_hidden", 16, k=3))
    assert_refused(run_here(*command), "is no longer the file")


@pytest.mark.slow
def test_other_runs_are_not_validated(trained, features_dump, intervened, directions, tmp_path: Path) -> None:
    command = ["simulate.py", "validate", "-n", 5, "--dump", features_dump.dump, trained]
    assert_refused(run_here(*command), "name folders of finished runs of intervene.py")
    assert_refused(run_here(*command, tmp_path), "is not a finished run: give a folder that intervene.py wrote")
    with RunFolder(tmp_path / "other", {"arguments": {}}) as other:
        other.save_text("text", "of another script")
    assert_refused(run_here(*command, tmp_path / "other"), "is no run of intervene.py")
    assert_refused(run_here(*command, intervened, intervened.parent / "x" / ".." / intervened.name), "named twice")
    assert_refused(run_here(*command, intervened, "--ticks", 4), "--ticks is 4: must be 5 to 1024")
    assert_refused(run_here(*command, intervened, "--edit", "clear"), "--edit does nothing with validate")
    for changed, message in (
        ({"input": {"policy": "b" * 64}}, "edited another policy"),
        ({"arguments": {"condition": "self_food < 30"}}, "edited with --while"),
        ({"arguments": {"one_by_one": True}}, "edited with --one-by-one"),
        ({"arguments": {"edit": "freeze", "direction": None, "dose": None}}, "made the edit freeze"),
        (
            {"arguments": {"edit": "transplant", "donor": "self_food", "direction": None, "dose": None}},
            "made the edit transplant",
        ),
        ({"arguments": {"direction": "ic_9"}}, "ic_9"),
        ({"arguments": {"directions": "nowhere"}}, "which is not there"),
    ):
        folder = shutil.copytree(intervened, tmp_path / message.replace(" ", "_"))
        content = json.loads((folder / "run.json").read_bytes())
        content.pop("checksum", None)
        for part, values in changed.items():
            content[part] |= values
        rewrite(folder, "run.json", json.dumps(with_checksum(content)).encode())
        assert_refused(run_here(*command, folder), message)


def test_edited_lives_are_written_beside_unedited_ones(trained, features_dump, directions, tmp_path: Path) -> None:
    command = ["simulate.py", trained, "-n", 150, "--ticks", 3, "--dump", features_dump.dump]
    run_well(*command, "-o", tmp_path / "alone")
    steered = [*command, "-o", tmp_path, "--directions", directions, "--edit", "steer", "--direction", "ic_1"]
    done = run_well(*steered, "--dose", "-2,3")
    plain = tmp_path / f"{features_dump.dump.name}-simulated"
    files = [read_metadata(one).files for one in (tmp_path / "alone" / plain.name, plain)]
    assert files[0] == files[1], "the unedited lives are those of a simulation without edits"
    for dose in (-2, 3):
        name = f"steer-ic_1-dose{dose:+}"
        edited = plain.with_name(f"{plain.name}-{name}")
        shown = read_metadata(edited).environment["simulated"]
        assert shown["edits"] == [
            {"edit": "steer", "directions": ["ic_1"], "of": "state", "runs": ["run"], "dose": dose}
        ]  # fmt: skip
        records, before = read_dump(edited), read_dump(plain)
        np.testing.assert_allclose(records.activations["lstm_cell"][:, 0], dose, atol=1e-3)
        first, first_before = records.tick == 0, before.tick == 0
        np.testing.assert_array_equal(records.tile[first], before.tile[first_before])
        assert "edits" not in read_metadata(plain).environment["simulated"]
        rows = {row["outcome"]: row for row in rows_of(trained / "effects" / f"{name}.tsv")}
        assert float(rows["value in the first tick"]["after"]) == pytest.approx(records.value[first].mean(), abs=1e-4)
        assert float(rows["ticks lived"]["before"]) == pytest.approx(len(before) / 150, abs=1e-6)
        assert name in done.stdout and "health in the last tick" in done.stdout
    run_well(*command, "--until-tick", 1, *steered[len(command) :], "--dose", 3)
    once = plain.with_name(f"{plain.name}-steer-ic_1-dose+3-until_1")
    assert read_metadata(once).environment["simulated"]["until_tick"] == 1
    commands = {row[0]: row[-1] for row in store.rows([once.parent])}
    assert commands[str(once)].startswith("python simulate.py") and "--until-tick 1" in commands[str(once)]
    always, single = (read_dump(one) for one in (once.with_name(f"{plain.name}-steer-ic_1-dose+3"), once))
    states, states_once = (one.activations["lstm_cell"] for one in (always, single))
    np.testing.assert_array_equal(states_once[single.tick == 0], states[always.tick == 0])
    assert not np.isclose(states_once[single.tick > 0, 0], 3, atol=1e-2).all()
    run_well(*command, "-o", tmp_path, "--edit", "clear")  # the same unedited lives are there already
    assert_refused(run_here(*command, "-o", tmp_path, "--edit", "clear"), "already holds a dump")
    assert_refused(run_here(*command, "--seed", 1, "-o", tmp_path, "--edit", "freeze"), "already holds a dump")


def test_lives_take_from_donors(trained, features_dump, directions, tmp_path: Path) -> None:
    """From unedited lives, whose first cells give an edited one its read-out."""
    run_well(
        "simulate.py", trained, "-n", 40, "--ticks", 2, "--dump", features_dump.dump, "-o", tmp_path, "--directions",
        directions, "--edit", "interchange", "--direction", "ic_1", "--donor", "self_row",
    )  # fmt: skip
    plain = tmp_path / f"{features_dump.dump.name}-simulated"
    edited = plain.with_name(f"{plain.name}-interchange-ic_1-self_row")
    assert read_metadata(edited).environment["simulated"]["edits"][0]["donor"] == "self_row"
    before, after = (read_dump(one) for one in (plain, edited))
    given, taken = (one.activations["lstm_cell"][one.tick == 0] for one in (before, after))
    own = np.isclose(taken[:, 0], given[:, 0], atol=1e-6)
    assert own.sum() < 20 and np.isclose(taken[:, :1], given[None, :, 0], atol=1e-5).any(axis=1).all()
    np.testing.assert_allclose(taken[:, 1:], given[:, 1:], atol=1e-6)
    assert (trained / "effects" / "interchange-ic_1-self_row.tsv").exists()


def test_there_can_be_more_lives_than_recorded_windows(trained, features_dump, tmp_path: Path) -> None:
    run_well("simulate.py", trained, "-n", 1500, "--ticks", 1, "--dump", features_dump.dump, "-o", tmp_path)
    records = read_dump(tmp_path / f"{features_dump.dump.name}-simulated")
    assert len(records) == 1500
    assert len(np.unique(np.stack([records.env_id, records.agent_id, records.episode]), axis=1).T) == 1500


def test_sequences_of_moves_are_compared(trained, features_dump, tmp_path: Path) -> None:
    command = [trained, "-n", 20, "--ticks", 3, "--dump", features_dump.dump]
    done = run_well("simulate.py", "moves", *command, "--first", 1)
    assert "the policy's own" in done.stdout and not list(tmp_path.iterdir())
    rows = {row["group"]: row for row in rows_of(trained / "what_if" / "moves_1.tsv")}
    assert set(rows) == {"the policy's own", "north", "south", "east", "west", "stay"}
    for move in ("policy", "stay"):
        run_well("simulate.py", "lives", *command, "-o", tmp_path, "--act", move, "--name", move)
    values = {}
    for move, name in (("policy", "the policy's own"), ("stay", "stay")):
        records = read_dump(tmp_path / move)
        lives = np.unique(records.agent_id, return_inverse=True)[1]
        values[move] = (np.bincount(lives, records.value) / np.bincount(lives)).mean()
        assert float(rows[name]["value"]) == pytest.approx(values[move], abs=1e-4) and rows[name]["lives"] == "20"
    better = float(rows["stay"]["better"])
    assert better == pytest.approx(values["stay"] - values["policy"], abs=1e-4)
    assert float(rows["stay"]["low"]) <= better <= float(rows["stay"]["high"])


def test_lives_between_recorded_starts(trained, features_dump, tmp_path: Path) -> None:
    run_well(
        "simulate.py", trained, "-n", 32, "--from", "interpolate", "--steps", 4, "--ticks", 2, "--dump",
        features_dump.dump, "-o", tmp_path,
    )  # fmt: skip
    rows = rows_of(trained / "what_if" / "interpolate.tsv")
    assert [row["group"] for row in rows] == [f"{number} of 4" for number in range(1, 5)]
    assert all(row["lives"] == "8" for row in rows)
    (dump,) = tmp_path.iterdir()
    shown = read_metadata(dump).environment["simulated"]
    assert (shown["from"], shown["steps"]) == ("interpolate", 4)


@pytest.mark.parametrize("target", ["value", "ic_1"])
def test_starts_are_searched(
    trained, features_dump, directions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """With a search that finds a planted start; tests/analysis/world_model/test_training.py tests the search itself."""

    def planted(model, start, number):
        assert (number is simulation.value) == (target == "value")
        vector = torch.eye(start.vector.shape[1])[:1].repeat(len(start), 1)
        return simulation.bottleneck_start(model, vector, start.around, None)

    monkeypatch.setattr(simulation, "searched", planted)
    more = ["--directions", directions] if target != "value" else []
    run_well(
        "simulate.py", "maximise", trained, target, "-n", 12, "--ticks", 2, "--dump", features_dump.dump, *more, "-o",
        tmp_path,
    )  # fmt: skip
    (dump,) = tmp_path.iterdir()
    assert dump.name.endswith(f"simulated-maximise-{target}")
    assert read_metadata(dump).environment["simulated"]["maximise"] == target
    vectors = read_dump(dump).activations["bottleneck"]
    assert (vectors == np.eye(vectors.shape[1])[0]).all(), "lives begin at the found starts"
    rows = {row["outcome"]: row for row in rows_of(trained / "what_if" / f"maximise_{target}.tsv")}
    assert np.isfinite(float(rows[target]["difference"]))


def test_findings_are_compared_with_recorded_lives(trained, features_dump, tmp_path: Path) -> None:
    done = run_well("simulate.py", "compare", trained, "-n", 100, "--ticks", 4, "--dump", features_dump.dump)
    rows = rows_of(trained / "compared.tsv")
    assert len(rows) == 3 + len(PARTS) + len(VITALS) + 2 * (3 + 3 + 1)
    assert {row["layer"] for row in rows} == {"", "lstm_hidden", "lstm_cell"}
    shares = [float(row["recorded"]) for row in rows if row["finding"].startswith("share of the value's saliency")]
    assert len(shares) == len(PARTS) and sum(shares) == pytest.approx(1)
    for row in rows:
        difference = float(row["simulated"]) - float(row["recorded"])
        assert float(row["difference"]) == pytest.approx(difference, abs=1e-6)
        assert float(row["difference_low"]) <= difference <= float(row["difference_high"])
    assert "distance of cluster shares" in done.stdout


def test_influences_are_written_with_and_without_the_world(trained, features_dump, directions) -> None:
    done = run_well(
        "simulate.py", "saliency", trained, "direction:ic_1", "-n", 30, "--dump", features_dump.dump, "--directions",
        directions, "--components", "ic_1,ic_2", "--lags", 2,
    )  # fmt: skip
    rows = rows_of(trained / "saliency" / "direction_ic_1.tsv")
    assert {row["input"] for row in rows if row["of"] == "memory"} == {"ic_1", "ic_2"}
    assert {row["lag"] for row in rows} == {"0", "1", "2"} and "food" in {row["input"] for row in rows}
    states = read_dump(features_dump.dump, episodes=load_model(trained / MODEL_FILE)[1].test).activations["lstm_cell"]
    spread = float(states[:, 0].std())
    now = {row["input"]: row for row in rows if row["lag"] == "0" and row["of"] == "memory"}
    assert float(now["ic_1"]["whole"]) == pytest.approx(spread, rel=0.1), "the read-out of itself"
    for row in rows:
        difference = float(row["whole"]) - float(row["memory_alone"])
        assert difference == pytest.approx(float(row["through_world"]), abs=1e-6)
        assert float(row["whole_low"]) <= float(row["whole"]) <= float(row["whole_high"])
        assert row["lag"] != "0" or difference == pytest.approx(0, abs=1e-7)
    sums = rows_of(trained / "saliency" / "direction_ic_1_by_lag.tsv")
    assert len(sums) == 2 * 3 and all(0 <= float(row["share"]) <= 1 for row in sums if float(row["memory_alone"]))
    assert (trained / "saliency" / "direction_ic_1.png").stat().st_size > 1000 and "own row" in done.stdout


@pytest.mark.slow
def test_real_courses_with_other_dice_bound_the_quality(trained, features_dump, small_world) -> None:
    where = ["--dump", features_dump.dump, "--policies-dir", features_dump.policies, "--maps-dir", small_world.maps_dir]
    done = run_well("simulate.py", "quality", trained, "--ticks", 4, "--other-dice", 6, *where)
    assert "memory after 4 ticks with other dice:" in done.stdout and "best possible" in done.stdout
    rows = {(row["measure"], int(row["horizon"])): row for row in rows_of(trained / "quality" / "other_dice.tsv")}
    assert {measure for measure, _ in rows} == set(HIGHER_IS_BETTER)
    for (measure, _), row in rows.items():
        best = {"tiles": 1, "vitals": 0, "memory": 1}.get(measure, np.nan)
        half = (float(row["other"]) + best) / 2
        assert float(row["bound"] or "nan") == pytest.approx(half, nan_ok=True) and 1 <= int(row["ticks"]) <= 6
        sign = 1 if HIGHER_IS_BETTER[measure] else -1
        difference = sign * (float(row["model"]) - float(row["other"]))
        assert float(row["better"]) == pytest.approx(difference, abs=1e-6)
    assert float(rows["memory", 4]["other"]) < 1, "the others did something else"
    written = json.loads((trained / "quality" / "quality.json").read_text())["other_dice"]
    assert [one["other"] for one in written] == [pytest.approx(float(row["other"])) for row in rows.values()]


@pytest.mark.parametrize(
    ("command", "more", "message"),
    [
        ("lives", "--edit transplant --donor self_fod", "did you mean self_food"),
        ("lives", "--edit transplant", "needs --donor"),
        ("lives", "--edit splice", "--edit splice needs --features with a dictionary"),
        ("lives", "--edit erase --variable self_npc_type", "it has the same value in all"),
        ("lives", "--edit erase --variable tick --edit erase --variable tick", "two edits erase from"),
        ("lives", "--edit clear --features nowhere", "--features does nothing here"),
        ("lives", "--edit splice --features nowhere", "nowhere"),
        ("lives", "--edit collapse --direction feature_1 --change --features f", "--change does nothing"),
        ("lives", "--edit clear --from random", "belongs before --edit"),
        ("lives", "--edit collapse --direction ic_1", "--directions names no file"),
        ("lives", "--edit steer --direction ic_1", "needs one --direction, and --dose"),
        ("lives", "--directions nowhere", "--directions does nothing here"),
        ("lives", "--until-tick 1", "--until-tick does nothing without --edit"),
        ("lives", "--until-tick 0 --edit clear", "--until-tick is 0"),
        ("lives", "--directions nowhere --edit collapse --direction ic_1", "nowhere"),
        ("lives", "--act nort", "--act names 'nort'"),
        ("lives", "--ticks 1 --act north,north", "more than --ticks 1"),
        ("lives", "--dump nowhere", "nowhere"),
        ("lives", "--from interpolate --steps 1", "--steps is 1"),
        ("lives", "--steps 4", "--steps does nothing without --from interpolate"),
        ("lives", "--from interpolate --steps 6", "-n is 5: a way alone takes --steps 6"),
        (
            "lives",
            "--swap-directions-from 10 5 --swap-directions-to 12 None",
            "use --edit swap --from ic_10 --to ic_12 --change --edit collapse --direction ic_5 --change",
        ),
        ("moves", "--first 4", "--first is 4: must be 1 to 3"),
        ("moves", "--edit clear", "--edit does nothing with moves"),
        ("saliency", "value", "--directions names no file"),
        ("saliency", "valeu --directions DIRECTIONS", "the target is valeu: give value"),
        ("saliency", "direction:ic_9 --directions DIRECTIONS", "ic_9"),
        ("saliency", "Attack.Target:chosen --directions DIRECTIONS", "options of Attack.Target are rows"),
        ("saliency", "value --components pc --directions DIRECTIONS", "pc"),
        ("saliency", "value --lags 0 --directions DIRECTIONS", "--lags is 0"),
        ("maximise", "ic_1", "ic_1 is a direction, and --directions names no file"),
        ("maximise", "value --directions nowhere", "--directions does nothing with value"),
        ("jacobians", "nowhere", "nowhere does not exist: give a folder that analyze_dynamics.py wrote"),
        ("compare", "--ticks 1", "--ticks is 1: must be 2 to 1024"),
        ("quality", "--ticks 4 --policies-dir POLICIES --other-dice -1", "--other-dice is -1: must be 0 to 4096"),
        ("quality", "--ticks 4 --policies-dir POLICIES --other-dice 4000", "ask for fewer branches"),
        ("quality", "--ticks 4 --policies-dir EMPTY --other-dice 2", "there is no policy"),
        ("qualty", "", "no command 'qualty'; there are: lives, moves"),
    ],
)
def test_what_makes_no_sense_is_refused(
    command, more, message, trained, features_dump, directions, tmp_path: Path
) -> None:
    where = ["-n", 5, "-o", tmp_path / "out"] if command == "lives" else []
    places = {"DIRECTIONS": directions, "POLICIES": features_dump.policies, "EMPTY": tmp_path}
    words = [places.get(word, word) for word in more.split()]
    assert_refused(run_here("simulate.py", command, trained, "--dump", features_dump.dump, *where, *words), message)
    assert not (tmp_path / "out").exists()


def test_the_start_and_the_direction_are_told_apart() -> None:
    words = "world_models/NAME --from random --directions FILE --edit swap --from ic_1 --to ic_2"
    name, options = simulate.parse(words.split())
    assert name == "lives" and options.beginning == "random" and options.edits[0].names == ("ic_1", "ic_2")
    assert simulate.parse(["--lives", "10", "world_models/NAME"])[1].wanted == 10
    ways = "world_models/compare_3 --from interpolate --steps 7"
    assert simulate.parse(ways.split())[1].wanted == 5999
    with pytest.raises(UserError, match=r"use --edit swap --from ic_3 --to ic_4 --change$"):
        simulate.parse(["world_models/NAME", "--swap_directions_from=3", "--swap_directions_to=4"])
