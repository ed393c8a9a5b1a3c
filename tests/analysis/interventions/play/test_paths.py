"""Edits along one path in the real game: of policies in which one path alone carries what is edited."""

from pathlib import Path

import numpy as np
import pytest

import intervene
from activation_store.interventions import LivesTable
from analysis.interventions.edits.state_edits import Untouched, steer
from analysis.interventions.play.experiment import ArmPlan, When
from reinforcement_learning.play.contest import Contest, Group
from reinforcement_learning.play.policy_pool import PolicyPool
from tests.command import assert_refuses
from tests.driven import DRIVER, UNITS, emptied_gates, lives_of
from tests.planted_interventions import unit

GROUP = Group(4, (0, 1))
OPEN = 12.0
ONCE = When(3, 4)
KL = "kl_in_play"


def planted(contest: Contest, carrier: str) -> PolicyPool:
    """The driver's cell is kept by itself (cell), or read anew from its own hidden state in every tick (hidden).

    The game writes nothing, and the heads read the driver's hidden state.
    """
    _, hidden, bias = emptied_gates(contest.entrants[0].policy)
    entering, forgetting, candidate, output = range(4)
    bias[entering], bias[output] = OPEN, OPEN
    bias[forgetting] = OPEN if carrier == "cell" else -OPEN
    if carrier == "hidden":
        hidden[candidate, DRIVER, DRIVER], bias[candidate, DRIVER] = 4.0, -1.0  # low at first, and high if once high
    return contest.pool(len(GROUP.numbers))


def lives(pool: PolicyPool, *through: str, edit: bool = True, **given: object) -> LivesTable:
    states = (steer(unit(DRIVER, UNITS, layer="lstm_cell"), 4.0),) if edit else (Untouched("lstm_cell"),)
    plan = ArmPlan("edit", 4, ONCE, states=states, through=through, **given)  # type: ignore[arg-type]
    return lives_of(pool, GROUP, plan).of_arm("edit")


def way_north(table: LivesTable) -> float:
    return float(-np.nanmean(table.outcomes["south"][table.edited]))


@pytest.mark.parametrize(("carrier", "idle"), [("cell", "hidden"), ("hidden", "cell")])
def test_only_the_path_that_carries_an_edit_makes_it_last(contest: Contest, carrier: str, idle: str) -> None:
    pool = planted(contest, carrier)
    twin, whole = lives(pool, "heads", "hidden", "cell", edit=False), lives(pool, "heads", "hidden", "cell")
    turned = way_north(whole) - way_north(twin)
    assert turned > 5, "the edit drives agents to the north"
    kept, unheld = lives(pool, carrier), lives(pool, idle)
    assert way_north(kept) - way_north(twin) == pytest.approx(turned, rel=0.5)
    for name in ("south", "east", "ticks"):
        np.testing.assert_array_equal(unheld.outcomes[name], twin.outcomes[name], err_msg=name)
    assert np.nanmax(kept.outcomes[KL]) == np.nanmax(unheld.outcomes[KL]) == 0, "the heads do not read it at once"
    heads = lives(pool, "heads")
    assert np.nanmedian(heads.outcomes[KL][heads.edited]) > 0.5 and way_north(heads) - way_north(twin) < turned / 3
    np.testing.assert_array_equal(heads.outcomes[KL], whole.outcomes[KL])


@pytest.mark.parametrize("through", [("heads",), ("hidden",), ("heads", "cell")])
def test_a_call_without_an_edit_leaves_every_life_as_it_was(contest: Contest, through: tuple[str, ...]) -> None:
    pool = contest.pool(len(GROUP.numbers))
    twin = lives(pool, "heads", "hidden", "cell", edit=False)
    held = lives(pool, *through, edit=False)
    for name, values in twin.outcomes.items():
        np.testing.assert_array_equal(held.outcomes[name], values, err_msg=name)


def test_paths_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    (tmp_path / "kit.safetensors").touch()
    ours = ["-p", "kit", "--policies-dir", str(tmp_path)]
    steered = [*ours, "--directions", "d", "--edit", "collapse", "--direction", "a"]
    options = intervene.parse([*steered, "--through", "cell"])
    assert options.paths == ("cell",) and options.folder.name == "kit-collapse-a-through-cell"
    for arguments, message in (
        ([*steered, "--through", "head"], "--through names 'head': the paths are heads, hidden, cell"),
        ([*steered, "--through", "cell,hidden,heads"], "--through names every path"),
        ([*ours, "--edit", "clear", "--through", "cell"], "--edit clear is made between ticks"),
        ([*steered, "--through", "cell", "--follow", "4"], "--follow does not go with --through"),
        ([*steered, "--through", "cell", "--record", "all"], "--record does not go with --through"),
    ):
        assert_refuses(message, intervene.parse, arguments)
