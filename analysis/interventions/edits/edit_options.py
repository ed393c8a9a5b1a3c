"""Edits of a policy as users ask for them on the command line, in the game and in simulations; loads nothing heavy.

And the features of agents that edits name: the tick, and the columns of an agent's own row in the game.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro

from activation_store.layers import LSTM_HIDDEN, check_layers
from activation_store.sparse_dictionary import FEATURE
from common.argument_checks import did_you_mean, split
from common.user_error import UserError

OWN = "self_"
TICK = "tick"
GOAL = "goal"
"""A column after those of the game, where agents play: the side of the map that an agent's task is to go to, 0 to 3 for
north, south, east and west; -1 for another task."""


def check_feature(prefix: str, feature: str, columns: Sequence[str]) -> None:
    """Refuse a feature that agents do not have.

    Args:
        feature: its name, `tick`, or `self_` and a column.
    """
    known = [TICK, *(OWN + column for column in columns)]
    if feature not in known:
        raise UserError(f"{prefix}: there is no feature {feature!r}{did_you_mean(feature, known)}")


def feature_values(feature: str, rows: np.ndarray, columns: Sequence[str], tick: int | np.ndarray) -> np.ndarray:
    """Return the true values of a feature, (B,).

    Args:
        rows: the agents' own rows in the game, (B, columns).
        tick: of the episode, from 0; or (B,).
    """
    if feature == TICK:
        return np.full(len(rows), tick)
    return rows[:, list(columns).index(feature.removeprefix(OWN))]


EditKind = Literal["collapse", "steer", "swap", "erase", "clear", "freeze", "transplant", "interchange", "splice"]
Along = Literal["weights", "covariance"]
_NEEDS_DIRECTION = ("collapse", "steer", "interchange")
_NEEDS_DONOR = ("transplant", "interchange")
_HAS_EVERY = ("clear", "transplant")


@dataclass(frozen=True)
class EditOptions:
    """One edit; `--edit` can be repeated, each time followed by its own options, and the edits are applied together."""

    edit: EditKind = "clear"
    """collapse: hold the read-outs of --direction at their means; steer: hold one at its mean plus --dose standard
    deviations; splice: replace states by what the sparse features of --features make of them; swap: move what varies
    along --from to --to; erase: remove what can be read linearly about --variable from --layer; clear: empty the memory
    every --every ticks; freeze: begin every tick with the memory from when the edit began; transplant: begin every
    --every ticks with a donor's memory; interchange: give the read-outs of --direction the values that they have in a
    donor's state. Sparse features are taken out by collapse, and get the strength --dose by steer."""
    direction: str | None = None
    """Comma-separated names of directions, for collapse, steer and interchange; with --features, for collapse and steer
    also of sparse features such as feature_12."""
    origin: Annotated[str | None, tyro.conf.arg(name="from")] = None
    """Direction that swap empties: `--edit swap --from ic_3 --to ic_5` lets agents that would have read high along ic_3
    read high along ic_5 instead."""
    target: Annotated[str | None, tyro.conf.arg(name="to")] = None
    """Direction that swap adds to."""
    change: bool = False
    """Edit what a tick adds to the state instead of the state, for collapse and swap: `--edit collapse --direction tick
    --change` lets the clock stop where it is, where without --change it is set to its mean."""
    dose: str | None = None
    """Comma-separated doses of steer, each an arm: in standard deviations of the read-out, such as -2,0,2; of a sparse
    feature its strength in activation units, such as 0,2,5."""
    variable: str | None = None
    """Comma-separated variables that erase removes: tick, or self_ and a column of the agent's own row, such as
    self_food; also if its policy does not see the value."""
    layer: str | None = None
    """Layer that erase removes them from, such as lstm_cell; by default lstm_hidden."""
    every: int = 1
    """Edited ticks from one emptying of the memory, or one transplant, to the next, at least 1."""
    along: Along = "weights"
    """How states are moved to change a read-out, for collapse, steer and interchange. weights: along the direction
    itself, the shortest way, which may lead where no state ever is; covariance: along what goes with the read-out in
    unedited states, so that edited states look like states that occur."""
    donor: str | None = None
    """For transplant and interchange: the feature by which donors are chosen. With --donor self_food a hungry agent
    takes from one that is full, and the other way round; with self_goal, the side of the map that is its task, from one
    that goes to another side. Features are named as in --while."""

    @property
    def names(self) -> tuple[str, ...]:
        """The directions that it names."""
        if self.edit == "swap":
            return (self.origin or "", self.target or "")
        return split(self.direction)

    @property
    def of_features(self) -> bool:
        """Whether it is about sparse features, if there is a dictionary of them."""
        named = bool(self.names) and all(name.startswith(FEATURE) for name in self.names)
        return self.edit == "splice" or (self.edit in ("collapse", "steer") and named)

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that it erases."""
        return split(self.variable)

    @property
    def erased_layer(self) -> str | None:
        """The layer from which it erases them; None if it erases nothing."""
        return (self.layer or LSTM_HIDDEN) if self.edit == "erase" else None

    @property
    def doses(self) -> tuple[float, ...]:
        """The doses.

        Raises:
            UserError: one of them is no number, or two are equal.
        """
        try:
            doses = tuple(float(dose) for dose in split(self.dose))
        except ValueError:
            raise UserError(f"--dose is {self.dose}: must be comma-separated numbers, such as -2,0,2") from None
        if not all(abs(dose) < float("inf") for dose in doses):
            raise UserError(f"--dose is {self.dose}: must be finite numbers")
        if len(set(doses)) < len(doses):
            raise UserError(f"--dose is {self.dose}: names a dose twice")
        return doses

    def check(self) -> None:
        """Refuse options that the edit needs and does not have, or has and does not need.

        Raises:
            UserError: names the option.
        """
        if self.edit in _NEEDS_DIRECTION and not self.names:
            raise UserError(f"--edit {self.edit} needs --direction with the name of a direction")
        if self.edit == "steer" and (len(self.names) > 1 or not self.doses):
            raise UserError("--edit steer needs one --direction, and --dose with numbers such as -2,0,2")
        if self.edit == "swap" and not (self.origin and self.target and self.origin != self.target):
            raise UserError("--edit swap needs two different directions, --from and --to")
        if self.edit == "erase":
            if not self.variables:
                raise UserError("--edit erase needs --variable with the name of a variable, such as tick or self_food")
            if len(set(self.variables)) < len(self.variables):
                raise UserError(f"--variable is {self.variable}: names a variable twice")
            check_layers([str(self.erased_layer)])
        if self.edit in _NEEDS_DONOR and not self.donor:
            raise UserError(f"--edit {self.edit} needs --donor with the name of a feature, such as self_food")
        needless = {
            "--direction": self.direction is not None and self.edit not in _NEEDS_DIRECTION,
            "--from": self.origin is not None and self.edit != "swap",
            "--to": self.target is not None and self.edit != "swap",
            "--dose": self.dose is not None and self.edit != "steer",
            "--change": self.change and self.edit not in ("collapse", "swap"),
            "--variable": self.variable is not None and self.edit != "erase",
            "--layer": self.layer is not None and self.edit != "erase",
            "--every": self.every != 1 and self.edit not in _HAS_EVERY,
            "--along": self.along != "weights"
            and (self.edit not in _NEEDS_DIRECTION or self.of_features or self.change),
            "--donor": self.donor is not None and self.edit not in _NEEDS_DONOR,
        }
        for option, is_needless in needless.items():
            if is_needless:
                raise UserError(f"{option} does nothing with --edit {self.edit}: leave it out")
        if self.every < 1:
            raise UserError(f"--every is {self.every}: must be 1 or more")


def check_features(edits: Sequence[EditOptions], features: Path | None, *, used_elsewhere: bool = False) -> None:
    """Refuse --features that nothing uses, and edits that lack it or do not go with it.

    Args:
        features: the dictionary's file; None if there is none.
        used_elsewhere: whether something besides the edits names a sparse feature.

    Raises:
        UserError: names the option.
    """
    named = any(name.startswith(FEATURE) for edit in edits for name in edit.names)
    spliced = any(edit.edit == "splice" for edit in edits)
    if features is None:
        if spliced:
            raise UserError("--edit splice needs --features with a dictionary that train_sparse_autoencoder.py wrote")
        return
    if any(edit.change and edit.of_features for edit in edits):
        raise UserError(
            "--change does nothing with sparse features, whose strengths are those of a state: leave it out"
        )
    if not (named or spliced or used_elsewhere):
        raise UserError("--features does nothing here: name a feature, as in --direction feature_12, or --edit splice")


def check_together(edits: Sequence[EditOptions], kind: str) -> None:
    """Check each edit, and refuse edits that cannot be made together.

    Args:
        kind: what makes them, such as run.

    Raises:
        UserError: names the option, or the layer from which two edits erase.
    """
    for edit in edits:
        edit.check()
    if sum(bool(edit.doses) for edit in edits) > 1:
        raise UserError(f"only one edit can have several --dose: give the others in a {kind} of their own")
    erased = [edit.erased_layer for edit in edits if edit.erased_layer]
    for layer in erased:
        if erased.count(layer) > 1:
            raise UserError(
                f"two edits erase from {layer}: name all its variables in one, as in --variable tick,self_food"
            )


def needs_directions(edit: EditOptions, features: Path | None) -> bool:
    """Tell whether an edit names directions, given the file of a dictionary of sparse features."""
    return bool(edit.names) and not (features is not None and edit.of_features)


def separate_edits(arguments: Sequence[str], kept: int = 1) -> tuple[list[str], list[list[str]]]:
    """Separate the options of the second and further edits from the rest of a command line.

    A dose that begins with a minus is joined to its option, since it would pass for an option itself.

    Args:
        kept: number of edits whose options stay on it; 0 separates those of the first edit too.

    Returns:
        The command line without them, and the options of each other edit, beginning with `--edit`.
    """
    joined: list[str] = []
    for argument in arguments:
        if joined and joined[-1] == "--dose":
            joined[-1] = f"--dose={argument}"
        else:
            joined.append(argument)
    own = {"--" + name for option in fields(EditOptions) for name in (_OPTION_NAMES.get(option.name, option.name),)}
    flags = {"--change"}
    first, further, blocks = list[str](), list[list[str]](), 0
    block: list[str] | None = None
    waiting = False  # for the value of an option of a further edit
    for argument in joined:
        name, has_value = argument.partition("=")[0], "=" in argument
        if name == "--edit":
            blocks += 1
            block = [] if blocks > kept else None
            if block is not None:
                further.append(block)
        if block is not None and (name in own or waiting):
            block.append(argument)
            waiting = not waiting and name in own and not has_value and name not in flags
        else:
            first.append(argument)
    return first, further


_OPTION_NAMES = {"origin": "from", "target": "to"}
"""Options whose name is not their field's."""
