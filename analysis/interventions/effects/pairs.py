"""Lives of an arm paired with the same lives of its twin: same episode, same agent, nobody edited.

And the run that they are of, as its run.json describes it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, Literal

import numpy as np
import orjson
from pydantic import ConfigDict, TypeAdapter, ValidationError

from activation_store.interventions import Arm, LivesTable, Outcome, Readability
from analysis.statistics.inference import Inference, counted_p
from common.checked_json import first_fault, read_small_json, without_checksum
from common.user_error import UserError


@dataclass(frozen=True, eq=False)
class Pairs:
    """The L lives of an arm that is not unedited, and what the twin says about each."""

    arm: Arm
    episodes: np.ndarray  # numbers of its episodes, (E,), ascending
    episode: np.ndarray  # place of each life's episode in `episodes`, (L,) int64
    edited: np.ndarray  # whether the agent was drawn to be edited, (L,) bool
    values: Mapping[str, np.ndarray]  # outcomes in the arm, (L,) by name
    twin: Mapping[str, np.ndarray]  # the same in the twin

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
    pairs = []
    for arm in arms:
        if arm.kind == "unedited":
            continue
        twin = lives[arm.twin]
        pairs.append(_pairs(arm, lives[arm.name], twin.rows(twin.edited) if arm.is_at_once else twin))
    return pairs


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
    own, other = (set(zip(side.episode.tolist(), side.agent.tolist(), strict=True)) for side in (lives, twin))
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


_FLOOR = 1e-12

FLIPS: Final = "sign flips over episodes"
Test = Literal["randomisation over who was edited", "sign flips over episodes", "none"]
"""Ways to find a p-value: the first where both edited and unedited lives are known, the second elsewhere."""


def randomisation_test(pairs: Pairs, differences: np.ndarray, settings: Inference) -> tuple[np.ndarray, np.ndarray]:
    """Test O differences of lives from their twins by redrawing who was edited, within each episode.

    The statistic is the mean over episodes of the contrast, (mean difference from the twin of edited agents - the same
    of unedited agents), divided by its standard error over episodes. The division matters: an edit that merely changes
    the course of lives spreads the differences of edited agents, perhaps of all in an episode alike, without moving
    their mean. The plain contrast would then be called significant too often (Chung and Romano 2013, Annals of
    Statistics 41, 484-507); so would one divided by a standard error over lives.

    Args:
        differences: of the same lives, (L, O); NaN where there is none.

    Returns:
        Contrasts and two-sided p-values, (O,) each. Both are NaN where no episode has lives of both groups; p is NaN
        where no life has a difference other than 0.
    """
    contrast, p = np.full((2, differences.shape[1]), np.nan)
    known = np.isfinite(differences)
    masks, group = np.unique(known, axis=1, return_inverse=True)  # (L, masks), (O,)
    for place, mask in enumerate(masks.T):
        columns = np.flatnonzero(group.ravel() == place)
        episodes = _episodes(pairs, mask, differences[:, columns])
        if not episodes:
            continue
        rng = np.random.default_rng([settings.seed, 2])  # the same draws in all arms with the same lives
        contrasts, statistic = _statistics(episodes, settings.permutations, rng)
        contrast[columns] = contrasts
        differs = np.any([values.any(axis=0) for _, values in episodes], axis=0)
        p[columns] = np.where(differs, counted_p(statistic[0], statistic[1:]), np.nan)
    return contrast, p


def _episodes(pairs: Pairs, mask: np.ndarray, differences: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return who was edited, (n,), and the differences, (n, K), of each episode with lives of both groups."""
    episodes = []
    for place in range(len(pairs.episodes)):
        rows = np.flatnonzero(mask & (pairs.episode == place))
        edited = pairs.edited[rows]
        if edited.any() and not edited.all():
            episodes.append((edited, differences[rows]))
    return episodes


def _statistics(
    episodes: Sequence[tuple[np.ndarray, np.ndarray]], permutations: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the contrasts, (K,), and |contrast / standard error| of the lot as drawn and permuted, (M + 1, K).

    With a single episode there is no standard error, and the contrast itself is the statistic.
    """
    total, squares = np.zeros((2, permutations + 1, episodes[0][1].shape[1]))
    for edited, values in episodes:
        labels = _redrawn(edited, permutations, rng)  # (M + 1, n)
        sums = labels @ (values - values.mean(axis=0))  # of the edited; those of the others are the negatives
        contrast = sums * (1 / edited.sum() + 1 / (~edited).sum())
        total += contrast
        squares += contrast**2
    count = len(episodes)
    mean = total / count
    if count == 1:
        return mean[0], np.abs(mean)
    variance = (squares / count - mean**2) / (count - 1)
    return mean[0], np.abs(mean) / np.sqrt(np.maximum(variance, _FLOOR * squares / count + np.finfo(float).tiny))


def _redrawn(edited: np.ndarray, permutations: int, rng: np.random.Generator) -> np.ndarray:
    """Return who was edited, in the first row as drawn, then permuted, (M + 1, n) float64."""
    labels = np.tile(edited, (permutations + 1, 1))
    labels[1:] = rng.permuted(labels[1:], axis=1)
    return labels.astype(np.float64)


_ROUNDING = 1e-4


def broken_pairing(everything: Sequence[Pairs], in_behaviour: Sequence[str], at_once: Sequence[str]) -> dict[str, str]:
    """Return an outcome in which each arm that edits nothing differs from its twin, by arm; empty if pairing works.

    Such an arm calls the edit but keeps its input. If it differs, chance is not shared between arms, or calling the
    edit changes the state by itself, and no difference between arms means what it should.
    """
    broken = {}
    for pairs in everything:
        if pairs.arm.kind != "no edit":
            continue
        differs = [
            name for name in in_behaviour if not np.array_equal(pairs.values[name], pairs.twin[name], equal_nan=True)
        ]
        changes = [name for name in at_once if Outcome.parse(name).against]
        differs += [name for name in changes if (np.abs(pairs.values[name]) > _ROUNDING).any()]
        if differs:
            broken[pairs.arm.name] = differs[0]
    return broken


@dataclass(frozen=True)
class PlayedRun:
    """What the analysis needs of run.json."""

    __pydantic_config__ = ConfigDict(strict=True)

    seed: int
    arms: tuple[Arm, ...]
    erased: tuple[Readability, ...] = ()  # how well what its edits erased can be read
    equivalent_within: str = ""  # margins that were given before it was played, as the user wrote them
    through: tuple[str, ...] = ()  # paths along which its edits acted, if not along all


def read_run_file(path: Path) -> PlayedRun:
    """Read run.json; parts that the analysis does not need are ignored.

    Raises:
        UserError: it is missing, damaged or edited, is no intervention run's, or its arms cannot be analysed together.
    """
    content = read_small_json(path)
    if not isinstance(content, dict) or not {"seed", "arms"} <= set(content):
        raise UserError(f"{path} is not the run.json of an intervention run: it lists no arms")
    checked = without_checksum(content, str(path))
    try:
        names = [field.name for field in fields(PlayedRun)]
        needed = orjson.dumps({name: checked[name] for name in names if name in checked})
        run = TypeAdapter(PlayedRun).validate_json(needed)
    except ValidationError as error:
        raise UserError(f"{path} is damaged: {first_fault(error)}") from None
    if run.seed < 0:
        raise UserError(f"{path} is damaged: the seed {run.seed} is negative")
    try:
        check_arms(run.arms)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return run
