"""In a planted world whose future is certain, the model learns to foresee it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from agent_zoo.observation import PackedRows
from analysis.world_model.imagination import imagine, informed_start
from analysis.world_model.model import build, measure
from analysis.world_model.network import Sizes
from analysis.world_model.open_loop import joined, open_loop
from analysis.world_model.options import WorldSettings
from analysis.world_model.policy_interface import Surroundings
from analysis.world_model.quality import _auroc, _distances
from analysis.world_model.scene import KINDS, Scene, SceneShape, own_columns
from analysis.world_model.training import Training
from analysis.world_model.unroll import remember
from analysis.world_model.windows import CONTEXT, Windows

SIDE, HORIZON = 15, 16
SIZES = Sizes(hidden=32, groups=2, classes=4, embedding=32, bottleneck=8, channels=16)


def striped(recorded, windows: int, ticks: int, seed: int) -> Windows:
    """Lives of agents that walk north or east over diagonal stripes as they like.

    They lose 5 food and 5 water in every tick, and gain 50 water on one stripe in four.
    """
    model, random = recorded.model(), np.random.default_rng(seed)
    layout, shape = recorded.info.layout, SceneShape.of(recorded.info.layout)
    north = random.random((windows, ticks)) < 0.5
    steps = np.where(north[..., None], [-1, 0], [0, 1])
    where = 40 + np.concatenate([np.zeros((windows, 1, 2), int), np.cumsum(steps, axis=1)[:, :-1]], axis=1)
    reach = np.arange(SIDE) - SIDE // 2
    rows = where[:, :, 0, None, None] + reach[:, None]
    columns = where[:, :, 1, None, None] + reach
    material = (2 + (rows + columns) % 4).reshape(windows * ticks, -1)
    own = np.zeros((windows * ticks, shape.own), np.float32)
    names, flat = own_columns(layout), where.reshape(-1, 2)
    own[:, names.index("row")], own[:, names.index("col")] = flat[:, 0] / 160, flat[:, 1] / 160
    food = np.maximum(5 * (random.integers(21, size=(windows, 1)) - np.arange(ticks)), 0)
    own[:, names.index("food")], own[:, names.index("health")] = food.ravel() / 100, 1
    on_water = (where.sum(axis=2) % 4) == 3  # (windows, ticks)
    water = np.zeros((windows, ticks), int)
    water[:, 0] = 5 * random.integers(21, size=windows)
    for tick in range(1, ticks):
        water[:, tick] = np.clip(water[:, tick - 1] - 5 + 50 * on_water[:, tick], 0, 100)
    own[:, names.index("water")] = water.ravel() / 100
    count = windows * ticks
    scene = Scene(
        torch.from_numpy(material), torch.zeros(count, len(KINDS), SIDE**2), torch.zeros(count, SIDE**2),
        torch.zeros(count, SIDE**2), torch.from_numpy(own), torch.zeros(count, shape.slots, dtype=torch.int64),
        torch.zeros(count, shape.slots, shape.item), torch.ones(count, shape.legal),
    )  # fmt: skip
    action = torch.zeros(windows, ticks, model.network.action)
    action[:, :, 0], action[:, :, 2] = torch.from_numpy(north).float(), torch.from_numpy(~north).float()
    market = PackedRows(torch.zeros(0, len(layout.item_columns), dtype=torch.int16), torch.zeros(windows).long())
    around = Surroundings(market, torch.zeros(windows, layout.task_size))
    memory, memories = recorded.policy.initial_state(windows), []
    for tick in range(ticks):
        seen = scene.take(torch.arange(windows) * ticks + tick).soft(layout.materials)
        with torch.no_grad():
            memory = remember(model, seen, around, memory)
        memories.append(memory)
    identity = torch.stack([torch.arange(windows) % 5, torch.arange(windows), torch.zeros(windows).long()], dim=1)
    return Windows(
        scene, torch.arange(count), torch.full((windows,), ticks), action, torch.full((windows, ticks), 0.1),
        torch.zeros(windows, ticks), *(torch.stack([getattr(one, name).transpose(0, 1) for one in memories], dim=1)
                                       for name in ("hidden", "cell")),
        around, torch.from_numpy(where), torch.ones(len(KINDS), shape.own + 1).double(), identity,
    )  # fmt: skip


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def foreseen(recorded, tmp_path_factory: pytest.TempPathFactory) -> tuple[Training, Windows]:
    batches = [striped(recorded, 8, CONTEXT + HORIZON, seed) for seed in range(4)]
    stats = measure(batches, recorded.info.layout)
    torch.manual_seed(0)
    model = build(recorded.policy, recorded.info, stats, SIZES, "sphere")
    model.network.follows_rules = False
    training = Training(model, WorldSettings(Path("planted"), 320 * 8 * HORIZON, learning_rate=3e-3), "planted")

    def epochs(number: int) -> Iterator[Windows]:
        yield from batches

    training.run(epochs, [], tmp_path_factory.mktemp("planted") / "state", lambda _: None, lambda *_: None)
    return training, striped(recorded, 40, CONTEXT + HORIZON, 99)


def test_the_model_foresees_what_copying_does_not(foreseen: tuple[Training, Windows]) -> None:
    """It was trained for a minute, and is tested on other lives: 16 ticks ahead, hardly anything is wrong."""
    training, unseen = foreseen
    errors = joined(list(open_loop(training.model, unseen, 0)))

    def means(name: str, horizon: int) -> tuple[float, float]:
        chosen = errors.model["horizon"] == horizon
        assert chosen.sum() == len(unseen)
        return float(errors.model[name][chosen].mean()), float(errors.rivals["copy"][name][chosen].mean())

    for horizon in (2, 4, 8, HORIZON):
        tiles, copied = means("tiles", horizon)
        assert tiles > copied - 0.02  # to copy, one must be told the moves
        memory, copied = means("memory", horizon)
        assert memory > copied
        vitals, copied = means("vitals", horizon)
        assert vitals < 0.3 * copied  # water too, which depends on where the agent went
    assert means("tiles", HORIZON)[0] > 0.9 > 2 * means("tiles", HORIZON)[1]
    assert means("vitals", HORIZON)[0] < 0.15 * means("vitals", HORIZON)[1]
    assert means("memory", HORIZON)[0] > 0.99


def test_simulated_lives_can_be_differentiated_through_policy_and_world(foreseen) -> None:
    """The value three ticks later depends on the tiles of the first, through actions, world and memory."""
    training, unseen = foreseen
    model = training.model
    start = informed_start(model, unseen, None)
    material = start.scene.material.clone().requires_grad_()
    start = replace(start, scene=replace(start.scene, material=material))
    ticks = list(imagine(model, start, 4, None))
    assert len(ticks) == 4
    (gradient,) = torch.autograd.grad(ticks[-1].choices.value.sum(), material)
    assert torch.isfinite(gradient).all() and (gradient != 0).flatten(1).any(dim=1).all()


def test_measures_of_planted_numbers() -> None:
    assert _auroc(np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True])) == pytest.approx(0.75)
    assert np.isnan(_auroc(np.array([0.1, 0.4]), np.array([True, True])))
    random = np.random.default_rng(0)
    same, other = random.normal(size=(400, 3)), random.normal(size=(400, 3))
    near, halves = _distances(same, other, 0)
    far, _ = _distances(same, other + 2, 0)
    assert abs(near) < 0.03 and abs(halves) < 0.05 and far > 0.3
