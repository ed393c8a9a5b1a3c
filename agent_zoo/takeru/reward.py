"""What takeru pays for beside the task: doing something for the first time."""

from agent_zoo.rewards import NewEventsReward, forbid_giving


class RewardWrapper(NewEventsReward):
    """Task reward, and +0.01 for each kind of event new to this life (3 a tick). Giving anything away is illegal."""

    def restrict(self, observation: dict) -> None:
        """Forbid giving."""
        forbid_giving(observation)
