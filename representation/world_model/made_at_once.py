"""What an edit does in the tick in which it is made: in full, and by the gradient alone."""

from collections.abc import Callable

import torch

from agent_zoo.base import RecurrentPolicy
from agent_zoo.hooks import Hook
from agent_zoo.memory import MemoryState
from agent_zoo.observation import PackedObservation
from agent_zoo.soft_observation import SoftObservation
from agent_zoo.soft_path import SoftChoices, soft_tick
from representation.world_model.edits import Edits
from representation.world_model.imagination import MOVE_HEAD

STYLE_HEAD = "Attack.Style"

Play = Callable[[MemoryState], tuple[torch.Tensor, MemoryState]]
"""Plays a tick of B agents that see one observation, given their memory before it. Returns the value and the
probabilities of moves and attack styles, (B, quantities) in the order of `intervened.QUANTITIES`, and the memory after
the tick."""


def soft_quantities(choices: SoftChoices) -> torch.Tensor:
    """Return the quantities of choices on probabilities, (B, quantities)."""
    heads = [choices.log_probabilities[head].exp() for head in (MOVE_HEAD, STYLE_HEAD)]
    return torch.cat([choices.value.unsqueeze(1), *heads], dim=1)


def soft_play(policy: RecurrentPolicy, observation: SoftObservation) -> Play:
    """Return the tick of agents that see probabilities."""

    def play(memory: MemoryState) -> tuple[torch.Tensor, MemoryState]:
        choices, after = soft_tick(policy, observation, memory)
        return soft_quantities(choices), after

    return play


def exact_play(policy: RecurrentPolicy, observation: PackedObservation) -> Play:
    """Return the tick of agents that see recorded observations."""

    def play(memory: MemoryState) -> tuple[torch.Tensor, MemoryState]:
        distribution, value, after = policy(observation, memory)
        place = {head.name: index for index, head in enumerate(distribution.heads)}
        heads = [distribution.log_probabilities_of(place[head]).exp() for head in (MOVE_HEAD, STYLE_HEAD)]
        return torch.cat([value.view(-1, 1), *heads], dim=1), after

    return play


def made(
    policy: RecurrentPolicy, play: Play, before: MemoryState, edits: Edits, tick: int
) -> tuple[torch.Tensor, MemoryState]:
    """Play a tick with edits.

    Args:
        policy: that plays.
        play: the tick.
        before: memory before it.
        edits: to make.
        tick: since the edits began, from 0.
    """
    begun = edits.begin(before, tick)
    with policy.hooked(edits.hooks(begun)):
        return play(begun)


def first_order(policy: RecurrentPolicy, play: Play, before: MemoryState, edits: Edits, tick: int) -> torch.Tensor:
    """Return the change of each quantity that the gradient predicts, (B, quantities).

    Each state is moved by a share of what the edit does to it. The prediction is the derivative by that share, at 0.
    Arguments as for `made`.
    """
    with torch.enable_grad():
        share = torch.zeros(before.hidden.shape[1], 1, requires_grad=True)  # (B, 1)
        begun = edits.begin(before, tick)
        memory = MemoryState(
            *(old + share * (new - old) for old, new in ((before.hidden, begun.hidden), (before.cell, begun.cell)))
        )

        def partly(hook: Hook) -> Hook:
            def edit(states: torch.Tensor) -> torch.Tensor:
                edited = hook(states.detach())
                assert edited is not None
                return states + share * (edited - states).detach()

            return edit

        with policy.hooked({layer: partly(hook) for layer, hook in edits.hooks(before).items()}):
            quantities, _ = play(memory)
        columns = range(quantities.shape[1])
        slopes = [torch.autograd.grad(quantities[:, each].sum(), share, retain_graph=True)[0] for each in columns]
    return torch.cat(slopes, dim=1)
