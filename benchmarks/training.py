"""Speed of a whole training run of the start kit on this machine, compared with the peer's stack.

    python -m benchmarks.training                          # settings of config.yaml, some minutes on two cores
    python -m benchmarks.training --output training.json
    python -m benchmarks.training --processes 2            # also as train.py --processes 2

Rollouts are collected and learnt from as in train.py, where worlds play while the policy decides for others. The peer's
stack is plain PettingZoo emulation and the dense network. Plain worlds, and worlds like the run's that nothing else
disturbs, repeat each rollout with the same actions. The dense network, which encodes every padding row,
chooses actions for and learns from minibatches of the same observations: in this process, which keeps the memory that
it frees, and for the peer's stack in another, which returns it to the system as processes do by default.

The floor is the time of the packed network's operations at the speed of plain matrix multiplication in the same
process; the environment counts with the time that it takes alone.
"""

import copy
import functools
import gc
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import orjson
import pufferlib.vector
import torch
import tyro
import yaml

from agent_zoo.base import RecurrentPolicy
from agent_zoo.checkpoint import versions
from agent_zoo.observation import ObservationLayout
from benchmarks.dense import dense_recurrent
from benchmarks.learning import WARM_UPS, cut, inference, learning, pad
from benchmarks.measure import COLUMNS, Floor, Output, matrix_speed, operations, seconds_of
from common import command_line
from common.files import write_text
from common.user_error import UserError
from reinforcement_learning.game.environment import EpisodeStart, make_plain_environment, serial_worlds
from reinforcement_learning.game.maps import ensure_maps
from reinforcement_learning.game.vectorization import ProcessWorlds, first_episodes, make_groups, make_worlds
from reinforcement_learning.play.entrants import untrained_entrant
from reinforcement_learning.play.stepper import Stepper, Stopwatch, make_steppers, reset
from reinforcement_learning.processes import keep_freed_memory, must_start
from reinforcement_learning.run_settings import METRICS_FILE, check_training, load_settings
from reinforcement_learning.settings import Settings, plain_settings
from reinforcement_learning.training.ppo import make_optimizer, update
from reinforcement_learning.training.rollout import Rollout, RolloutCollector

AGENT = "neurips23_start_kit"
REST = "rest"  # the phase of what no other phase counts, such as waiting for another process
PHASES = ("environment", "copying", "inference", "learning")
ALONE, PLAIN = "undisturbed", "plain"  # kinds of worlds that repeat the run's
HOUR_RUN = 10_000_000
SAMPLES = 3  # minibatches on which the dense network is timed


@dataclass(frozen=True)
class Arguments(Output):
    """Arguments of benchmarks/training.py."""

    updates: int = 2
    """Number of rollouts to collect and learn from, at least 1, after one warm-up rollout."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)


Run = dict[str, float]
"""Wall-clock seconds of each phase per agent-step."""


def main() -> None:
    """Parse, measure, print."""
    arguments = command_line.parse(
        Arguments, __doc__, default=Arguments(settings=load_settings(Path("config.yaml"), AGENT))
    )
    if arguments.updates < 1:
        raise UserError("--updates must be at least 1")
    settings = arguments.settings
    check_training(settings)
    several = must_start(settings)
    measurement = measure(arguments)
    if several:
        measurement = replace(measurement, together=train_together(AGENT, settings, arguments.updates))
    show(measurement, settings.train.processes)
    runs = measurement.runs
    floors = {phase: asdict(floor) for phase, floor in measurement.floors.items()}
    arguments.write({"versions": versions(), "seconds_per_agent_step": runs, "floors": floors})


@dataclass(frozen=True)
class Measurement:
    """Times of one training run, of the same work in other ways, and its floors."""

    own: Run  # the run as it is
    dense: Run  # the same worlds with the dense network
    peer: Run  # plain emulation, and the dense network in a process that returns freed memory to the system
    worlds: float  # seconds per agent-step of worlds like the run's, where nothing plays or decides meanwhile
    floors: dict[str, Floor]  # of the phases of `own` that the network's arithmetic bounds
    together: Run | None = None  # the run in several processes; None if it was not asked for

    @property
    def floor(self) -> Run:
        """The run if the network's arithmetic were all that its phases do, and worlds took turns with them."""
        least = {phase: floor.least_seconds for phase, floor in self.floors.items()}
        return {**self.own, "environment": self.worlds, **least}

    @property
    def peer_keeping(self) -> Run:
        """The peer's stack in a process that keeps freed memory, as the run's own does."""
        return {**self.dense, "environment": self.peer["environment"]}

    @property
    def runs(self) -> dict[str, Run]:
        """All of them by name."""
        runs = {"own": self.own, "dense": self.dense, "peer": self.peer, "floor": self.floor}
        runs |= {"peer_keeping_memory": self.peer_keeping}
        return runs | ({"together": self.together} if self.together else {})


