"""What an edit does at once: as the gradient predicts it, in full on recorded ticks, and in full in simulated ones.

All edits are made from the same recorded starts. In each tick, two outputs of the policy are compared, without and with
the edit of this tick, as intervene.py compares them in play.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch

from activation_store.interventions import Outcome
from activation_store.schema import OPTIONS
from agent_zoo.base import RecurrentPolicy
from agent_zoo.memory import Hook, MemoryState
from agent_zoo.observation import PackedObservation
from agent_zoo.soft_path import SoftChoices, SoftObservation, soft_tick
from analysis.world_model.edits import Edits
from analysis.world_model.imagination import MOVE_HEAD, STYLE_HEAD, imagine, informed_start, lived
from analysis.world_model.model import WorldModel
from analysis.world_model.options import SETTLING
from analysis.world_model.windows import CONTEXT, Windows

Made = Literal["in every tick", "once"]
QUANTITIES = {
    "value": Outcome("value_change", against="in_play").name,
    **{
        f"probability of {name}": Outcome("gain", f"{head}/{name.title()}", "in_play").name
        for head, names in OPTIONS.items()
        for name in names
    },
}
"""What is compared, by the names of the outcomes of intervene.py that say how much it changed at once, in play: what a
gradient predicts is what this tick's edit does in the state that it finds."""
SIDES = ("predicted", "replayed", "simulated")
"""Predicted by the gradient on recorded ticks; the same edit in full on recorded ticks; in full in simulated ticks."""

Play = Callable[[MemoryState], tuple[torch.Tensor, MemoryState]]
"""Plays a tick of B agents that see one observation, given their memory before it. Returns the value and the
probabilities of moves and attack styles, (B, quantities) in the order of `QUANTITIES`, and the memory after
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
        slopes = [torch.autograd.grad(quantities[:, column].sum(), share, retain_graph=True)[0] for column in columns]
    return torch.cat(slopes, dim=1)


@torch.no_grad()
def changes_at_once(
    model: WorldModel, windows: Windows, observation: PackedObservation, edits: Edits, how: Made, ticks: int, seed: int
) -> dict[str, np.ndarray]:
    """Return the mean changes of all `SIDES`, (windows, quantities) each.

    Args:
        how: in every tick; or once, in each tick of lives that are not edited otherwise.
    """
    predicted, replayed = _replayed(model, windows, observation, edits, how, ticks)
    return {
        "predicted": predicted,
        "replayed": replayed,
        "simulated": _simulated(model, windows, edits, how, ticks, seed),
    }


def _replayed(
    model: WorldModel, windows: Windows, observation: PackedObservation, edits: Edits, how: Made, ticks: int
) -> tuple[np.ndarray, np.ndarray]:
    """Make the edits while the policy sees what was recorded: changes by the gradient, and in full."""
    policy, everyone = model.policy, torch.arange(len(windows))
    memory = windows.memory(CONTEXT - 2, everyone)  # a copy: it goes on from tick to tick, and the recorded one stays
    predicted, replayed = (_Means(len(windows), how) for _ in range(2))
    for tick in range(CONTEXT - 1, min(windows.ticks, CONTEXT - 1 + ticks)):
        (there,) = (windows.lengths > tick).nonzero(as_tuple=True)
        before = windows.memory(tick - 1, there) if how == "once" else memory.take(there)
        play = exact_play(policy, observation.take(windows.starts[there] + tick))
        age = 0 if how == "once" else tick - (CONTEXT - 1)
        plain, _ = play(before)
        edited, after = made(policy, play, before, edits, age)
        memory.put(there, after)
        predicted.add(there, first_order(policy, play, before, edits, age), tick - (CONTEXT - 1))
        replayed.add(there, edited - plain, tick - (CONTEXT - 1))
    return predicted.finish(), replayed.finish()


def _simulated(
    model: WorldModel, windows: Windows, edits: Edits, how: Made, ticks: int, seed: int
) -> np.ndarray:  # fmt: skip
    """Make the edits in simulated lives, (windows, quantities)."""
    generator = torch.Generator().manual_seed(seed)
    start = informed_start(model, windows, generator)
    before, means = start.memory, _Means(len(windows), how)
    steps = imagine(model, start, ticks, generator, (), edits if how == "in every tick" else None)
    for number, (tick, alive, ends) in enumerate(lived(steps, generator)):
        play, own = soft_play(model.policy, tick.view.observation), soft_quantities(tick.choices)
        edited, plain = (
            (made(model.policy, play, before, edits, 0)[0], own) if how == "once" else (own, play(before)[0])
        )
        change = edited - plain
        (there,) = alive.nonzero(as_tuple=True)
        means.add(there, change[there], number)
        before = tick.memory
        if not (alive & ~ends).any():
            break
    return means.finish()


class _Means:
    """Means over the ticks of each start."""

    def __init__(self, starts: int, how: Made):
        self._sums = np.zeros((starts, len(QUANTITIES)))
        self._count = np.zeros((starts, 1))
        self._first = 0 if how == "once" else SETTLING

    def add(self, there: torch.Tensor, changes: torch.Tensor, tick: int) -> None:
        """Add the changes of some starts, (some, quantities), so many ticks after the first."""
        if tick >= self._first:
            self._sums[there.numpy()] += changes.double().numpy()
            self._count[there.numpy()] += 1

    def finish(self) -> np.ndarray:
        """Return the means, (starts, quantities)."""
        return np.divide(self._sums, self._count, out=np.full_like(self._sums, np.nan), where=self._count > 0)
