"""Changes at once in total: compared with a memory that nobody ever edited, computed here again from observations."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from activation_store.interventions import KEYS, RUN_FILE, Arm, LivesTable
from agent_zoo.base import RecurrentPolicy
from agent_zoo.memory import MemoryState
from analysis.interventions.edits.donor_rule import DonorRule
from analysis.interventions.edits.memory_edits import Clear, Freeze, MovedAsFar, Transplant
from analysis.interventions.edits.state_edits import Interchange, collapse, steer
from analysis.interventions.effects.study import ranking, study_effects
from analysis.interventions.play.edited_play import PlayedGroup, play_arm
from analysis.interventions.play.experiment import ArmPlan, When, body_condition
from analysis.interventions.play.intervention_run import _claim
from analysis.interventions.play.outcomes import Shadows
from analysis.statistics.inference import Inference
from common.checked_json import with_checksum
from common.files import write_json
from reinforcement_learning.play.contest import Contest, Group
from reinforcement_learning.play.entrants import untrained_entrant
from reinforcement_learning.play.policy_pool import EntrantActions, PolicyPool
from reinforcement_learning.play.recorder import Batch
from reinforcement_learning.settings import EnvironmentSettings, PolicySettings, Settings, TaskSettings
from tests.command import assert_refuses
from tests.driven import DRIVER, UNITS, driven_contest, emptied_gates
from tests.planted_interventions import unit

GROUP = Group(4, (0,))
HUNGRY = When(condition=body_condition("self_food < 80", ["food"]))
BY_COLUMN = DonorRule("self_col")

Played = tuple[LivesTable, list[tuple[EntrantActions, np.ndarray]]]
"""The lives of an arm, and of each tick what the agents chose and which slots were edited."""


def played(pool: PolicyPool, **given: Any) -> Played:
    choices: list[EntrantActions] = []
    decide = pool.decide

    def watched() -> Iterator[EntrantActions]:
        for choice in decide():
            choices.append(choice)
            yield choice

    pool.decide = watched  # type: ignore[method-assign]
    edited, rows = [], []
    for item in play_arm(pool, GROUP, ArmPlan("edit", 6, recorded=("encoder_output",), **given)):
        if isinstance(item, Batch):
            edited.append(item.slots[item.records.columns["edited"]])
        elif isinstance(item, PlayedGroup):
            rows = item.rows
    del pool.decide
    return LivesTable.of_rows(rows), list(zip(choices, edited, strict=True))


@torch.no_grad()
def in_total(policy: RecurrentPolicy, ticks: list[tuple[EntrantActions, np.ndarray]], slot: int) -> tuple[float, float]:
    """KL and change of the value in one life: an unedited memory reads every observation, and nothing else is done."""
    memory, result = policy.initial_state(1), []
    if not any(slot in edited for _, edited in ticks):
        return np.nan, np.nan
    for choice, edited in ticks:
        row = torch.from_numpy(np.flatnonzero(choice.decision.present == slot))
        if not len(row):
            continue
        distribution, value, memory = policy(choice.decision.observation.take(row), memory)
        if slot in edited:
            kl = distribution.divergence(choice.decision.distribution.take(row)).sum()
            result.append((float(kl), choice.decision.value[row].item() - value.item()))
    return tuple(np.mean(result, axis=0)) if result else (np.nan, np.nan)


@pytest.fixture(scope="module")
def pool_of(
    small_world: EnvironmentSettings, task: TaskSettings, maps: Path
) -> Callable[[str, PolicySettings], PolicyPool]:
    def make(agent: str, settings: PolicySettings) -> PolicyPool:
        env = replace(small_world, horizon=14)
        entrant = untrained_entrant(agent, Settings(env=env, task=task, policy=settings), maps, 0)
        with torch.no_grad():
            for weights in entrant.policy.policy.action_decoder.parameters():
                weights.mul_(300)  # untrained heads hardly choose
        return Contest((entrant,), env, task, maps, torch.device("cpu")).pool(1)

    return make


KIT, CELLED, LAYERED = "neurips23_start_kit", PolicySettings(UNITS), PolicySettings(UNITS, 2)
TO_FOUR = {"spread": 4.0}
CASES: dict[str, tuple[str, PolicySettings, Mapping[str, Any]]] = {
    "cleared now and then": (KIT, CELLED, {"memories": (Clear(3),), "when": HUNGRY}),
    "frozen": ("yaofeng", LAYERED, {"memories": (Freeze(),), "when": When(3)}),
    "moved as far": (KIT, PolicySettings(UNITS, 1, "ema"), {"memories": (MovedAsFar(Clear(1), 3),)}),
    "transplanted": (KIT, PolicySettings(UNITS, 1, "gru"), {"memories": (Transplant(BY_COLUMN, 2),)}),
    "first layer of two": (
        KIT, LAYERED, {"states": (steer(unit(1, UNITS, layer="lstm_cell_1", **TO_FOUR), 1),), "when": When(2, 9)},
    ),
    "hidden states of a GRU": (
        KIT, PolicySettings(UNITS, 2, "gru"), {"states": (steer(unit(1, UNITS, **TO_FOUR), 1),), "when": HUNGRY},
    ),
    "the encoder's output": (
        KIT, CELLED, {"states": (Interchange(collapse([unit(1, UNITS, layer="encoder_output")], "state"), BY_COLUMN),)},
    ),
    "after the memory": (KIT, CELLED, {"states": (steer(unit(1, UNITS, layer="action_decoder", **TO_FOUR), 1),)}),
    "no memory": ("takeru", PolicySettings(UNITS, 0), {"states": (steer(unit(1, UNITS, layer="encoder_output"), 4),)}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_shadow_is_a_memory_that_reads_all_observations_without_an_edit(name: str, pool_of: Any) -> None:
    agent, settings, plan = CASES[name]
    pool = pool_of(agent, settings)
    lives, ticks = played(pool, **plan)
    slots = [pool.shared[0].agents.index(agent) for agent in lives.agent]
    expected = np.array([in_total(pool.policies[0], ticks, slot) for slot in slots])
    result = np.stack([lives.outcomes[outcome] for outcome in ("kl_total", "value_change_total")], axis=1)
    np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-6)
    assert np.isfinite(result).any() and np.nanmax(result[:, 0]) > 1e-4
    in_play = lives.outcomes["kl_in_play"]
    one_tick = name in ("after the memory", "no memory")  # nothing of an edit lasts
    assert np.allclose(result[:, 0], in_play, atol=1e-6, equal_nan=True) == one_tick


def test_a_run_that_was_begun_before_totals_were_measured_is_not_continued(tmp_path: Path) -> None:
    now = {"seed": 3, "at_once": ["total", "in play"]}
    write_json(tmp_path / RUN_FILE, with_checksum({"seed": 3}))
    assert_refuses(r"started with other settings \(at_once\)", _claim, tmp_path, now, resume=True)
    write_json(tmp_path / RUN_FILE, with_checksum(now))
    _claim(tmp_path, now, resume=True)
    _claim(tmp_path, {**now, "equivalent_within": "0.1"}, resume=True)  # which changes nothing that is played


SLOW, FAST = 5, 7
KEPT, ADDED, AT_ONCE = 0.95, 0.05, 0.3


@pytest.fixture(scope="module")
def pair(small_world: EnvironmentSettings, task: TaskSettings, maps: Path) -> PolicyPool:
    """A cell with two units that do not depend on what is seen: c' = .95 c + .05, and c' = .3. Both drive the north."""
    contest = driven_contest(small_world, task, maps)
    policy = contest.entrants[0].policy
    _, _, (entering, forgetting, candidate, output) = emptied_gates(policy)
    entering[:], forgetting[:], output[:] = 100, -100, 100
    entering[SLOW], forgetting[SLOW] = torch.logit(torch.tensor([ADDED, KEPT]))
    candidate[SLOW], candidate[FAST] = 100, np.arctanh(AT_ONCE)
    with torch.no_grad():
        north = next(item for key, item in policy.policy.action_decoder.heads.items() if "Move" in key)
        north.weight[0, DRIVER], north.weight[0, SLOW], north.weight[0, FAST] = 0, 5, 3
    return contest.pool(1)


def held(pool: PolicyPool, place: int, name: str) -> LivesTable:
    """Lives in which one unit of the cell is held at 0."""
    direction = unit(place, UNITS, name, "lstm_cell")
    return played(pool, states=(collapse([direction], "state"),), directions=(direction,))[0]


def test_a_slow_unit_moves_as_far_as_it_has_come_in_all_ticks_so_far(pair: PolicyPool) -> None:
    slow, fast = held(pair, SLOW, "slow"), held(pair, FAST, "fast")
    for lives, total, in_play in (
        (slow, lambda ticks: np.mean(1 - KEPT ** np.arange(1, ticks + 1)), ADDED),
        (fast, lambda ticks: AT_ONCE, AT_ONCE),
    ):
        name = "slow" if lives is slow else "fast"
        expected = [-total(int(ticks)) for ticks in lives.outcomes["ticks"][lives.edited]]
        np.testing.assert_allclose(lives.outcomes[f"moved_total/{name}"][lives.edited], expected, rtol=1e-4)
        np.testing.assert_allclose(lives.outcomes[f"moved_in_play/{name}"][lives.edited], -in_play, rtol=1e-4)


def test_the_unit_that_matters_more_in_total_is_ranked_first(pair: PolicyPool) -> None:
    arms = [Arm("unedited", "unedited", "trained", None, "unedited")]
    arms += [Arm(name, "edit", "trained", None, "unedited", name) for name in ("fast", "slow")]
    (twin,) = play_arm(pair, GROUP, ArmPlan("unedited", 6))
    tables = [LivesTable.of_rows(twin.rows), held(pair, FAST, "fast"), held(pair, SLOW, "slow")]  # type: ignore[union-attr]
    rows = [
        {"arm": arm.name} | {name: getattr(table, name)[place] for name in [*KEYS][1:]}
        | {name: values[place] for name, values in table.outcomes.items()}
        for arm, table in zip(arms, tables, strict=True) for place in range(len(table))
    ]  # fmt: skip
    study = study_effects(LivesTable.of_rows(rows), arms, Inference(99, 99))
    slow, fast = ranking(study)
    assert (slow.direction, fast.direction) == ("slow", "fast")
    total, in_play = (
        [study.at_once_of(arm.name)[name].level.value for arm in (slow, fast)] for name in ("kl_total", "kl_in_play")
    )
    assert total[0] > 1.3 * total[1] and in_play[0] < 0.5 * in_play[1], "in play, the wrong one would be first"
    assert study.at_once_of(fast.name)["kl_total"].level.value == pytest.approx(in_play[1], rel=1e-4)


def test_an_empty_memory_is_further_from_one_that_was_never_emptied_than_from_that_of_the_last_tick(
    pair: PolicyPool,
) -> None:
    lives, _ = played(pair, memories=(Clear(1),))
    total, in_play = (lives.outcomes[name][lives.edited] for name in ("kl_total", "kl_in_play"))
    assert (total > 2 * in_play).all() and (in_play > 0).all()


def test_a_slot_that_stops_acting_loses_its_shadow_as_it_loses_its_memory(pair: PolicyPool) -> None:
    _, ticks = played(pair, memories=(Clear(1),))
    decision = ticks[0][0].decision
    policy, slots = pair.policies[0], np.array([2, 5])
    shadows = Shadows(policy, pair.slots, ())

    def begin(cell: float, changed: list[bool]) -> None:
        memory = policy.initial_state(2)
        shadows.begin(slots, MemoryState(memory.hidden, memory.cell + cell), torch.tensor(changed))

    def cells() -> list[float]:
        return [round(float(item), 4) for item in shadows._memory.cell[0, slots, SLOW]]

    begin(0.5, [True, False])
    shadows.read(decision)
    assert cells() == [round(KEPT * 0.5 + ADDED, 4), 0], "only what was changed has a shadow"
    acting = decision.acting.copy()
    acting[slots] = False
    shadows.read(replace(decision, acting=acting))
    begin(0.2, [True, True])
    shadows.read(decision)
    assert cells() == [round(KEPT * 0.2 + ADDED, 4)] * 2, "the next life's own memory, not what was left of the last"
