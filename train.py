"""Train an agent on Neural MMO.

The options that matter first:

    -a NAME  # the agent: neurips23_start_kit, yaofeng, takeru, hybrid, or a folder of your own in agent_zoo/
    -n NAME  # name of the policy and of the run
    --debug  # a small world and a short run, to check the setup
    --no-track  # without Weights & Biases
    --resume FOLDER  # continue a run that was stopped or killed
    -c NAME  # what agents are paid for: training, survival, two_ways, ..., or a YAML file
    -t TASK  # one task of these for everybody
    --train.total-agent-steps NUMBER  # how long to train
    --train.seed NUMBER  # train several seeds to see how much is luck: compare_runs.py
    --processes NUMBER  # processes on this machine that share the work

Examples:

    python train.py --debug --no-track           # check the setup: about a minute on two cores
    python train.py -a neurips23_start_kit       # with the settings of config.yaml
    python train.py -n my_run --train.learning-rate 1e-4
    python train.py --resume runs/my_run         # continue an interrupted run
    python train.py -m sweep -n tuned --no-track --sweep-runs 20   # hyperparameter search, see sweep.yaml
    python train.py -n my_run --processes 2      # two processes on this machine share the work
    torchrun --nproc-per-node 4 train.py -n my_run   # four processes with one GPU each, see docs/scaling.md
    python train.py --list-tasks                 # list the tasks; -t NUMBER trains on one of them only
    python train.py -m replay -p policies        # record an episode of trained policies as a replay

--help-verbose says what each option means. The policy is saved as my_policies/NAME.safetensors; metrics, curves and
checkpoints are in runs/NAME/.
"""

import common.environment_check  # isort: skip  # noqa: F401 (must come first)

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import tyro

import agent_zoo
from agent_zoo.checkpoint_files import OWN, SHIPPED, SUFFIX, policy_names
from common import command_line
from common.argument_checks import check_file_name
from common.user_error import UserError
from reinforcement_learning.run_settings import (
    ORIGINAL_TRAIN,
    check_resumed,
    check_training,
    load_settings,
    read_run_settings,
    refuse_original,
    stated_in_run,
)
from reinforcement_learning.settings import Settings
from reinforcement_learning.training.sweep import (
    check_sweep,
    is_local,
    read_sweep,
    run_sweep,
    trial_command,
    trial_settings,
)

DEFAULT_AGENT = "neurips23_start_kit"
STANDS_FOR = {"--env.mask-intrinsics": "own", "--syllabus": "learning_progress"}
"""The value of an option given without one."""


def shipped(name: str) -> Path:
    """Return a file in the current folder, or if it is not there, the one beside this script."""
    here, in_repository = Path(name), Path(__file__).with_name(name)
    return in_repository if not here.exists() and in_repository.exists() else here


@dataclass(frozen=True)
class Preset:
    """The options that determine the defaults; parsed before everything else."""

    agent: Annotated[str, tyro.conf.arg(aliases=["-a"])] = DEFAULT_AGENT
    """Folder in agent_zoo/ of the agent to train."""
    debug: bool = False
    """Apply the `debug` section of the settings file: a small world and a short run."""
    config: Path = field(default_factory=partial(shipped, "config.yaml"))
    """Settings file (YAML); by default the one in the current folder, or the one beside train.py."""
    resume: Path | None = None
    """Folder of a run to continue exactly as if it had not stopped; its settings are used, not the settings file."""


@dataclass(frozen=True)
class Mode:
    """What to do; a sweep passes all other arguments on to its trials."""

    mode: Annotated[Literal["train", "sweep", "replay"], tyro.conf.arg(aliases=["-m"])] = "train"
    """train: one training run; sweep: a search for good settings, one training run per trial; replay: no training, but
    a replay of an episode in which all policies of --policies-dir share a world, or one policy chosen with --name."""
    sweep_config: Path = field(default_factory=partial(shipped, "sweep.yaml"))
    """Search space of a sweep, in the format of Weights & Biases; found as --config is. With --no-track or --wandb.mode
    offline, Optuna chooses the values on this machine; otherwise the Weights & Biases server does."""
    sweep_id: str | None = None
    """Join this sweep of Weights & Biases, [entity/project/]id, instead of starting a new one; its trials keep the
    sweep's arguments."""
    sweep_runs: int = 10
    """Number of trials to run now, one after the other, at least 1."""
    sweeps_dir: Path = Path("sweeps")
    """Parent folder of local sweeps. The sweep's own folder is named by --name; if it exists, the sweep continues."""


