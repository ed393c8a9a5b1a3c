"""What a probe is given: the layers of a memory, and the inputs that it has to beat."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from activation_store.layers import ACTION_DECODER, ENCODER_OUTPUT, LSTM_CELL, LSTM_HIDDEN, UNTRAINED
from activation_store.schema import DumpMetadata
from user_error import UserError


@dataclass(frozen=True)
class Input:
    """One thing that a probe reads.

    Attributes:
        name: how tables and figures call it.
        kind: memory, whose advantage is asked for, or baseline, which knows nothing that training taught a memory.
        title: in figures.
        layers: of the dump that it is made of, side by side; none for observations.
    """

    name: str
    kind: Literal["memory", "baseline"]
    title: str
    layers: tuple[str, ...] = ()


OBSERVATION, HISTORY = "observation", "history"

INPUTS = (
    Input(LSTM_HIDDEN, "memory", "LSTM hidden", (LSTM_HIDDEN,)),
    Input(LSTM_CELL, "memory", "LSTM cell", (LSTM_CELL,)),
    Input(ACTION_DECODER, "memory", "decoder input", (ACTION_DECODER,)),
    Input(ENCODER_OUTPUT, "baseline", "encoder output", (ENCODER_OUTPUT,)),
    Input(OBSERVATION, "baseline", "observation"),
    Input(HISTORY, "baseline", "last observations"),
    Input(UNTRAINED, "baseline", "untrained LSTM", (f"{UNTRAINED}_{LSTM_HIDDEN}", f"{UNTRAINED}_{LSTM_CELL}")),
)
NAMES = tuple(each.name for each in INPUTS)


def inputs_named(names: Iterable[str]) -> tuple[Input, ...]:
    """Return the inputs of the given names, in the registry's order; all of them for `all`.

    Raises:
        UserError: there is no such input.
    """
    names = list(names)
    wanted = set(NAMES) if names == ["all"] else set(names)
    if unknown := sorted(wanted - set(NAMES)):
        raise UserError(f"there is no input {unknown[0]!r}; there are: {', '.join(NAMES)}, or all")
    if not wanted:
        raise UserError(f"no input is named; there are: {', '.join(NAMES)}, or all")
    return tuple(each for each in INPUTS if each.name in wanted)


def recorded(inputs: Iterable[Input], metadata: DumpMetadata) -> tuple[Input, ...]:
    """Return the inputs that a dump has the layers of."""
    return tuple(each for each in inputs if set(each.layers) <= set(metadata.layers))
