"""What a probe reads: the layers of a memory, and the baselines that the memory is compared with."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from activation_store.layers import (
    ACTION_DECODER,
    ENCODER_OUTPUT,
    LSTM_CELL,
    LSTM_HIDDEN,
    SEMANTIC_CODE,
    SEMANTIC_PLANE,
    UNTRAINED,
)
from activation_store.schema import DumpMetadata
from common.user_error import UserError


@dataclass(frozen=True)
class Input:
    """One thing that a probe reads.

    Attributes:
        kind: memory, whose advantage is measured, or baseline, which holds nothing that a memory was trained to keep.
        layers: of the dump that it is made of; none if it is made of observations alone.
        observations: how many, the present one included, of a history; 1 for everything else.
    """

    name: str
    kind: Literal["memory", "baseline"]
    title: str
    layers: tuple[str, ...] = ()
    observations: int = 1

    @property
    def as_observations(self) -> int:
        """Observations in a history that takes as much memory."""
        return _TRACES_AS_OBSERVATIONS if self.name == TRACES else self.observations


OBSERVATION, HISTORY, TRACES, RESERVOIR = "observation", "history", "traces", "reservoir"
_TRACES_AS_OBSERVATIONS = 4
_HISTORY = re.compile(rf"{HISTORY}_(\d+)")
_CHECKPOINT = re.compile(rf"steps_(\d+)_({LSTM_HIDDEN}|{LSTM_CELL})")


def history(observations: int) -> Input:
    """Return the input of the present observation and a digest of those before it, so many in all."""
    return Input(f"{HISTORY}_{observations}", "baseline", f"last {observations} observations", (), observations)


def checkpoint(name: str) -> Input | None:
    """Return the input of a checkpoint's memory that watched (`--shadow-networks`), by the name of its layer.

    It is a baseline: the memory of the same network with less training, on the same episodes. None for other names.
    """
    if not (match := _CHECKPOINT.fullmatch(name)):
        return None
    state = "hidden state" if match[2] == LSTM_HIDDEN else "cell state"
    return Input(name, "baseline", f"{state} after {int(match[1]):,} steps", (name,))


_MEMORIES = (
    Input(LSTM_HIDDEN, "memory", "hidden state", (LSTM_HIDDEN,)),
    Input(LSTM_CELL, "memory", "cell state", (LSTM_CELL,)),
    Input(SEMANTIC_PLANE, "memory", "semantic plane", (SEMANTIC_PLANE,)),
    Input(SEMANTIC_CODE, "memory", "semantic code", (SEMANTIC_CODE,)),
    Input(ACTION_DECODER, "memory", "decoder input", (ACTION_DECODER,)),
)
_PRESENT = (
    Input(ENCODER_OUTPUT, "baseline", "encoder output", (ENCODER_OUTPUT,)),
    Input(OBSERVATION, "baseline", "observation"),
)
_WITHOUT_TRAINING = (
    Input(TRACES, "baseline", "traces of observations"),
    Input(RESERVOIR, "baseline", "reservoir on encoder", (ENCODER_OUTPUT,)),
    Input(UNTRAINED, "baseline", "untrained memory", (f"{UNTRAINED}_{LSTM_HIDDEN}", f"{UNTRAINED}_{LSTM_CELL}")),
)
NAMES = tuple(
    [source.name for source in (*_MEMORIES, *_PRESENT)] + [HISTORY] + [source.name for source in _WITHOUT_TRAINING]
)
"""What `--inputs` takes, in the order of tables."""

MEMORIES = tuple(source.name for source in _MEMORIES)
_TITLES = {source.name: source.title for source in (*_MEMORIES, *_PRESENT, *_WITHOUT_TRAINING)}


def inputs_named(names: Iterable[str], histories: Sequence[int]) -> tuple[Input, ...]:
    """Return the inputs of the given names, in the order of `NAMES`; all of them for `all`.

    Args:
        names: of inputs, or of a checkpoint's layers such as steps_750000_lstm_cell, which `all` leaves out.
        histories: numbers of observations; each gives one input for the name `history`.

    Raises:
        UserError: there is no such input.
    """
    names = list(names)
    checkpoints = {name: source for name in names if (source := checkpoint(name))}
    wanted = set(NAMES) if names == ["all"] else set(names) - set(checkpoints)
    if unknown := sorted(wanted - set(NAMES)):
        raise UserError(f"there is no input {unknown[0]!r}; there are: {', '.join(NAMES)}, or all")
    if not wanted and not checkpoints:
        raise UserError(f"no input is named; there are: {', '.join(NAMES)}, or all")
    past = [history(number) for number in sorted(histories)] if HISTORY in wanted else []
    before, after = ([source for source in some if source.name in wanted] for some in (
        (*_MEMORIES, *_PRESENT), _WITHOUT_TRAINING
    ))  # fmt: skip
    return (*before, *past, *after, *checkpoints.values())


def recorded(inputs: Iterable[Input], metadata: DumpMetadata) -> tuple[Input, ...]:
    """Return the inputs that a dump has the layers of; an untrained memory may have hidden states only."""
    there = set(metadata.layers)
    has_cells = any(layer == LSTM_CELL or layer.endswith(f"_{LSTM_CELL}") for layer in there)
    fitted = (
        replace(source, layers=source.layers[:1]) if source.name == UNTRAINED and not has_cells else source
        for source in inputs
    )
    return tuple(source for source in fitted if set(source.layers) <= there)


def title_of(name: str) -> str:
    """Return an input's title in figures."""
    if source := checkpoint(name):
        return source.title
    past = _HISTORY.fullmatch(name)
    return history(int(past[1])).title if past else _TITLES[name]


def observations_of(name: str) -> int | None:
    """Return the number of observations in a history, by its name; None for other inputs."""
    match = _HISTORY.fullmatch(name)
    return int(match[1]) if match else None


def is_memory(name: str) -> bool:
    """Say whether an input of that name is a memory."""
    return name in MEMORIES
