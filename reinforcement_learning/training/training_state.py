"""All that a training run needs to go on exactly as if it had never stopped, between two updates.

The state of a world of Neural MMO cannot be saved; but an episode follows from its seed and from the actions taken in
it, so these are saved and played again.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from activation_store.tensor_file import Kind, read_tensors, write_tensors
from agent_zoo.memory import MemoryState
from agent_zoo.tensors import as_arrays, as_tensors
from reinforcement_learning.game.environment import NO_ACTIONS, EpisodeStart
from reinforcement_learning.training.data_parallel import Processes
from user_error import UserError

FORMAT_VERSION = 2
_KIND: Kind = "training state"


@dataclass(frozen=True)
class TrainingState:
    """Everything that changes while training, between two updates: of one process of the run, or of all.

    Attributes:
        steps: agent-steps so far.
        updates: updates so far.
        policy: weights by name.
        optimizer: moments and counters of Adam, by the parameter's place and the quantity's name.
        memory: of all slots.
        minibatch_random: state of the generator that deals minibatches in each process, (processes, bytes) uint8. Each
            deals its own number of segments, so these generators do not stay equal.
        worlds: where each world is.
        curriculum: what an automatic curriculum has learnt; nothing without one.
    """

    steps: int
    updates: int
    policy: dict[str, torch.Tensor]
    optimizer: dict[str, torch.Tensor]
    memory: MemoryState
    minibatch_random: torch.Tensor
    worlds: list[EpisodeStart]
    curriculum: dict[str, np.ndarray]

    def joined(self, processes: Processes) -> "TrainingState":
        """Return the state of all processes, by rank; all must call this together."""

        def slots_joined(memory: torch.Tensor) -> torch.Tensor:
            return processes.concatenate(memory.transpose(0, 1).contiguous()).transpose(0, 1)

        return replace(
            self,
            memory=MemoryState(slots_joined(self.memory.hidden), slots_joined(self.memory.cell)),
            minibatch_random=processes.concatenate(self.minibatch_random),
            worlds=_worlds_joined(self.worlds, processes),
        )

    def share(self, processes: Processes) -> "TrainingState":
        """Return what one process needs of the state of all.

        Raises:
            UserError: the state is that of another number of processes.
        """
        if len(self.minibatch_random) != processes.size:
            raise UserError(
                f"the run had {len(self.minibatch_random)} processes and cannot be resumed with {processes.size}: "
                "start the same number with torchrun"
            )
        rank, size = processes.rank, processes.size
        return replace(
            self,
            memory=MemoryState(self.memory.hidden.chunk(size, dim=1)[rank], self.memory.cell.chunk(size, dim=1)[rank]),
            # A copy: torch restores a generator from where a tensor's storage begins, not from where a view does.
            minibatch_random=self.minibatch_random[rank : rank + 1].clone(),
            worlds=self.worlds[rank * len(self.worlds) // size : (rank + 1) * len(self.worlds) // size],
        )

    def save(self, path: Path) -> None:
        """Write the state, whole or not at all."""
        tensors = {
            **{f"policy/{name}": tensor for name, tensor in self.policy.items()},
            **{f"optimizer/{name}": tensor for name, tensor in self.optimizer.items()},
            "memory/hidden": self.memory.hidden,
            "memory/cell": self.memory.cell,
            "random/minibatches": self.minibatch_random,
            **{f"curriculum/{name}": torch.from_numpy(np.array(value)) for name, value in self.curriculum.items()},
        }
        for world, start in enumerate(self.worlds):
            if len(start.actions):
                tensors[f"actions/{world}"] = torch.from_numpy(start.actions)
            if start.task_weights is not None:
                tensors[f"task_weights/{world}"] = torch.from_numpy(start.task_weights)
        counters = {
            "format_version": FORMAT_VERSION,
            "steps": self.steps,
            "updates": self.updates,
            "worlds": [{"first_seed": start.first_seed, "number": start.number} for start in self.worlds],
        }
        write_tensors(path, as_arrays(tensors), json.dumps(counters), _KIND)

    @staticmethod
    def load(path: Path) -> "TrainingState":
        """Read a state back, on the CPU.

        Raises:
            UserError: the file is missing, damaged, or of another kind or format version.
        """
        arrays, text = read_tensors(path, _KIND)
        try:
            counters = json.loads(text)
            version = counters.get("format_version")
        except (ValueError, AttributeError, RecursionError):
            raise _damaged(path) from None
        if version != FORMAT_VERSION:
            raise UserError(
                f"{path} is a training state of format version {version}, and only version {FORMAT_VERSION} can be "
                "resumed: train anew, or resume with the version of this project that wrote it"
            )
        try:
            return TrainingState._from(counters, as_tensors(arrays))
        except (KeyError, TypeError, ValueError):
            raise _damaged(path) from None

    @staticmethod
    def _from(counters: dict[str, Any], tensors: dict[str, torch.Tensor]) -> "TrainingState":
        return TrainingState(
            steps=counters["steps"],
            updates=counters["updates"],
            policy=_inside("policy/", tensors),
            optimizer=_inside("optimizer/", tensors),
            memory=MemoryState(tensors["memory/hidden"], tensors["memory/cell"]),
            minibatch_random=tensors["random/minibatches"],
            worlds=[
                _world(world["first_seed"], world["number"], place, tensors)
                for place, world in enumerate(counters["worlds"])
            ],
            curriculum={name: tensor.numpy() for name, tensor in _inside("curriculum/", tensors).items()},
        )


def _damaged(path: Path) -> UserError:
    return UserError(f"{path} is damaged: it lacks a part of a training state; restore a copy, or train anew")


def _worlds_joined(worlds: list[EpisodeStart], processes: Processes) -> list[EpisodeStart]:
    """The worlds of all processes, by rank; each process has equally many."""
    if processes.size == 1:
        return worlds
    names = processes.concatenate(torch.tensor([[world.first_seed, world.number] for world in worlds])).tolist()
    ticks = processes.concatenate(torch.tensor([len(world.actions) for world in worlds])).tolist()
    # A world at the start of an episode has no actions to take its shape from.
    agents, heads = (processes.largest(max(world.actions.shape[axis] for world in worlds)) for axis in (1, 2))
    taken = np.concatenate([world.actions.reshape(len(world.actions), agents, heads) for world in worlds])
    everyones = processes.concatenate(torch.from_numpy(taken).int()).short().numpy()  # Gloo carries no 16-bit integers
    actions = np.split(everyones, np.cumsum(ticks)[:-1])
    return [EpisodeStart(first_seed, number, each) for (first_seed, number), each in zip(names, actions, strict=True)]


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Return what an optimizer remembers of each parameter, flat."""
    return {
        f"{place}/{name}": tensor
        for place, remembered in optimizer.state_dict()["state"].items()
        for name, tensor in remembered.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, torch.Tensor]) -> None:
    """Give an optimizer what `optimizer_tensors` returned."""
    remembered: dict[int, dict[str, torch.Tensor]] = {}
    for key, tensor in tensors.items():
        place, name = key.split("/")
        remembered.setdefault(int(place), {})[name] = tensor
    optimizer.load_state_dict({"state": remembered, "param_groups": optimizer.state_dict()["param_groups"]})


def _world(first_seed: int, number: int, place: int, tensors: dict[str, torch.Tensor]) -> EpisodeStart:
    actions, weights = tensors.get(f"actions/{place}"), tensors.get(f"task_weights/{place}")
    return EpisodeStart(
        first_seed,
        number,
        NO_ACTIONS if actions is None else actions.numpy(),
        None if weights is None else weights.numpy(),
    )


def _inside(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
