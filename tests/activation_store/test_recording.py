"""The command that records a dump again with what it lacks, and the registry of layers: one name each."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from activation_store.layers import LAYERS, LSTM_CELL, check_layers, check_policy_layers, layer_names, memory_names
from activation_store.recording import check_recorded, command_of_dump, record_again
from activation_store.schema import DumpMetadata
from common.user_error import UserError
from tests.command import assert_refuses
from tests.planted import planted_metadata

FOLDER = Path("activation_data/start_kit_3M")
EPISODES = [{"number": number} for number in range(4)]


@pytest.fixture
def metadata() -> DumpMetadata:
    return replace(planted_metadata(), policy="start_kit_3M", seed=1, episodes=EPISODES, environment={"opponents": []})


def command(folder: Path, metadata: DumpMetadata) -> str:
    _, line, end = record_again(folder, metadata).split("`")
    assert not end
    return line


@pytest.mark.parametrize(
    ("environment", "options"),
    [
        ({"opponents": []}, ""),
        ({"most_ticks": 96}, "--max-steps 96"),
        ({"map_seed": 7}, "--map-seed 7"),
        ({"map_seed": 7, "protocol": "original"}, "--protocol original"),
        ({"random_actions": 0.25}, "--random-actions 0.25"),
        ({"food_regrowth": 0.0}, "--food-regrowth 0.0"),
        ({"task": {"curriculum": "two_ways", "only": "go north"}}, "--curriculum two_ways --task 'go north'"),
        ({"task": {"curriculum": "training"}, "map_seed": 1}, "--map-seed 1 --curriculum training"),  # not the policy's
        ({"task": {"curriculum": "evaluation"}, "protocol": "original"}, "--protocol original"),
    ],
)
def test_the_same_world_is_asked_for(metadata: DumpMetadata, environment: dict[str, Any], options: str) -> None:
    line = command(FOLDER, replace(metadata, environment=environment))
    start, end = "python extract_activations.py pve -p start_kit_3M --record standard ", "--name start_kit_3M-standard"
    assert line.startswith(start) and line.endswith(end)
    assert line.removeprefix(start).removesuffix(end).strip() == options


def test_episodes_seed_folder_opponents_and_checkpoint_are_kept_where_it_can_be_recorded_again(
    metadata: DumpMetadata,
) -> None:
    many = replace(metadata, episodes=[{"number": number} for number in range(20)], seed=5)
    assert "--record standard -n 20 --seed 5 -o 'my data' --name" in command(Path("my data/start_kit_3M"), many)
    assert "-n" not in shlex.split(command(FOLDER, metadata)), "8 are the default, and 4 are too few for probes"
    sampled = replace(metadata, episodes=[{"episode": 13}, {"episode": 17}])
    assert "-n 18" in command(FOLDER, sampled) and "-n 18" in command_of_dump(FOLDER, sampled)
    shared = replace(metadata, environment={"opponents": ["takeru_3M"]})
    assert "pvp -p start_kit_3M,takeru_3M --record standard --name standard" in command(FOLDER, shared)
    third = replace(metadata, environment={"opponents": ["takeru_3M", "hybrid_3M", "yaofeng_3M"], "place": 2})
    assert "pvp -p takeru_3M,hybrid_3M,start_kit_3M,yaofeng_3M --record" in command(FOLDER, third)
    checkpoint = replace(metadata, policy="start_kit_3M_0000750000")
    assert "pve -p start_kit_3M --checkpoint 750000 --record standard" in command(FOLDER, checkpoint)
    assert "give a dump of the game" in record_again(FOLDER, replace(metadata, origin="simulated"))
    assert "intervene.py --record all" in record_again(FOLDER, replace(metadata, environment={"intervention": {}}))


def test_the_command_of_a_dump_names_what_watched_and_the_precision_and_is_missing_where_none_made_it(
    metadata: DumpMetadata,
) -> None:
    layers = dict.fromkeys(("lstm_cell", "untrained_lstm_cell", "steps_0_lstm_cell", "steps_750000_lstm_cell"), 4)
    rounded = replace(metadata, layers=layers, format="parquet", precision="float16")
    assert command_of_dump(FOLDER, rounded).endswith(
        "-n 4 --layers lstm_cell --untrained-twin --shadow-networks 0,750000 --format parquet --precision float16"
    )
    assert "--precision" not in command_of_dump(FOLDER, replace(rounded, precision="float32"))
    assert command_of_dump(FOLDER, replace(metadata, seed=None)) == "", "imported from the original tools"
    assert command_of_dump(FOLDER, replace(metadata, environment={"intervention": {"arm": "edit"}})) == ""


def test_a_layer_that_is_not_recorded_and_one_that_does_not_exist(metadata: DumpMetadata) -> None:
    dump = replace(metadata, layers={"lstm_hidden": 4})
    check_recorded(FOLDER, dump, "lstm_hidden")
    shallow = replace(dump, environment={"memory": {"cell": "gru", "layers": 1}})
    for recorded, layer, message in (
        (dump, "untrained_lstm_cell", "holds no layer 'untrained_lstm_cell', only: lstm_hidden; record it with `pyth"),
        (dump, "lstm_hiden", "did you mean lstm_hidden"),
        (shallow, "lstm_cell", "only: lstm_hidden; did you mean lstm_hidden"),  # which its policy does not have
        (shallow, "lstm_hidden_1", "only: lstm_hidden; did you mean lstm_hidden"),
    ):
        assert_refuses(message, check_recorded, FOLDER, recorded, layer)


def test_the_last_lstm_layer_has_the_plain_name_in_every_policy() -> None:
    assert layer_names(0) == ("encoder_output", "action_decoder")
    assert layer_names(1) == ("encoder_output", "lstm_hidden", "lstm_cell", "action_decoder")
    assert layer_names(3) == (
        "encoder_output", "lstm_hidden_1", "lstm_hidden_2", "lstm_hidden", "lstm_cell_1", "lstm_cell_2", "lstm_cell",
        "action_decoder",
    )  # fmt: skip
    assert memory_names(LSTM_CELL, 2) == ("lstm_cell_1", "lstm_cell")
    assert layer_names(1, codebook=True) == tuple(LAYERS)
    assert set(layer_names(1, codebook=True)) - set(layer_names(1)) == {"semantic_plane", "semantic_code"}


@pytest.mark.parametrize("name", ["", "lstm", "lstm_hidden_0", "lstm_hidden_x", "encoder_output_1", "lstm_cell_01"])
def test_what_no_policy_has_is_refused(name: str) -> None:
    check_layers([*layer_names(4), "lstm_hidden_12"])
    with pytest.raises(UserError, match=rf"there is no layer '{name}'; there are: encoder_output, lstm_hidden, "):
        check_layers(["lstm_cell", name])


@pytest.mark.parametrize(
    ("name", "layers", "message"),
    [
        ("lstm_hidden", 0, "no layer lstm_hidden in this policy, which is feed-forward and has no memory"),
        ("lstm_hidden_1", 1, "no layer lstm_hidden_1 in this policy, which has one LSTM layer"),
        ("lstm_cell_2", 2, "no layer lstm_cell_2 in this policy, which has 2 LSTM layers; there are: .*lstm_cell_1"),
        ("semantic_code", 1, "no layer semantic_code in this policy"),
        ("nonsense", 2, "no layer 'nonsense'"),
    ],
)
def test_what_a_policy_lacks_is_refused(name: str, layers: int, message: str) -> None:
    check_policy_layers(layer_names(layers), layers)
    assert_refuses(message, check_policy_layers, ["encoder_output", name], layers)
