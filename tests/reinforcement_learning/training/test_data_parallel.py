"""Two processes of one training run, started by torchrun on the real game, learn and end together."""

import copy
import json
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from agent_zoo.base import SegmentOutputs
from agent_zoo.checkpoint import load_checkpoint
from agent_zoo.data_parallel import ALONE, Processes
from reinforcement_learning.game.vectorization import first_episodes
from reinforcement_learning.play.entrants import untrained_entrant
from reinforcement_learning.settings import (
    EnvironmentSettings,
    RolloutSettings,
    SemanticSettings,
    Settings,
    TaskSettings,
    TrainSettings,
)
from reinforcement_learning.training.ppo import AuxiliaryLoss, Minibatch, NamedLoss, update
from reinforcement_learning.training.rollout import Rollout, RolloutCollector
from reinforcement_learning.training.run_folder import TrainingFolder, TrainingState, make_run_folder
from reinforcement_learning.training.semantic_training import SemanticTraining
from reinforcement_learning.training.trainer import Session, train
from tests.command import TORCHRUN, Started, printed_until, torchrun
from tests.conftest import AGENT
from tests.test_train import SMALL, folders, metrics_of
from tests.watched import stepper

pytestmark = pytest.mark.usefixtures("without_curves")


def settings_in(maps_dir: Path) -> Settings:
    """A small world, with two updates of one minibatch per process."""
    return Settings(
        env=EnvironmentSettings(
            num_agents=16, num_npcs=16, map_size=32, num_maps=2, horizon=64, early_stop_agents=0,
            resilient_population=0, maps_dir=maps_dir,
        ),
        task=TaskSettings(embedding_size=16),
        rollout=RolloutSettings(num_envs=2, vectorization="serial"),
        train=TrainSettings(
            batch_size=512, minibatch_rows=64, bptt_horizon=8, update_epochs=1, total_agent_steps=2048,
            num_checkpoints=1, learning_rate=1e-3, device="cpu",
        ),
    )  # fmt: skip


def with_codes(settings: Settings) -> Settings:
    """The same with a codebook; lives are short, so that their returns are positive and its losses have weight."""
    return replace(
        settings,
        env=replace(settings.env, horizon=20),
        semantic=SemanticSettings(codes=4, ticks_apart=4, return_reference=0.01, feed="embedding"),
    )


def played(settings: Settings, maps: Path) -> tuple[torch.nn.Module, Rollout]:
    """An untrained policy and its rollout in two worlds, the same in every process."""
    policy = untrained_entrant(AGENT, settings, maps, seed=0).policy
    player = stepper(policy, settings.env, settings.task, maps, first_episodes(0, 2))
    spacing = settings.semantic.ticks_apart if settings.semantic.codes else 0
    collector = RolloutCollector([player], settings.train.bptt_horizon, 0.99, 0.95, spacing)
    return policy, collector.collect(settings.train.batch_size, on_tick=lambda _: None)


def run_in(folder: Path) -> TrainingFolder:
    make_run_folder(folder)
    return TrainingFolder(folder)


