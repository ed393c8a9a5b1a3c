"""The checkpoint info of an agent before its first step."""

from dataclasses import asdict
from typing import Any

import agent_zoo
from agent_zoo.checkpoint import CheckpointInfo
from agent_zoo.observation import ObservationLayout
from agent_zoo.semantic.shape import SemanticShape
from reinforcement_learning.settings import Settings, task_record
from reinforcement_learning.versions import versions


def untrained_info(agent: str, settings: Settings, layout: ObservationLayout) -> CheckpointInfo:
    """Return the info of an agent with these settings before its first step."""
    world = {name: value for name, value in asdict(settings.env).items() if name != "maps_dir"}
    memory: dict[str, Any] = {"layers": settings.policy.lstm_layers}
    if settings.policy.cell != "lstm":  # what a header without a cell means, as older ones have none
        memory["cell"] = settings.policy.cell
    chosen = settings.semantic
    return CheckpointInfo(
        agent=agent,
        policy_arguments={"hidden_size": settings.policy.hidden_size},
        recurrent_arguments=memory,
        layout=layout,
        task=task_record(settings.task),
        environment=world,
        steps=0,
        seed=settings.train.seed,
        versions=versions(),
        reward=settings.reward.to_header(),
        network=settings.policy.network if agent_zoo.has_earlier_network(agent) else "earlier",
        semantic=SemanticShape(chosen.codes, chosen.plane_dimensions, chosen.feed) if chosen.codes else None,
    )
