"""The layers of a policy that can be recorded, edited and studied, each with one name used everywhere.

A policy with several LSTM layers has a hidden and a cell state in each. Those of the last layer, which the action heads
read from, are `lstm_hidden` and `lstm_cell` in every policy; the layers before it are numbered from the first:
`lstm_hidden_1`, `lstm_cell_1`, `lstm_hidden_2` and so on.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from argument_checks import did_you_mean
from user_error import UserError

ENCODER_OUTPUT = "encoder_output"
LSTM_HIDDEN = "lstm_hidden"
LSTM_CELL = "lstm_cell"
ACTION_DECODER = "action_decoder"
UNTRAINED = "untrained"
"""Layers of other networks run on the same observations get a prefix, such as `untrained_lstm_hidden`."""


@dataclass(frozen=True)
class Layer:
    """One kind of layer.

    Attributes:
        name: of the layer; of the last one if there are several.
        of: whether each policy or each LSTM layer has one.
        meaning: what its units are.
    """

    name: str
    of: Literal["policy", "lstm layer"]
    meaning: str


LAYERS = (
    Layer(ENCODER_OUTPUT, "policy", "the encoder's output for the observation; input of the first LSTM layer"),
    Layer(LSTM_HIDDEN, "lstm layer", "hidden state after the tick"),
    Layer(LSTM_CELL, "lstm layer", "cell state after the tick"),
    Layer(ACTION_DECODER, "policy", "input of the action heads and the critic"),
)
"""Every kind of layer, in the order in which a policy computes them."""

_NAMES = {layer.name: layer for layer in LAYERS}


def layer_names(lstm_layers: int) -> tuple[str, ...]:
    """Return the names of all layers of a policy with this number of LSTM layers, 0 for a feed-forward policy."""
    names: list[str] = []
    for layer in LAYERS:
        names += memory_names(layer.name, lstm_layers) if layer.of == "lstm layer" else (layer.name,)
    return tuple(names)


def memory_names(kind: str, lstm_layers: int) -> tuple[str, ...]:
    """Return the name of one kind of state in each LSTM layer, first to last.

    Args:
        kind: `LSTM_HIDDEN` or `LSTM_CELL`.
        lstm_layers: of the policy.
    """
    return (*(f"{kind}_{number}" for number in range(1, lstm_layers)), kind) if lstm_layers else ()


def check_layers(names: Iterable[str]) -> None:
    """Refuse names that are not layers of any policy.

    Raises:
        UserError: names the first one.
    """
    for name in names:
        if name not in _NAMES and not _is_numbered(name):
            raise UserError(
                f"there is no layer {name!r}; there are: {', '.join(_NAMES)}, and in a policy with several LSTM layers "
                f"{LSTM_HIDDEN}_1 and {LSTM_CELL}_1 of the first, and so on up to the last, whose names have no number"
                f"{did_you_mean(name, _NAMES)}"
            )


def check_policy_layers(names: Iterable[str], lstm_layers: int) -> None:
    """Refuse layers that a given policy does not have.

    Args:
        names: of layers.
        lstm_layers: of the policy, 0 if it is feed-forward.

    Raises:
        UserError: names the first one, and the layers that exist.
    """
    names = tuple(names)
    check_layers(names)
    there = layer_names(lstm_layers)
    for name in names:
        if name not in there:
            has = {0: "is feed-forward and has no LSTM", 1: "has one LSTM layer"}.get(
                lstm_layers, f"has {lstm_layers} LSTM layers"
            )
            raise UserError(f"there is no layer {name} in this policy, which {has}; there are: {', '.join(there)}")


def _is_numbered(name: str) -> bool:
    kind, _, number = name.rpartition("_")
    of_lstm = kind in _NAMES and _NAMES[kind].of == "lstm layer"
    return of_lstm and number.isascii() and number.isdecimal() and not number.startswith("0")
