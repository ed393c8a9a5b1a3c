"""Lives of an arm paired with the same lives of its twin: same episode, same agent, nobody edited."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from activation_store.interventions import AT_ONCE, Arm, LivesTable
from user_error import UserError


@dataclass(frozen=True, eq=False)
class Pairs:
    """The L lives of an arm that is not unedited, and what the twin says about each.

    Attributes:
        arm: the arm.
        episodes: numbers of its episodes, (E,), ascending.
        episode: place of each life's episode in `episodes`, (L,) int64.
        edited: whether the agent was drawn to be edited, (L,) bool.
        values: outcomes in the arm, (L,) by name.
        twin: the same in the twin.
    """

    arm: Arm
    episodes: np.ndarray
    episode: np.ndarray
    edited: np.ndarray
    values: Mapping[str, np.ndarray]
    twin: Mapping[str, np.ndarray]

    def difference(self, outcome: str) -> np.ndarray:
        """Return the arm minus the twin for each life, (L,); NaN where the outcome is missing in one of them."""
        return self.values[outcome] - self.twin[outcome]

    def differences(self, outcomes: Sequence[str]) -> np.ndarray:
        """Return `difference` for several outcomes, (L, O)."""
        return np.stack([self.difference(name) for name in outcomes], axis=1)

    def episode_means(self, lives: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """Return the mean of a number over the chosen lives of each episode, (L,) and (L,) bool -> (E,).

        Lives without the number are left out; an episode without any other is NaN.
        """
        known = chosen & np.isfinite(lives)
        count = np.bincount(self.episode[known], minlength=len(self.episodes))
        total = np.bincount(self.episode[known], lives[known], minlength=len(self.episodes))
        return np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)

    @cached_property
    def everyone_edited(self) -> bool:
        """Whether no life is left to compare edited ones with."""
        return bool(self.edited.all())


def check_arms(arms: Sequence[Arm]) -> None:
    """Refuse arms that cannot be analysed together; callable before anything is played.

    Raises:
        UserError: names repeat, a twin is missing, edited or of another policy, or two edits of a policy share dose
            and direction, by which they are matched with their controls.
    """
    named = {arm.name: arm for arm in arms}
    if len(named) < len(arms):
        twice = next(name for name in named if sum(arm.name == name for arm in arms) > 1)
        raise UserError(f"two arms are called {twice!r}: names of arms must differ")
    for arm in arms:
        twin = named.get(arm.twin)
        if twin is None or twin.kind != "unedited" or twin.policy != arm.policy:
            raise UserError(f"the arm {arm.name!r} needs an unedited arm of the {arm.policy} policy as its twin")
    edits: dict[tuple[str, float | None, str | None], Arm] = {}
    for arm in arms:
        key = arm.policy, arm.dose, arm.direction
        if arm.kind == "edit" and (other := edits.setdefault(key, arm)) is not arm:
            raise UserError(
                f"the arms {other.name!r} and {arm.name!r} are both edits of the {arm.policy} policy with dose "
                f"{arm.dose}: controls are matched by dose, so play them in separate runs"
            )


def paired(table: LivesTable, arms: Sequence[Arm]) -> list[Pairs]:
    """Pair the lives of all arms that are not unedited with those of their twins.

    Raises:
        UserError: as `check_arms`; or an arm has no lives, lives without an arm, a life twice, other lives than its
            twin, or other agents drawn to be edited.
    """
    check_arms(arms)
    if unknown := set(table.arm.tolist()) - {arm.name for arm in arms}:
        raise UserError(f"there are lives of an arm {sorted(unknown)[0]!r} that the run does not list")
    lives = {arm.name: _lives_of(table, arm.name) for arm in arms}
    found = []
    for arm in arms:
        if arm.kind == "unedited":
            continue
        twin = lives[arm.twin]
        found.append(_pairs(arm, lives[arm.name], twin.rows(twin.edited) if arm.kind.endswith(AT_ONCE) else twin))
    return found


def _lives_of(table: LivesTable, name: str) -> LivesTable:
    lives = table.of_arm(name)
    if not len(lives):
        raise UserError(f"there are no lives of the arm {name!r}: the run is not finished")
    same = (np.diff(lives.episode) == 0) & (np.diff(lives.agent) == 0)
    if same.any():
        row = int(np.flatnonzero(same)[0])
        raise UserError(f"agent {lives.agent[row]} of episode {lives.episode[row]} has two lives in the arm {name!r}")
    return lives


def _pairs(arm: Arm, lives: LivesTable, twin: LivesTable) -> Pairs:
    own, other = (set(zip(each.episode.tolist(), each.agent.tolist(), strict=True)) for each in (lives, twin))
    if own != other:
        episode, agent = min(own ^ other)
        lacking = arm.twin if (episode, agent) in own else arm.name
        raise UserError(
            f"agent {agent} of episode {episode} has no life in the arm {lacking!r}, so {arm.name!r} and its twin "
            "cannot be compared"
        )
    if (wrong := np.flatnonzero(lives.edited != twin.edited)).size:
        raise UserError(
            f"agent {lives.agent[wrong[0]]} of episode {lives.episode[wrong[0]]} is drawn to be edited in only one of "
            f"the arms {arm.name!r} and {arm.twin!r}"
        )
    if not lives.edited.any():
        raise UserError(f"nobody is edited in the arm {arm.name!r}")
    episodes, episode_index = np.unique(lives.episode, return_inverse=True)
    return Pairs(arm, episodes, episode_index, lives.edited, lives.outcomes, twin.outcomes)
