"""A sweep on this machine, without an account: Optuna chooses values, each trial is a training run of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from common.argument_checks import did_you_mean
from common.files import read_json_lines
from common.user_error import UserError
from reinforcement_learning.processes import PARENT_PROCESS
from reinforcement_learning.settings import RUN_SETTINGS_FILE, Settings
from reinforcement_learning.training.run_folder import METRICS_FILE
from reinforcement_learning.training.stop_signal import StopSignal
from reinforcement_learning.training.sweeps.sweep import override
from reinforcement_learning.training.sweeps.sweep_folder import SweepFolder, Trial

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


def run_local_sweep(
    folder: SweepFolder, runs: int, agent: str, settings: Settings, commands: TrialCommands, say: Callable[[str], None]
) -> None:
    """Run trials one after the other, first the one that was interrupted, if any; record each as it ends.

    Ctrl-C or SIGTERM stops the current trial, which the next call continues, and ends the process.

    Args:
        runs: trials to run now; fewer if a grid has fewer left.

    Raises:
        UserError: no trial of the sweep has finished.
    """
    for number in range(runs):
        interrupted = next((trial for trial in folder.trials if trial.state == "running"), None)
        trial = interrupted or _new_trial(folder, settings.train.seed)
        if trial is None:
            say(f"the grid is complete: all {len(folder.trials)} combinations were tried")
            break
        say(f"trial {trial.number} ({number + 1} of {runs}): {_in_words(trial.values)}")
        command = commands.resume(trial) if interrupted else commands.start(trial)
        ended = _run(trial, command, folder, commands.runs_dir)
        if ended.state == "failed":
            say(f"trial {ended.number} failed: {ended.fault}")
            continue
        best = folder.finished[0]
        folder.write_best(agent, override(settings, best.values))
        metric = folder.space.metric
        say(f"trial {ended.number}: {metric} {ended.metric:g}; best {best.metric:g} (trial {best.number})")
    if not folder.finished:
        last = folder.trials[-1]
        raise UserError(
            f"no trial of the sweep {folder.path} has finished: {len(folder.trials)} failed, trial {last.number} with: "
            f"{last.fault}"
        )


def _new_trial(folder: SweepFolder, seed: int) -> Trial | None:
    """Return a new trial, recorded before it starts; None if a grid has none left."""
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
        folder.record(ended)
    elif not stop:
        ended = replace(trial, state="failed", fault=f"exit code {code}; see its message above")
        folder.record(ended)
    else:
        print(f"stopped: to continue trial {trial.number}, repeat the command with -n {folder.path.name}")
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


def _in_words(values: dict[str, object]) -> str:
    shown = (f"{value:.4g}" if isinstance(value, float) else value for value in values.values())
    return ", ".join(f"{name} {value}" for name, value in zip(values, shown, strict=True))
