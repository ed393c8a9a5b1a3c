"""Import policies that were trained with the original nmmo_baselines repository, without running any of their code.

    python import_policy.py takeru_200M.pt yaofeng_200M.pt       # become my_policies/takeru_200M.safetensors, ...
    python import_policy.py runs/nmmo_20231125 -n mine           # the newest checkpoint of a run folder
    python import_policy.py *.pt --task-embeddings heldout_task_with_embedding.pkl    # and what they know of tasks

Each becomes an ordinary policy that all other scripts use; its header says where it came from. Policies of the original
read tasks as numbers of a language model: --task-embeddings takes them from a curriculum of the original, for these
policies and, as a file, for `train.py --task.encoder file --task.embeddings FILE`. See docs/original_checkpoints.md.
"""

import common.environment_check  # isort: skip  # noqa: F401 (must come first)

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from agent_zoo.checkpoint_files import OWN, SUFFIX, TRAINER_STATE
from common import command_line
from common.argument_checks import check_file_name
from common.files import is_folder
from common.user_error import UserError

if TYPE_CHECKING:
    from reinforcement_learning.original_policies import Curriculum, Imported

DIGITS_SHOWN = 12
HEADS = ("policy", "agent", "agent-steps", "units", "LSTM layers", "task embedding", "numbers", "file", "SHA-256")


@dataclass(frozen=True)
class Arguments:
    """Arguments of import_policy.py."""

    files: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Checkpoints of the original (.pt), or run folders with model_NUMBER.pt, of which the newest is taken."""
    name: Annotated[str | None, tyro.conf.arg(aliases=["-n"])] = None
    """Name of the policy, if one is imported; by default that of the file, or of the run folder."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = OWN
    """Folder for the policies; names are looked up there, too, beside the shipped ones."""
    task_embeddings: Path | None = None
    """Curriculum of the original (.pkl) with the embeddings of tasks that the policies were trained with."""
    embeddings_dir: Path = Path("task_embeddings")
    """Folder for these embeddings, where other scripts look for them."""
    overwrite: bool = False
    """Replace files that exist already."""


def main() -> None:
    """Parse, read everything, write everything, report."""
    arguments = command_line.parse(Arguments, __doc__)
    targets = targets_of(arguments)

    from agent_zoo.original.file import newest_model
    from reinforcement_learning.original_policies import import_checkpoint, import_curriculum, write_all

    curriculum_path = arguments.task_embeddings
    curriculum = import_curriculum(curriculum_path, arguments.embeddings_dir) if curriculum_path else None
    files = {target: newest_model(path) if is_folder(path) else path for target, path in targets.items()}
    policies = [import_checkpoint(path, target, curriculum) for target, path in files.items()]
    contents = {curriculum.path: curriculum.content} if curriculum else {}
    write_all(contents | {policy.path: policy.content for policy in policies}, overwrite=arguments.overwrite)
    report(policies, curriculum)


def targets_of(arguments: Arguments) -> dict[Path, Path]:
    """Return which file or folder becomes which policy, after invalid arguments have been refused."""
    if not arguments.files and not arguments.task_embeddings:
        raise UserError("name at least one checkpoint of the original (.pt), or a curriculum with --task-embeddings")
    if arguments.name is not None and len(arguments.files) != 1:
        raise UserError(f"-n {arguments.name} names one policy, and {len(arguments.files)} files are given")
    targets: dict[Path, Path] = {}
    for path in arguments.files:
        name = arguments.name or (path.resolve().name if is_folder(path) else path.name.removesuffix(".pt"))
        check_file_name(name)
        if path.name == TRAINER_STATE:
            raise UserError(f"{path} holds no network, but the optimiser's state: name the model_NUMBER.pt beside it")
        target = arguments.output / f"{name}{SUFFIX}"
        if target in targets:
            raise UserError(f"{targets[target]} and {path} would both become {target}: import them one by one with -n")
        targets[target] = path
    return targets


def report(policies: "Sequence[Imported]", curriculum: "Curriculum | None") -> None:
    """Show what was imported, and what is unknown."""
    rows = [
        (
            policy.name, policy.info.agent, policy.info.shown_steps, str(policy.info.policy_arguments["hidden_size"]),
            str(policy.info.recurrent_arguments["layers"]), str(policy.info.layout.task_size), f"{policy.numbers:,}",
            policy.original.path.name, policy.original.sha256[:DIGITS_SHOWN],
        )
        for policy in policies
    ]  # fmt: skip
    if rows:
        command_line.print_table(HEADS, rows)
    for policy in policies:
        for note in policy.notes:
            print(f"{policy.name}: {note}")
    if curriculum:
        print(f"{len(curriculum.vectors)} tasks of {curriculum.size} numbers: {curriculum.path}")
    for policy in policies:
        print(f"policy: {policy.path}")


if __name__ == "__main__":
    command_line.run(main)
