"""Result files in the form of evaluate.py and of the original tools, for policies with known true scores."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from analysis.evaluation.held_out_tasks import TASK_NAMES

Results = dict[str, dict[str, Any]]
HORIZON = 1024


def play(
    skills: Mapping[str, float], episodes: int, lives: int, rng: np.random.Generator, *, spread: float = 0.0,
    seed_spread: float = 0.0, tasks_in_turn: bool = False,
) -> Results:  # fmt: skip
    """Return one file's results: each policy's mean progress at every task is its skill.

    Args:
        skills: mean progress of each policy, 0.3 to 0.7 where there is a spread.
        lives: of each policy in each episode.
        spread: maximum shift of the mean progress by an episode, the same for all lives of a policy in it.
        seed_spread: the same for the whole file.
        tasks_in_turn: assign tasks in turn instead of drawing them, so that every task has lives.
    """
    results: Results = {}
    for policy, skill in skills.items():
        luck = rng.uniform(-1, 1, episodes) * spread + rng.uniform(-1, 1) * seed_spread
        episode = np.repeat(np.arange(episodes), lives)
        count = len(episode)
        task = np.arange(count) % len(TASK_NAMES) if tasks_in_turn else rng.integers(len(TASK_NAMES), size=count)
        progress = (rng.random(count) < skill + luck[episode]).astype(float)
        ticks = np.minimum(1 + rng.geometric(1 / (20 + 400 * skill), count), HORIZON)
        results[policy] = {"length": ticks.tolist(), "episode/length": episode.tolist()}
        for place, name in enumerate(TASK_NAMES):
            if (task == place).any():
                results[policy][name] = progress[task == place].tolist()
                results[policy][f"episode/{name}"] = episode[task == place].tolist()
    return results


def as_original(results: Results) -> Results:
    """Leave out what the original tools do not write."""
    return {
        policy: {key: value for key, value in lists.items() if not key.startswith(("episode/", "provenance"))}
        for policy, lists in results.items()
    }


def provenance(mode: str, seed: int, episodes: int, **changes: Any) -> dict[str, Any]:
    return {
        "agent": "takeru", "agent_steps": 1_000_000, "checkpoint_sha256": "ab" * 32, "mode": mode, "seed": seed,
        "episodes": episodes, "environment": {"num_agents": 128, "maps_dir": f"maps_{seed}"}, "task": {},
        "versions": {"nmmo": "2.1.2"},
    } | changes  # fmt: skip


def write(folder: Path, name: str, results: Mapping[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(orjson.dumps(results))
    return path
