"""Trains one agent: collect, learn, report, until the steps are used up or somebody stops it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from agent_zoo.base import RecurrentPolicy
from reinforcement_learning.automatic_curriculum import AutomaticCurriculum, start_curriculum
from reinforcement_learning.checkpoint import build_policy, save_checkpoint, untrained_info
from reinforcement_learning.device import pick_device
from reinforcement_learning.environment import Life, observation_layout
from reinforcement_learning.ppo import update
from reinforcement_learning.rollout import Player, Rollout, RolloutCollector
from reinforcement_learning.run_folder import RunFolder
from reinforcement_learning.settings import Settings
from reinforcement_learning.stop_signal import StopSignal
from reinforcement_learning.stopwatch import Stopwatch
from reinforcement_learning.tracking import Tracker
from reinforcement_learning.vectorization import make_worlds, world_seeds
from user_error import UserError

Metrics = dict[str, float]


class _Stopped(Exception):
    """Training was asked to stop; raised between two ticks or minibatches."""


@dataclass(frozen=True)
class Reports:
    """What training tells while it runs.

    Attributes:
        on_update: called with the metrics of each update.
        on_progress: called with agent-steps so far, after each tick.
    """

    on_update: Callable[[Metrics], None]
    on_progress: Callable[[int], None]


def train(
    name: str, agent: str, settings: Settings, maps: Path, run: RunFolder, tracker: Tracker, reports: Reports,
    stop: StopSignal,
) -> Path:  # fmt: skip
    """Train an agent and return its last checkpoint, also when stopped early.

    Args:
        name: of the policy.
        agent: folder in agent_zoo/.
        settings: all of them, checked.
        maps: a finished folder from `ensure_maps`.
        run: where metrics and checkpoints go.
        tracker: mirror of the metrics.
        reports: what to call on progress.
        stop: looked at between ticks and between minibatches.

    Raises:
        UserError: the loss stopped being a finite number, or a worker process ended.
    """
    seeds = np.random.SeedSequence(settings.train.seed).generate_state(3)
    torch.manual_seed(int(seeds[0]))
    curriculum = start_curriculum(settings, run.task_weights)
    worlds = make_worlds(
        agent, settings.env, settings.task, settings.rollout, maps, run.task_weights if curriculum else None
    )
    try:
        return _Training(name, agent, settings, worlds, curriculum, run, tracker, reports, stop, seeds).run_to_end()
    except UserError as error:
        raise UserError(f"{error}; checkpoints so far: {run.checkpoints}") from None
    finally:
        worlds.close()


class _Training:
    def __init__(
        self, name: str, agent: str, settings: Settings, worlds: Any, curriculum: AutomaticCurriculum | None,
        run: RunFolder, tracker: Tracker, reports: Reports, stop: StopSignal, seeds: np.ndarray,
    ):  # fmt: skip
        self.name, self.settings, self.run, self.tracker = name, settings, run, tracker
        self.curriculum = curriculum
        self.reports, self.stop = reports, stop
        self.info = untrained_info(agent, settings, observation_layout(worlds.driver_env))
        device = pick_device(settings.train.device)
        self.policy: RecurrentPolicy = build_policy(self.info).to(device)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=settings.train.learning_rate, eps=1e-5)
        self.stopwatch = Stopwatch()
        self.player = Player(worlds, self.policy, self.info.layout, self.stopwatch)
        self.minibatch_generator = torch.Generator().manual_seed(int(seeds[1]))
        self.collector = RolloutCollector(
            self.player,
            torch.Generator(device).manual_seed(int(seeds[2])),
            settings.train.bptt_horizon,
            settings.train.gamma,
            settings.train.gae_lambda,
        )
        self.steps = 0
        self.updates = 0

    def run_to_end(self) -> Path:
        total = self.settings.train.total_agent_steps
        latest = self._save()
        saved = 0
        try:
            self.player.reset(world_seeds(self.settings.train.seed, self.settings.rollout.num_envs))
            while self.steps < total:
                self._update()
                reached = self.settings.train.num_checkpoints * min(self.steps, total) // total
                if reached > saved:
                    latest, saved = self._save(), reached
        except _Stopped:
            latest = self._save()
        return latest

    def _update(self) -> None:
        train = self.settings.train
        start = perf_counter()
        if train.anneal_learning_rate:
            for group in self.optimizer.param_groups:
                group["lr"] = train.learning_rate * max(0.0, 1 - self.steps / train.total_agent_steps)
        learning_rate = self.optimizer.param_groups[0]["lr"]
        rollout = self.collector.collect(train.batch_size, self._on_tick)
        with self.stopwatch.time("learning"):
            losses = update(
                self.policy, self.optimizer, rollout, train, self.minibatch_generator, self._raise_if_stopped
            )
        self.steps += len(rollout)
        self.updates += 1
        metrics = {
            "agent_steps": self.steps,
            "update": self.updates,
            "learning_rate": learning_rate,
            **{f"loss/{key}": value for key, value in asdict(losses).items()},
            "loss/explained_variance": explained_variance(rollout),
            **speed(len(rollout), perf_counter() - start, self.stopwatch.lap()),
            **life_statistics(rollout.lives),
        }
        if self.curriculum:
            metrics |= self.curriculum.learn_and_save(rollout, self.run.task_weights)
        self.run.append_metrics(metrics)
        self.tracker.log(metrics)
        self.reports.on_update(metrics)

    def _on_tick(self, decisions: int) -> None:
        self.reports.on_progress(self.steps + decisions)
        self._raise_if_stopped()

    def _raise_if_stopped(self) -> None:
        if self.stop:
            raise _Stopped

    def _save(self) -> Path:
        path = self.run.checkpoint_path(self.name, self.steps)
        save_checkpoint(path, self.policy, replace(self.info, steps=self.steps))
        return path


def speed(decisions: int, seconds: float, phases: dict[str, float]) -> Metrics:
    """Agent-steps per second, and the share of the time that each phase took."""
    shares = {f"time/{phase}": spent / seconds for phase, spent in sorted(phases.items())}
    return {"agent_steps_per_second": decisions / seconds, **shares}


def explained_variance(rollout: Rollout) -> float:
    """Share of the variance of the returns that the value estimate explains; at most 1, 0 for a constant."""
    returns = rollout.advantage + rollout.value
    variance = returns.var(correction=0)
    return float(1 - rollout.advantage.var(correction=0) / variance) if variance > 0 else 0.0


def life_statistics(lives: list[Life]) -> Metrics:
    """Averages over the lives that ended; nothing if none did."""
    if not lives:
        return {}
    return {
        "lives/ended": len(lives),
        "lives/ticks": float(np.mean([life.ticks for life in lives])),
        "lives/total_reward": float(np.mean([life.total_reward for life in lives])),
        "lives/task_progress": float(np.mean([life.task_progress for life in lives])),
        "lives/died": float(np.mean([life.died for life in lives])),
    }
