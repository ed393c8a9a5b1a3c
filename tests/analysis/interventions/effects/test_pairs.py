"""Lives are paired by episode and agent; whatever cannot be paired is refused with what is wrong."""

from dataclasses import replace

import numpy as np
import pytest

from activation_store.interventions import Arm, LivesTable
from analysis.interventions.effects.pairs import check_arms, paired
from tests.command import assert_refuses
from tests.planted_interventions import TWIN, UNTRAINED_TWIN, Planted, plant

EDIT = Arm("edit", "edit", "trained", 1.0, TWIN.name)


def rows(table: LivesTable, kept: np.ndarray) -> LivesTable:
    outcomes = {name: values[kept] for name, values in table.outcomes.items()}
    return LivesTable(table.arm[kept], table.episode[kept], table.agent[kept], table.edited[kept], outcomes)


def test_order_of_rows_does_not_matter() -> None:
    table, arms = plant(Planted(episodes=3))
    shuffled = rows(table, np.random.default_rng(1).permutation(len(table)))
    for one, other in zip(paired(table, arms), paired(shuffled, arms), strict=True):
        assert one.arm == other.arm
        np.testing.assert_array_equal(one.difference("ticks"), other.difference("ticks"))


def test_means_over_the_lives_of_each_episode() -> None:
    table, arms = plant(Planted(episodes=3, kinds=()))
    (pairs,) = paired(table, arms)
    lives = np.arange(48.0)
    lives[:16] = np.nan
    lives[20] = np.nan
    chosen = np.arange(48) % 2 == 0
    expected = [np.nan, np.mean([16, 18, *range(22, 32, 2)]), np.mean(np.arange(32, 48, 2))]
    assert pairs.episode_means(lives, chosen) == pytest.approx(expected, nan_ok=True)


def broken_tables() -> dict[str, tuple[LivesTable, str]]:
    table, _ = plant(Planted(episodes=3, kinds=()))
    last = np.arange(len(table)) == len(table) - 1
    first_of_edit = int(np.flatnonzero(table.arm != TWIN.name)[0])
    swapped = table.edited.copy()
    swapped[first_of_edit] = ~swapped[first_of_edit]
    nobody = replace(table, edited=np.zeros(len(table), bool))
    return {
        "missing in the arm": (rows(table, ~last), "agent 16 of episode 2 has no life in the arm 'steer is_starving"),
        "missing in the twin": (
            rows(table, np.arange(len(table)) != 0),
            "agent 1 of episode 0 has no life in the arm 'unedited'",
        ),
        "a life twice": (rows(table, np.r_[0, np.arange(len(table))]), "agent 1 of episode 0 has two lives"),
        "no lives": (rows(table, table.arm == TWIN.name), "no lives of the arm 'steer is_starving"),
        "unknown arm": (
            replace(table, arm=np.where(last, "somewhere", table.arm)),
            "lives of an arm 'somewhere' that the run does not list",
        ),
        "another lot": (replace(table, edited=swapped), "agent 1 of episode 0 is drawn to be edited in only one"),
        "nobody": (nobody, "nobody is edited in the arm 'steer is_starving"),
    }


@pytest.mark.parametrize("case", broken_tables())
def test_lives_that_cannot_be_paired_are_refused(case: str) -> None:
    _, arms = plant(Planted(episodes=3, kinds=()))
    table, message = broken_tables()[case]
    assert_refuses(message, paired, table, arms)


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        ([TWIN, EDIT, EDIT], "two arms are called 'edit'"),
        ([EDIT], "'edit' needs an unedited arm of the trained policy"),
        ([TWIN, UNTRAINED_TWIN, replace(EDIT, twin=UNTRAINED_TWIN.name)], "needs an unedited arm of the trained"),
        ([TWIN, EDIT, replace(EDIT, name="again", twin="edit")], "'again' needs an unedited arm"),
        ([TWIN, EDIT, replace(EDIT, name="again")], "both edits of the trained policy with dose 1.0"),
    ],
)
def test_arms_that_cannot_be_analysed_together_are_refused(arms: list[Arm], message: str) -> None:
    assert_refuses(message, check_arms, arms)


def test_planted_arms_are_accepted() -> None:
    check_arms(Planted(doses=(-1.0, 1.0, 2.0)).arms())
    check_arms([TWIN, EDIT, replace(EDIT, name="more", dose=2.0)])
