"""What `--list` shows: the policies in a folder, and beside the shipped ones one's own."""

from pathlib import Path

from agent_zoo.checkpoint import read_info
from agent_zoo.checkpoint_files import folders_of, import_hint, list_checkpoints, not_imported
from common import command_line
from common.user_error import UserError

_HEADS = ("policy", "agent", "agent-steps", "seed", "task size", "folder")


def print_policies(folder: Path) -> None:
    """Show the policies; what cannot be read is shown with the reason.

    Raises:
        UserError: there is none.
    """
    places = folders_of(folder)
    rows = [_row(path) for place in places for path in list_checkpoints(place)]
    originals = [path for place in places for path in not_imported(place)]
    if not rows and not originals:
        raise UserError(f"there is no policy in {folder}/: train one with `python train.py`")
    command_line.print_table(_HEADS, [*rows, *((path.stem, "", "", "", "", str(path.parent)) for path in originals)])
    for path in originals:
        print(import_hint(path))


def _row(path: Path) -> tuple[str, ...]:
    try:
        info = read_info(path)
    except UserError as error:
        return path.stem, f"unreadable: {error}", "", "", "", str(path.parent)
    seed = "unknown" if info.origin else str(info.seed)
    return path.stem, info.agent, info.shown_steps, seed, str(info.layout.task_size), str(path.parent)
