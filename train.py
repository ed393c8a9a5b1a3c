"""Train an agent on Neural MMO.

    python train.py --debug --no-track           # about a minute on two cores: does everything work?
    python train.py -a neurips23_start_kit       # the settings of config.yaml
    python train.py -n my_run --train.learning-rate 1e-4
    python train.py --list-tasks                 # what agents are asked to do; -t NUMBER trains on one task only

The policy ends up as policies/NAME.safetensors, metrics and all checkpoints in runs/NAME/.
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import tyro

import agent_zoo
import command_line
from reinforcement_learning.settings import Settings, check_training, load_settings
from user_error import UserError

DEFAULT_AGENT = "neurips23_start_kit"


@dataclass(frozen=True)
class Choice:
    """What decides which defaults hold; read before everything else."""

    agent: Annotated[str, tyro.conf.arg(aliases=["-a"])] = DEFAULT_AGENT
    """Folder in agent_zoo/ of the agent to train."""
    debug: bool = False
    """Apply the `debug` section of the settings file: a small world and few steps."""
    config: Path = Path("config.yaml")
    """Settings file."""


@dataclass(frozen=True)
class Arguments(Choice):
    """Arguments of train.py."""

    name: Annotated[str | None, tyro.conf.arg(aliases=["-n"])] = None
    """Name of the policy and of the run; by default the agent and the time."""
    track: bool = True
    """Mirror the metrics on Weights & Biases."""
    list_tasks: bool = False
    """List the tasks of the curriculum with how often each is drawn, and end."""
    policies_dir: Path = Path("policies")
    """Folder that the trained policy goes to."""
    runs_dir: Path = Path("runs")
    """Folder of runs: settings, metrics, checkpoints."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)


def parse(arguments: Sequence[str]) -> Arguments:
    """Read the command line over the settings file's values, and refuse what cannot work."""
    choice, _ = tyro.cli(
        Choice,
        args=[each for each in arguments if each not in ("-h", "--help")],
        return_unknown_args=True,
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    agent_zoo.check_name(choice.agent)
    defaults = Arguments(settings=load_settings(choice.config, choice.agent, choice.debug))
    parsed = command_line.parse(Arguments, __doc__, default=defaults, args=arguments)
    check_training(parsed.settings)
    return parsed


def choose_name(arguments: Arguments) -> str:
    """Return the policy's name, refusing one that is no file name or is taken."""
    name = arguments.name or f"{arguments.agent}_{datetime.now(UTC):%Y%m%d_%H%M%S}"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise UserError(f"-n {name!r} cannot name a file: use letters, digits, '.', '_' and '-'")
    if (arguments.policies_dir / f"{name}.safetensors").exists():
        raise UserError(f"{arguments.policies_dir / name}.safetensors already exists: choose another name with -n")
    return name


def list_tasks(settings: Settings) -> None:
    """Show the numbered tasks of the curriculum; tab-separated where nobody reads along."""
    from reinforcement_learning.tasks import curriculum, fixed_weights

    specs = curriculum(settings.task, settings.env)
    weights = fixed_weights(specs)
    rows = [
        (str(number), spec.name, f"{share:.2%}")
        for number, (spec, share) in enumerate(zip(specs, weights / weights.sum(), strict=True))
    ]
    command_line.print_table(("number", "task", "share of draws"), rows)


def main() -> None:
    """Parse, generate maps, train, and say where the policy lies."""
    arguments = parse(sys.argv[1:])
    if arguments.list_tasks:
        list_tasks(arguments.settings)
        return
    name = choose_name(arguments)

    from reinforcement_learning.tasks import check_tasks, offered_tasks

    check_tasks(arguments.settings.task, arguments.settings.env)

    from activation_store.files import make_folder
    from reinforcement_learning.checkpoint import copy_checkpoint
    from reinforcement_learning.device import pick_device
    from reinforcement_learning.language_model_encoder import pin_language_model
    from reinforcement_learning.maps import ensure_maps
    from reinforcement_learning.run_folder import RunFolder
    from reinforcement_learning.stop_signal import StopSignal
    from reinforcement_learning.terminal import TrainingView, counted_progress
    from reinforcement_learning.tracking import NoTracker, WandbTracker, check_login
    from reinforcement_learning.trainer import train
    from reinforcement_learning.versions import versions

    settings = replace(arguments.settings, task=pin_language_model(arguments.settings.task))
    pick_device(settings.train.device)  # refuses a GPU that is not there, before anything is written
    if arguments.track:
        check_login(settings.wandb)
    with counted_progress("reading tasks with the language model") as progress:
        offered_tasks(settings.task, settings.env, progress)
    for folder in (arguments.policies_dir, arguments.runs_dir, settings.env.maps_dir):
        make_folder(folder)
    run = RunFolder(arguments.runs_dir / name)
    run.write_settings(arguments.agent, settings, versions())
    with counted_progress("generating maps") as progress:
        maps = ensure_maps(settings.env, progress)
    tracker = WandbTracker(name, arguments.agent, settings, run.folder) if arguments.track else NoTracker()
    with StopSignal() as stop, TrainingView(settings.train.total_agent_steps) as view:
        checkpoint = train(name, arguments.agent, settings, maps, run, tracker, view.reports, stop)
        tracker.finish()
    policy_path = arguments.policies_dir / f"{name}.safetensors"
    copy_checkpoint(checkpoint, policy_path)
    print(f"{'stopped early; the' if stop else 'trained'} policy: {policy_path}")
    print(f"metrics and checkpoints: {run.folder}")
    stop.end_process()


if __name__ == "__main__":
    command_line.run(main)
