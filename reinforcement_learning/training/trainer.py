"""Train one agent: collect, learn and report until all steps are done or training is stopped."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from agent_zoo.base import RecurrentPolicy
from agent_zoo.checkpoint import build_policy, save_checkpoint
from agent_zoo.data_parallel import ALONE, Processes, join_records, pick_device
from agent_zoo.memory import MemoryState, start_slow
from common.user_error import UserError
from reinforcement_learning.game.environment import EpisodeStart, Life, observation_layout
from reinforcement_learning.game.life import life_statistics
from reinforcement_learning.game.vectorization import first_episodes, make_groups
from reinforcement_learning.play.entrants import untrained_info
from reinforcement_learning.play.stepper import Stopwatch, make_steppers, reset
from reinforcement_learning.processes import StopSignal
from reinforcement_learning.settings import Settings, TrainSettings
from reinforcement_learning.training.automatic_curriculum import AutomaticCurriculum, start_curriculum
from reinforcement_learning.training.opponents import Opponents, Ratings
from reinforcement_learning.training.ppo import make_optimizer, set_learning_rate, update
from reinforcement_learning.training.rollout import Rollout, RolloutCollector
from reinforcement_learning.training.run_folder import (
    TrainingFolder,
    TrainingState,
    optimizer_tensors,
    restore_optimizer,
)
from reinforcement_learning.training.semantic_training import SemanticTraining

Metrics = dict[str, float]

_REASON_SHOWN = 200


class _Stopped(Exception):
    """Training was asked to stop; raised between two ticks or minibatches."""


@dataclass(frozen=True)
class Session:
    """What a training writes to, tells of its progress, and listens to; the same from its first update to its last."""

    run: TrainingFolder
    stop: StopSignal = field(default_factory=StopSignal)  # looked at between ticks and between minibatches
    on_update: Callable[[Metrics], None] = lambda _: None  # called with the metrics of each update
    on_progress: Callable[[int], None] = lambda _: None  # called with the agent-steps so far after each tick
    processes: Processes = ALONE  # of this run; the leader writes and reports


def train(
    name: str, agent: str, settings: Settings, maps: Path, session: Session, state: TrainingState | None = None
) -> Path:
    """Train an agent on maps from `ensure_maps`, and return the policy's checkpoint, also when stopped early.

    Args:
        state: of a run to resume; None starts a new one.

    Raises:
        UserError: the loss is no longer finite, or a worker process or another process of the run has ended.
    """
    run = session.run
    torch.manual_seed(_seeds(settings)[0])
    state = state.share(session.processes) if state else None
    worlds, seed = settings.rollout.num_envs, settings.train.seed
    if state and len(state.worlds) == worlds:
        starts = state.worlds
    else:  # a new run, or another number of worlds, which begin new episodes
        starts = first_episodes(seed + state.steps if state else seed, worlds, session.processes.rank)
    curriculum = start_curriculum(settings, run.task_weights, state.curriculum if state else {})
    weights_file = run.task_weights if curriculum else None
    groups = make_groups(
        agent, settings.env, settings.task, settings.rollout, maps, starts, weights_file, settings.reward
    )
    try:
        training = _Training(name, agent, settings, session, groups, starts, curriculum)
        training.start(state)
        return training.run_to_end()
    except UserError as error:
        raise UserError(f"{error}; checkpoints so far: {run.checkpoints}") from None
    finally:
        for group in groups:
            group.close()


def _seeds(settings: Settings) -> tuple[int, int]:
    weights, minibatches = np.random.SeedSequence(settings.train.seed).generate_state(2)
    return int(weights), int(minibatches)


def checkpoints_due(steps: int, train: TrainSettings) -> int:
    """Return how many checkpoints should exist after some agent-steps, not counting the untrained one."""
    total = train.total_agent_steps
    if train.checkpoint_spacing == "even":
        return train.num_checkpoints * min(steps, total) // total
    return sum(steps * 2**halvings >= total for halvings in range(train.num_checkpoints))


class _Training:
    def __init__(
        self, name: str, agent: str, settings: Settings, session: Session, groups: Sequence[Any],
        starts: Sequence[EpisodeStart], curriculum: AutomaticCurriculum | None,
    ):  # fmt: skip
        self.name, self.settings, self.curriculum = name, settings, curriculum
        self.session, self.run, self.processes = session, session.run, session.processes
        train = settings.train
        self.info = untrained_info(agent, settings, observation_layout(groups[0].driver_env))
        self.policy: RecurrentPolicy = build_policy(self.info).to(pick_device(train.device))
        self.policy.bfloat16_encoder = train.precision == "bfloat16"
        if train.initialization == "orthogonal":
            self.policy.policy.initialize_orthogonally()
        if train.longest_memory and self.policy.memory:
            start_slow(self.policy.memory, train.longest_memory)
        self.processes.same_weights(self.policy)
        self.optimizer = make_optimizer(self.policy, train)
        self.stopwatch = Stopwatch()
        self.steppers = make_steppers(groups, self.policy, self.info.layout, self.stopwatch, starts)
        self.opponents: Opponents | None = None
        if train.has_opponents:
            self.opponents = Opponents(self.steppers, train.seats, self.run.checkpoints, train.seed, Ratings())
        self.minibatch_generator = torch.Generator().manual_seed(_seeds(settings)[1])
        self.semantic: SemanticTraining | None = None
        if self.policy.semantic:
            self.semantic = SemanticTraining(
                self.policy, settings.semantic, train.seed, self.minibatch_generator, self.processes
            )
        spacing = settings.semantic.ticks_apart if self.semantic else 0
        self.collector = RolloutCollector(
            self.steppers, train.bptt_horizon, train.gamma, train.gae_lambda, spacing, train.ignore_idle_heads
        )
        self.steps = 0
        self.updates = 0

    def start(self, state: TrainingState | None) -> None:
        """Take the worlds to their start, and all else to where the state says (UserError: it does not fit)."""
        reset(self.steppers)
        if state is None:
            self._save_checkpoint()
            self._meet_opponents()
            return
        self.steps, self.updates = state.steps, state.updates
        self._meet_opponents()
        try:
            self.policy.load_state_dict(state.policy)
            restore_optimizer(self.optimizer, state.optimizer)
            if len(state.worlds) == self.settings.rollout.num_envs:
                for stepper, memory in zip(self.steppers, state.memory.split(len(self.steppers)), strict=True):
                    stepper.memory.put(torch.arange(stepper.slots, device=stepper.device), memory.to(stepper.device))
            self.minibatch_generator.set_state(state.minibatch_random[0])
            if self.semantic:
                self.semantic.restore(state.semantic)
        except (RuntimeError, ValueError, KeyError) as error:
            reason = (str(error).splitlines() or [""])[-1].strip()[:_REASON_SHOWN]
            raise UserError(
                f"{self.run.state_path} does not fit the settings of its run ({reason}): one of the two was changed, "
                "or it is the training state of another run; start a new run"
            ) from None

    def run_to_end(self) -> Path:
        train = self.settings.train
        latest = self.run.checkpoint_path(self.name, self.steps)
        if self.steps >= train.total_agent_steps and not latest.exists():  # resumed with fewer agent-steps
            latest = self._save_checkpoint()
        try:
            while self.steps < train.total_agent_steps:
                reached = checkpoints_due(self.steps, train)
                self._update()
                is_between = train.checkpoint_interval > 0 and self.updates % train.checkpoint_interval == 0
                if checkpoints_due(self.steps, train) > reached or is_between:
                    latest = self._save_checkpoint()
                    if self.opponents:
                        self.opponents.change(self.steps)
                self._save_state()
        except _Stopped:
            latest = self._save_checkpoint(self.run.stopped_path(self.name))
        return latest

    def _meet_opponents(self) -> None:
        if self.opponents:
            self.opponents.ratings = Ratings.after(self.run.folder, self.updates)
            self.opponents.choose(self.steps)

    def _save_state(self) -> None:
        own = TrainingState(
            steps=self.steps,
            updates=self.updates,
            policy=self.policy.state_dict(),
            optimizer=optimizer_tensors(self.optimizer),
            memory=MemoryState.concatenate([stepper.memory for stepper in self.steppers]),
            minibatch_random=self.minibatch_generator.get_state().unsqueeze(0),
            worlds=[start for stepper in self.steppers for start in stepper.journal.starts()],
            curriculum=self.curriculum.state() if self.curriculum else {},
            semantic=self.semantic.state() if self.semantic else {},
        )
        everyones = own.joined(self.processes)
        if self.processes.leads:
            everyones.save(self.run.state_path)

    def _update(self) -> None:
        train = self.settings.train
        self.stopwatch.lap()  # what starting worlds, or resuming them, took is no part of an update
        start = perf_counter()
        if train.anneal_learning_rate:
            set_learning_rate(self.optimizer, train.learning_rate * max(0.0, 1 - self.steps / train.total_agent_steps))
        learning_rate = self.optimizer.param_groups[0]["lr"]
        rollout = self._collect()
        with self.stopwatch.time("learning"):
            losses = update(
                self.policy, self.optimizer, rollout, train, self.minibatch_generator, self._stop_together,
                self.processes, self.semantic.losses if self.semantic else (),
            )  # fmt: skip
        lives = join_records(Life, rollout.lives, self.processes)
        decisions = self.processes.total(len(rollout))
        self.steps += decisions
        self.updates += 1
        seconds, phases = perf_counter() - start, sorted(self.stopwatch.lap().items())
        metrics = {
            "agent_steps": self.steps,
            "update": self.updates,
            "learning_rate": learning_rate,
            **{f"loss/{key}": value for key, value in losses.items()},
            "loss/explained_variance": explained_variance(
                self.processes.concatenate(rollout.advantage), self.processes.concatenate(rollout.value)
            ),
            "agent_steps_per_second": decisions / seconds,
            **{f"time/{phase}": spent / seconds for phase, spent in phases},
            **life_statistics(lives, fog=self.settings.env.death_fog_tick is not None),
        }
        if self.semantic:
            metrics |= self.semantic.after_update(lives, self.optimizer, self.updates)
        if self.opponents:
            metrics |= self.opponents.rate(lives)
            self.opponents.ratings.save(self.run.folder, self.name)
        if self.curriculum:
            metrics |= self.curriculum.learn_and_save(rollout, self.run.task_weights)
        if not self.processes.leads:
            return
        self.run.append_metrics(metrics)
        self.session.on_update(metrics)

    def _collect(self) -> Rollout:
        """Collect this process's part of the batch, then stop if any process was asked to."""
        try:
            rollout = self.collector.collect(self.settings.train.batch_size, self._on_tick)
        except (_Stopped, UserError):
            if not self.session.stop:  # a worker process may have received the signal first and ended
                raise
        self._stop_together()
        return rollout

    def _on_tick(self, decisions: int) -> None:
        self.session.on_progress(self.steps + decisions * self.processes.size)  # the others are about equally far
        if self.session.stop:
            raise _Stopped

    def _stop_together(self) -> None:
        number = self.processes.largest(self.session.stop.received or 0)
        if number:
            self.session.stop.received = number
            raise _Stopped

    def _save_checkpoint(self, path: Path | None = None) -> Path:
        path = path or self.run.checkpoint_path(self.name, self.steps)
        if self.processes.leads:
            save_checkpoint(path, self.policy, replace(self.info, steps=self.steps))
            self.run.draw_curves()
        return path


def explained_variance(advantage: torch.Tensor, value: torch.Tensor) -> float:
    """Return the share of the returns' variance that the value estimate explains; at most 1, 0 for a constant."""
    variance = (advantage + value).var(correction=0)
    return float(1 - advantage.var(correction=0) / variance) if variance > 0 else 0.0
