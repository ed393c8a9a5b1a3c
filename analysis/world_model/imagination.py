"""Let a world model go on by itself: the policy inside sees what it predicts, and acts on that."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch.nn import functional

from activation_store.directions import Direction
from activation_store.layers import ACTION_DECODER, ENCODER_OUTPUT, LSTM_CELL, LSTM_HIDDEN
from agent_zoo.capture import capture
from agent_zoo.memory import Hook, MemoryState
from agent_zoo.soft_path import SoftChoices, soft_tick, straight_through
from analysis.world_model.model import WorldModel
from analysis.world_model.network import Prediction, WorldNetwork, WorldState, drawn
from analysis.world_model.policy_interface import ImaginedView, Surroundings, imagined_actions, imagined_view
from analysis.world_model.scene import SoftScene
from analysis.world_model.windows import CONTEXT, Windows
from common.user_error import UserError

MOVE_HEAD, STYLE_HEAD = "Move.Direction", "Attack.Style"

Number = Callable[["ImaginedTick"], torch.Tensor]
"""Returns a number of each simulation in a tick, (S,), with gradients."""
Shown = Callable[[SoftScene, int], tuple[SoftScene, SoftScene]]
"""Takes the scene of a tick and the tick's number; returns what the world goes on from, and what the policy sees."""


class TickEdits(Protocol):
    """Edits the policy in every tick."""

    def begin(self, memory: MemoryState, tick: int, own: torch.Tensor) -> MemoryState:
        """Return the memory with which B agents begin a tick, numbered from 0; called before `hooks`.

        Args:
            own: their own rows as the policy sees them in the tick, (B, columns), as `SoftScene.own`.
        """

    def hooks(self, before: MemoryState) -> dict[str, Hook]:
        """Return the hooks of a tick, given the memory with which it begins."""


@dataclass(frozen=True)
class Start:
    """Where S simulations begin."""

    state: WorldState
    scene: SoftScene
    memory: MemoryState  # of the policy before it sees that
    around: Surroundings
    vector: torch.Tensor  # the bottleneck, (S, dimensions)

    def __len__(self) -> int:
        return len(self.vector)


@dataclass(frozen=True)
class ImaginedTick:
    """One tick of S simulations."""

    scene: SoftScene
    view: ImaginedView
    choices: SoftChoices
    options: Mapping[str, torch.Tensor]  # taken, head -> (S,) int64
    action: torch.Tensor  # their code, (S, size)
    memory: MemoryState  # of the policy after it has seen the scene
    # layers: encoder output and action decoder of the policy, (S, units) each, without gradients
    layers: Mapping[str, torch.Tensor]
    state: WorldState
    reward: torch.Tensor
    end: torch.Tensor  # probability that the life ends with the tick, (S,)
    following: Prediction


def read_out(direction: Direction) -> Number:
    """Return the read-out of a direction of the policy's hidden or cell state after the tick.

    Raises:
        UserError: it is a direction of another layer.
    """
    if direction.layer not in (LSTM_HIDDEN, LSTM_CELL):
        raise UserError(
            f"{direction.name} is a direction of {direction.layer}: simulated ticks are read along directions of "
            f"{LSTM_HIDDEN} and {LSTM_CELL} only"
        )
    weight = torch.from_numpy(direction.weight)

    def number(tick: ImaginedTick) -> torch.Tensor:
        state = tick.memory.cell if direction.layer == LSTM_CELL else tick.memory.hidden
        return state[-1] @ weight + direction.bias

    return number


def value(tick: ImaginedTick) -> torch.Tensor:
    """Return the policy's value, (S,)."""
    return tick.choices.value


def informed_start(model: WorldModel, windows: Windows, generator: torch.Generator | None) -> Start:
    """Start from the third tick of recorded windows, as it was: its scene, and the policy's memory before it."""
    vector, state = informed_state(model.network, windows, generator)
    scene = windows.last_given(model.network.shape.materials)
    return Start(state, scene, windows.memory(CONTEXT - 2), windows.around, vector)


def informed_state(
    network: WorldNetwork, windows: Windows, generator: torch.Generator | None
) -> tuple[torch.Tensor, WorldState]:
    """Return the bottlenecks, (W, dimensions), and states of the world in the last tick of the windows' contexts."""
    encoded = network.encode(windows.scene.soft(network.shape.materials))
    context = torch.stack([encoded[windows.starts + tick] for tick in range(CONTEXT)], dim=1)
    vector, _ = network.bottleneck(context)
    hidden, _ = network.start(vector)
    return vector, WorldState(hidden, drawn(network.posterior_logits(hidden, context[:, -1]), generator))


