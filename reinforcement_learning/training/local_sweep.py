"""A sweep on this machine, without an account: Optuna chooses values, each trial is a training run of its own."""

import math
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import orjson
import yaml
from pydantic import TypeAdapter, ValidationError

from common.argument_checks import did_you_mean
from common.files import is_leftover, read_json, read_json_lines, read_lines, write_bytes, write_json, write_text
from common.user_error import UserError
from common.yaml_file import one_line, shown
from reinforcement_learning.processes import PARENT_PROCESS, StopSignal
from reinforcement_learning.run_settings import CHANGEABLE_WHEN_RESUMED, METRICS_FILE, RUN_SETTINGS_FILE
from reinforcement_learning.settings import Settings, plain_settings
from reinforcement_learning.training.sweep import SearchSpace, Values, override

SWEEP_FILE = "sweep.json"
TRIALS_FILE = "trials.jsonl"
TABLE_FILE = "trials.tsv"
BEST_FILE = "best.yaml"
_DECIDES_RESULTS = ("train.total_agent_steps", "rollout.num_envs")
_MAY_CHANGE = set(CHANGEABLE_WHEN_RESUMED) - set(_DECIDES_RESULTS)


@dataclass(frozen=True)
class Trial:
    """One training run of a sweep: a line of trials.jsonl."""

    number: int  # from 0
    name: str  # of its policy and its run
    state: Literal["running", "finished", "failed"]  # running (also if it was interrupted), finished or failed
    values: Values  # that were chosen for it
    metric: float | None = None  # last value reported; None unless it finished
    agent_steps: int | None = None  # trained; None unless it finished
    fault: str = ""  # why it failed


class SweepFolder:
    """Keeps the record of a sweep; every file is replaced as a whole, so a kill loses nothing."""

    def __init__(self, path: Path, space: SearchSpace, agent: str, settings: Settings):
        """Open a folder, empty for a new sweep, or that of a sweep to continue; the caller has locked it.

        Raises:
            UserError: the folder holds a sweep with another search space, agent or settings, or something else, or its
                record is damaged.
        """
        self.path, self.space, self.agent, self.settings = path, space, agent, settings
        content = {"agent": agent, "search": asdict(space), "settings": plain_settings(settings)}
        if (path / SWEEP_FILE).exists():
            _check_same(path, read_json(path / SWEEP_FILE), content)
        else:
            if any(not is_leftover(file, SWEEP_FILE) for file in path.iterdir()):
                raise UserError(f"{path} holds something other than a sweep: choose another name with -n")
            write_json(path / SWEEP_FILE, content)
        self.trials = _read_trials(path / TRIALS_FILE)

    def record(self, trial: Trial) -> None:
        """Add a trial, or replace the line of the same number."""
        self.trials = [*self.trials[: trial.number], trial, *self.trials[trial.number + 1 :]]
        lines = (orjson.dumps(asdict(recorded), option=orjson.OPT_APPEND_NEWLINE) for recorded in self.trials)
        write_bytes(self.path / TRIALS_FILE, b"".join(lines))
        names = list(self.space.parameters)
        rows = [("trial", "run", "state", self.space.metric, "agent_steps", *names)]
        for one in [*self.finished, *(one for one in self.trials if one.metric is None)]:
            cells = (one.number, one.name, one.state, one.metric, one.agent_steps, *map(one.values.get, names))
            rows.append(tuple("" if cell is None else str(cell) for cell in cells))
        write_text(self.path / TABLE_FILE, "".join("\t".join(row) + "\n" for row in rows))

    @property
    def finished(self) -> list[Trial]:
        """Trials that finished, the best first; earlier ones first where they are equal."""
        finished = [trial for trial in self.trials if trial.metric is not None]
        sign = -1 if self.space.goal == "maximize" else 1
        return sorted(finished, key=lambda trial: sign * (trial.metric or 0.0))

    def write_best(self) -> None:
        """Write the settings of the best trial as a file for `train.py --config`."""
        best, space = self.finished[0], self.space
        settings = override(self.settings, best.values)
        about = (
            f"# Best of {len(self.finished)} finished trials of the sweep {self.path.name}: trial {best.number}, "
            f"{space.metric} = {best.metric:g} ({space.goal}).\n"
            f"# One training run is little evidence: train several seeds and compare them, see docs/training.md.\n"
            f"#   python train.py -a {self.agent} --config {self.path / BEST_FILE} -n NAME_1 --train.seed 1\n"
        )
        write_text(self.path / BEST_FILE, about + yaml.safe_dump(plain_settings(settings), sort_keys=False))


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
    flat: dict[str, Any] = {}
    for key, value in content.items():
        name = f"{prefix}{key}"
        flat |= _flat(f"{name}.", value) if isinstance(value, dict) else {name: value}
    return flat


_LOOK_EVERY = 0.5
_STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)


