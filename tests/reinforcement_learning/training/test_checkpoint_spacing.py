import pytest

from reinforcement_learning.settings import TrainSettings
from reinforcement_learning.training.trainer import checkpoints_due


@pytest.mark.parametrize(
    ("spacing", "first_steps_of_each"),
    [("even", [200_000, 400_000, 600_000, 800_000]), ("doubling", [100_000, 200_000, 400_000, 800_000])],
)
def test_spacing(spacing, first_steps_of_each):
    train = TrainSettings(total_agent_steps=800_000, num_checkpoints=4, checkpoint_spacing=spacing)
    for number, steps in enumerate(first_steps_of_each):
        assert checkpoints_due(steps - 1, train) == number
        assert checkpoints_due(steps, train) == number + 1
    assert checkpoints_due(0, train) == 0
    assert checkpoints_due(900_000, train) == 4
