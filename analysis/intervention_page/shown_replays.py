"""The replays that the page of an intervention run shows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from activation_store.files import sha256
from activation_store.interventions import (
    EDITED_REPLAY,
    REPLAYED_EPISODE,
    UNEDITED_REPLAY,
    Arm,
    LivesTable,
    replayed_arms,
)
from analysis.replays.compared import ComparedReplays, compare
from analysis.replays.file import read_replay
from analysis.runs.finished_files import open_finished
from analysis.runs.run_folder import DONE_FILE
from user_error import UserError

REPLAYS = (UNEDITED_REPLAY, EDITED_REPLAY)


@dataclass(frozen=True)
class ShownReplays:
    """The replays of a page.

    Attributes:
        compared: the two replays.
        arm: name of the edited one's arm.
    """

    compared: ComparedReplays
    arm: str


def read_shown_replays(
    folder: Path, lives: LivesTable, arms: Sequence[Arm], progress: Callable[[float], None]
) -> ShownReplays:
    """Read and compare the two replays of a run.

    Args:
        folder: of the run.
        lives: of the run.
        arms: of the run.
        progress: called with the share that has been read, from 0 to 1.

    Raises:
        UserError: one is missing, damaged or was changed, or they do not fit the run.
    """
    _refuse_changed(folder)
    arm = replayed_arms(arms)[EDITED_REPLAY].name
    unedited = read_replay(folder / UNEDITED_REPLAY, lambda share: progress(share / 2))
    edited = read_replay(folder / EDITED_REPLAY, lambda share: progress((1 + share) / 2))
    mine = lives.of_arm(arm)
    drawn = mine.agent[(mine.episode == REPLAYED_EPISODE) & mine.edited]
    return ShownReplays(compare(unedited, edited, drawn.tolist()), arm)


def _refuse_changed(folder: Path) -> None:
    """Refuse replays that are missing, or are not what an earlier report of the run listed."""
    proofs = open_finished(folder).sha256 if (folder / DONE_FILE).exists() else {}
    for name in REPLAYS:
        if not (folder / name).exists():
            raise UserError(f"{name} is missing")
        if name in proofs and sha256(folder / name) != proofs[name]:
            raise UserError(f"{name} does not match its SHA-256 in {DONE_FILE}: it is damaged or was edited")
