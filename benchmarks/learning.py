"""Speed of each agent's network on packed rows, compared with the same network on padded tables.

    python -m benchmarks.learning                                # all agents, two or three minutes on one core
    python -m benchmarks.learning --agents takeru --output learning.json
    python -m benchmarks.learning --train.precision bfloat16     # of the packed networks alone

First, observations are recorded in the world of config.yaml. Then each network chooses actions for some of them and
makes a PPO step on them, alternating with its dense twin. The result is the ratio of their
processor times, in a process that keeps the memory that it frees. Beside it stands the floor: the time of the network's
operations at the speed of plain matrix multiplication in the same process.
"""

import copy
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import torch
import tyro

import agent_zoo
from agent_zoo.base import RecurrentPolicy
from agent_zoo.checkpoint import load_checkpoint, versions
from agent_zoo.observation import ObservationLayout, PackedRows
from benchmarks.dense import DenseObservation, dense_recurrent
from benchmarks.measure import COLUMNS, Comparison, Floor, Output, Work, compare, matrix_speed, operations, spread
from common import command_line
from common.user_error import UserError
from reinforcement_learning.game.maps import ensure_maps
from reinforcement_learning.game.vectorization import first_episodes, make_worlds
from reinforcement_learning.play.entrants import untrained_entrant
from reinforcement_learning.play.stepper import EpisodeJournal, Stepper, Stopwatch
from reinforcement_learning.processes import keep_freed_memory
from reinforcement_learning.run_settings import load_settings
from reinforcement_learning.settings import Settings
from reinforcement_learning.training.ppo import make_optimizer, minibatches, update
from reinforcement_learning.training.rollout import Rollout, RolloutCollector

RECORDER = "neurips23_start_kit"
WARM_UPS = 2  # rounds after which the process holds all the memory that a dense network needs


@dataclass(frozen=True)
class Arguments(Output):
    """Arguments of benchmarks/learning.py."""

    agents: tuple[str, ...] = field(default_factory=lambda: tuple(agent_zoo.names()))
    """Agents to measure."""
    policy: Path | None = None
    """Checkpoint of the start kit that plays while observations are recorded; by default an untrained policy."""
    samples: int = 3
    """Number of measurements, each on a different minibatch of train.minibatch_rows segments, at least 1."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)


Result = tuple[Comparison, Floor]
"""Of one kind of work of one agent: the packed network compared with the dense one, and the packed one's floor."""


def main() -> None:
    """Parse, record, measure, print."""
    defaults = Arguments(settings=load_settings(Path("config.yaml"), RECORDER))
    arguments = command_line.parse(Arguments, __doc__, default=defaults)
    if arguments.samples < 1:
        raise UserError("--samples must be at least 1")
    for agent in arguments.agents:
        agent_zoo.check_name(agent)
    torch.set_num_threads(1)
    keep_freed_memory()  # as train.py does, and for both networks
    maps = ensure_maps(arguments.settings.env)
    rollout, packed, flat = record(arguments, maps)
    results = {agent: measure(agent, rollout, arguments, maps) for agent in arguments.agents}
    show(packed, flat, results)
    agents = {
        agent: {work: {**measured, "floor": asdict(floor)} for work, (measured, floor) in by_work.items()}
        for agent, by_work in results.items()
    }
    stored = {"packed": packed, "flat": flat}
    arguments.write({"versions": versions(), "bytes_per_agent_step": stored, "agents": agents})


def record(arguments: Arguments, maps: Path) -> tuple[Rollout, float, float]:
    """Play until one batch is full; return it with the bytes of an agent-step's observation, packed and flat."""
    settings = arguments.settings
    subject = untrained_entrant(RECORDER, settings, maps, seed=0)
    policy = load_checkpoint(arguments.policy)[0] if arguments.policy else subject.policy
    serial = replace(settings, rollout=replace(settings.rollout, vectorization="serial"))
    worlds, collector = start(RECORDER, serial, policy, maps, subject.info.layout, seed=0)
    rollout = collector.collect(settings.train.batch_size, on_tick=lambda _: None)
    worlds.close()
    flat = worlds.emulated.emulated_observation_dtype.itemsize
    return rollout, _bytes(rollout.observation) / len(rollout), flat


def start(
    agent: str, settings: Settings, policy: RecurrentPolicy, maps: Path, layout: ObservationLayout, seed: int,
    spacing: int = 0,
) -> tuple[Any, RolloutCollector]:  # fmt: skip
    """Reset new worlds, and return them with what collects the policy's rollouts in them."""
    starts, train = first_episodes(seed, settings.rollout.num_envs), settings.train
    worlds = make_worlds(agent, settings.env, settings.task, settings.rollout, maps, starts)
    stepper = Stepper(worlds, policy, layout, Stopwatch(), EpisodeJournal(starts))
    stepper.reset()
    return worlds, RolloutCollector([stepper], train.bptt_horizon, train.gamma, train.gae_lambda, spacing)


