"""How long do agents live? Plays whole episodes with each checkpoint and compares mean ticks lived, episode by episode.

    python -m benchmarks.life_length runs/NAME/checkpoints/*.safetensors --episodes 8 --output lives.json

All agents of a world play the same policy: 128 agents, 256 NPCs, 1,024 ticks, nobody hardy, no early stop, the held-out
tasks, and maps that no training run with another map seed has seen. The unit is the episode, since agents of one world
are not independent: intervals are bootstrapped over episodes (BCa, Efron 1987). Every checkpoint plays the same seeds,
so its difference from the first one named is taken episode by episode.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import tyro

import command_line
from user_error import UserError

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Arguments:
    """Arguments of life_length.py."""

    checkpoints: tyro.conf.Positional[tuple[Path, ...]]
    """Checkpoints to play, the one to compare with first."""
    episodes: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 8
    """Episodes for each, of up to 1,024 ticks."""
    seed: Annotated[int, tyro.conf.arg(aliases=["-s"])] = 1
    """Seed of the episodes and of the actions."""
    map_seed: int = 1
    """Seed of the maps; training uses 0."""
    maps_dir: Path = Path("maps")
    """Folder of generated maps."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Write the numbers to this JSON file too."""


def main() -> None:
    """Play, print a table, and write the numbers."""
    arguments = command_line.parse(Arguments, __doc__)
    if not arguments.checkpoints or arguments.episodes < 2:
        raise UserError("name at least one checkpoint, and --episodes of at least 2: an interval needs more than one")

    from rich.console import Console
    from rich.table import Table

    from activation_store.files import sha256, write_json

    table = Table("checkpoint", "agent-steps", "ticks lived", "95% interval", "more than the first", "95% interval")
    results: list[dict] = []
    for path in arguments.checkpoints:
        steps, ticks = play(path, arguments)
        first = results[0]["ticks_lived_by_episode"] if results else ticks
        result = {"checkpoint": path.name, "sha256": sha256(path), "steps": steps, "ticks_lived_by_episode": ticks}
        results.append(result | summary(np.array(ticks), np.array(first)))
        table.add_row(*row(results[-1]))
        print(f"{path.name}: {results[-1]['mean']:.1f} ticks", flush=True)
    Console().print(table)
    if arguments.output:
        world = {"map_seed": arguments.map_seed, "seed": arguments.seed, "episodes": arguments.episodes}
        write_json(arguments.output, {**world, "results": results})


def play(path: Path, arguments: Arguments) -> tuple[int, list[float]]:
    """Return a checkpoint's agent-steps and the mean ticks lived in each episode."""
    from reinforcement_learning.checkpoint import load_checkpoint
    from reinforcement_learning.extraction import ONE_WORLD
    from reinforcement_learning.maps import ensure_maps
    from reinforcement_learning.player import Player
    from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
    from reinforcement_learning.stopwatch import Stopwatch
    from reinforcement_learning.vectorization import first_episodes, make_worlds

    policy, info = load_checkpoint(path)
    env = EnvironmentSettings(
        num_maps=32,
        map_seed=arguments.map_seed,
        resilient_population=0,
        early_stop_agents=0,
        maps_dir=arguments.maps_dir,
    )
    task = TaskSettings(curriculum="evaluation", embedding_size=info.layout.task_size)
    worlds = make_worlds(info.agent, env, task, ONE_WORLD, ensure_maps(env), first_episodes(arguments.seed, 1))
    player = Player(worlds, policy, info.layout, Stopwatch())
    generator = torch.Generator().manual_seed(arguments.seed)
    player.reset()
    by_episode: list[list[int]] = [[]]
    while True:
        decision = player.decide()
        if not decision.acting.any():
            if len(by_episode) == arguments.episodes:
                break
            by_episode.append([])
        player.act(decision, decision.over_slots(decision.distribution.sample(generator)))
        by_episode[-1].extend(life.ticks for life in player.arrival.lives)
    worlds.close()
    return info.steps, [float(np.mean(ticks)) for ticks in by_episode]


def summary(ticks: np.ndarray, first: np.ndarray) -> dict[str, object]:
    """Means over episodes with their intervals."""
    more = ticks - first
    return {
        "mean": ticks.mean(), "interval": interval(ticks), "more": more.mean(),
        "more_interval": interval(more) if more.any() else [0.0, 0.0],
    }  # fmt: skip


def interval(values: np.ndarray) -> list[float]:
    """Bootstrap interval of the mean."""
    from scipy.stats import bootstrap

    result = bootstrap((values,), np.mean, confidence_level=CONFIDENCE, rng=np.random.default_rng(0))
    return [float(each) for each in result.confidence_interval]


def row(result: dict) -> list[str]:
    """One line of the table."""
    low, high = result["interval"]
    more_low, more_high = result["more_interval"]
    return [
        result["checkpoint"], f"{result['steps']:,}", f"{result['mean']:.1f}", f"{low:.1f} to {high:.1f}",
        f"{result['more']:+.1f}", f"{more_low:+.1f} to {more_high:+.1f}",
    ]  # fmt: skip


if __name__ == "__main__":
    command_line.run(main)
