"""The folder of a training run: settings, metrics, training curves, checkpoints, and the state for resuming."""

import shutil
from pathlib import Path

import orjson
from filelock import FileLock, Timeout

from agent_zoo.checkpoint_files import SUFFIX
from common.command_line import this_command
from common.files import append_bytes, is_leftover, make_folder, read_lines, write_bytes, write_json
from common.user_error import UserError
from reinforcement_learning.run_settings import RUN_SETTINGS_FILE, read_command
from reinforcement_learning.settings import Settings, plain_settings

METRICS_FILE = "metrics.jsonl"
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
            "command": read_command(self.folder) if path.exists() else this_command(),
        }
        write_json(path, content)

    def append_metrics(self, metrics: dict[str, float]) -> None:
        """Append one line to the metrics."""
        line = orjson.dumps(metrics, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY)
        append_bytes(self._metrics, line)

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
