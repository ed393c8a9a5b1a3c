"""takeru's reward beyond the task: events that are new to the life."""

from agent_zoo.rewards import NewEventsReward, forbid_giving


class RewardWrapper(NewEventsReward):
    """Task reward, and +0.01 per kind of event new to this life (at most 3 a tick). Giving is illegal."""

    def restrict(self, observation: dict) -> None:
        """Forbid giving."""
        forbid_giving(observation)
