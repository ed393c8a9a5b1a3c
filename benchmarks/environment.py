"""Speed of one world on the vectorised path, compared with PufferLib's plain PettingZoo emulation of the same game.

    python -m benchmarks.environment                                # config.yaml's world, a few minutes on one core
    python -m benchmarks.environment --output environment.json

Both worlds get the same seed and the same actions, those of agents that forage for food and water, and run alternately,
tick by tick, in one process, each with the thresholds of garbage collection that it has by itself. The result is the
ratio of their processor times for each repetition, an episode from its start. Their outputs are compared byte by byte.
"""

import functools
import gc
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pufferlib.vector

from agent_zoo.checkpoint import versions
from benchmarks.measure import Output, spread
from common import command_line
from common.user_error import UserError
from reinforcement_learning.game.environment import make_environment, make_plain_environment, observation_layout
from reinforcement_learning.game.maps import ensure_maps
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from tests.forager import forage

AGENT = "neurips23_start_kit"
_PATHS = ("plain", "fast")


@dataclass(frozen=True)
class Arguments(Output):
    """Arguments of benchmarks/environment.py."""

    repetitions: int = 5
    """Number of episodes, each with a different seed, at least 1."""
    ticks: int = 128
    """Number of ticks per episode, at least 1."""
    seed: int = 1
    """Seed of the first episode."""
    env: EnvironmentSettings = field(default_factory=EnvironmentSettings)
    """The world."""


def main() -> None:
    """Parse, measure, print."""
    arguments = command_line.parse(Arguments, __doc__)
    if arguments.repetitions < 1 or arguments.ticks < 1:
        raise UserError("--repetitions and --ticks must be at least 1")
    repetitions = measure(arguments)
    show(repetitions)
    settings = {**asdict(arguments.env), "maps_dir": str(arguments.env.maps_dir)}
    arguments.write({"settings": settings, "versions": versions(), "repetitions": repetitions})


def measure(arguments: Arguments) -> list[dict[str, float]]:
    """Play all repetitions."""
    task = TaskSettings()
    maps = ensure_maps(arguments.env)
    makers: list[Callable] = [make_plain_environment, make_environment]
    worlds = [
        pufferlib.vector.make(
            functools.partial(make, AGENT, arguments.env, task, maps), backend=pufferlib.vector.Serial
        )
        for make in makers
    ]
    default = gc.get_threshold()
    for world in worlds:
        world.async_reset([arguments.seed])
        world.recv()
    thresholds = default, gc.get_threshold()  # the vectorised path changes them when it starts
    gc.collect()
    gc.freeze()  # otherwise a garbage collection over all tiles would be charged to the world in which it starts
    return [
        play(worlds, thresholds, seed, arguments.ticks)
        for seed in range(arguments.seed, arguments.seed + arguments.repetitions)
    ]


def play(
    worlds: list[Any], thresholds: tuple[tuple[int, int, int], ...], seed: int, ticks: int
) -> dict[str, float]:  # fmt: skip
    """Play one episode, or as many as fit, in both worlds, alternating tick by tick.

    Args:
        worlds: plain and fast.
        thresholds: of garbage collection, for each world.

    Returns:
        Agent-steps and ticks played, the processor seconds of each world, and the speed-up of the vectorised path.
    """
    plain, fast = worlds
    layout = observation_layout(plain.envs[0])
    random = np.random.default_rng(seed)
    seconds = {id(world): 0.0 for world in worlds}
    turns = list(zip(worlds, thresholds, strict=True))
    agent_steps = 0
    for world in worlds:
        world.async_reset([seed])
    for tick in range(ticks):
        observations, fast_observations = plain.recv()[0], fast.recv()[0]
        assert observations.tobytes() == fast_observations.tobytes(), f"the worlds differ in tick {tick}"
        seen = observations.view(plain.emulated.emulated_observation_dtype)[:, 0]
        actions = forage(seen, layout, random)
        agent_steps += len(plain.envs[0].agents)
        for world, threshold in turns if tick % 2 else reversed(turns):
            gc.set_threshold(*threshold)
            start = time.process_time()
            world.send(actions)
            seconds[id(world)] += time.process_time() - start
    for world in worlds:
        world.recv()
    plain_seconds, fast_seconds = (seconds[id(world)] for world in worlds)
    return {
        "agent_steps": agent_steps, "ticks": ticks, "plain_seconds": plain_seconds, "fast_seconds": fast_seconds,
        "ratio": plain_seconds / fast_seconds,
    }  # fmt: skip


def show(repetitions: list[dict[str, float]]) -> None:
    """Print speeds and their ratio: median, minimum and maximum over the repetitions."""
    rows = []
    for name, count, form in (("agent-steps/s", "agent_steps", ".0f"), ("ticks/s", "ticks", ".1f")):
        speeds = [[one[count] / one[f"{path}_seconds"] for one in repetitions] for path in _PATHS]
        rows.append((name, *(spread(values, form) for values in speeds)))
    rows.append(("ratio", "1", spread([one["ratio"] for one in repetitions], ".2f")))
    print(f"One world on one core, {len(repetitions)} repetitions: median (minimum to maximum)")
    command_line.print_table(("", "plain emulation", "vectorised path"), rows)


if __name__ == "__main__":
    command_line.run(main)
