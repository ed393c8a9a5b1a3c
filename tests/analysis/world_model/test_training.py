"""Training can be interrupted and continued with the same result, and learns what is certain."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from analysis.world_model import unroll as unrolling
from analysis.world_model.model import WorldModel, load_model, save_model
from analysis.world_model.options import WorldSettings
from analysis.world_model.training import Metrics, Training, schedule
from analysis.world_model.windows import CONTEXT, Windows
from tests.command import assert_refuses


def settings(records: int, seed: int = 0) -> WorldSettings:
    return WorldSettings(Path("dump"), records, learning_rate=1e-3, seed=seed)


def started(recorded, records: int, plan: str = "plan") -> Training:
    torch.manual_seed(0)
    return Training(recorded.model(), settings(records), plan)


class Stopped(Exception):
    pass


@pytest.fixture(scope="module")
def batches(recorded) -> list[Windows]:
    return recorded.windows(batch=4)[:6]


def run(training: Training, batches: list[Windows], path: Path, stop_at: int | None = None) -> list[Metrics]:
    lines: list[Metrics] = []

    def on_line(line: Metrics) -> None:
        lines.append({name: one for name, one in line.items() if name != "samples_per_second"})

    def report(done: int, total: int) -> None:
        if stop_at is not None and done >= stop_at:
            raise Stopped

    def epochs(number: int) -> Iterator[Windows]:
        yield from batches if number % 2 == 0 else batches[::-1]

    ticks = iter(range(10**6))
    training.run(epochs, batches[:1], path, on_line, report, clock=lambda: 100.0 * next(ticks))
    return lines


def weights(model: WorldModel) -> dict[str, torch.Tensor]:
    return {name: one.clone() for name, one in model.network.state_dict().items()}


def test_an_interrupted_training_ends_with_the_same_weights(recorded, batches, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr("analysis.world_model.training.REPORT_EVERY", 7)  # more than an epoch of six batches
    a_batch = int((batches[0].lengths - CONTEXT).sum())
    records = (7 + 4) * a_batch
    whole = started(recorded, records)
    lines = run(whole, batches, tmp_path / "whole")
    broken = started(recorded, records)
    with pytest.raises(Stopped):
        run(broken, batches, tmp_path / "broken", stop_at=(7 + 3) * a_batch)
    resumed = started(recorded, records)
    resumed.restore(tmp_path / "broken")
    assert 0 < resumed.progress.records < whole.progress.records and resumed.progress.lines == 1
    rest = run(resumed, batches, tmp_path / "broken")
    assert len(lines) == 2 and rest == lines[1:]
    assert resumed.progress == whole.progress
    for name, one in weights(whole.model).items():
        assert torch.equal(one, weights(resumed.model)[name]), name


def test_another_seed_gives_other_weights(recorded, batches, tmp_path: Path) -> None:
    first, other = (Training(recorded.model(), settings(60, seed), "plan") for seed in (0, 1))
    for training in (first, other):
        run(training, batches, tmp_path / "state")
    assert not all(torch.equal(one, weights(other.model)[name]) for name, one in weights(first.model).items())


def test_the_learning_rate_rises_stays_and_falls() -> None:
    shares = [schedule(done) for done in (0.0, 0.01, 0.3, 0.5, 0.75, 1.0)]
    assert shares[0] < shares[1] < shares[2] == shares[3] == 1 and shares[4:] == [0.5, 0.0]


def test_a_state_of_another_training_is_refused(recorded, batches, tmp_path: Path) -> None:
    training = started(recorded, 60)
    training.save(tmp_path / "state")
    assert_refuses("other arguments or another dump", started(recorded, 60, "other").restore, tmp_path / "state")


def test_a_model_survives_its_file(recorded, tmp_path: Path) -> None:
    model = recorded.model("gaussian")
    origin = recorded.origin()
    save_model(tmp_path / "model.safetensors", model, origin)
    read, result = load_model(tmp_path / "model.safetensors")
    assert result == origin and read.network.kind == "gaussian" and read.network.sizes == model.network.sizes
    assert all(torch.equal(one, weights(read)[name]) for name, one in weights(model).items())
    for name, one in model.policy.state_dict().items():
        assert torch.equal(one, read.policy.state_dict()[name])
    assert not any(parameter.requires_grad for parameter in read.policy.parameters())
    assert_refuses("is a policy, but a world model is needed", load_model, recorded.policies / "small.safetensors")


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_windows_are_foreseen_without_the_posterior(recorded, batches, monkeypatch, share: float) -> None:
    """What later ticks show reaches the latent states of the other windows alone."""
    monkeypatch.setattr(unrolling, "FORESEEN", share)
    model = recorded.model()
    requested = []
    looked = model.network.posterior_logits

    def posterior_logits(hidden: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor:
        requested.append(len(hidden))
        return looked(hidden, embedded)

    monkeypatch.setattr(model.network, "posterior_logits", posterior_logits)
    windows = batches[0]
    result = unrolling.unroll(model, windows, torch.Generator().manual_seed(0))
    predicted = int((windows.lengths - CONTEXT).sum())
    first, later = requested[0], sum(requested[1:])
    assert first == len(windows) and result.ticks == predicted and result.loss.isfinite()
    assert later == {0.0: predicted, 1.0: 0}.get(share, later) and (0 < later < predicted) == (share == 0.5)
    assert (result.divergence > 0) == (share < 1)
