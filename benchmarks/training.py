"""Speed of a whole training run of the start kit on this machine, and the time of each phase.

    python -m benchmarks.training                          # settings of config.yaml, about two minutes on two cores
    python -m benchmarks.training --output training.json

Rollouts are collected and learnt from as in train.py. For comparison, the dense network, which encodes every padding
row, chooses actions for and learns from a minibatch of the same observations in the same process; the rest of its run
would be the same.
"""

import copy
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import torch
import tyro
from rich.console import Console
from rich.table import Table

import command_line
from activation_store.files import write_json
from agent_zoo.base import RecurrentPolicy
from benchmarks.dense import dense_recurrent
from benchmarks.learning import cut, inference, learning, pad
from reinforcement_learning.game.episode_journal import EpisodeJournal
from reinforcement_learning.game.maps import ensure_maps
from reinforcement_learning.game.vectorization import first_episodes, make_worlds
from reinforcement_learning.play.entrants import untrained_entrant
from reinforcement_learning.play.stepper import Stepper
from reinforcement_learning.settings import Settings, load_settings
from reinforcement_learning.stopwatch import Stopwatch
from reinforcement_learning.training.ppo import update
from reinforcement_learning.training.rollout import Rollout, RolloutCollector
from reinforcement_learning.versions import versions
from user_error import UserError

AGENT = "neurips23_start_kit"
PHASES = ("environment", "copying", "inference", "learning")
HOUR_RUN = 10_000_000


@dataclass(frozen=True)
class Arguments:
    """Arguments of benchmarks/training.py."""

    updates: int = 2
    """Number of rollouts to collect and learn from, at least 1, after one warm-up rollout."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """JSON file to write the result to."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)


@dataclass(frozen=True)
class Run:
    """Wall-clock seconds of each phase per agent-step."""

    phases: dict[str, float]

    @property
    def speed(self) -> float:
        """Agent-steps per second."""
        return 1 / sum(self.phases.values())


def main() -> None:
    """Parse, measure, print."""
    arguments = command_line.parse(
        Arguments, __doc__, default=Arguments(settings=load_settings(Path("config.yaml"), AGENT))
    )
    if arguments.updates < 1:
        raise UserError("--updates must be at least 1")
    packed, dense = measure(arguments)
    show(packed, dense)
    if arguments.output:
        runs = {"packed": asdict(packed), "dense": asdict(dense)}
        write_json(arguments.output, {"versions": versions(), "seconds_per_agent_step": runs})


def measure(arguments: Arguments) -> tuple[Run, Run]:
    """Train for some updates, and time the dense network on the same work."""
    settings, stopwatch = arguments.settings, Stopwatch()
    maps = ensure_maps(settings.env)
    subject = untrained_entrant(AGENT, settings, maps, seed=settings.train.seed)
    dense = dense_recurrent(copy.deepcopy(subject.policy))
    starts = first_episodes(settings.train.seed, settings.rollout.num_envs)
    worlds = make_worlds(AGENT, settings.env, settings.task, settings.rollout, maps, starts)
    try:
        stepper = Stepper(worlds, subject.policy, subject.info.layout, stopwatch, EpisodeJournal(starts))
        stepper.reset()
        learn = _learner(subject.policy, stepper, settings)
        learn()
        stopwatch.lap()
        rollouts = [learn() for _ in range(arguments.updates)]
    finally:
        worlds.close()
    seconds, steps = stopwatch.lap(), sum(len(rollout) for rollout in rollouts)
    packed = Run({phase: seconds[phase] / steps for phase in PHASES})
    (part,) = cut(rollouts[-1], dense, settings, count=1)
    padded = pad(part, subject.info.layout)
    inferring = _seconds(*inference(dense, padded))
    learnt = _seconds(*learning(dense, padded, settings)) * settings.train.update_epochs
    return packed, Run({**packed.phases, "inference": inferring, "learning": learnt})


def show(packed: Run, dense: Run) -> None:
    """Print the time of each phase, speeds and their ratio."""
    table = Table(title="Microseconds per agent-step, and share of the time")
    for column in ("", "packed", "share", "dense", "share"):
        table.add_column(column, justify="right")
    for phase in PHASES:
        row = [phase]
        for run in (packed, dense):
            row += [f"{run.phases[phase] * 1e6:.0f}", f"{run.phases[phase] * run.speed:.0%}"]
        table.add_row(*row)
    table.add_row("agent-steps/s", f"{packed.speed:.0f}", "", f"{dense.speed:.0f}", "")
    hours = [HOUR_RUN / run.speed / 3600 for run in (packed, dense)]
    table.add_row("hours for 10 million", f"{hours[0]:.1f}", "", f"{hours[1]:.1f}", "")
    Console().print(table)
    print(f"the whole run is {packed.speed / dense.speed:.1f} times as fast on packed rows")


def _learner(policy: RecurrentPolicy, stepper: Stepper, settings: Settings) -> Callable[[], Rollout]:
    """Return a function that collects one rollout and learns from it."""
    train = settings.train
    optimizer = torch.optim.Adam(policy.parameters(), lr=train.learning_rate, eps=1e-5)
    shuffling = torch.Generator().manual_seed(1)
    collector = RolloutCollector(stepper, train.bptt_horizon, train.gamma, train.gae_lambda)

    def learn() -> Rollout:
        rollout = collector.collect(train.batch_size, on_tick=lambda _: None)
        with stepper.stopwatch.time("learning"):
            update(policy, optimizer, rollout, train, shuffling, on_minibatch=lambda: None)
        return rollout

    return learn


def _seconds(agent_steps: int, work: Callable[[], object]) -> float:
    """Return wall-clock seconds per agent-step."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) / agent_steps


if __name__ == "__main__":
    command_line.run(main)
