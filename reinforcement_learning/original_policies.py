"""Turn checkpoints and curricula of the original repository into policies and task embeddings of this one."""

import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agent_zoo.checkpoint import CheckpointInfo, Origin, save_checkpoint, versions
from agent_zoo.checkpoint_files import SUFFIX
from agent_zoo.original.curriculum import read_curriculum
from agent_zoo.original.file import OriginalFile, read_original
from agent_zoo.original.weights import original_shape, policy_from_original
from common.files import make_folder, read_bytes, sha256, write_bytes
from common.user_error import UserError, printable
from reinforcement_learning.game.task_encoder import write_embeddings
from reinforcement_learning.settings import RewardSettings, TaskSettings, task_record


@dataclass(frozen=True)
class Curriculum:
    """Tasks of the original with their embeddings."""

    path: Path  # of the file that holds them here
    vectors: Mapping[str, np.ndarray]  # by task name, (size,) float16 each
    content: bytes  # bytes of that file
    sha256: str  # of these bytes

    @property
    def size(self) -> int:
        """Numbers in an embedding."""
        return len(next(iter(self.vectors.values())))


@dataclass(frozen=True)
class Imported:
    """A policy made from a checkpoint of the original, not yet written."""

    path: Path
    original: OriginalFile
    info: CheckpointInfo  # for the policy's header
    content: bytes  # bytes of the policy's file

    @property
    def name(self) -> str:
        """Name of the policy."""
        return self.path.name.removesuffix(SUFFIX)

    @property
    def numbers(self) -> int:
        """Numbers in the original's parameters."""
        return sum(tensor.numel() for tensor in self.original.tensors.values())

    @property
    def notes(self) -> list[str]:
        """What the user should know, one sentence each."""
        notes = [f"unknown: {name}" for name in self.original.unknown]
        if "embeddings" not in self.info.task:
            notes.append(
                "unknown: how it knows tasks (import it with --task-embeddings, or play with --task.embeddings)"
            )
        if self.original.strangers:
            shown = ", ".join(self.original.strangers[:3])
            notes.append(f"the file names what such files usually do not, and nothing of it was run: {shown}")
        return notes


def import_curriculum(path: Path, folder: Path) -> Curriculum:
    """Read a curriculum of the original, to be written to a folder of task embeddings."""
    vectors = read_curriculum(path)
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", path.stem)
    target = folder / f"{name}{SUFFIX}"
    content, digest = _made(target.name, lambda made: write_embeddings(made, vectors, printable(path.name)))
    return Curriculum(target, vectors, content, digest)


def import_checkpoint(path: Path, target: Path, curriculum: Curriculum | None) -> Imported:
    """Read a checkpoint of the original, and make a policy with its weights.

    Args:
        curriculum: embeddings of the tasks that the policy knows; None if they are not at hand.

    Raises:
        UserError: as `read_original` and `policy_from_original`, or the policy reads embeddings of another size.
    """
    original = read_original(path)
    try:
        shape = original_shape(original.tensors)
        policy = policy_from_original(original.tensors)
    except UserError as error:
        raise UserError(f"{path} cannot be imported: {error}") from None
    if curriculum and curriculum.size != shape.task_size:
        raise UserError(
            f"{path} reads task embeddings of {shape.task_size} numbers, and those of --task-embeddings have "
            f"{curriculum.size}: give the curriculum that it was trained with"
        )
    # Which tasks it was trained on is unknown; the held-out ones fit any policy.
    task = task_record(TaskSettings(curriculum="evaluation", encoder="file", embedding_size=shape.task_size))
    if curriculum:
        task |= {"embeddings": curriculum.path.name, "embeddings_sha256": curriculum.sha256}
    info = CheckpointInfo(
        agent=shape.agent,
        policy_arguments={"hidden_size": shape.hidden_size},
        recurrent_arguments={"layers": shape.layers},
        layout=policy.policy.layout,
        task=task,
        environment={},
        steps=original.steps or 0,
        seed=0,
        versions=versions(),
        reward=RewardSettings().to_header(),
        network="published",
        origin=Origin(printable(original.path.name), original.sha256, original.classes, original.steps is not None),
    )
    content, _ = _made(target.name, lambda made: save_checkpoint(made, policy, info))
    return Imported(target, original, info, content)


def write_all(contents: Mapping[Path, bytes], *, overwrite: bool) -> None:
    """Write files, once none of them would replace another one unasked.

    Raises:
        UserError: there is a file with other content, and `overwrite` is off, or a folder cannot be written to.
    """
    for path, content in contents.items():
        if path.exists() and not overwrite and read_bytes(path) != content:
            raise UserError(
                f"{path} exists already and has other content: choose another name with -n or another folder, or "
                "replace it with --overwrite"
            )
    for path, content in contents.items():
        make_folder(path.parent)
        write_bytes(path, content)


def _made(name: str, write: Callable[[Path], None]) -> tuple[bytes, str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        write(path)
        return read_bytes(path), sha256(path)