def measure(arguments: Arguments) -> Measurement:
    """Train for some updates, and time the peer's stack on the same work."""
    keep_freed_memory()  # as train.py does
    settings, stopwatch = arguments.settings, Stopwatch()
    maps = ensure_maps(settings.env)
    subject = untrained_entrant(AGENT, settings, maps, seed=settings.train.seed)
    dense = dense_recurrent(copy.deepcopy(subject.policy))
    starts = first_episodes(settings.train.seed, settings.rollout.num_envs)
    world = (AGENT, settings.env, settings.task, settings.rollout, maps, starts)
    groups = make_groups(*world)
    others: dict[str, Any] = {}
    try:
        others[ALONE] = make_worlds(*world)
        others[PLAIN] = plain_worlds(AGENT, settings, maps, like=groups)
        recorded = [RecordedWorlds(worlds) for worlds in groups]
        repetition = Repetition(recorded, others, starts)
        steppers = make_steppers(recorded, subject.policy, subject.info.layout, stopwatch, starts)
        reset(steppers)
        learn = _learner(subject.policy, steppers, settings, on_rollout=repetition.repeat)
        learn()
        stopwatch.lap()
        repetition.reset_clock()
        rollouts = [learn() for _ in range(arguments.updates)]
    finally:
        for worlds in (*groups, *others.values()):
            worlds.close()
    seconds, steps = stopwatch.lap(), sum(len(rollout) for rollout in rollouts)
    own = {phase: seconds[phase] / steps for phase in PHASES}
    parts = cut(rollouts[-1], dense, settings, count=SAMPLES)
    work = (dense, parts, subject.info.layout, settings)
    peer = {**own, **_in_new_process(*work), "environment": repetition.seconds[PLAIN] / steps}
    return Measurement(
        own=own,
        dense={**own, **_network_seconds(*work)},
        peer=peer,
        worlds=repetition.seconds[ALONE] / steps,
        floors=_floors(subject.policy, parts[0], settings, own),
    )


def show(measurement: Measurement, processes: int) -> None:
    """Print the time of each phase, speeds, ratios and floors."""
    shown = (measurement.own, measurement.dense, measurement.peer)
    rows = []
    for phase in PHASES:
        own, dense, peer = (_time_and_share(run, phase) for run in shown)
        rows.append((phase, *own, f"{measurement.floor[phase] * 1e6:.0f}", *dense, *peer))
    for name, number in (("agent-steps/s", _speed), ("hours for 10 million", _hours)):
        own_number, dense_number, peer_number = map(number, shown)
        rows.append((name, own_number, "", number(measurement.floor), dense_number, "", peer_number, ""))
    print("Microseconds per agent-step, and share of the time; environment is waiting for worlds")
    command_line.print_table(("", "own", "share", "floor", "dense", "share", "peer", "share"), rows)
    print("An agent-step of the packed network, wall-clock time, with all passes of learning")
    command_line.print_table(("", *COLUMNS), [(phase, *bound.row()) for phase, bound in measurement.floors.items()])
    print(
        f"the whole run is {_ratio(measurement.own, measurement.peer)} times as fast as the peer's stack, "
        f"{_ratio(measurement.own, measurement.peer_keeping)} times if the peer's process kept freed memory, and "
        f"{_ratio(measurement.own, measurement.dense)} times as fast as with the dense network in the same worlds; at "
        f"the floor these would be {_ratio(measurement.floor, measurement.peer)}, "
        f"{_ratio(measurement.floor, measurement.peer_keeping)} and "
        f"{_ratio(measurement.floor, measurement.dense)} times"
    )
    if measurement.together:
        _show_together(measurement.together, measurement, processes)


