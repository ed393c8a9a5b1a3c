"""From named directions to the edit along them: whether a direction fits a policy, and what is done to its layer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np

from activation_store.directions import Direction
from agent_zoo.state_edits import EditOf, ReadOutEdit, are_orthogonal, collapse, steer, swap
from user_error import UserError


def edit_along(
    kind: Literal["collapse", "steer", "swap"], directions: Sequence[Direction], of: EditOf, dose: float,
    covariance: Callable[[str], np.ndarray],
) -> ReadOutEdit:  # fmt: skip
    """Return an edit along directions.

    Args:
        kind: what is done.
        directions: any number for collapse, one for steer, origin and target for swap.
        of: whether the state is edited or its change per tick.
        dose: of steer, in standard deviations of the read-out.
        covariance: returns that of a layer's unedited states, (units, units); called for oblique swaps only.

    Raises:
        UserError: as `collapse` and `swap`.
    """
    if kind == "steer":
        return steer(directions[0], dose)
    if kind == "collapse":
        return collapse(directions, of)
    origin, target = directions
    return swap(origin, target, of, None if are_orthogonal(origin, target) else covariance(origin.layer))


def check_direction(
    direction: Direction, of: EditOf, layer_units: Mapping[str, int], policy: str, sha256: str | None
) -> None:
    """Refuse a direction that does not fit a policy.

    Args:
        direction: to be edited along.
        of: whether the state is edited or its change per tick.
        layer_units: of the policy.
        policy: its name.
        sha256: of its checkpoint file; None if unknown.

    Raises:
        UserError: the policy has no such layer, another number of units, or the direction is another policy's.
    """
    if direction.layer not in layer_units:
        raise UserError(
            f"the direction {direction.name} is one of the layer {direction.layer}, which {policy} does not have; it "
            f"has {', '.join(layer_units)}"
        )
    if len(direction.weight) != layer_units[direction.layer]:
        raise UserError(
            f"the direction {direction.name} has {len(direction.weight)} weights, but {direction.layer} of {policy} "
            f"has {layer_units[direction.layer]} units: give the policy that it was found in"
        )
    if None not in (sha256, direction.source.checkpoint_sha256) and direction.source.checkpoint_sha256 != sha256:
        raise UserError(
            f"the direction {direction.name} was found in another policy, {direction.source.policy}, not in {policy} "
            "as it is now: extract activations and find directions again"
        )
    if of == "change" and not direction.layer.startswith("lstm_"):
        raise UserError(
            f"{direction.layer} is not part of the memory, so it has no change per tick: leave out --change"
        )
