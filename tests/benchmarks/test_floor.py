"""The floor counts what a network's shapes say, and nothing else; the time of several processes is their run's."""

from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks.measure import Floor, matrix_speed, operations
from benchmarks.training import REST, _phases, train_together
from common.user_error import UserError
from reinforcement_learning.processes import usable_cores
from reinforcement_learning.settings import EnvironmentSettings, RolloutSettings, Settings, TaskSettings, TrainSettings
from tests.command import ROOT
from tests.conftest import AGENT

AGENTS, INPUTS, UNITS = 12, 5, 7


def test_a_linear_layer_costs_two_operations_a_weight_and_three_times_as_many_with_gradients() -> None:
    layer, values = nn.Linear(INPUTS, UNITS), torch.rand(AGENTS, INPUTS, requires_grad=True)
    forward = 2 * INPUTS * UNITS
    assert operations((AGENTS, lambda: layer(values).relu())) == forward
    assert operations((AGENTS, lambda: layer(values).sum().backward())) == 3 * forward


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("ticks", [1, 3])
def test_an_lstm_costs_two_operations_a_weight_and_tick(layers: int, ticks: int) -> None:
    lstm, values = nn.LSTM(UNITS, UNITS, layers), torch.rand(ticks, AGENTS, UNITS, requires_grad=True)
    forward = 2 * layers * 8 * UNITS**2
    with torch.no_grad():
        assert operations((ticks * AGENTS, lambda: lstm(values)[0])) == forward
    assert operations((ticks * AGENTS, lambda: lstm(values)[0].sum().backward())) == 3 * forward


def test_work_as_fast_as_its_matrix_products_reaches_the_floor() -> None:
    floor = Floor(operations=4e6, matrix_speed=1e11, seconds=8e-5)
    assert floor.least_seconds == pytest.approx(4e-5) and floor.share == pytest.approx(0.5)
    assert floor.row() == ("4.00", "40", "80", "50%")
    assert 1e8 < matrix_speed(repetitions=1) < 1e14


def test_phases_add_up_to_the_time_of_the_updates_after_the_first() -> None:
    first = b'{"agent_steps": 100, "agent_steps_per_second": 1, "time/learning": 0.9}'
    second = b'{"agent_steps": 300, "agent_steps_per_second": 100, "time/learning": 0.5, "time/copying": 0.25}'  # 2 s
    third = b'{"agent_steps": 400, "agent_steps_per_second": 50, "time/learning": 0.75, "time/copying": 0.25}'  # 2 s
    phases = _phases(b"\n".join([first, second, third]))
    assert phases == pytest.approx({"learning": 2.5 / 300, "copying": 1 / 300, REST: 0.5 / 300})


@pytest.mark.slow
@pytest.mark.skipif(usable_cores() < 2, reason="needs two cores")
def test_a_run_of_two_processes_is_timed(small_world: EnvironmentSettings, task: TaskSettings, maps: Path) -> None:
    train = TrainSettings(processes=2, batch_size=256, minibatch_rows=16, bptt_horizon=8, update_epochs=1, device="cpu")
    settings = Settings(env=small_world, task=task, rollout=RolloutSettings(num_envs=2), train=train)
    assert Path.cwd() == ROOT
    phases = train_together(AGENT, settings, updates=1)
    assert set(phases) == {"environment", "inference", "learning", "copying", REST}
    assert all(seconds > 0 for phase, seconds in phases.items() if phase != REST)
    with pytest.raises(UserError, match=r"failed: error: .*batch"):
        odd = Settings(env=small_world, task=task, train=TrainSettings(processes=2, batch_size=255))
        train_together(AGENT, odd, updates=1)
    assert not Path("runs/together").exists()
