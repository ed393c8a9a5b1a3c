"""Held-out tasks are as published and never trained on, and all tasks run in the real game."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from reinforcement_learning.game.environment import make_environment, observation_layout
from reinforcement_learning.game.tasks import (
    curriculum,
    draw_tasks,
    evaluation_tasks,
    find_task,
    fixed_weights,
    read_weights,
    save_weights,
    training_tasks,
)
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from tests.command import assert_refuses
from tests.conftest import AGENT, random_legal_actions

PUBLISHED = (
    "Task_TickGE_(num_tick:1024)_reward_to:agent",
    "Task_CountEvent_(event:PLAYER_KILL_N:20)_reward_to:agent",
    "Task_DefeatEntity_(agent_type:npc_level:3_num_agent:20)_reward_to:agent",
    "Task_CountEvent_(event:GO_FARTHEST_N:64)_reward_to:agent",
    "Task_OccupyTile_(row:80_col:80)_reward_to:agent",
    "Task_AttainSkill_(skill:Melee_level:10_num_agent:1)_reward_to:agent",
    "Task_HarvestItem_(item:Whetstone_level:1_quantity:20)_reward_to:agent",
    "Task_ConsumeItem_(item:Ration_level:3_quantity:20)_reward_to:agent",
    "Task_EquipItem_(item:Hat_level:1_num_agent:1)_reward_to:agent",
    "Task_FullyArmed_(combat_style:Range_level:3_num_agent:1)_reward_to:agent",
    "Task_MakeProfit_(amount:100)_reward_to:agent",
)


def tasks(name: str, env: EnvironmentSettings | None = None) -> list:
    return curriculum(TaskSettings(curriculum=name), env or EnvironmentSettings())


def test_the_held_out_tasks_are_the_published_ones_and_none_is_trained_on() -> None:
    specs = evaluation_tasks()
    names = [spec.name for spec in specs]
    assert len(names) == len(set(names)) == 63
    assert set(PUBLISHED) <= set(names)
    assert Counter(spec.tags[0] for spec in specs) == {
        "survival": 1, "combat": 3, "exploration": 2, "skill": 8, "item": 44, "market": 5,
    }  # fmt: skip
    trained = [spec.name for spec in training_tasks(map_size=128)]
    assert len(trained) == len(set(trained)) == 345
    assert not set(trained) & set(names)
    for map_size in (256, 512):  # places scale with the map, and that of the held-out task stays where it is
        assert not {spec.name for spec in training_tasks(map_size)} & set(names)


def test_each_groups_share_of_the_draws() -> None:
    specs = training_tasks(map_size=128)
    shares: Counter[str] = Counter()
    for spec in specs:
        shares[spec.eval_fn.__name__] += spec.sampling_weight
    # Groups that own their predicates: survival 10, exploration 14 of which GO_FARTHEST is a CountEvent, skills 16.
    exploration = [
        spec for spec in specs
        if spec.eval_fn.__name__ in ("DistanceTraveled", "CanSeeTile", "OccupyTile", "ProgressTowardCenter")
        or spec.eval_fn_kwargs.get("event") == "GO_FARTHEST"
    ]  # fmt: skip
    skills = [
        spec for spec in specs
        if spec.eval_fn.__name__ in ("AttainSkill", "GainExperience") or spec.eval_fn_kwargs.get("event") == "LEVEL_UP"
    ]  # fmt: skip
    foraging = [spec for spec in specs if spec.eval_fn_kwargs.get("event") in ("EAT_FOOD", "DRINK_WATER")]
    assert shares["TickGE"] == pytest.approx(10)
    for group, share in ((exploration, 14), (skills, 16), (foraging, 30)):
        weights = [spec.sampling_weight for spec in group]
        assert sum(weights) == pytest.approx(share) and len({round(weight, 12) for weight in weights}) == 1
    assert fixed_weights(specs).sum() == pytest.approx(110)


def play_every_task(specs: list, env: EnvironmentSettings, maps: Path) -> dict[str, float]:
    """Assign the tasks to agents, as many per episode as fit, play 12 ticks each, and return their progress."""
    world = make_environment(AGENT, env, TaskSettings(embedding_size=8), maps, specs=specs)
    layout, random = observation_layout(world), np.random.default_rng(0)
    game = world.env.game
    progress: dict[str, float] = {}
    for start in range(0, len(specs), env.num_agents):
        wanted = (specs * 2)[start : start + env.num_agents]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "reinforcement_learning.game.environment.draw_tasks",
                lambda specs, weights, agents, random, wanted=wanted: [
                    task
                    for agent, spec in zip(agents, wanted, strict=True)
                    for task in draw_tasks([spec], np.ones(1), [agent], random)
                ],
            )
            world.reset(seed=start)
        assert [game.agent_task_map[agent][0].spec_name for agent in game.possible_agents] == [s.name for s in wanted]
        for _ in range(12):
            legal = random_legal_actions(world.obs.view(world.obs_dtype)[:, 0], layout, random)
            world.step(legal)
            for agent in game.possible_agents:
                task = game.agent_task_map[agent][0]
                assert 0 <= task.progress <= 1, task.spec_name
        for agent in game.possible_agents:
            task = game.agent_task_map[agent][0]
            info = task.progress_info
            assert info["last_eval_tick"] is not None, f"{task.spec_name} was never looked at"
            progress[task.spec_name] = info["max_progress"]
    return progress


@pytest.mark.parametrize("name", ["training", "evaluation"])
def test_every_task_runs_in_the_game(name: str, small_world: EnvironmentSettings, maps: Path) -> None:
    specs = tasks(name, small_world)
    progress = play_every_task(specs, small_world, maps)
    assert set(progress) == {spec.name for spec in specs}
    assert all(0 <= value <= 1 for value in progress.values())
    if name == "training":
        assert progress["Task_TickGE_(num_tick:50)_reward_to:agent"] == pytest.approx(12 / 50)
    assert len(set(progress.values())) > 2, "nobody came any further with anything"


def test_a_task_is_found_by_number_name_and_part() -> None:
    specs = tasks("evaluation")
    assert find_task(specs, "0").name == PUBLISHED[0]
    assert find_task(specs, PUBLISHED[1]).name == PUBLISHED[1]
    assert find_task(specs, "skill:melee").eval_fn_kwargs["skill"].__name__ == "Melee"
    assert [spec.name for spec in curriculum(TaskSettings(curriculum="evaluation", only="62"), EnvironmentSettings())]


@pytest.mark.parametrize(
    ("wanted", "parts"),
    [
        ("63", ("no task number 63", "has 63, numbered from 0")),
        ("nonsense", ("no tasks", "'nonsense'", PUBLISHED[0], "and 55 more")),
        ("AttainSkill", ("8 tasks", "skill:Melee", "skill:Alchemy")),
    ],
)
def test_a_task_that_is_not_one_is_refused_with_candidates(wanted: str, parts: tuple[str, ...]) -> None:
    assert "\n" not in assert_refuses(parts, find_task, tasks("evaluation"), wanted)


def test_draws_follow_the_weights_which_come_back_exactly(tmp_path: Path) -> None:
    specs = tasks("evaluation")
    weights = np.zeros(63)
    weights[[3, 7]] = 1, 3
    drawn = Counter(task.spec_name for task in draw_tasks(specs, weights, range(1, 401), np.random.default_rng(0)))
    assert set(drawn) == {specs[3].name, specs[7].name}
    assert drawn[specs[7].name] == pytest.approx(300, abs=40)
    specs, weights = tasks("evaluation"), np.random.default_rng(0).dirichlet(np.ones(63))
    save_weights(tmp_path / "weights.json", specs, weights)
    np.testing.assert_array_equal(read_weights(tmp_path / "weights.json", specs), weights)


OWN = """
- {predicate: CountEvent, arguments: {event: EAT_FOOD, N: 3}, weight: 2}
- {predicate: AttainSkill, arguments: {skill: Fishing, level: 4, num_agent: 1}}
- {predicate: OwnItem, arguments: {item: Ration, level: 1, quantity: 2}, weight: 0.5}
- {predicate: CanSeeTile, arguments: {tile_type: Water}}
- {predicate: ProgressTowardCenter}
"""


def own(tmp_path: Path, text: str) -> list:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return tasks(str(path))


def test_a_curriculum_of_ones_own(tmp_path: Path, small_world: EnvironmentSettings, maps: Path) -> None:
    specs = own(tmp_path, OWN)
    assert [spec.name for spec in specs][:2] == [
        "Task_CountEvent_(event:EAT_FOOD_N:3)_reward_to:agent",
        "Task_AttainSkill_(skill:Fishing_level:4_num_agent:1)_reward_to:agent",
    ]
    assert fixed_weights(specs).tolist() == [2, 1, 0.5, 1, 1]
    env = EnvironmentSettings(**{**vars(small_world), "num_agents": 5})
    assert set(play_every_task(specs, env, maps)) == {spec.name for spec in specs}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("tasks: 3", ("must hold a list of tasks",)),
        ("- [", ("cannot be read as YAML",)),
        ("- {predicate: Fly}", ("task 0", "no predicate 'Fly'", "TickGE")),
        ("- {predicate: CanSeeAgent, arguments: {target: 3}}", ("no predicate 'CanSeeAgent'",)),
        ("- {predicate: TickGE, arguments: {ticks: 3}}", ("TickGE takes num_tick", "ticks")),
        ("- {predicate: CountEvent, arguments: {event: EAT_FOOD}}", ("also needs N",)),
        ("- {predicate: CountEvent, arguments: {event: EAT, N: 1}}", ("no event 'EAT'", "EAT_FOOD")),
        ("- {predicate: AttainSkill, arguments: {skill: Skill, level: 2, num_agent: 1}}", ("no skill", "Fishing")),
        ("- {predicate: TickGE, arguments: {num_tick: 0}}", ("num_tick 0", "whole number")),
        ("- {predicate: TickGE, weight: -1}", ("weight -1",)),
        ("- {predicate: TickGE, wieght: 1}", ("wieght",)),
        ("- {predicate: TickGE}\n- {predicate: TickGE}", ("task 1", "is listed twice")),
    ],
)
def test_what_is_wrong_in_a_curriculum_of_ones_own_is_named(tmp_path: Path, text: str, parts: tuple[str, ...]) -> None:
    assert_refuses((*parts, "mine.yaml"), own, tmp_path, text)
