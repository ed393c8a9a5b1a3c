"""The folder of a training run: settings, one line of metrics an update, checkpoints."""

from dataclasses import asdict
from pathlib import Path

import orjson

from activation_store.files import make_folder, write_json
from reinforcement_learning.checkpoint import SUFFIX
from reinforcement_learning.settings import Settings
from user_error import UserError

SETTINGS_FILE = "settings.json"
METRICS_FILE = "metrics.jsonl"
CHECKPOINTS_FOLDER = "checkpoints"
TASK_WEIGHTS_FILE = "task_weights.json"


class RunFolder:
    """Creates the folder and writes to it; `metrics.jsonl` is the record of truth, trackers only mirror it."""

    def __init__(self, folder: Path):
        """Create the folder.

        Raises:
            UserError: it already holds a run, or cannot be made.
        """
        self.folder = folder
        make_folder(folder)
        if any(folder.iterdir()):
            raise UserError(f"{folder} already holds a run: choose another name with -n, or remove the folder")

    def write_settings(self, agent: str, settings: Settings, versions: dict[str, str]) -> None:
        """Keep what the run was asked to do, and with which packages."""
        content = orjson.loads(orjson.dumps(asdict(settings), default=str))
        write_json(self.folder / SETTINGS_FILE, {"agent": agent, "settings": content, "versions": versions})

    def append_metrics(self, metrics: dict[str, float]) -> None:
        """Add one line to the metrics."""
        line = orjson.dumps(metrics, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY)
        with (self.folder / METRICS_FILE).open("ab") as file:
            file.write(line)

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.folder / CHECKPOINTS_FOLDER

    @property
    def task_weights(self) -> Path:
        """The file of the tasks' sampling weights, which an automatic curriculum keeps up to date."""
        return self.folder / TASK_WEIGHTS_FILE

    def checkpoint_path(self, name: str, steps: int) -> Path:
        """Return where the checkpoint after `steps` agent-steps belongs."""
        return self.checkpoints / f"{name}_{steps:010d}{SUFFIX}"
