"""The benchmark of several processes reports the time that their run reported."""

from pathlib import Path

import pytest

from benchmarks.training import REST, _phases, train_together
from common.user_error import UserError
from reinforcement_learning.processes import usable_cores
from reinforcement_learning.settings import EnvironmentSettings, RolloutSettings, Settings, TaskSettings, TrainSettings
from tests.command import ROOT

AGENT = "neurips23_start_kit"


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
