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

import environment_check  # isort: skip  # noqa: F401 (must come before what is not in the standard library)

import numpy as np
import tyro

import command_line
from activation_store.files import make_folder
from agent_zoo.checkpoint import CheckpointInfo, load_checkpoint, read_checkpoint, write_checkpoint
from user_error import UserError


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
    rounded = {
        target: in_half_precision(path) for target, path in targets.items()
    }  # refuses before anything is written
    make_folder(arguments.output_dir)
    for target, path in targets.items():
        write_checkpoint(target, *rounded[target])
        print(f"{target}: {target.stat().st_size / 1e6:.1f} MB, was {path.stat().st_size / 1e6:.1f}")


def in_half_precision(source: Path) -> tuple[dict[str, np.ndarray], CheckpointInfo]:
    """Return a policy's weights, with floating-point numbers rounded to float16, and what its checkpoint says of it.

    Raises:
        UserError: the file is no policy that this version can load, or has a number that is too large for float16.
    """
    load_checkpoint(source)
    tensors, info = read_checkpoint(source)
    return {name: _rounded(name, tensor, source) for name, tensor in tensors.items()}, info


def _rounded(name: str, tensor: np.ndarray, source: Path) -> np.ndarray:
    if not np.issubdtype(tensor.dtype, np.floating):
        return tensor
    with np.errstate(over="ignore"):
        half = tensor.astype(np.float16)
    if not np.isfinite(half).all():
        raise UserError(f"{source}: {name} has numbers up to {abs(tensor).max():g}, too large for float16")
    return half


if __name__ == "__main__":
    command_line.run(main)
