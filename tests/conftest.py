"""Fixtures on the real game: small maps and few agents, everything else as for users."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from agent_zoo.observation import ObservationLayout
from analysis.replays.file import read_replay
from analysis.replays.replay import Replay
from reinforcement_learning.game.environment import make_environment, observation_layout
from reinforcement_learning.game.maps import ensure_maps
from reinforcement_learning.play.extraction import RecordingPlan
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from reinforcement_learning.training.run_folder import TrainingFolder
from tests.analysed import analysed  # noqa: F401
from tests.browser import browser  # noqa: F401
from tests.fuzz import Bench
from tests.recorded import Recording, record
from tests.recorded_features import RecordedFeatures, recorded_features, shared_sparse_run
from tests.recorded_policy import RecordedPolicy, record_policy, shared_recorded_policy
from tests.shared import shared_folder, shared_root
from tests.tiny_policies import save_policies, tiny_contest
from tests.witness import Witness

AGENT = "neurips23_start_kit"
settings.register_profile(
    "tests", derandomize=True, database=None, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
settings.load_profile("tests")  # the same cases in every run
LONGEST_FIRST = (
    "test_kills.py", "test_readme_rows.py", "test_fuzz.py", "test_train.py", "test_intervention_run.py",
    "test_planted_world.py", "test_data_parallel.py", "test_analyze_activations.py", "test_troubles.py",
    "test_local_processes.py", "test_study.py", "test_ray_play.py", "test_analyze_dynamics.py", "test_train_probes.py",
    "test_simulate.py", "test_explore.py", "test_extract_activations.py", "test_resume.py", "test_evaluate.py",
    "test_panel.py", "test_extraction.py", "test_figures.py", "test_ray_worlds.py", "test_explorer_page.py",
    "test_render_replay.py", "test_recorded_observation.py", "test_fast_game.py", "test_train_tasks.py",
    "test_original_tools.py", "test_semantic_clusters.py", "test_local_sweep.py", "test_automatic_curriculum.py",
    "test_analyze_dynamics_simulated.py", "test_agreement.py", "test_feature_edits.py", "test_saliency.py",
    "test_train_sparse_autoencoder.py", "test_train_world_model.py", "test_custom_policy.py", "test_conversion.py",
    "test_reader.py", "test_export.py", "test_on_ray.py", "test_ray_cluster.py", "test_maps.py",
)  # fmt: skip
"""Files of tests, slow ones too, that take longest. A worker runs whole files, so the last ones to be taken should be
short."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what the fuzz test tried, in whichever process it ran."""
    counts: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, counted in getattr(report, "user_properties", ()):
                if name == "fuzz" and report.when == "call":
                    counts.update(counted)
    if counts:
        shown = ", ".join(f"{kind} {count:,}" for kind, count in counts.items())
        terminalreporter.write_line(f"damaged and forged files: {shown}")


@pytest.fixture(scope="session", autouse=True)
def _power_stays_on() -> Iterator[None]:
    """No test cuts the power, so that nothing need wait until it is on the disk; scripts that tests start still do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session")
def small_world(tmp_path_factory: pytest.TempPathFactory) -> EnvironmentSettings:
    """A 32 x 32 map with 16 agents and 16 NPCs."""
    return EnvironmentSettings(
        num_agents=16, num_npcs=16, map_size=32, num_maps=2, horizon=64, early_stop_agents=0, resilient_population=0,
        maps_dir=shared_root(tmp_path_factory) / "maps",
    )  # fmt: skip


@pytest.fixture(scope="session")
def task() -> TaskSettings:
    return TaskSettings(embedding_size=16)


@pytest.fixture(scope="session")
def maps(small_world: EnvironmentSettings) -> Path:
    return ensure_maps(small_world)


@pytest.fixture(scope="session")
def three_policies(
    tmp_path_factory: pytest.TempPathFactory, small_world: EnvironmentSettings, task: TaskSettings, maps: Path
) -> Path:
    """A folder of three small untrained policies; tests that write to it must copy it."""
    return shared_folder(
        tmp_path_factory, "three_policies", lambda folder: save_policies(folder, small_world, task, maps)
    )


@pytest.fixture(scope="session")
def features_dump(tmp_path_factory: pytest.TempPathFactory, small_world, task, maps) -> RecordedFeatures:
    """A dump from which every tick can be computed again, and its policy."""
    return recorded_features(tmp_path_factory, small_world, task, maps)


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory, small_world, task, maps) -> RecordedPolicy:
    """A dump with everything that its policy, which has an LSTM of one layer, saw."""
    return shared_recorded_policy(tmp_path_factory, small_world, task, maps)


@pytest.fixture(scope="session")
def ways(tmp_path_factory: pytest.TempPathFactory, small_world, maps) -> RecordedPolicy:
    """Agents with the task to go to one side of the map, which they see for two ticks."""
    task = TaskSettings(curriculum="four_ways", embedding_size=16)
    world = replace(small_world, interrupt=5, task_shown_for=2)
    return record_policy(tmp_path_factory.mktemp("ways"), world, task, maps)


@pytest.fixture(scope="session")
def sparse_run(tmp_path_factory: pytest.TempPathFactory, features_dump: RecordedFeatures) -> Path:
    """A finished run of train_sparse_autoencoder.py on that dump."""
    return shared_sparse_run(tmp_path_factory, features_dump)


@pytest.fixture(scope="module")
def without_curves() -> Iterator[None]:
    """Trainings of this process draw no curves, which takes longer than a small update and changes nothing in it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingFolder, "draw_curves", lambda _: None)
        yield