@dataclass(frozen=True)
class Arguments(Mode, Preset):
    """Arguments of train.py."""

    name: Annotated[str | None, tyro.conf.arg(aliases=["-n", "--exp-name"])] = None
    """Name of the policy and of the run, or of the local sweep; by default the agent and the current time."""
    recurrence: bool = True
    """Give the policy a memory; --no-recurrence is the same as --policy.lstm-layers 0."""
    track: bool = True
    """Also log the metrics to Weights & Biases."""
    list_tasks: bool = False
    """List the tasks of the curriculum and how often each is drawn, and exit."""
    policies_dir: Annotated[Path, tyro.conf.arg(aliases=["-p", "--eval-model-path"])] = OWN
    """Folder that the trained policy is saved to; with --resume by default the one that the run began with. With -m
    replay: folder of the policies, by default the shipped ones; the replay is saved there."""
    runs_dir: Path = Path("runs")
    """Folder of runs: settings, metrics, checkpoints."""
    trial: str | None = None
    """Settings of a sweep trial as JSON, such as {"train.learning_rate": 0.001}; set by the sweep itself."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)


def parse(arguments: Sequence[str]) -> Arguments:
    """Parse the command line on top of the settings file, and refuse invalid combinations."""
    refuse_original(arguments, ORIGINAL_TRAIN)
    for option, value in STANDS_FOR.items():
        arguments = command_line.with_value(arguments, option, value)
    choice, rest = command_line.cli(
        Preset,
        args=[argument for argument in arguments if argument not in ("-h", "--help")],
        return_unknown_args=True,
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    defaults = _resumed_defaults(choice.resume) if choice.resume else _new_defaults(choice, rest)
    parsed = command_line.parse(Arguments, __doc__, flag_pairs=True, brief=True, default=defaults, args=arguments)
    if parsed.resume:
        _check_resumed(defaults, parsed)
    if not parsed.recurrence:
        parsed = replace(
            parsed, settings=replace(parsed.settings, policy=replace(parsed.settings.policy, lstm_layers=0))
        )
    if parsed.trial is not None:
        parsed = replace(parsed, settings=trial_settings(parsed.settings, parsed.trial))
    check_training(parsed.settings)
    return parsed


def _new_defaults(choice: Preset, rest: Sequence[str]) -> Arguments:
    agent_zoo.check_name(choice.agent)
    mode, _ = command_line.cli(Mode, args=rest, return_unknown_args=True)
    folder = SHIPPED if mode.mode == "replay" else OWN
    return Arguments(policies_dir=folder, settings=load_settings(choice.config, choice.agent, choice.debug))


def _resumed_defaults(folder: Path) -> Arguments:
    agent, settings = read_run_settings(folder)
    return Arguments(
        agent=agent, resume=folder, name=folder.resolve().name, runs_dir=folder.parent,
        policies_dir=Path(stated_in_run(folder, "policies_dir") or "policies"), settings=settings,
    )  # fmt: skip


def _check_resumed(before: Arguments, now: Arguments) -> None:
    for name in ("agent", "name", "runs_dir", "debug", "recurrence", "mode", "trial"):
        if getattr(before, name) != getattr(now, name):
            option = "--no-recurrence" if name == "recurrence" else f"--{name.replace('_', '-')}"
            raise UserError(f"--resume continues the run in {now.resume} unchanged: leave out {option}")
    check_resumed(before.settings, now.settings)


def choose_name(arguments: Arguments) -> str:
    """Return the policy's name; refuse one that is not a valid file name or is taken."""
    name = arguments.name or default_name(arguments.agent)
    if arguments.trial is not None and (wandb_run := os.environ.get("WANDB_RUN_ID")):
        name = f"{name}_{wandb_run}"  # trials of one sweep on the server share their arguments
    check_file_name(name)
    # -p NAME must mean one of them
    for folder in () if arguments.resume else dict.fromkeys((arguments.policies_dir, SHIPPED)):
        if (folder / f"{name}{SUFFIX}").exists():
            raise UserError(f"{folder / name}{SUFFIX} already exists: choose another name with -n")
    return name


def default_name(agent: str) -> str:
    """Return the name of a policy or sweep that was given none: the agent and the current time."""
    return f"{agent}_{datetime.now(UTC):%Y%m%d_%H%M%S}"