def measure(agent: str, rollout: Rollout, arguments: Arguments, maps: Path) -> dict[str, Result]:
    """Compare an agent's network with its dense twin, and with its floor, at inference and at learning."""
    settings = load_settings(Path("config.yaml"), agent)
    settings = replace(arguments.settings, policy=replace(settings.policy, network=arguments.settings.policy.network))
    subject = untrained_entrant(agent, settings, maps, seed=0)
    packed, dense = subject.policy, dense_recurrent(copy.deepcopy(subject.policy))
    packed.bfloat16_encoder = arguments.settings.train.precision == "bfloat16"
    parts = cut(rollout, packed, settings, arguments.samples)
    padded = [pad(part, subject.info.layout) for part in parts]
    return {
        "inference": _result([inference(packed, part) for part in parts], [inference(dense, part) for part in padded]),
        "learning": _result(
            [learning(packed, part, settings) for part in parts], [learning(dense, part, settings) for part in padded]
        ),
    }


def _result(packed: list[Work], dense: list[Work]) -> Result:
    for _, work in dense * WARM_UPS:
        work()
    comparison = compare(packed, dense)
    return comparison, Floor(operations(packed[0]), matrix_speed(), seconds=1 / median(comparison["packed_speeds"]))


def show(packed: float, flat: float, results: dict[str, dict[str, Result]]) -> None:
    """Print speeds, ratios, floors and memory."""
    speeds, floors = [], []
    for agent, by_work in results.items():
        for work, (comparison, floor) in by_work.items():
            medians = (f"{median(values):.0f}" for values in (comparison["dense_speeds"], comparison["packed_speeds"]))
            speeds.append((f"{agent}, {work}", *medians, spread(comparison["ratios"], ".1f")))
            floors.append((f"{agent}, {work}", *floor.row()))
    print("Agent-steps/s on one core, and speed-up: median (minimum to maximum)")
    command_line.print_table(("", "dense", "packed", "ratio"), speeds)
    print("An agent-step of the packed network, in processor time")
    command_line.print_table(("", *COLUMNS), floors)
    print(
        f"a rollout stores {packed:.0f} bytes per agent-step's observation, of {flat:.0f} "
        f"that PufferLib's flat one has: {packed / flat:.3f}"
    )


def cut(rollout: Rollout, policy: RecurrentPolicy, settings: Settings, count: int) -> list[Rollout]:
    """Split `count` minibatches off a rollout, each a separate rollout that starts from empty memory."""
    parts = []
    for minibatch in minibatches(rollout, settings.train, torch.Generator().manual_seed(0)):
        rows = minibatch.rows
        kept = {name: getattr(rollout, name)[rows] for name in ("action", "log_probability", "value", "advantage")}
        parts.append(Rollout(
            observation=rollout.observation.take(rows), order=torch.arange(len(rows)), lengths=minibatch.lengths,
            state=policy.initial_state(len(minibatch.lengths)), lives=[], **kept,
        ))  # fmt: skip
    if count > len(parts):
        raise UserError(f"--samples {count}: one batch has {len(parts)} minibatches")
    return parts[:count]


def pad(part: Rollout, layout: ObservationLayout) -> Rollout:
    """Return the same rollout with padding restored."""
    padded: Any = DenseObservation.of_packed(part.observation, layout)
    return replace(part, observation=padded)


def inference(policy: RecurrentPolicy, part: Rollout) -> Work:
    """Choose actions for all agents of a rollout as if they were in the same tick."""

    uniforms = torch.rand(part.action.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    @torch.no_grad()
    def work() -> None:
        distribution, _, _ = policy(part.observation, policy.initial_state(len(part)))
        distribution.log_probability(distribution.sample(uniforms))

    return len(part), work


def learning(policy: RecurrentPolicy, part: Rollout, settings: Settings) -> Work:
    """Make one PPO step on a rollout that is one minibatch."""
    optimizer = make_optimizer(policy, settings.train)
    rows = settings.train.minibatch_rows * settings.train.bptt_horizon
    one_minibatch = replace(settings.train, batch_size=rows, update_epochs=1)
    return len(part), lambda: update(
        policy, optimizer, part, one_minibatch, torch.Generator().manual_seed(0), on_minibatch=lambda: None
    )


def _bytes(value: Any) -> int:
    parts = [getattr(value, column.name) for column in fields(value)]
    return sum(_bytes(part) if isinstance(part, PackedRows) else part.nbytes for part in parts)


if __name__ == "__main__":
    command_line.run(main)
