"""Predict recorded windows without seeing them, and measure each tick's errors beside those of simple baselines.

The model is given the recorded actions, so that its errors are its own and not those of other dice. The baselines are
given more: the view is shifted by the moves that the agent really made.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from agent_zoo.memory import MemoryState
from agent_zoo.soft_observation import log_legality
from agent_zoo.soft_path import soft_tick
from representation.world_model.imagination import informed_start
from representation.world_model.imagined_view import imagined_view
from representation.world_model.model import WorldModel
from representation.world_model.moves import MOVES, displacement, shift
from representation.world_model.network import drawn
from representation.world_model.scene import Scene, SoftScene, legal_heads
from representation.world_model.starts import life_numbers
from representation.world_model.states import WorldState
from representation.world_model.unroll import scene_of
from representation.world_model.windows import CONTEXT, Windows

POLICY_HEADS = ("Move.Direction", "Attack.Style")
"""Heads whose probabilities are compared; the options of others are rows, which simulated views do not share."""
HIGHER_IS_BETTER = {"tiles": True, "entities": True, "vitals": False, "memory": True, "policy": False}
"""What is measured: share of tiles that are right, F1 of entities, mean error of health, food and water in points,
cosine of the policy's cell state with the recorded one, KL of the recorded policy from the imagined one in nats."""


@dataclass(frozen=True, eq=False)
class Errors:
    """One number per predicted tick for each measure. P predictions.

    Attributes:
        horizon: ticks after the last one seen, from 1, (P,) int64.
        life: number of the life, (P,) int64.
        episode: (P,) int64.
        model: measure -> (P,); of entities (P, 3): right, predicted and real.
        copied: likewise of the last scene seen, shifted by the agent's moves, and the last memory.
        ended: probability that the life had ended before this tick, and whether it had, (E, 2); of all lives that were
            alive a tick before.
        ended_horizon: of each of these, (E,) int64.
        confidence: probability of the most probable material of a tile, and whether it was right, by tenths of the
            probability: number of tiles, sum of probabilities, number right, (10, 3).
    """

    horizon: np.ndarray
    life: np.ndarray
    episode: np.ndarray
    model: dict[str, np.ndarray]
    copied: dict[str, np.ndarray]
    ended: np.ndarray
    ended_horizon: np.ndarray
    confidence: np.ndarray


@torch.no_grad()
def open_loop(model: WorldModel, windows: Windows) -> Iterator[Errors]:
    """Yield the errors of each tick of a batch of windows."""
    network = model.network
    start = informed_start(model, windows, None)
    state, scene = start.state, start.scene
    memory, copied = windows.memory(CONTEXT - 1), start.scene
    left = torch.arange(len(windows))
    frozen_memory = windows.memory(CONTEXT - 1)
    for tick in range(CONTEXT, windows.ticks + 1):
        going = windows.going(left, tick)
        if not len(going):
            return
        left, state, scene = left[going], state.take(going), scene_of(scene, going)
        there = windows.lengths[left] > tick
        copied, memory = scene_of(copied, going), memory.take(going)
        action = windows.action[left, tick - 1]
        hidden = network.step(state, action)
        state = WorldState(hidden, drawn(network.prior_logits(hidden), None))
        prediction = network.decode(state, scene, action, decided=True)
        ended = torch.stack([prediction.end.sigmoid(), (~there).float()], dim=1).numpy()
        (seen,) = there.nonzero(as_tuple=True)
        left, state, memory = left[seen], state.take(seen), memory.take(seen)
        scene = scene_of(prediction.scene, seen)
        if not len(seen):
            yield _only_ends(ended, tick - CONTEXT + 1)
            return
        moved = displacement(windows.where[left, tick - 1], windows.where[left, tick])
        copied = _shifted(scene_of(copied, seen), moved, network.shape.side)
        view = imagined_view(scene, model.stats.kind_means, windows.around.take(left), model.layout)
        choices, memory = soft_tick(model.policy, view.observation, memory)
        real_memory = windows.memory(tick, left)
        _, real = windows.at(tick)
        yield Errors(
            np.full(len(left), tick - CONTEXT + 1), life_numbers(windows, left), windows.identity[left, 0].numpy(),
            {
                **_scene_errors(scene, real, network.vitals), "memory": _cosine(memory, real_memory),
                "policy": _policy_kl(model, real_memory, real, choices.log_probabilities),
            },
            {
                **_scene_errors(copied, real, network.vitals),
                "memory": _cosine(frozen_memory.take(left), real_memory),
                "policy": _policy_kl(model, real_memory, real, _own_heads(model, frozen_memory.take(left), real)),
            },
            ended, np.full(len(ended), tick - CONTEXT + 1), _confidence(scene, real),
        )  # fmt: skip