def train_together(agent: str, settings: Settings, updates: int) -> dict[str, float]:
    """Train in `train.processes` processes, and return wall-clock seconds of each phase per agent-step.

    The first update is left out. Phases are those of the first process; agent-steps are those of all.

    Raises:
        UserError: the run failed.
    """
    steps = settings.train.batch_size * (updates + 1)
    settings = replace(settings, train=replace(settings.train, total_agent_steps=steps, num_checkpoints=1))
    with TemporaryDirectory() as name:
        folder = Path(name)
        config, policies, runs = (folder / path for path in ("config.yaml", "policies", "runs"))
        write_text(config, yaml.safe_dump(plain_settings(settings)))
        command = [sys.executable, "train.py", "-a", agent, "-n", "together", "--no-track", "--config", str(config)]
        where = ["--policies-dir", str(policies), "--runs-dir", str(runs)]
        result = subprocess.run([*command, *where], capture_output=True, text=True, check=False)
        if result.returncode:
            raise UserError(f"train.py --processes {settings.train.processes} failed: {result.stderr.strip()}")
        return _phases((runs / "together" / METRICS_FILE).read_bytes())


def _phases(metrics: bytes) -> dict[str, float]:
    """Return seconds of each phase per agent-step, from the second update on."""
    before, *lines = [orjson.loads(line) for line in metrics.splitlines()]
    steps = lines[-1]["agent_steps"] - before["agent_steps"]
    phases = {REST: 0.0}
    for line in lines:
        seconds = (line["agent_steps"] - before["agent_steps"]) / line["agent_steps_per_second"]
        shares = {name.removeprefix("time/"): share for name, share in line.items() if name.startswith("time/")}
        for phase, share in (shares | {REST: 1 - sum(shares.values())}).items():
            phases[phase] = phases.get(phase, 0.0) + share * seconds / steps
        before = line
    return phases


def _show_together(together: Run, measurement: Measurement, processes: int) -> None:
    rows = [(phase, *_time_and_share(together, phase)) for phase in (*PHASES, REST)]
    rows += [("agent-steps/s", _speed(together), ""), ("hours for 10 million", _hours(together), "")]
    print(f"Microseconds per agent-step of all {processes} processes together, and share of the time")
    command_line.print_table(("", "time", "share"), rows)
    faster = sum(measurement.own.values()) / sum(together.values())
    print(
        f"in {processes} processes it is {faster:.2f} times as fast as in one, and "
        f"{_ratio(together, measurement.peer)} times as fast as the peer's stack, and "
        f"{_ratio(together, measurement.peer_keeping)} times if the peer's process kept freed memory"
    )


def _network_seconds(
    policy: RecurrentPolicy, parts: list[Rollout], layout: ObservationLayout, settings: Settings
) -> dict[str, float]:
    """Seconds per agent-step of a dense network's phases: the median over minibatches, after some rounds to warm up."""
    padded = [pad(part, layout) for part in parts]
    works = {
        "inference": [inference(policy, part) for part in padded],
        "learning": [learning(policy, part, settings) for part in padded],
    }
    for _, work in [*works["inference"], *works["learning"]] * WARM_UPS:
        work()
    seconds = {
        phase: median(seconds_of(call, time.perf_counter) / steps for steps, call in work)
        for phase, work in works.items()
    }
    return seconds | {"learning": seconds["learning"] * settings.train.update_epochs}


def _in_new_process(
    policy: RecurrentPolicy, parts: list[Rollout], layout: ObservationLayout, settings: Settings
) -> dict[str, float]:
    """`_network_seconds` in a new process, whose memory the system's C library treats as it does by default."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        # a copy, because torch would share the weights with the other process, which learns
        return process.submit(_network_seconds, copy.deepcopy(policy), parts, layout, settings).result()


def _floors(policy: RecurrentPolicy, part: Rollout, settings: Settings, own: Run) -> dict[str, Floor]:
    speed = matrix_speed(time.perf_counter)  # with all of torch's threads, as in the run
    needed = {
        "inference": operations(inference(policy, part)),
        "learning": operations(learning(policy, part, settings)) * settings.train.update_epochs,
    }
    return {phase: Floor(count, speed, own[phase]) for phase, count in needed.items()}


def _time_and_share(run: Run, phase: str) -> tuple[str, str]:
    return f"{run[phase] * 1e6:.0f}", f"{run[phase] / sum(run.values()):.0%}"


def _ratio(run: Run, other: Run) -> str:
    return f"{sum(other.values()) / sum(run.values()):.1f}"


def _speed(run: Run) -> str:
    return f"{1 / sum(run.values()):.0f}"


def _hours(run: Run) -> str:
    return f"{HOUR_RUN * sum(run.values()) / 3600:.1f}"


def _learner(
    policy: RecurrentPolicy, steppers: Sequence[Stepper], settings: Settings, on_rollout: Callable[[], None]
) -> Callable[[], Rollout]:
    """Return a function that collects one rollout and learns from it."""
    train = settings.train
    optimizer = make_optimizer(policy, train)
    shuffling = torch.Generator().manual_seed(1)
    collector = RolloutCollector(steppers, train.bptt_horizon, train.gamma, train.gae_lambda)

    def learn() -> Rollout:
        rollout = collector.collect(train.batch_size, on_tick=lambda _: None)
        on_rollout()
        with steppers[0].stopwatch.time("learning"):
            update(policy, optimizer, rollout, train, shuffling, on_minibatch=lambda: None)
        return rollout

    return learn


class RecordedWorlds:
    """One group of a run's worlds, which keeps the actions and rewards of each tick for `Repetition`.

    Use it in place of the run's own.

    Attributes:
        actions: of each tick since the list was last cleared.
    """

    def __init__(self, worlds: Any):
        self.worlds = worlds
        self.actions: list[np.ndarray] = []
        self.rewards: list[np.ndarray] = []
        self.observations: np.ndarray

    def __getattr__(self, name: str) -> Any:
        return getattr(self.worlds, name)

    def send(self, actions: np.ndarray) -> None:
        """Begin the run's next tick."""
        self.actions.append(actions.copy())
        self.worlds.send(actions)

    def recv(self) -> Any:
        """Wait for the results of the run's tick, or of its reset."""
        results = self.worlds.recv()
        self.observations = results[0]
        self.rewards += [results[1].copy()] if len(self.rewards) < len(self.actions) else []
        return results


