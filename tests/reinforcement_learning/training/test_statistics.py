"""Averages over lives equal numbers computed by hand."""

from dataclasses import replace

import pytest

from reinforcement_learning.game.life import EVENTS, Life
from reinforcement_learning.training.statistics import life_statistics

LIFE = Life(
    agent_id=1, ticks=10, total_reward=1.0, died=True, cause_of_death="starved", task="task", task_progress=0.5,
    task_completed=False, level=1, gold=0, players_killed=0, events={"EAT_FOOD": 2},
)  # fmt: skip


def test_averages_have_one_vote_a_life_and_causes_one_a_death_if_there_is_any() -> None:
    lives = [
        LIFE,
        replace(LIFE, ticks=20, cause_of_death="killed_by_npc", level=3, events={}),
        replace(LIFE, ticks=40, cause_of_death="starved", gold=6, events={"EAT_FOOD": 1, "SCORE_HIT": 3}),
        replace(
            LIFE, ticks=50, died=False, cause_of_death=None, task_progress=1.0, task_completed=True, players_killed=2
        ),
    ]
    metrics = life_statistics(lives)
    expected = {
        "lives/ended": 4, "lives/ticks": 30, "lives/ticks_median": 30, "lives/ticks_lower_quartile": 17.5,
        "lives/ticks_upper_quartile": 42.5, "lives/total_reward": 1, "lives/task_progress": 0.625,
        "lives/task_completed": 0.25, "lives/died": 0.75, "lives/level": 1.5, "lives/gold": 1.5,
        "lives/players_killed": 0.5, "death/starved": 2 / 3, "death/killed_by_npc": 1 / 3, "death/killed_by_player": 0,
        "events/EAT_FOOD": 1.25, "events/SCORE_HIT": 0.75, "events/DRINK_WATER": 0,
    }  # fmt: skip
    assert {name: metrics[name] for name in expected} == pytest.approx(expected)
    assert {f"events/{kind}" for kind in EVENTS.values()} <= set(metrics)
    assert sum(share for name, share in metrics.items() if name.startswith("death/")) == pytest.approx(1)
    assert life_statistics([]) == {}
    metrics = life_statistics([replace(LIFE, died=False, cause_of_death=None)])
    assert metrics["lives/died"] == 0 and not any(name.startswith("death/") for name in metrics)
