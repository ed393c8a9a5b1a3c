"""How the donor of an edited agent is drawn, in the game and in simulations."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agent_zoo.network_parts.own_features import TICK, check_feature
from common.user_error import UserError

_FAR = 0.25  # share of the donors with another value that count as far


@dataclass(frozen=True)
class DonorRule:
    """How the donor of an edited agent is drawn.

    By default it is drawn among the quarter of all possible donors with another value of the feature whose value is
    farthest from the agent's own. Always taking the one that is farthest would give nearly all edited agents the same
    one or two donors, and the results of a run would be about those.

    Attributes:
        feature: as in `own_features`, but not the tick, which is the same for all.
        lottery: number of the lottery in which it is drawn among all possible donors instead, whatever their values;
            None for the rule above.
    """

    feature: str
    lottery: int | None = None

    @staticmethod
    def parse(feature: str, columns: Sequence[str]) -> "DonorRule":
        """Read the name of a feature.

        Args:
            feature: such as `self_food`.

        Raises:
            UserError: there is no such feature, or it is the tick.
        """
        check_feature(f"--donor {feature}", feature, columns)
        if feature == TICK:
            raise UserError("--donor tick: all agents are in the same tick: name a feature such as self_food")
        return DonorRule(feature)


def far_donors(distance: np.ndarray, lots: np.ndarray) -> np.ndarray:
    """Draw one of the farthest quarter of the possible donors with another value, for each of E edited agents.

    Args:
        distance: of the values of D possible donors from the agent's own, (E, D); 0 bars a donor.
        lots: from 0 to below 1, (E,).

    Returns:
        Their places, (E,) int64; -1 where no possible donor has another value.
    """
    if not distance.shape[1]:
        return np.full(len(distance), -1)
    differing = (distance > 0).sum(axis=1)
    far = np.ceil(_FAR * differing)
    order = np.argsort(-distance, axis=1, kind="stable")
    place = order[np.arange(len(distance)), (lots * far).astype(np.int64)]
    return np.where(differing > 0, place, -1)
