"""Processor time of training with a semantic plane and codebook, compared with plain training of the same agent.

    python -m benchmarks.semantic                                 # a few minutes on one core
    python -m benchmarks.semantic --updates 1 --train.batch-size 8192 --output semantic.json

Both networks play and learn alternately, each in worlds of its own with the same seeds and settings. The goal is at
most 1.25 times the time of plain training.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import torch
import tyro

from agent_zoo.checkpoint import versions
from agent_zoo.data_parallel import ALONE
from benchmarks.learning import start
from benchmarks.measure import Output, Work, compare, spread
from common import command_line
from common.user_error import UserError
from reinforcement_learning.game.maps import ensure_maps
from reinforcement_learning.play.entrants import untrained_entrant
from reinforcement_learning.run_settings import load_settings
from reinforcement_learning.settings import SemanticSettings, Settings
from reinforcement_learning.training.ppo import make_optimizer, update
from reinforcement_learning.training.semantic_training import SemanticTraining

AGENT = "neurips23_start_kit"
GOAL = 1.25


@dataclass(frozen=True)
class Arguments(Output):
    """Arguments of benchmarks/semantic.py."""

    updates: int = 3
    """Number of updates to measure, at least 1."""
    codes: int = 8
    """Number of codes, 2 to 512."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)


def learner(settings: Settings, maps: Path) -> tuple[Callable[[], object], Callable[[], None]]:
    """Return a function that collects a batch and learns from it, and one that closes the worlds."""
    entrant = untrained_entrant(AGENT, settings, maps, seed=settings.train.seed)
    policy, train, generator = entrant.policy.train(), settings.train, torch.Generator().manual_seed(1)
    spacing = settings.semantic.ticks_apart if policy.semantic else 0
    worlds, collector = start(AGENT, settings, policy, maps, entrant.info.layout, train.seed, spacing)
    optimizer = make_optimizer(policy, train)
    semantic = None
    if policy.semantic:
        semantic = SemanticTraining(policy, settings.semantic, train.seed, generator, ALONE)
        semantic.mean_return = settings.semantic.return_reference  # full weight: nothing is left out

    def learn() -> None:
        rollout = collector.collect(train.batch_size, lambda _: None)
        losses = semantic.losses if semantic else ()
        update(policy, optimizer, rollout, train, generator, lambda: None, ALONE, losses)
        if semantic:
            semantic.after_update(rollout.lives, optimizer, 1)

    return learn, worlds.close


def main() -> None:
    """Parse, measure alternately, and print the ratio."""
    settings = replace(load_settings(Path("config.yaml"), AGENT), semantic=SemanticSettings())
    serial = replace(settings, rollout=replace(settings.rollout, vectorization="serial"))
    arguments = command_line.parse(Arguments, __doc__, flag_pairs=True, default=Arguments(settings=serial))
    if arguments.updates < 1:
        raise UserError(f"--updates is {arguments.updates}: must be 1 or more")
    plain = arguments.settings
    codes = replace(plain, semantic=SemanticSettings(codes=arguments.codes))
    maps = ensure_maps(plain.env)
    ways = [learner(agent, maps) for agent in (codes, plain)]
    try:
        steps = plain.train.batch_size
        works: list[list[Work]] = [[(steps, learn)] * arguments.updates for learn, _ in ways]
        ways[1][0]()  # `compare` warms up the first way only
        comparison = compare(*works)
    finally:
        for _, close in ways:
            close()
    ratios = [1 / ratio for ratio in comparison["ratios"]]
    print(
        f"agent-steps per processor second with {arguments.codes} codes: {spread(comparison['packed_speeds'], '.0f')}"
    )
    print(f"plain: {spread(comparison['dense_speeds'], '.0f')}")
    print(f"time with codes over time without: {spread(ratios, '.3f')}; goal: at most {GOAL}")
    content = {
        "with_codes": list(comparison["packed_speeds"]),
        "plain": list(comparison["dense_speeds"]),
        "ratios": ratios,
    }
    arguments.write({**content, "batch_size": steps, "versions": versions()})


if __name__ == "__main__":
    command_line.run(main)
