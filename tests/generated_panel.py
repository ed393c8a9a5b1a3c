"""A panel of generated rollouts, as large as a real one, for tests of its size and measurements of its speed."""

from pathlib import Path
from typing import Any

import numpy as np

from activation_store.schema import ActionHead, DumpMetadata
from analysis.explorer.behaviours import main_behaviours
from analysis.panel.content import PanelContent, PanelSource
from analysis.panel.ticks import PanelTicks
from analysis.runs.cluster_run import ClusterRun
from analysis.runs.dynamics_run import Component, Dynamics
from analysis.runs.finished_files import RunDescription
from analysis.runs.propagated_labels import CarryingRule

ROLLOUTS, TICKS, COMPONENTS, BEHAVIOURS, LAGS = 6000, 32, 16, 12, 10


def generated_panel(folder: Path, rollouts: int = ROLLOUTS) -> PanelContent:
    """Return rollouts with the noise and the number of entities of recorded ones, without their regularities."""
    random = np.random.default_rng(3)
    count = rollouts * TICKS
    lengths = np.full(rollouts, TICKS)
    world = random.integers(0, 16, (40, 40)).repeat(4, axis=0).repeat(4, axis=1).astype(np.uint8)
    steps = np.array([[0, 0], [0, 1], [1, 0], [0, -1], [-1, 0]])[random.integers(0, 5, (rollouts, TICKS))]
    corner = (random.integers(0, 145, (rollouts, 1, 2)) + np.cumsum(steps, axis=1)).clip(0, 144).reshape(-1, 2)
    row, col = np.divmod(np.arange(225), 15)
    material = world[corner[:, :1] + row, corner[:, 1:] + col]
    entities = random.poisson(4, count)
    total = int(entities.sum())
    tables: dict[str, np.ndarray] = {
        "entity.count": entities, "entity.kind": random.integers(0, 4, total),
        "entity.id": random.integers(-200, 128, total), "entity.health": random.integers(1, 101, total),
        "entity.down": random.integers(-7, 8, total), "entity.right": random.integers(-7, 8, total),
        "attack.target": np.full(count, -1), "entity.row": np.zeros(total, int),
    }  # fmt: skip
    moving = np.cumsum(random.normal(0, 0.4, (rollouts, TICKS, COMPONENTS)), axis=1).reshape(count, -1)
    places = {name: np.repeat(np.arange(rollouts), TICKS) for name in ("env_id", "agent_id", "episode")}
    places |= {name: np.tile(np.arange(TICKS), rollouts) for name in ("tick", "step")}
    shares = random.dirichlet(np.ones(5), count).astype(np.float32)
    words = [f"moves {item}, attacks player {who}" for item, who in random.integers(0, 90, (count, 2)).tolist()]
    ticks = PanelTicks(
        places, material, corner, tables,
        {name: random.integers(0, 101, count) for name in ("health", "food", "water")}, np.array(words),
        random.normal(0, 1, count).astype(np.float32), np.zeros(count, np.float32),
        random.random((count, 3)).astype(np.float32), {"Move.Direction": shares},
        {"components": moving.astype(np.float32)},
    )  # fmt: skip
    behaviour = random.integers(0, BEHAVIOURS, count // 4).repeat(4)
    metadata = DumpMetadata(
        "planted", "agent", None, None, {"lstm_cell": 8}, ("id",), ("id",), (ActionHead("Move.Direction", 5, 4),), {},
        10, 0,
    )  # fmt: skip
    source = PanelSource(folder, metadata, "0" * 64, None)
    return PanelContent(
        planted_dynamics(folder, random), (source,), (), (), CarryingRule(*(np.zeros(0),) * 4, 1, None),
        np.zeros(rollouts, int), np.tile(np.arange(rollouts)[:, None], 3), lengths,
        main_behaviours(behaviour, lengths, BEHAVIOURS), random.normal(size=(rollouts, 2)).astype(np.float32), ticks,
        behaviour, np.ones(count, bool), (),
    )  # fmt: skip


def planted_dynamics(folder: Path, random: Any) -> Dynamics:
    shape = (BEHAVIOURS, LAGS + 1, COMPONENTS, COMPONENTS)
    components = tuple(Component(f"ic_{k + 1}", 0.05, 0.9, "self_food +0.20") for k in range(COMPONENTS))
    labels = ClusterRun(folder, {}, "", "", {}, np.zeros(0, int))
    return Dynamics(
        folder, folder, RunDescription(), "planted", "lstm_cell", components, np.zeros((COMPONENTS, 8), np.float32),
        np.zeros(COMPONENTS), ("lstm_cell",), (8,), np.zeros(8), np.ones(8), labels,
        ("more self_food (d +0.3)",) * BEHAVIOURS,
        np.full(BEHAVIOURS, 1 / BEHAVIOURS), 0.5, random.uniform(-1, 1, shape), random.random(shape) < 0.1,
        random.normal(size=shape), np.full(BEHAVIOURS, 50),
    )  # fmt: skip
