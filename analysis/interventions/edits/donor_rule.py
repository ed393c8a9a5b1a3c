"""Lots, the same in every arm: which agents are edited, and from which donors they take something."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from analysis.interventions.edits.edit_options import TICK, check_feature, feature_values
from common.user_error import UserError

_FAR = 0.25  # share of the donors with another value that count as far


@dataclass(frozen=True)
class DonorRule:
    """How the donor of an edited agent is drawn.

    By default it is drawn among the quarter of all possible donors with another value of the feature whose value is
    farthest from the agent's own. Always taking the one that is farthest would give nearly all edited agents the same
    one or two donors, and the results of a run would be about those.
    """

    feature: str  # as in `check_feature`, but not the tick, which is the same for all
    lottery: int | None = None
    """Number of the lottery in which it is drawn among all possible donors instead, whatever their values; None for the
    rule above."""

    @staticmethod
    def parse(feature: str, columns: Sequence[str]) -> "DonorRule":
        """Read the name of a feature, such as `self_food`.

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


_EDITED_STREAM = 0x1D7A  # apart from the streams that seats, tasks, maps and actions are drawn from


def drawn_agents(seed: int, number: int, agents: int, count: int) -> np.ndarray:
    """Draw `count` of an episode's agents, (agents,) bool."""
    random = np.random.default_rng(np.random.SeedSequence([_EDITED_STREAM, seed, number]))
    drawn = np.zeros(agents, dtype=bool)
    drawn[random.permutation(agents)[:count]] = True
    return drawn


_DONOR_STREAM = 0xD0_0E  # apart from the streams that seats, tasks, maps, actions and edited agents are drawn from


@dataclass(frozen=True, eq=False)
class Donors:
    """The donors of E edited agents in one tick."""

    rows: torch.Tensor  # of the donors among the acting agents, (E,) int64
    own: np.ndarray  # values of the edited agents, (E,) float64
    given: np.ndarray  # values of their donors, (E,) float64


class DonorLots:
    """Draws the donors of a group of episodes."""

    def __init__(self, rules: Sequence[DonorRule], drawn: np.ndarray, seed: int, numbers: Sequence[int]):
        """Prepare to draw; `drawn` says which slots are edited, and so never donors, (slots,) bool."""
        self.rules = tuple(rules)
        self._drawn, self._seed, self._numbers = drawn, seed, numbers

    def draw(
        self, edited: np.ndarray, slots: np.ndarray, own_rows: np.ndarray, columns: Sequence[str], tick: int
    ) -> tuple[np.ndarray, Mapping[DonorRule, Donors]]:
        """Draw the donors of a tick.

        Args:
            edited: rows of the edited agents among the B acting ones, (E,) int64.
            slots: of the acting agents, ascending, (B,) int64.
            own_rows: their own rows in the game, (B, columns).

        Returns:
            The edited agents that have a donor by every rule, (at most E,), and their donors. Without rules these are
            all edited agents.
        """
        possible = np.flatnonzero(~self._drawn[slots])  # ascending slots, which decide between equal distances
        chosen, values = {}, {}
        for rule in self.rules:
            values[rule] = feature_values(rule.feature, own_rows, columns, tick).astype(np.float64)
            # A number for each slot, the same in all arms with the same rule.
            lottery = 0 if rule.lottery is None else 1 + rule.lottery
            key = [_DONOR_STREAM, self._seed, tick, lottery, zlib.crc32(rule.feature.encode()), *self._numbers]
            lots = np.random.default_rng(np.random.SeedSequence(key)).random(len(self._drawn))[slots[edited]]
            distance = np.abs(values[rule][possible] - values[rule][edited][:, None])  # (E, D)
            any_of_all = np.where((distance > 0).any(axis=1), (lots * len(possible)).astype(np.int64), -1)
            chosen[rule] = far_donors(distance, lots) if rule.lottery is None else any_of_all
        have_one = np.all([places >= 0 for places in chosen.values()], axis=0) if chosen else slice(None)
        edited = edited[have_one]
        donors = {}
        for rule, places in chosen.items():
            rows = possible[places[have_one]]
            donors[rule] = Donors(torch.from_numpy(rows), values[rule][edited], values[rule][rows])
        return edited, donors
