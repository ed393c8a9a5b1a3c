"""Folders of training runs as train.py leaves them, with metrics that are known."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
import orjson

from common.checked_json import CHECKSUM, entry_checksum
from reinforcement_learning.settings import Settings
from reinforcement_learning.training.run_folder import TrainingFolder
from reinforcement_learning.training.sweep import override
from tests.planted_results import play, provenance

BATCH = 1_000
Metric = Callable[[float], float]
"""Agent-steps at an update's end to the metric's value."""


def plant_run(
    folder: Path, name: str, seed: int, metrics: Mapping[str, Metric], *, agent: str = "takeru", updates: int = 10,
    budget: int | None = None, **settings: Any,
) -> Path:  # fmt: skip
    """Write a run of so many updates of about 1,000 agent-steps each; settings as train__gamma=0.9."""
    path = folder / "runs" / name
    path.mkdir(parents=True)
    asked = {item.replace("__", "."): value for item, value in settings.items()}
    asked |= {"train.seed": seed, "train.total_agent_steps": budget or BATCH * updates, "train.batch_size": BATCH}
    run = TrainingFolder(path)
    run.write_settings(agent, override(Settings(), asked), {}, folder / "policies")
    for update in range(1, updates + 1):
        steps = BATCH * update + seed  # the last tick of a batch is completed, so runs do not agree exactly
        values = {item: function(steps) for item, function in metrics.items()}
        run.append_metrics({"agent_steps": steps, "update": update, **values})
    return path


def plant_evaluation(
    run: Path, steps: int, skill: float, *, seed: int = 1, mode: Literal["pve", "pvp"] = "pve",
    into: Path | None = None, protocol: str = "toolkit", **environment: Any,
) -> str:  # fmt: skip
    """Write a checkpoint and its results on maps of seed 1, beside it or into a folder; returns the checkpoint's name.

    Results of several checkpoints of a seed share a file, as evaluate.py leaves them.
    """
    checkpoints = run / "checkpoints"
    checkpoints.mkdir(exist_ok=True)
    name = f"{run.name}_{steps:010d}"
    started = f"untrained {run.name.rpartition('_')[2]}"  # groups that differ in training alone start from one network
    content = (f"{run} {steps}" if steps else started).encode()
    (checkpoints / f"{name}.safetensors").write_bytes(content)
    rng = np.random.default_rng([steps, seed])
    (results,) = play({name: skill}, episodes=4, lives=630, rng=rng, tasks_in_turn=True).values()
    world = {key: value for key, value in asdict(Settings().env).items() if not key.endswith("_dir")}
    world |= {"map_seed": 1, "resilient_population": 0.0, **environment}
    how = {"agent_steps": steps, "checkpoint_sha256": hashlib.sha256(content).hexdigest(), "environment": world}
    how |= {} if protocol == "toolkit" else {"protocol": protocol}
    results["provenance"] = provenance(mode, seed, 4, **how)
    file = (into or checkpoints) / f"eval_{mode}_{seed}.json"
    before = orjson.loads(file.read_bytes()) if file.exists() else {}
    results = orjson.loads(orjson.dumps(results))
    file.write_bytes(orjson.dumps(before | {name: results | {CHECKSUM: entry_checksum(name, results)}}))
    return name
