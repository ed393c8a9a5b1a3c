"""Store policies in half precision (float16): half the size, for checkpoints that are kept for comparison.

    python agent_zoo/half_precision.py runs/my_policy/checkpoints/*.safetensors --output-dir OUT

Wherever a policy is loaded, its numbers become float32 again. A weight keeps about three decimal digits. Actions hardly
change, but episodes part sooner or later: what was computed with one file does not repeat bit for bit with the other.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

if __package__ is None:  # run as a file: Python then looks for modules in agent_zoo/ instead of the project's root
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import common.environment_check  # isort: skip  # noqa: F401 (must come before what is not in the standard library)

import tyro

from agent_zoo.base import RecurrentPolicy
from agent_zoo.checkpoint import CheckpointInfo, load_checkpoint, save_checkpoint
from common import command_line
from common.files import make_folder
from common.user_error import UserError


@dataclass(frozen=True)
class Arguments:
    """Arguments of half_precision.py."""

    policies: tyro.conf.Positional[tuple[Path, ...]]
    """Policies or checkpoints to store in half precision, .safetensors."""
    output_dir: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """Folder for the new files, which keep their names. None may exist yet."""


def main() -> None:
    """Parse, convert, report."""
    arguments = command_line.parse(Arguments, __doc__)
    if not arguments.policies:
        raise UserError("name at least one policy (.safetensors)")
    targets = {arguments.output_dir / path.name: path for path in arguments.policies}
    if len(targets) < len(arguments.policies):
        raise UserError("two of these policies have the same file name: convert them into different folders")
    if taken := next((path for path in targets if path.exists()), None):
        raise UserError(f"{taken} exists already: choose another --output-dir")
    policies = {target: in_half_precision(path) for target, path in targets.items()}
    make_folder(arguments.output_dir)
    for target, (policy, info) in policies.items():
        save_checkpoint(target, policy, info)
        print(f"{target}: {target.stat().st_size / 1e6:.1f} MB, was {targets[target].stat().st_size / 1e6:.1f}")


def in_half_precision(source: Path) -> tuple[RecurrentPolicy, CheckpointInfo]:
    """Load a policy, and round its floating-point numbers to float16.

    Raises:
        UserError: the file is no policy that this version can load, or has a number that is too large for float16.
    """
    policy, info = load_checkpoint(source)
    for name, tensor in policy.state_dict().items():
        if tensor.is_floating_point() and not tensor.half().isfinite().all():
            raise UserError(f"{source}: {name} has numbers up to {tensor.abs().max():g}, too large for float16")
    return policy.half(), info


if __name__ == "__main__":
    command_line.run(main)
