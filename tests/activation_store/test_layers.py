"""The registry of layers: one name each, whatever the number of LSTM layers."""

import pytest

from activation_store.layers import LAYERS, LSTM_CELL, check_layers, check_policy_layers, layer_names, memory_names
from common.user_error import UserError
from tests.command import assert_refuses


def test_the_last_lstm_layer_has_the_plain_name_in_every_policy() -> None:
    assert layer_names(0) == ("encoder_output", "action_decoder")
    assert layer_names(1) == ("encoder_output", "lstm_hidden", "lstm_cell", "action_decoder")
    assert layer_names(3) == (
        "encoder_output", "lstm_hidden_1", "lstm_hidden_2", "lstm_hidden", "lstm_cell_1", "lstm_cell_2", "lstm_cell",
        "action_decoder",
    )  # fmt: skip
    assert memory_names(LSTM_CELL, 2) == ("lstm_cell_1", "lstm_cell")
    assert layer_names(1, codebook=True) == tuple(layer.name for layer in LAYERS)
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
