"""Chooses how often each task is drawn from how training goes, with the algorithms of the library Syllabus.

The library's own wrappers put queues between every world and the curriculum, which asks for one task at a time; here
the curriculum lives in the trainer, learns from each rollout, and leaves its distribution in a file that worlds read
when an episode starts. docs/tasks.md says how the two differ.
"""

import functools
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from nmmo.task.task_spec import TaskSpec

from reinforcement_learning.game.tasks import offered_tasks, save_weights
from reinforcement_learning.settings import Settings
from reinforcement_learning.training.rollout import Rollout
from user_error import UserError

LIVES_PER_TASK = 4
_MOST_DRAWN = 5


class AutomaticCurriculum(ABC):
    """Learns from rollouts how often each task should be drawn; `learner` is the library's object that does."""

    learner: Any

    def __init__(self, specs: Sequence[TaskSpec]):
        self.specs = specs
        self.number = {spec.name: number for number, spec in enumerate(specs)}

    def state(self) -> dict[str, np.ndarray]:
        """Return all that the library's object has learnt, as arrays, for a run that is taken up again."""
        return {
            name: np.asarray(value)
            for name, value in vars(self.learner).items()
            if isinstance(value, np.ndarray | np.number | int | float)
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from what `state` returned, for the same tasks."""
        for name, value in state.items():
            setattr(self.learner, name, value.copy() if value.ndim else value.item())

    @abstractmethod
    def learn(self, rollout: Rollout) -> None:
        """Take in what happened in a rollout."""

    @abstractmethod
    def weights(self) -> np.ndarray:
        """Return the probability of each task, (tasks,) float64."""

    def learn_and_save(self, rollout: Rollout, path: Path) -> dict[str, float]:
        """Learn from a rollout and leave the new probabilities for the worlds.

        Returns:
            Metrics: the entropy of the probabilities in nats, and those of the tasks most often drawn.
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
    """All tasks alike (Tobin et al. 2017), whatever weights the curriculum gives them."""

    def __init__(self, specs: Sequence[TaskSpec]):
        super().__init__(specs)
        curricula, task_spaces = _syllabus()
        self.learner = curricula.DomainRandomization(task_spaces.DiscreteTaskSpace(len(specs)))

    def learn(self, rollout: Rollout) -> None:
        """Learn nothing."""

    def weights(self) -> np.ndarray:
        """Return the same probability for all."""
        return np.array(self.learner._sample_distribution())


class LearningProgress(AutomaticCurriculum):
    """Tasks whose success rate changes, up or down (Kanitscheider et al. 2021), a quarter of the draws evenly spread.

    A life is a success if its task was completed. The success rates are taken anew each time that there were
    `LIVES_PER_TASK` lives for each task on average; before the first time all tasks are alike.
    """

    def __init__(self, specs: Sequence[TaskSpec]):
        super().__init__(specs)
        curricula, task_spaces = _syllabus()
        lives = LIVES_PER_TASK * len(specs)
        self.learner = curricula.OnlineLearningProgress(
            task_spaces.DiscreteTaskSpace(len(specs)), update_interval=lives, random_start_tasks=lives
        )

    def learn(self, rollout: Rollout) -> None:
        """Count the lives that ended and how far they came."""
        with warnings.catch_warnings(action="ignore"):  # of tasks that an untrained agent already masters
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
    """Tasks whose value is hard to foretell (Jiang et al. 2021): ranked by their mean absolute advantage.

    Until every task has been played, only those that have not are drawn, evenly.
    """

    def __init__(self, specs: Sequence[TaskSpec]):
        super().__init__(specs)
        self.number_of_embedding = {spec.embedding.tobytes(): number for number, spec in enumerate(specs)}
        if len(self.number_of_embedding) < len(specs):
            raise UserError(
                "task.syllabus prioritized_level_replay must tell tasks apart by their embeddings, and some are equal: "
                "use another task.encoder or a larger task.embedding_size"
            )
        curricula, _ = _syllabus()
        # The library's temperature 0.1 gives nearly all draws to the task ranked first. It draws and ranks by turns;
        # here a thousand agents draw between two rankings.
        self.learner = curricula.TaskSampler(
            list(range(len(specs))), 1, strategy="value_l1", replay_schedule="fixed", temperature=1.0
        )

    def learn(self, rollout: Rollout) -> None:
        """Score each task that was played by the mean absolute advantage of the decisions made under it."""
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
        """Return the library's distribution: over unseen tasks while there are any, then by rank and staleness."""
        unseen = self.learner.unseen_task_weights
        weights = unseen if unseen.any() else self.learner.sample_weights()
        return np.asarray(weights, dtype=np.float64) / weights.sum()


_ALGORITHMS: dict[str, type[AutomaticCurriculum]] = {
    "domain_randomization": DomainRandomization,
    "learning_progress": LearningProgress,
    "prioritized_level_replay": PrioritizedLevelReplay,
}


def start_curriculum(settings: Settings, path: Path, state: Mapping[str, np.ndarray]) -> AutomaticCurriculum | None:
    """Build the curriculum that the settings name, and leave its first probabilities for the worlds; None for none.

    Args:
        settings: of the run.
        path: where the worlds read the probabilities.
        state: what the curriculum of a resumed run had learnt; empty at the start.

    Raises:
        UserError: as `offered_tasks`, or tasks cannot be told apart.
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
    """Import the library, and undo what importing it does to the rest of the process."""
    with np.errstate():  # it would have numpy raise on every underflow
        import syllabus.curricula
        import syllabus.task_space
        from syllabus.core import evaluator

    unused = evaluator.GymnasiumEvaluationWrapper.env_count.shm  # would be reported as leaked when the process ends
    unused.close()
    unused.unlink()
    return syllabus.curricula, syllabus.task_space
