"""The folder of a training run: settings, metrics, curves, checkpoints, and the complete state between two updates.

The state of a world of Neural MMO cannot be saved, but an episode is determined by its seed and its actions, so these
are saved and replayed: resuming is exact.
"""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import orjson
import torch
from filelock import FileLock, Timeout
from pydantic import ConfigDict, NonNegativeInt

from agent_zoo.checkpoint import as_arrays, as_tensors
from agent_zoo.checkpoint_files import SUFFIX
from agent_zoo.data_parallel import Processes
from agent_zoo.memory import MemoryState
from common.array_files import Kind, read_tensors, write_tensors
from common.checked_json import in_shape
from common.command_line import this_command
from common.files import append_bytes, is_leftover, make_folder, read_lines, write_bytes, write_json
from common.user_error import UserError
from reinforcement_learning.game.environment import NO_ACTIONS, EpisodeStart
from reinforcement_learning.run_settings import METRICS_FILE, RUN_SETTINGS_FILE, stated_in_run
from reinforcement_learning.settings import Settings, plain_settings

CURVES_FILE = "curves.png"
CHECKPOINTS_FOLDER = "checkpoints"
TASK_WEIGHTS_FILE = "task_weights.json"
STATE_FILE = "training_state.safetensors"
LOCK_FILE = ".lock"


def make_run_folder(folder: Path) -> None:
    """Create the folder of a new run (UserError: it already holds a run, or cannot be made)."""
    make_folder(folder)
    # A training that was killed as it began has left no more than its lock and a temporary file.
    if any(path.name != LOCK_FILE and not is_leftover(path, RUN_SETTINGS_FILE) for path in folder.iterdir()):
        raise UserError(f"{folder} already holds a run: choose another name with -n, or continue it with --resume")


class TrainingFolder:
    """The files of a run; `metrics.jsonl` is authoritative, trackers only mirror it.

    Only one process at a time can hold a run; the lock is released when the process ends.

    Attributes:
        checkpoints: the folder of checkpoints.
        state_path: the file from which the run can be resumed.
        task_weights: the file of the tasks' sampling weights, which an automatic curriculum keeps up to date.
    """

    def __init__(self, folder: Path, hold: bool = True):
        """Open an existing folder and lock it.

        Args:
            hold: whether to lock it; only the leader of a run's processes does, and the others write nothing.

        Raises:
            UserError: another process holds it.
        """
        self.folder = folder
        self.checkpoints = folder / CHECKPOINTS_FOLDER
        self.state_path = folder / STATE_FILE
        self.task_weights = folder / TASK_WEIGHTS_FILE
        self._metrics = folder / METRICS_FILE
        if not hold:
            return
        self._lock = FileLock(folder / LOCK_FILE)
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            raise UserError(f"another process is training in {folder}: wait for it, or choose another name") from None

    def withdraw(self) -> None:
        """Remove the folder of a new run that made no update, so that its name can be used again."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.release()

    @property
    def untouched(self) -> bool:
        """Whether no update was made, and nothing saved from which the run could go on."""
        return not self.state_path.exists() and not self._has_metrics()

    def write_settings(self, agent: str, settings: Settings, versions: dict[str, str], policies_dir: Path) -> None:
        """Write the run's settings, package versions, the folder that its policy goes to, and its first command."""
        path = self.folder / RUN_SETTINGS_FILE
        content = {
            "agent": agent,
            "settings": plain_settings(settings),
            "versions": versions,
            "policies_dir": str(policies_dir),
            "command": stated_in_run(self.folder, "command") if path.exists() else this_command(),
        }
        write_json(path, content)

    def append_metrics(self, metrics: dict[str, float]) -> None:
        """Append one line to the metrics, on the disk before the state that counts it."""
        line = orjson.dumps(metrics, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY)
        append_bytes(self._metrics, line, sync=True)

    def keep_metrics(self, updates: int) -> None:
        """Drop metrics after the given number of updates: a killed run may have written past its saved state."""
        if self._metrics.exists():
            write_bytes(self._metrics, b"".join(read_lines(self._metrics)[:updates]))

    def draw_curves(self) -> None:
        """Draw the metrics so far; do nothing before the first update."""
        if self._has_metrics():
            from reinforcement_learning.training.curves import draw_curves

            draw_curves(self._metrics, self.folder / CURVES_FILE)

    def _has_metrics(self) -> bool:
        return self._metrics.exists() and self._metrics.stat().st_size > 0

    def checkpoint_path(self, name: str, steps: int) -> Path:
        """Return the path of the checkpoint after `steps` agent-steps."""
        return self.checkpoints / f"{name}_{steps:010d}{SUFFIX}"

    def stopped_path(self, name: str) -> Path:
        """Return the path of the policy of a stopped run."""
        return self.folder / f"{name}_stopped{SUFFIX}"


