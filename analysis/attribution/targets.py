"""What is attributed: the value, an action, or a read-out of a layer."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from activation_store.directions import Direction, Directions
from activation_store.schema import OPTIONS
from agent_zoo.base import RecurrentPolicy
from agent_zoo.network_parts.distribution import ILLEGAL, ActionDistribution
from agent_zoo.observation import ObservationLayout
from analysis.attribution.components import check_own
from common.argument_checks import did_you_mean
from common.user_error import UserError

VALUE = "value"
CHOSEN = "chosen"


@dataclass(frozen=True)
class Outcome:
    """What a policy computed in a tick for N agents."""

    value: torch.Tensor  # (N,)
    distribution: ActionDistribution
    layers: Mapping[str, torch.Tensor]  # name -> (N, units)
    action: torch.Tensor  # options that were chosen when this was recorded, (N, heads)


@dataclass(frozen=True)
class Value:
    """The critic's value."""

    name: str = "the value"

    def __call__(self, outcome: Outcome) -> torch.Tensor:
        """Return it, (N,)."""
        return outcome.value


@dataclass(frozen=True)
class Action:
    """The log-probability of an option of a head, or how far it is above another's, which is a difference of logits."""

    name: str
    head: int
    option: int | None  # its number; None for the one that was chosen
    other: int | None  # number of the option that it is compared with; None for none

    def __call__(self, outcome: Outcome) -> torch.Tensor:
        """Return it, (N,); NaN where one of the options is illegal."""
        table = outcome.distribution.log_probabilities_of(self.head)  # (N, options)
        if self.option is None:
            own = table.gather(1, outcome.action[:, [self.head]]).squeeze(1)
        else:
            own = table[:, self.option]
        legal = own > ILLEGAL / 2
        if self.other is not None:
            legal = legal & (table[:, self.other] > ILLEGAL / 2)
            own = own - table[:, self.other]
        return torch.where(legal, own, torch.nan)


@dataclass(frozen=True)
class ReadOut:
    """A direction's read-out of its layer."""

    name: str
    direction: Direction

    def __call__(self, outcome: Outcome) -> torch.Tensor:
        """Return it, (N,)."""
        return outcome.layers[self.direction.layer] @ torch.from_numpy(self.direction.weight) + self.direction.bias


Target = Value | Action | ReadOut
"""One number of an outcome, with a name for titles."""


def target_named(
    text: str, layout: ObservationLayout, policy: RecurrentPolicy, directions: Directions | None, sha256: str,
    request: str = "--of",
) -> Target:  # fmt: skip
    """Parse `--of`.

    Args:
        text: `value`, `HEAD:OPTION`, `HEAD:OPTION-OPTION`, `HEAD:chosen` or `direction:NAME`.

    Raises:
        UserError: there is no such target, or the direction belongs to another policy.
    """
    if text == VALUE:
        return Value()
    kind, _, rest = text.partition(":")
    if kind == "direction":
        return _read_out(rest, policy, directions, sha256, request)
    heads = [head.name for head in layout.heads]
    if kind not in heads or not rest:
        hint = did_you_mean(kind, [VALUE, "direction", *heads])
        raise UserError(
            f"{request} is {text}: give value, direction:NAME, HEAD:OPTION or HEAD:OPTION-OPTION, such as "
            f"Move.Direction:north-south{hint}"
        )
    number = heads.index(kind)
    first, _, second = rest.partition("-")
    size = layout.heads[number].size
    option = None if first == CHOSEN else _option(kind, first, size, request)
    other = _option(kind, second, size, request) if second else None
    versus = f" over {second}" if second else ""
    return Action(f"{kind} {first}{versus}", number, option, other)


def _option(head: str, name: str, size: int, request: str) -> int:
    known = OPTIONS.get(head, ())
    if name in known:
        return known.index(name)
    if name.isascii() and name.isdigit() and int(name[:6]) < size:
        return int(name)
    there = f"{', '.join(known)}, or a number" if known else "a number"
    raise UserError(f"{request}: {head} has no option {name!r}: give {there} below {size}, or {CHOSEN}")


def _read_out(name: str, policy: RecurrentPolicy, directions: Directions | None, sha256: str, request: str) -> Target:
    if directions is None:
        raise UserError(f"{request} is direction:{name}: name the file that holds it with --directions")
    direction = directions.named(name)
    check_own(direction, policy, sha256)
    return ReadOut(f"{direction.name} ({direction.layer}, {direction.unit})", direction)