@pytest.fixture(scope="session")
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(request, tmp_path_factory)


@pytest.fixture
def world(small_world: EnvironmentSettings, task: TaskSettings, maps: Path):
    """One world as PufferLib runs it."""
    return make_environment(AGENT, small_world, task, maps)


@pytest.fixture(scope="session")
def layout(small_world: EnvironmentSettings, task: TaskSettings, maps: Path) -> ObservationLayout:
    return observation_layout(make_environment(AGENT, small_world, task, maps))


@pytest.fixture(scope="session")
def seen(small_world: EnvironmentSettings, task: TaskSettings, maps: Path) -> np.ndarray:
    """Observations of living agents that take random legal actions, (about 500,) structured."""
    world = make_environment(AGENT, small_world, task, maps)
    layout = observation_layout(world)
    random = np.random.default_rng(0)
    collected = []
    world.reset(seed=5)
    alive = np.ones(small_world.num_agents, dtype=bool)
    while not world.done and len(collected) < 50:
        observations = world.obs.view(world.obs_dtype)[:, 0]
        collected.append(observations[alive].copy())
        _, _, died, cut_off, _ = world.step(random_legal_actions(observations, layout, random))
        alive = np.array([not died[agent] and not cut_off[agent] for agent in world.possible_agents])
    return np.concatenate(collected)


@pytest.fixture(scope="session")
def recording(
    small_world: EnvironmentSettings, task: TaskSettings, maps: Path, tmp_path_factory: pytest.TempPathFactory
) -> Recording:
    """A dump of two episodes, and the second of them as a replay."""
    world = replace(small_world, spawn_immunity=0)
    contest = tiny_contest(world, task, maps, hidden_size=32)
    plan = RecordingPlan(2, None, seed=4, layers=("action_decoder",))
    return record(contest, plan, tmp_path_factory.mktemp("recording"), episode=1)


@pytest.fixture(scope="session")
def replay(recording: Recording) -> Replay:
    return read_replay(recording.replay)


@pytest.fixture(scope="session")
def witnessed(
    small_world: EnvironmentSettings, task: TaskSettings, maps: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Witness]:
    """The folder of a dump of two episodes, and a witness's record of the engine's state."""
    world = replace(small_world, spawn_immunity=3, horizon=80, num_npcs=64)
    contest = tiny_contest(world, task, maps)
    plan = RecordingPlan(2, None, seed=6, layers=("action_decoder",), format="parquet")
    witness, folder = Witness(contest), tmp_path_factory.mktemp("dumps") / "foragers"
    witness.play(contest, plan, folder)
    return folder, witness


def random_legal_actions(
    observations: np.ndarray, layout: ObservationLayout, random: np.random.Generator
) -> np.ndarray:
    """Draw a legal option in every head, (agents, heads) int64; agents without an observation get zeros."""
    actions = np.zeros((len(observations), len(layout.heads)), dtype=np.int64)
    for column, head in enumerate(layout.heads):
        action, argument = head.name.split(".")
        legal = observations["ActionTargets"][action][argument]
        actions[:, column] = np.argmax(random.random(legal.shape) * legal, axis=1)
    return actions