@dataclass(frozen=True)
class TrialCommands:
    """How trials are started."""

    script: str  # path of train.py
    shared: Sequence[str]  # arguments of all trials
    policies_dir: Path  # folder that their policies go to
    runs_dir: Path  # folder of their runs
    track: bool  # whether they log to Weights & Biases (to files)

    def start(self, trial: Trial) -> list[str]:
        """Return the command that starts a trial."""
        values = orjson.dumps(trial.values).decode()
        return [sys.executable, self.script, *self.shared, "-n", trial.name, "--trial", values]

    def resume(self, trial: Trial) -> list[str]:
        """Return the command that continues a trial that was interrupted; it starts one that had not begun."""
        run = self.runs_dir / trial.name
        if not (run / RUN_SETTINGS_FILE).exists():
            return self.start(trial)
        log = [] if self.track else ["--no-track"]
        return [sys.executable, self.script, "--resume", str(run), "--policies-dir", str(self.policies_dir), *log]


def run_local_sweep(folder: SweepFolder, runs: int, commands: TrialCommands) -> None:
    """Run trials one after the other, first the one that was interrupted, if any; record each as it ends.

    Ctrl-C or SIGTERM stops the current trial, which the next call continues, and ends the process.

    Args:
        runs: trials to run now; fewer if a grid has fewer left.

    Raises:
        UserError: no trial of the sweep has finished.
    """
    say = partial(print, flush=True)  # trials print in between
    for number in range(runs):
        interrupted = next((trial for trial in folder.trials if trial.state == "running"), None)
        trial = interrupted or _new_trial(folder)
        if trial is None:
            say(f"the grid is complete: all {len(folder.trials)} combinations were tried")
            break
        chosen = (
            f"{name} {format(value, '.4g') if isinstance(value, float) else value}"
            for name, value in trial.values.items()
        )
        say(f"trial {trial.number} ({number + 1} of {runs}): {', '.join(chosen)}")
        command = commands.resume(trial) if interrupted else commands.start(trial)
        ended = _run(trial, command, folder, commands.runs_dir)
        if ended.state == "failed":
            say(f"trial {ended.number} failed: {ended.fault}")
            continue
        best = folder.finished[0]
        folder.write_best()
        metric = folder.space.metric
        say(f"trial {ended.number}: {metric} {ended.metric:g}; best {best.metric:g} (trial {best.number})")
    if not folder.finished:
        last = folder.trials[-1]
        raise UserError(
            f"no trial of the sweep {folder.path} has finished: {len(folder.trials)} failed, trial {last.number} with: "
            f"{last.fault}"
        )


def _new_trial(folder: SweepFolder) -> Trial | None:
    seed = folder.settings.train.seed
    number = len(folder.trials)
    if folder.space.combinations is not None and number >= folder.space.combinations:
        return None
    finished = [(trial.values, trial.metric) for trial in folder.trials if trial.metric is not None]
    trial = Trial(number, f"{folder.path.name}_{number:03d}", "running", folder.space.suggest(number, finished, seed))
    folder.record(trial)
    return trial


def _run(trial: Trial, command: Sequence[str], folder: SweepFolder, runs_dir: Path) -> Trial:
    """Run a trial to its end, and record how it ended; ends the process if it was told to stop."""
    with StopSignal() as stop:
        code = _wait(command, stop)
    if code in _STOPPED:
        stop.received = stop.received or code - 128  # the trial alone was told to stop
    if code == 0:
        ended = _judged(trial, runs_dir / trial.name / METRICS_FILE, folder.space.metric)
    else:
        ended = replace(trial, state="failed", fault=f"exit code {code}; see its message above")
    if code and stop:
        print(f"stopped: to continue trial {trial.number}, repeat the command with -n {folder.path.name}")
    else:
        folder.record(ended)
    stop.end_process()
    return ended


def _wait(command: Sequence[str], stop: StopSignal) -> int:
    """Run a command and return its exit code. Ctrl-C reaches it by itself; SIGTERM is passed on."""
    environment = {name: value for name, value in os.environ.items() if name not in ("WANDB_RUN_ID", "WANDB_SWEEP_ID")}
    environment[PARENT_PROCESS] = str(os.getpid())
    passed_on = False
    with subprocess.Popen(command, env=environment) as process:
        while True:
            try:
                return process.wait(_LOOK_EVERY)
            except subprocess.TimeoutExpired:
                if stop.received == signal.SIGTERM and not passed_on:
                    process.terminate()
                    passed_on = True


def _judged(trial: Trial, metrics_file: Path, metric: str) -> Trial:
    updates = read_json_lines(metrics_file)
    reported = [update[metric] for update in updates if update.get(metric) is not None]
    if not reported:
        names = sorted({name for update in updates for name in update})
        fault = f"it never reported the metric {metric!r}{did_you_mean(metric, names)}"
        return replace(trial, state="failed", fault=fault)
    steps = int(updates[-1]["agent_steps"])
    return replace(trial, state="finished", metric=float(reported[-1]), agent_steps=steps)