class Repetition:
    """Other worlds that repeat the ticks of a run's worlds with the same seeds and actions.

    Attributes:
        seconds: wall-clock seconds that each kind of other worlds took since the clock was last reset.
    """

    def __init__(self, groups: Sequence[RecordedWorlds], others: Mapping[str, Any], starts: Sequence[EpisodeStart]):
        """Start the first episodes in the other worlds.

        Args:
            others: kinds of worlds by name, each as many as the run has.
        """
        self.groups, self.others = groups, others
        self.reset_clock()
        for worlds in others.values():
            worlds.async_reset([start.first_seed for start in starts])
            worlds.recv()

    def reset_clock(self) -> None:
        """Set all seconds to zero."""
        self.seconds = dict.fromkeys(self.others, 0.0)

    def repeat(self) -> None:
        """Play all ticks that the run has played since the last call; no tick of the run may be under way.

        Raises:
            UserError: the rewards of any tick, or the observations after the last one, differ from those of the run.
        """
        for kind, worlds in self.others.items():
            observations = np.empty(0)
            for actions, rewards in zip(self._all("actions"), self._all("rewards"), strict=True):
                start = time.perf_counter()
                worlds.send(actions)
                observations, their_rewards, *_ = worlds.recv()
                self.seconds[kind] += time.perf_counter() - start
                _check("rewards", kind, rewards, their_rewards)
            everyones = np.concatenate([group.observations for group in self.groups])
            _check("observations", kind, everyones, observations)
        for group in self.groups:
            group.actions.clear()
            group.rewards.clear()

    def _all(self, name: str) -> list[np.ndarray]:
        ticks = zip(*(getattr(group, name) for group in self.groups), strict=True)
        return [np.concatenate(parts) for parts in ticks]


def _check(what: str, kind: str, own: np.ndarray, others: np.ndarray) -> None:
    if not np.array_equal(own, others):
        raise UserError(f"{what} of the run's and of {kind} worlds differ: run tests/reinforcement_learning/game")


def plain_worlds(agent: str, settings: Settings, maps: Path, like: Sequence[Any]) -> Any:
    """Build plain worlds that run in as many processes as others.

    Args:
        like: vectorised worlds from `make_groups`.

    Raises:
        UserError: the others run on a Ray cluster.
    """
    creators: list[Callable[[], Any]] = [
        functools.partial(make_plain_environment, agent, settings.env, settings.task, maps)
    ] * settings.rollout.num_envs
    gc.collect()
    gc.freeze()  # worker processes inherit the run's objects, which plain worlds have nothing to do with
    if type(like[0]) is pufferlib.vector.Serial:
        worlds = serial_worlds(creators)
    elif isinstance(like[0], ProcessWorlds):  # not PufferLib's, whose waiting workers would slow down the run
        worlds = ProcessWorlds(creators, sum(group.num_workers for group in like))
    else:
        raise UserError("this benchmark needs worlds on this machine: --rollout.vectorization auto")
    gc.collect()
    gc.freeze()  # otherwise garbage collections over all plain tiles would be charged to the run's worlds
    return worlds


if __name__ == "__main__":
    command_line.run(main)