def random_start(model: WorldModel, around: Surroundings, generator: torch.Generator) -> Start:
    """Start from random bottlenecks, which the model turns into scenes and memories of its own."""
    network = model.network
    vector = torch.randn(len(around.task), network.sizes.bottleneck, generator=generator)
    if network.kind == "sphere":
        vector = functional.normalize(vector, dim=1)
    return bottleneck_start(model, vector, around, generator)


def bottleneck_start(
    model: WorldModel, vector: torch.Tensor, around: Surroundings, generator: torch.Generator | None
) -> Start:
    """Start from bottlenecks, (S, dimensions); gradients pass from everything that follows to them.

    Args:
        vector: on the sphere, of length 1.
        generator: of the first latent states; None for the most probable ones.
    """
    network = model.network
    hidden, memory = network.start(vector)
    state = WorldState(hidden, drawn(network.prior_logits(hidden), generator))
    nothing = vector.new_zeros(len(vector), network.action)
    scene = network.decode(state, network.blank(len(vector)), nothing).scene
    return Start(state, scene, memory, around, vector)


def imagine(
    model: WorldModel, start: Start, ticks: int, generator: torch.Generator | None, moves: Sequence[int | None] = (),
    edits: TickEdits | None = None, shown: Shown | None = None, soft: bool = False, until: int | None = None,
) -> Iterator[ImaginedTick]:  # fmt: skip
    """Simulate tick after tick; gradients pass through everything, unless they are switched off.

    Args:
        generator: of actions and latent states; None for the most probable of each.
        moves: what every agent does in the first ticks instead of the policy's own move; None where it chooses.
        until: tick from which on nothing is edited; None for none.
        shown: what the world goes on from, and what the policy sees; None for the same scene.
        soft: draw nothing: actions, latent states and the agent's moves are the probabilities themselves. Not a life,
            but a smooth function, whose gradients are exact.
    """
    network, state, scene, memory = model.network, start.state, start.scene, start.memory
    mean, deviation = model.stats.reward
    for tick in range(ticks):
        scene, seen = shown(scene, tick) if shown else (scene, scene)
        if not soft:
            seen = model.weighed(seen)
        view = imagined_view(seen, model.stats.kind_means, start.around, model.layout, not soft, network.rules)
        made = edits if until is None or tick < until else None
        if made:
            memory = made.begin(memory, tick, seen.own)
        hooks = made.hooks(memory) if made else {}
        with model.policy.hooked(hooks), capture(model.policy, (ENCODER_OUTPUT, ACTION_DECODER)) as layers:
            choices, memory = soft_tick(model.policy, view.observation, memory)
        options = {
            head: _option(log_probability, generator) for head, log_probability in choices.log_probabilities.items()
        }
        forced = moves[tick] if tick < len(moves) else None
        if forced is not None:
            options[MOVE_HEAD] = torch.full_like(options[MOVE_HEAD], forced)
        chosen = {
            head: log_probability.exp() if soft else straight_through(log_probability, options[head])
            for head, log_probability in choices.log_probabilities.items()
        }
        action = imagined_actions(chosen, view.kind, view.cell, model.layout)
        hidden = network.step(state, action)
        prior = network.prior_logits(hidden)
        following_state = WorldState(hidden, prior.exp().flatten(1) if soft else drawn(prior, generator))
        following = network.decode(following_state, scene, action, decided=not soft)
        yield ImaginedTick(
            replace(scene, kinds=seen.kinds), view, choices, options, action, memory, dict(layers), state,
            mean + deviation * following.reward, following.end.sigmoid(), following,
        )  # fmt: skip
        state, scene = following_state, replace(following.scene, health=following.scene.health.clamp(0, 1))


def lived(
    ticks: Iterable[ImaginedTick], generator: torch.Generator
) -> Iterator[tuple[ImaginedTick, torch.Tensor, torch.Tensor]]:
    """Throw the dice of death in simulated ticks of S lives.

    Yields:
        Each tick, which lives are not over before it, and which of all would end with it, (S,) bool each.
    """
    alive = None
    for tick in ticks:
        ends = torch.rand(len(tick.end), generator=generator) < tick.end.detach()
        alive = torch.ones_like(ends) if alive is None else alive
        yield tick, alive, ends
        alive = alive & ~ends


def _option(log_probabilities: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
    """Choose an option for each agent, (B, options) to (B,)."""
    if generator is None:
        return log_probabilities.argmax(dim=1)
    return torch.multinomial(log_probabilities.detach().exp(), 1, generator=generator)[:, 0]
