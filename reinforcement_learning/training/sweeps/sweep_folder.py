"""The folder of a local sweep: what is searched, the trials so far, and the best settings."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import orjson
import yaml
from pydantic import TypeAdapter, ValidationError

from common.files import is_leftover, read_json, read_lines, write_bytes, write_json, write_text
from common.user_error import UserError
from common.yaml_file import one_line, shown
from reinforcement_learning.settings import CHANGEABLE_WHEN_RESUMED, Settings, plain_settings
from reinforcement_learning.training.sweeps.search_space import SearchSpace, Values

SWEEP_FILE = "sweep.json"
TRIALS_FILE = "trials.jsonl"
TABLE_FILE = "trials.tsv"
BEST_FILE = "best.yaml"
_DECIDES_RESULTS = ("train.total_agent_steps",)
_MAY_CHANGE = set(CHANGEABLE_WHEN_RESUMED) - set(_DECIDES_RESULTS)


@dataclass(frozen=True)
class Trial:
    """One training run of a sweep: a line of trials.jsonl.

    Attributes:
        number: from 0.
        name: of its policy and its run.
        state: running (also if it was interrupted), finished or failed.
        values: that were chosen for it.
        metric: last value reported; None unless it finished.
        agent_steps: trained; None unless it finished.
        fault: why it failed.
    """

    number: int
    name: str
    state: Literal["running", "finished", "failed"]
    values: Values
    metric: float | None = None
    agent_steps: int | None = None
    fault: str = ""


class SweepFolder:
    """Keeps the record of a sweep; every file is replaced as a whole, so a kill loses nothing."""

    def __init__(self, path: Path, space: SearchSpace, agent: str, settings: Settings):
        """Open a folder, empty for a new sweep, or that of a sweep to continue; the caller has locked it.

        Raises:
            UserError: the folder holds a sweep with another search space, agent or settings, or something else, or its
                record is damaged.
        """
        self.path = path
        self.space = space
        content = {"agent": agent, "search": asdict(space), "settings": plain_settings(settings)}
        if (path / SWEEP_FILE).exists():
            _check_same(path, read_json(path / SWEEP_FILE), content)
        else:
            if any(not is_leftover(each, SWEEP_FILE) for each in path.iterdir()):
                raise UserError(f"{path} holds something other than a sweep: choose another name with -n")
            write_json(path / SWEEP_FILE, content)
        self.trials = _read_trials(path / TRIALS_FILE)

    def record(self, trial: Trial) -> None:
        """Add a trial, or replace the line of the same number."""
        self.trials = [*self.trials[: trial.number], trial, *self.trials[trial.number + 1 :]]
        lines = (orjson.dumps(asdict(recorded), option=orjson.OPT_APPEND_NEWLINE) for recorded in self.trials)
        write_bytes(self.path / TRIALS_FILE, b"".join(lines))
        write_text(self.path / TABLE_FILE, self._table())

    @property
    def finished(self) -> list[Trial]:
        """Trials that finished, the best first; earlier ones first where they are equal."""
        finished = [trial for trial in self.trials if trial.metric is not None]
        sign = -1 if self.space.goal == "maximize" else 1
        return sorted(finished, key=lambda trial: sign * (trial.metric or 0.0))

    def write_best(self, agent: str, settings: Settings) -> Path:
        """Write the settings of the best trial as a file for `train.py --config`, and return its path."""
        best, space = self.finished[0], self.space
        about = (
            f"# Best of {len(self.finished)} finished trials of the sweep {self.path.name}: trial {best.number}, "
            f"{space.metric} = {best.metric:g} ({space.goal}).\n"
            f"# One training run is little evidence: train several seeds and compare them, see docs/training.md.\n"
            f"#   python train.py -a {agent} --config {self.path / BEST_FILE} -n NAME_1 --train.seed 1\n"
        )
        write_text(self.path / BEST_FILE, about + yaml.safe_dump(plain_settings(settings), sort_keys=False))
        return self.path / BEST_FILE

    def _table(self) -> str:
        """Return the trials as tab-separated lines, heads first: finished ones before the others, the best first."""
        names = list(self.space.parameters)
        others = [trial for trial in self.trials if trial.metric is None]
        rows = [("trial", "run", "state", self.space.metric, "agent_steps", *names)]
        for trial in [*self.finished, *others]:
            values = (trial.metric, trial.agent_steps, *(trial.values.get(name) for name in names))
            rows.append(
                (str(trial.number), trial.name, trial.state, *("" if cell is None else str(cell) for cell in values))
            )
        return "".join("\t".join(row) + "\n" for row in rows)


def _read_trials(path: Path) -> list[Trial]:
    trials = TypeAdapter(list[Trial])
    try:
        read = trials.validate_python([orjson.loads(line) for line in read_lines(path)])
    except (orjson.JSONDecodeError, ValidationError):
        raise UserError(f"{path} is damaged: remove the line that is not a trial, or start a new sweep") from None
    whole = all(trial.number == place for place, trial in enumerate(read))
    if not whole or not all(math.isfinite(trial.metric) for trial in read if trial.metric is not None):
        raise UserError(f"{path} is damaged: its trials must be numbered 0, 1, 2, ... and have finite metrics")
    return read


def _check_same(path: Path, before: object, now: Mapping[str, Any]) -> None:
    if not isinstance(before, dict) or not {"agent", "search", "settings"} <= before.keys():
        raise UserError(f"{path / SWEEP_FILE} is damaged: choose another name with -n")
    was, is_now = _flat("", before), _flat("", now)
    names: Sequence[str] = sorted(was.keys() | is_now.keys())
    for name in names:
        setting = name.removeprefix("settings.")
        if setting not in _MAY_CHANGE and was.get(name) != is_now.get(name):
            raise UserError(
                f"{path} holds a sweep with another {one_line(setting)} ({shown(was.get(name))}, now "
                f"{shown(is_now.get(name))}): change it back to continue that sweep, or choose another name with -n"
            )


def _flat(prefix: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested values under dotted names."""
    flat: dict[str, Any] = {}
    for key, value in content.items():
        name = f"{prefix}{key}"
        flat |= _flat(f"{name}.", value) if isinstance(value, dict) else {name: value}
    return flat
