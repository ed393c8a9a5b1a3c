"""The layers of a policy that can be recorded, edited and studied, each with one name used everywhere.

Each layer of a policy's memory has a hidden state, and a cell state too if the memory is an LSTM. Those of the last
layer, which the action heads read from, are `lstm_hidden` and `lstm_cell` in every policy; the layers before it are
numbered from the first: `lstm_hidden_1`, `lstm_cell_1`, `lstm_hidden_2` and so on. The hidden state is called
`lstm_hidden` whatever the memory is made of, so that every stage works on every memory and compares them.
"""

from collections.abc import Iterable
from typing import Literal

from common.argument_checks import did_you_mean
from common.user_error import UserError

ENCODER_OUTPUT = "encoder_output"
LSTM_HIDDEN = "lstm_hidden"
LSTM_CELL = "lstm_cell"
ACTION_DECODER = "action_decoder"
SEMANTIC_PLANE = "semantic_plane"
SEMANTIC_CODE = "semantic_code"
WORLD_HIDDEN = "world_hidden"
WORLD_LATENT = "world_latent"
BOTTLENECK = "bottleneck"
"""Layers of a world model, which simulated dumps have: the deterministic and the latent part of the world's state, and
the vector that a simulation began from."""
MemoryCell = Literal["lstm", "gru", "ema"]
"""What a memory is made of: an LSTM, a gated recurrent unit, or leaky averages with learnt time constants."""

UNTRAINED = "untrained"
"""Layers of other networks run on the same observations get a prefix, such as `untrained_lstm_hidden`."""


LAYERS: dict[str, Literal["policy", "memory layer", "codebook"]] = {
    ENCODER_OUTPUT: "policy",  # the encoder's output for the observation; input of the memory's first layer
    LSTM_HIDDEN: "memory layer",  # hidden state after the tick
    LSTM_CELL: "memory layer",  # cell state after the tick; LSTM only
    SEMANTIC_PLANE: "codebook",  # place of the hidden state in the semantic plane
    SEMANTIC_CODE: "codebook",  # nearest code to it: 1 at the code's number, 0 elsewhere
    ACTION_DECODER: "policy",  # input of the action heads and the critic
}
"""Every kind of layer, in the order in which a policy computes them, and what has one: each policy, each layer of its
memory, or a policy with a codebook."""

STATES: dict[MemoryCell, tuple[str, ...]] = {
    "lstm": (LSTM_HIDDEN, LSTM_CELL), "gru": (LSTM_HIDDEN,), "ema": (LSTM_HIDDEN,)
}  # fmt: skip
"""The states of each layer of a memory, by its cell."""

_TITLES: dict[MemoryCell, str] = {"lstm": "LSTM", "gru": "GRU", "ema": "leaky-average"}


def layer_names(memory_layers: int, cell: MemoryCell = "lstm", codebook: bool = False) -> tuple[str, ...]:
    """Return the names of all layers of a policy.

    Args:
        memory_layers: 0 for a feed-forward policy.
    """
    names: list[str] = []
    for layer, of in LAYERS.items():
        if of == "policy" or (of == "codebook" and codebook):
            names.append(layer)
        elif layer in STATES[cell]:
            names += memory_names(layer, memory_layers)
    return tuple(names)


def memory_names(kind: str, memory_layers: int) -> tuple[str, ...]:
    """Return the name of one kind of state in each layer of a memory, first to last.

    Args:
        kind: `LSTM_HIDDEN` or `LSTM_CELL`.
    """
    return (*(f"{kind}_{number}" for number in range(1, memory_layers)), kind) if memory_layers else ()


def check_layers(names: Iterable[str]) -> None:
    """Refuse names that are not layers of any policy."""
    for name in names:
        if not is_layer(name):
            raise UserError(
                f"there is no layer {name!r}; there are: {', '.join(LAYERS)}, and in a policy with several layers of "
                f"memory {LSTM_HIDDEN}_1 and {LSTM_CELL}_1 of the first, and so on up to the last, whose names have no "
                "number"
                f"{did_you_mean(name, LAYERS)}"
            )


def check_policy_layers(
    names: Iterable[str], memory_layers: int, cell: MemoryCell = "lstm", codebook: bool = False
) -> None:
    """Refuse layers that a given policy does not have."""
    names = tuple(names)
    check_layers(names)
    there = layer_names(memory_layers, cell, codebook)
    for name in names:
        if name not in there:
            has = {0: "is feed-forward and has no memory", 1: f"has one {_TITLES[cell]} layer"}.get(
                memory_layers, f"has {memory_layers} {_TITLES[cell]} layers"
            )
            raise UserError(f"there is no layer {name} in this policy, which {has}; there are: {', '.join(there)}")


def is_layer(name: str) -> bool:
    """Whether some policy has a layer of this name."""
    kind, _, number = name.rpartition("_")
    is_number = number.isascii() and number.isdecimal() and not number.startswith("0")
    return name in LAYERS or (LAYERS.get(kind) == "memory layer" and is_number)
