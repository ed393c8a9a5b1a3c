"""Adapt how often each task is drawn to training progress, with the algorithms of the library Syllabus.

The library's own wrappers put queues between every world and the curriculum and request one task at a time. Here the
curriculum is part of the trainer, learns from each rollout, and writes its distribution to a file that worlds read when
an episode starts. docs/tasks.md describes the differences.
"""

import functools
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from nmmo.task.task_spec import TaskSpec

from common.user_error import UserError
from reinforcement_learning.game.tasks import offered_tasks, save_weights
from reinforcement_learning.settings import Settings
from reinforcement_learning.training.rollout import Rollout

LIVES_PER_TASK = 4
_MOST_DRAWN = 5


class AutomaticCurriculum(ABC):
    """Learns from rollouts how often to draw each task; `learner` is the library's object for this."""

    learner: Any

    def __init__(self, specs: Sequence[TaskSpec]):
        self.specs = specs
        self.number = {spec.name: number for number, spec in enumerate(specs)}

    def state(self) -> dict[str, np.ndarray]:
        """Return the state of the library's object as arrays, for resuming a run."""
        return {
            name: np.asarray(value)
            for name, value in vars(self.learner).items()
            if isinstance(value, np.ndarray | np.number | int | float)
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore the output of `state`, for the same tasks."""
        for name, value in state.items():
            setattr(self.learner, name, value.copy() if value.ndim else value.item())

    def learn(self, rollout: Rollout) -> None:  # noqa: B027
        """Learn from a rollout; nothing, unless an algorithm does."""

    @abstractmethod
    def weights(self) -> np.ndarray:
        """Return the probability of each task, (tasks,) float64."""

    def learn_and_save(self, rollout: Rollout, path: Path) -> dict[str, float]:
        """Learn from a rollout and write the new probabilities for the worlds.

        Returns:
            Metrics: the entropy of the probabilities in nats, and the probabilities of the most likely tasks.
        """
        self.learn(rollout)
        weights = self.weights()
        save_weights(path, self.specs, weights)
        positive = weights[weights > 0]
        most = np.argsort(-weights, kind="stable")[:_MOST_DRAWN]
        return {
            "curriculum/entropy": float(-(positive * np.log(positive)).sum()),
            **{f"curriculum/weight/{self.specs[number].name}": float(weights[number]) for number in most},
        }


class DomainRandomization(AutomaticCurriculum):
    """Draws all tasks equally often (Tobin et al. 2017), regardless of the curriculum's weights."""

    def __init__(self, specs: Sequence[TaskSpec]):
        super().__init__(specs)
        curricula, task_spaces = _syllabus()
        self.learner = curricula.DomainRandomization(task_spaces.DiscreteTaskSpace(len(specs)))

    def weights(self) -> np.ndarray:
        """Return the same probability for all."""
        return np.array(self.learner._sample_distribution())


class LearningProgress(AutomaticCurriculum):
    """Prefers tasks whose success rate is changing (Kanitscheider et al. 2021); a quarter of the draws are uniform.

    A life is a success if its task was completed. Success rates are updated after every `LIVES_PER_TASK` lives per task
    on average; before the first update all tasks are equally likely.
    """

    def __init__(self, specs: Sequence[TaskSpec]):
        super().__init__(specs)
        curricula, task_spaces = _syllabus()
        lives = LIVES_PER_TASK * len(specs)
        self.learner = curricula.OnlineLearningProgress(
            task_spaces.DiscreteTaskSpace(len(specs)), update_interval=lives, random_start_tasks=lives
        )

    def learn(self, rollout: Rollout) -> None:
        """Count the lives that ended and their successes."""
        with warnings.catch_warnings(action="ignore"):  # for tasks that an untrained agent already completes
            for life in rollout.lives:
                task = self.number[life.task]
                self.learner.update_task_progress(task, life.task_progress)
                self.learner.update_on_episode(life.total_reward, life.ticks, task, life.task_progress)

    def weights(self) -> np.ndarray:
        """Return the library's distribution."""
        if self.learner._should_use_startup_sampling():
            return np.full(len(self.specs), 1 / len(self.specs))
        return np.asarray(self.learner._sample_distribution(), dtype=np.float64)


class PrioritizedLevelReplay(AutomaticCurriculum):
    """Prefers tasks whose value is hard to predict (Jiang et al. 2021), ranked by mean absolute advantage.

    Until every task has been played, only unplayed tasks are drawn, with equal probability.
    """

    def __init__(self, specs: Sequence[TaskSpec]):
        super().__init__(specs)
        self.number_of_embedding = {spec.embedding.tobytes(): number for number, spec in enumerate(specs)}
        if len(self.number_of_embedding) < len(specs):
            raise UserError(
                "task.syllabus prioritized_level_replay distinguishes tasks by their embeddings, but some are equal: "
                "use another task.encoder or a larger task.embedding_size"
            )
        curricula, _ = _syllabus()
        # The library's temperature 0.1 gives nearly all draws to the task ranked first. That suits the library, which
        # ranks after every draw; here a thousand agents draw between two rankings.
        self.learner = curricula.TaskSampler(
            list(range(len(specs))), 1, strategy="value_l1", replay_schedule="fixed", temperature=1.0
        )

    def learn(self, rollout: Rollout) -> None:
        """Score each task that was played by the mean absolute advantage of its decisions."""
        rows, row_of = np.unique(rollout.observation.task.numpy(), axis=0, return_inverse=True)
        error = rollout.advantage.abs().double().numpy()
        decisions = np.bincount(row_of)
        mean = np.bincount(row_of, weights=error) / decisions
        played = [self.number_of_embedding[row.astype(np.float16).tobytes()] for row in rows]
        for task, score, count in zip(played, mean, decisions, strict=True):
            self.learner.update_task_score(0, task, score, score, int(count))
        self.learner.task_staleness += 1  # as the library does for each draw
        self.learner.task_staleness[played] = 0

    def weights(self) -> np.ndarray:
        """Return the library's distribution: over unplayed tasks while there are any, then by rank and staleness."""
        unseen = self.learner.unseen_task_weights
        weights = unseen if unseen.any() else self.learner.sample_weights()
        return np.asarray(weights, dtype=np.float64) / weights.sum()


_ALGORITHMS: dict[str, type[AutomaticCurriculum]] = {
    "domain_randomization": DomainRandomization,
    "learning_progress": LearningProgress,
    "prioritized_level_replay": PrioritizedLevelReplay,
}


def start_curriculum(settings: Settings, path: Path, state: Mapping[str, np.ndarray]) -> AutomaticCurriculum | None:
    """Build the curriculum named in the settings and write its first probabilities; return None if there is none.

    Args:
        path: file from which worlds read the probabilities.
        state: of the curriculum of a resumed run; empty at the start.

    Raises:
        UserError: as `offered_tasks`, or tasks cannot be distinguished.
    """
    if settings.task.syllabus == "none":
        return None
    specs = offered_tasks(settings.task, settings.env)
    curriculum = _ALGORITHMS[settings.task.syllabus](specs)
    curriculum.restore(state)
    save_weights(path, specs, curriculum.weights())
    return curriculum


@functools.cache
def _syllabus() -> tuple[Any, Any]:
    """Import the library, and undo the side effects of importing it."""
    with np.errstate():  # otherwise numpy would raise on every underflow
        import syllabus.curricula
        import syllabus.task_space
        from syllabus.core import evaluator

    unused = evaluator.GymnasiumEvaluationWrapper.env_count.shm  # otherwise reported as leaked when the process ends
    unused.close()
    unused.unlink()
    return syllabus.curricula, syllabus.task_space