def part_of(rollout: Rollout, rank: int) -> Rollout:
    """The first quarter of the segments for rank 0, the others for rank 1."""
    segments = torch.arange(len(rollout.lengths)).tensor_split((len(rollout.lengths) // 4,))[rank]
    rows = rollout.order.split(rollout.lengths.tolist())
    return replace(
        rollout,
        order=torch.cat([rows[segment] for segment in segments]),
        lengths=rollout.lengths[segments],
        state=rollout.state.take(segments),
    )


def calm(outputs: SegmentOutputs, rollout: Rollout, minibatch: Minibatch) -> NamedLoss:
    """An auxiliary loss: small hidden states."""
    return NamedLoss("calm", outputs.hidden.square().mean(), weight=5.0)


def first_update(
    policy: torch.nn.Module, rollout: Rollout, settings: Settings, processes: Processes
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Gradients and reported losses of one minibatch that holds the whole rollout."""
    learner = copy.deepcopy(policy)
    optimizer = torch.optim.Adam(learner.parameters())
    auxiliary: list[AuxiliaryLoss] = [calm]
    if settings.semantic.codes:
        semantic = SemanticTraining(learner, settings.semantic, 0, torch.Generator(), processes)
        semantic.mean_return = 1.0
        auxiliary += semantic.losses
    generator = torch.Generator().manual_seed(1)
    losses = update(learner, optimizer, rollout, settings.train, generator, lambda: None, processes, auxiliary)
    gradients = {name: parameter.grad for name, parameter in learner.named_parameters()}
    return gradients, {f"loss/{name}": torch.tensor(value) for name, value in losses.items()}


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory, maps: Path) -> Path:
    """The folder in which two processes have run `one_of_several.py`."""
    folder = tmp_path_factory.mktemp("together")
    torchrun(Path(__file__).with_name("one_of_several.py"), folder, maps.parent)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("named", "change"), [("gradients", lambda one: one), ("codebook", with_codes)])
def test_gradients_are_those_of_one_process_on_the_joined_minibatch(
    together: Path, maps: Path, named: str, change: Callable[[Settings], Settings]
) -> None:
    settings = change(settings_in(maps.parent))
    policy, rollout = played(settings, maps)
    assert 0.1 < len(part_of(rollout, 0).order) / len(rollout) < 0.4, "the parts should differ in size"
    gradients, losses = first_update(policy, rollout, settings, ALONE)
    alone = {**gradients, **losses}
    first, second = (load_file(together / f"{named}_{rank}.safetensors") for rank in (0, 1))
    assert first.keys() == second.keys() == alone.keys() > {"loss/calm"}
    for name in alone:
        assert torch.equal(first[name], second[name]), f"{name} differs between the processes"
        torch.testing.assert_close(first[name], alone[name], atol=1e-6, rtol=1e-4, msg=name)
    wrong, _ = first_update(policy, part_of(rollout, 0), settings, ALONE)
    assert any(not torch.allclose(wrong[name], gradients[name], atol=1e-6, rtol=1e-4) for name in gradients)


@pytest.mark.slow
def test_a_codebook_stays_equal_in_all_processes(together: Path) -> None:
    newest = [max((together / f"codes{rank}" / "checkpoints").iterdir()) for rank in (0, 1)]
    first, second = (load_checkpoint(path)[0].state_dict() for path in newest)
    assert "semantic.codebook" in first
    assert all(torch.equal(first[name], second[name]) for name in first)
    lines = [json.loads(line) for line in (together / "codes0" / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["semantic/weight"] > 0 and lines[-1]["loss/semantic_pairwise"] > 0


@pytest.mark.slow
def test_weights_are_equal_after_training_and_metrics_are_of_both(together: Path, maps: Path, tmp_path: Path) -> None:
    first, second = (together / f"rank{rank}" for rank in (0, 1))
    checkpoints = [sorted((folder / "checkpoints").iterdir()) for folder in (first, second)]
    assert [path.name for path in checkpoints[0]] == [path.name for path in checkpoints[1]]
    assert len(checkpoints[0]) == 2
    untrained, trained = (path.read_bytes() for path in checkpoints[0])
    assert [untrained, trained] == [path.read_bytes() for path in checkpoints[1]]
    assert untrained != trained
    assert metrics_of(first) == metrics_of(second)

    settings = settings_in(maps.parent)
    train("alone", AGENT, settings, maps, Session(run_in(tmp_path / "alone")))
    alone, both = metrics_of(tmp_path / "alone"), metrics_of(first)
    assert 512 <= both[0]["agent_steps"] - alone[0]["agent_steps"] < 544
    assert both[1]["lives/ended"] > alone[1]["lives/ended"]
    same_rows_twice = pytest.approx(alone[0]["loss/value"], rel=1e-4)
    assert both[0]["loss/value"] != same_rows_twice, "both processes played the same worlds"


@pytest.mark.slow
def test_a_run_of_two_processes_goes_on_bit_for_bit(together: Path) -> None:
    state = TrainingState.load(together / "stopped_0.safetensors")
    assert state.updates == 2 and not torch.equal(*state.minibatch_random), "both dealt alike: too easy"
    for rank in (0, 1):
        straight, resumed = (together / f"{name}{rank}" / "checkpoints" for name in ("straight", "resumed"))
        last = sorted(straight.iterdir())[-1].name.removeprefix("straight")
        expected = load_checkpoint(straight / f"straight{last}")[0].state_dict()
        weights = load_checkpoint(resumed / f"resumed{last}")[0].state_dict()
        assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_each_process_gets_worlds_of_its_own() -> None:
    seeds = [start.first_seed for start in first_episodes(1, 2, rank=0) + first_episodes(1, 2, rank=1)]
    assert seeds == [start.first_seed for start in first_episodes(1, 4)]
    assert len(set(seeds)) == 4


def start_train(*arguments: object) -> Started:
    """Start two processes that train until stopped."""
    return Started(*TORCHRUN, "train.py", *SMALL, *arguments, "--train.total-agent-steps", "10_000_000")


def processes_of(torchrun: subprocess.Popen[str]) -> tuple[psutil.Process, psutil.Process]:
    """Return the leader and the other process."""
    leader, other = sorted(psutil.Process(torchrun.pid).children(), key=lambda item: int(item.environ()["RANK"]))
    return leader, other


@pytest.mark.slow
@pytest.mark.parametrize("shown", ["all", "one"])
def test_a_signal_leaves_one_run_and_a_policy_that_loads(tmp_path: Path, maps: Path, shown: str) -> None:
    without_a_name = (*folders(tmp_path), "--env.maps-dir", maps.parent)  # both must choose the same
    with start_train(*without_a_name) as process:
        output = printed_until(process, "agent-steps")
        if shown == "all":
            os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does
        else:
            processes_of(process)[1].terminate()
        output += process.stdout.read()
    (policy,) = (tmp_path / "policies").iterdir()
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name == policy.stem
    _, info = load_checkpoint(policy)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert info.steps == lines[-1]["agent_steps"] >= 2048
    assert output.count("stopped early") == 1 and output.count(" agent-steps ") == len(lines), output


@pytest.mark.slow
def test_a_process_that_dies_takes_the_others_along(tmp_path: Path, maps: Path) -> None:
    with start_train("-n", "bereft", *folders(tmp_path), "--env.maps-dir", maps.parent) as process:
        output = printed_until(process, "agent-steps")
        leader, other = processes_of(process)
        other.kill()
        output += process.stdout.read()
    assert process.returncode != 0
    assert "another process of this run ended" in output
    assert str(tmp_path / "runs" / "bereft" / "checkpoints") in output
    assert not leader.is_running()
    assert list((tmp_path / "runs" / "bereft" / "checkpoints").iterdir())