FORMAT_VERSION = 2
_KIND: Kind = "training state"


@dataclass(frozen=True)
class TrainingState:
    """Everything that changes during training, between two updates, of one process of the run or of all."""

    steps: int  # agent-steps so far
    updates: int  # updates so far
    policy: dict[str, torch.Tensor]  # weights by name
    optimizer: dict[str, torch.Tensor]
    """Moments and counters of the optimizer, by the parameter's index and the quantity's name."""
    memory: MemoryState
    minibatch_random: torch.Tensor
    """State of each process's generator for minibatches, (processes, bytes) uint8. Each shuffles a different number of
    segments, so these generators diverge."""
    worlds: list[EpisodeStart]  # current state of each world
    curriculum: dict[str, np.ndarray]  # state of an automatic curriculum; empty without one
    semantic: dict[str, torch.Tensor]
    """State of the training of a codebook, the same in all processes; empty without one."""

    def joined(self, processes: Processes) -> "TrainingState":
        """Return the joint state of all processes, by rank; all must call this together."""

        memory = (self.memory.hidden, self.memory.cell)  # (layers, slots, units) each
        return replace(
            self,
            memory=MemoryState(
                *(processes.concatenate(part.transpose(0, 1).contiguous()).transpose(0, 1) for part in memory)
            ),
            minibatch_random=processes.concatenate(self.minibatch_random),
            worlds=_worlds_joined(self.worlds, processes),
        )

    def share(self, processes: Processes) -> "TrainingState":
        """Return one process's part of the joint state (UserError: it is from a different number of processes)."""
        if len(self.minibatch_random) != processes.size:
            raise UserError(
                f"the run had {len(self.minibatch_random)} processes and cannot be resumed with {processes.size}: "
                "start the same number with torchrun"
            )
        rank, size = processes.rank, processes.size
        return replace(
            self,
            memory=self.memory.split(size)[rank],
            # A copy: torch restores a generator from the start of a tensor's storage, not from the start of a view.
            minibatch_random=self.minibatch_random[rank : rank + 1].clone(),
            worlds=self.worlds[rank * len(self.worlds) // size : (rank + 1) * len(self.worlds) // size],
        )

    def save(self, path: Path) -> None:
        """Write the state atomically."""
        tensors = {
            **{f"policy/{name}": tensor for name, tensor in self.policy.items()},
            **{f"optimizer/{name}": tensor for name, tensor in self.optimizer.items()},
            "memory/hidden": self.memory.hidden,
            "memory/cell": self.memory.cell,
            "random/minibatches": self.minibatch_random,
            **{f"curriculum/{name}": torch.from_numpy(np.array(value)) for name, value in self.curriculum.items()},
            **{f"semantic/{name}": tensor for name, tensor in self.semantic.items()},
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
        """Read a state onto the CPU (UserError: the file is missing, damaged, or of another kind or format version)."""
        arrays, text = read_tensors(path, _KIND)
        counters, tensors = _read_counters(path, text), as_tensors(arrays)
        try:
            memory = MemoryState(
                *(_checked(tensors, f"memory/{part}", torch.float32, 3) for part in ("hidden", "cell"))
            )
            if memory.cell.shape[1:] != memory.hidden.shape[1:] or len(memory.cell) not in (0, len(memory.hidden)):
                raise ValueError("memory/hidden and memory/cell differ in shape")
            worlds = []
            for place, world in enumerate(counters.worlds):
                actions, weights = f"actions/{place}", f"task_weights/{place}"
                taken = _checked(tensors, actions, torch.int16, 3).numpy() if actions in tensors else NO_ACTIONS
                drawn_with = _checked(tensors, weights, torch.float64, 1).numpy() if weights in tensors else None
                worlds.append(EpisodeStart(world["first_seed"], world["number"], taken, drawn_with))
            return TrainingState(
                steps=counters.steps,
                updates=counters.updates,
                policy=_inside("policy/", tensors),
                optimizer=_inside("optimizer/", tensors),
                memory=memory,
                minibatch_random=_checked(tensors, "random/minibatches", torch.uint8, 2),
                worlds=worlds,
                curriculum={name: tensor.numpy() for name, tensor in _inside("curriculum/", tensors).items()},
                semantic=_inside("semantic/", tensors),
            )
        except (KeyError, TypeError, ValueError) as error:
            missing = f"{error} is missing" if isinstance(error, KeyError) else error
            raise UserError(f"{path} is a damaged training state: {missing}; train anew") from None


@dataclass(frozen=True)
class _Counters:
    """What the header of a training state says."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")

    format_version: int
    steps: NonNegativeInt
    updates: NonNegativeInt
    worlds: list[dict[Literal["first_seed", "number"], NonNegativeInt]]


def _read_counters(path: Path, text: str) -> _Counters:
    try:
        content = orjson.loads(text)
        version = content.get("format_version")
    except (orjson.JSONDecodeError, AttributeError):
        raise UserError(f"{path} is no training state: its header does not tell its counters") from None
    if version != FORMAT_VERSION:
        raise UserError(
            f"{path} is a training state of format version {version}, and only version {FORMAT_VERSION} can be "
            "resumed: train anew, or resume with the version of this project that wrote it"
        )
    return in_shape(_Counters, text, f"{path} is a damaged training state", "train anew")


def _checked(tensors: dict[str, torch.Tensor], name: str, dtype: torch.dtype, dimensions: int) -> torch.Tensor:
    tensor = tensors[name]
    if tensor.dtype != dtype or tensor.dim() != dimensions:
        raise ValueError(f"{name} is {tensor.dtype} with {tensor.dim()} dimensions, not {dtype} with {dimensions}")
    return tensor


def _worlds_joined(worlds: list[EpisodeStart], processes: Processes) -> list[EpisodeStart]:
    """Return the worlds of all processes, by rank; each process has the same number."""
    if processes.size == 1:
        return worlds
    names = processes.concatenate(torch.tensor([[world.first_seed, world.number] for world in worlds])).tolist()
    ticks = processes.concatenate(torch.tensor([len(world.actions) for world in worlds])).tolist()
    # A world at the start of an episode has no actions that would show their shape.
    agents, heads = (processes.largest(max(world.actions.shape[axis] for world in worlds)) for axis in (1, 2))
    taken = np.concatenate([world.actions.reshape(len(world.actions), agents, heads) for world in worlds])
    everyones = processes.concatenate(torch.from_numpy(taken).int()).short().numpy()  # Gloo lacks 16-bit integers
    actions = np.split(everyones, np.cumsum(ticks)[:-1])
    return [EpisodeStart(first_seed, number, moves) for (first_seed, number), moves in zip(names, actions, strict=True)]


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Return an optimizer's state of each parameter as a flat dictionary."""
    return {
        f"{place}/{name}": tensor
        for place, remembered in optimizer.state_dict()["state"].items()
        for name, tensor in remembered.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, torch.Tensor]) -> None:
    """Give an optimizer what `optimizer_tensors` returned (ValueError: that of another one, or of other parameters)."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    remembered: dict[int, dict[str, torch.Tensor]] = {}
    for key, tensor in tensors.items():
        place, name = key.split("/")
        if not 0 <= int(place) < len(parameters) or tensor.shape not in ((), parameters[int(place)].shape):
            raise ValueError(f"optimizer/{key} with shape {tuple(tensor.shape)} belongs to no parameter")
        remembered.setdefault(int(place), {})[name] = tensor
    optimizer.load_state_dict({"state": remembered, "param_groups": optimizer.state_dict()["param_groups"]})


def _inside(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