def sweep(arguments: Arguments, command: Sequence[str]) -> None:
    """Check the search space, and run trials with values that Optuna or Weights & Biases chooses."""
    from agent_zoo.torchrun import number_of_processes

    if number_of_processes() > 1:
        raise UserError("-m sweep starts its trials one by one: start it without torchrun")
    local = is_local(arguments.track, arguments.settings.wandb)
    check_sweep(arguments.sweep_runs, arguments.sweep_id, local)
    _, shared = command_line.cli(Mode, args=command, return_unknown_args=True)
    if local:
        sweep_here(arguments, shared)
        return

    from common.files import make_folder
    from common.weights_and_biases import check_login

    config = None
    if arguments.sweep_id is None:
        config = read_sweep(arguments.sweep_config, arguments.settings) | trial_command(sys.argv[0], shared)
    check_login(arguments.settings.wandb.mode)
    make_folder(arguments.runs_dir)
    run_sweep(config, arguments.sweep_id, arguments.sweep_runs, arguments.settings.wandb, arguments.runs_dir)


def sweep_here(arguments: Arguments, shared: Sequence[str]) -> None:
    """Start or continue a sweep whose values Optuna chooses on this machine, and show all its trials."""
    from common.files import locked_folder, make_folder
    from reinforcement_learning.training.local_sweep import BEST_FILE, SweepFolder, TrialCommands, run_local_sweep
    from reinforcement_learning.training.sweep import read_search_space

    name = arguments.name or default_name(arguments.agent)
    check_file_name(name)
    config = read_sweep(arguments.sweep_config, arguments.settings)
    space = read_search_space(config, arguments.sweep_config)
    commands = TrialCommands(sys.argv[0], shared, arguments.policies_dir, arguments.runs_dir, arguments.track)
    make_folder(arguments.sweeps_dir / name)
    with locked_folder(arguments.sweeps_dir / name):
        folder = SweepFolder(arguments.sweeps_dir / name, space, arguments.agent, arguments.settings)
        run_local_sweep(folder, arguments.sweep_runs, commands)
    rows = [
        (trial.name, f"{trial.metric:g}", *(str(value) for value in trial.values.values())) for trial in folder.finished
    ]
    command_line.print_table(("run", space.metric, *space.parameters), rows)
    print(f"best settings: {folder.path / BEST_FILE}")


def list_tasks(settings: Settings) -> None:
    """Show the numbered tasks of the curriculum; tab-separated without a terminal."""
    from reinforcement_learning.game.tasks import curriculum, fixed_weights

    specs = curriculum(settings.task, settings.env)
    weights = fixed_weights(specs)
    rows = [
        (str(number), spec.name, f"{share:.2%}")
        for number, (spec, share) in enumerate(zip(specs, weights / weights.sum(), strict=True))
    ]
    command_line.print_table(("number", "task", "share of draws"), rows)


def train_one(arguments: Arguments) -> None:
    """Train one policy."""
    name = choose_name(arguments)

    from reinforcement_learning.processes import PARENT_PROCESS, end_with_parent, must_start, run_together

    if parent := os.environ.get(PARENT_PROCESS):
        end_with_parent(int(parent))
    if must_start(arguments.settings):
        sys.exit(run_together([sys.executable, *sys.argv], arguments.settings.train.processes))

    from reinforcement_learning.training.training_run import train_policy

    folders = (arguments.policies_dir, arguments.runs_dir, arguments.resume)
    train_policy(name, arguments.agent, arguments.settings, *folders, arguments.track)


def replay(arguments: Arguments) -> None:
    """Play one episode with trained policies and write its replay."""
    folder, name, settings = arguments.policies_dir, arguments.name, arguments.settings
    policy_names(folder, () if name is None else (name,))  # refuses missing policies before anything heavy is loaded

    from common.progress_view import progress
    from reinforcement_learning.play.contest import record_replay, replay_contest, replay_path

    path = replay_path(folder, settings.train.seed, name, settings.task.only)
    contest = replay_contest(folder, name, settings)
    with progress("playing", "ticks") as on_tick:
        on_tick(0, contest.env.horizon)
        record_replay(contest, settings.train.seed, path, on_tick)
    print(f"replay: {path}")
    print(f"watch it: python render_replay.py {path}")


def main() -> None:
    """Parse, then list tasks, train once or many times, or record a replay."""
    arguments = parse(sys.argv[1:])
    if arguments.list_tasks:
        list_tasks(arguments.settings)
    elif arguments.mode == "sweep":
        sweep(arguments, sys.argv[1:])
    elif arguments.mode == "replay":
        replay(arguments)
    else:
        train_one(arguments)


if __name__ == "__main__":
    command_line.run(main)