def joined(parts: list[Errors]) -> Errors:
    """Concatenate errors."""

    def cat(name: str) -> np.ndarray:
        return np.concatenate([getattr(each, name) for each in parts])

    measures = {
        side: {name: np.concatenate([getattr(each, side)[name] for each in parts]) for name in HIGHER_IS_BETTER}
        for side in ("model", "copied")
    }
    return Errors(
        cat("horizon"), cat("life"), cat("episode"), measures["model"], measures["copied"], cat("ended"),
        cat("ended_horizon"), np.sum([each.confidence for each in parts], axis=0),
    )  # fmt: skip


def _only_ends(ended: np.ndarray, horizon: int) -> Errors:
    """Return the errors of a tick that no life has reached."""
    nothing = np.zeros(0, np.int64)
    measures = {name: np.zeros((0, 3) if name == "entities" else 0, np.float32) for name in HIGHER_IS_BETTER}
    return Errors(nothing, nothing, nothing, measures, measures, ended, np.full(len(ended), horizon), np.zeros((10, 3)))


def _shifted(scene: SoftScene, moved: torch.Tensor, side: int) -> SoftScene:
    """Shift a scene by the agent's own moves; tiles that come into view get the nearest material."""
    one_hot = functional.one_hot(moved, len(MOVES)).float()
    planes = scene.planes().unflatten(2, (side, side))
    materials = scene.material.shape[1]
    material = shift(planes[:, :materials], one_hot, repeat_edge=True).flatten(2)
    rest = shift(planes[:, materials:], one_hot).flatten(2)
    return SoftScene(
        material, rest[:, :-2], rest[:, -2], rest[:, -1], scene.own, scene.item_type, scene.items, scene.legal
    )


def _scene_errors(found: SoftScene, real: Scene, vitals: list[int]) -> dict[str, np.ndarray]:
    right = (found.material.argmax(dim=1) == real.material).float().mean(dim=1)
    there, wanted = found.kinds > 0.5, real.kinds > 0.5
    entities = torch.stack(
        [each.flatten(1).sum(dim=1).float() for each in (there & wanted, there, wanted)], dim=1
    )  # (P, 3)
    vital = 100 * (found.own[:, vitals] - real.own[:, vitals]).abs().mean(dim=1)
    return {"tiles": right.numpy(), "entities": entities.numpy(), "vitals": vital.numpy()}


def _cosine(found: MemoryState, real: MemoryState) -> np.ndarray:
    return functional.cosine_similarity(found.cell[-1], real.cell[-1], dim=1).numpy()


def _own_heads(model: WorldModel, memory: MemoryState, real: Scene) -> dict[str, torch.Tensor]:
    """Log-probabilities of `POLICY_HEADS` after a memory, with the real legality."""
    heads = legal_heads(model.layout)
    legal = dict(
        zip((head.name for head in heads), real.legal.split([head.size for head in heads], dim=1), strict=True)
    )
    read = model.policy.read(memory.hidden[-1])
    decoder = model.policy.policy.action_decoder
    return {
        head.name: (decoder.own_scores(head, read) + log_legality(legal[head.name])).log_softmax(dim=1)
        for head in heads
        if head.name in POLICY_HEADS
    }


def _policy_kl(model: WorldModel, memory: MemoryState, real: Scene, found: Mapping[str, torch.Tensor]) -> np.ndarray:
    """KL of the recorded policy from another one, summed over `POLICY_HEADS`, (P,)."""
    total = torch.zeros(len(real))
    for name, wanted in _own_heads(model, memory, real).items():
        total += (wanted.exp() * (wanted - found[name]).clamp(-1e3, 1e3)).sum(dim=1)
    return total.numpy()


def _confidence(found: SoftScene, real: Scene) -> np.ndarray:
    probability, material = found.material.max(dim=1)  # (P, V) each
    right = (material == real.material).double()
    tenth = (probability * 10).long().clamp(0, 9).flatten()
    sums = [
        torch.zeros(10, dtype=torch.float64).index_add(0, tenth, each.double().flatten())
        for each in (torch.ones_like(probability), probability, right)
    ]
    return torch.stack(sums, dim=1).numpy()
