"""Two processes of one training, started by torchrun, learn what one process does."""

import itertools
from pathlib import Path

import orjson
import pytest
import torch
from safetensors.torch import load_file

from agent_zoo.data_parallel import ALONE, Processes
from analysis.world_model.model import load_model, save_model
from analysis.world_model.unroll import _START_COSTS, _TICK_COSTS, Dice, Totals, _predict, unroll
from analysis.world_model.windows import Windows, read_windows
from tests.command import run_well, torchrun
from tests.trained_world_model import arguments

WINDOWS = 7
"""An odd number, so that one process has more windows than the other."""


def batch_of(path: Path, dump: Path) -> Windows:
    model, origin = load_model(path)
    (batch,) = itertools.islice(read_windows(dump, origin.train, 4, WINDOWS, model.policy, model.info, 0), 1)
    return batch


def gradients(path: Path, dump: Path, processes: Processes) -> dict[str, torch.Tensor]:
    """Gradients and costs of a batch that the processes share."""
    model, _ = load_model(path)
    result = unroll(model, batch_of(path, dump), torch.Generator().manual_seed(3), processes)
    (result.loss * processes.size).backward()
    parameters = dict(model.network.named_parameters())
    processes.average(list(parameters.values()), (), 1)
    costs = {f"cost/{name}": torch.tensor(item) for name, item in result.costs.items()}
    kept = {name: item.grad for name, item in parameters.items() if item.grad is not None}
    return {**kept, **costs, "total": torch.tensor(result.total)}


@pytest.fixture(scope="module", params=["sphere", "gaussian"])
def model(request, recorded, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp(request.param) / "model.safetensors"
    save_model(path, recorded.model(request.param), recorded.origin())
    return path


@pytest.mark.slow
def test_gradients_are_those_of_one_process(model: Path, recorded, tmp_path: Path) -> None:
    torchrun(Path(__file__).with_name("one_of_several.py"), model, recorded.dump, tmp_path)
    alone = gradients(model, recorded.dump, ALONE)
    first, second = (load_file(tmp_path / f"gradients_{rank}.safetensors") for rank in (0, 1))
    assert first.keys() == second.keys() >= alone.keys()
    for name in alone:
        assert torch.equal(first[name], second[name]), f"{name} differs between the processes"
        # Rounding may decide which of two equally probable materials is remembered.
        close = max(1e-5, 1e-4 * float(alone[name].abs().max()))
        torch.testing.assert_close(first[name], alone[name], atol=close, rtol=1e-3, msg=name)


def test_costs_of_parts_are_those_of_the_whole(model: Path, recorded) -> None:
    """What a window costs does not depend on the windows beside it: the same dice, the same sums."""
    loaded, _ = load_model(model)
    batch = batch_of(model, recorded.dump)
    dice = Dice.thrown(batch, loaded.network.sizes, torch.Generator().manual_seed(3))
    start, ticks, whole, whole_ticks = (Totals(names) for names in (_START_COSTS, _TICK_COSTS) * 2)
    with torch.no_grad():
        everything = _predict(loaded, batch, dice, whole, whole_ticks)
        parts = [(0, 3), (3, 4), (4, len(batch))]
        vectors = [_predict(loaded, batch.part(*item), dice.take(torch.arange(*item)), start, ticks) for item in parts]
    torch.testing.assert_close(torch.cat(vectors), everything)
    for one, other in ((start, whole), (ticks, whole_ticks)):
        result, wanted = one.means(ALONE)[1], other.means(ALONE)[1]
        assert result == pytest.approx(wanted, rel=1e-4) and len(result) > 5


@pytest.mark.slow
def test_two_processes_train_the_model_of_one(recorded, tmp_path: Path) -> None:
    """A few updates; the sums of floating-point numbers differ in their order, and Adam divides by small numbers."""
    few = ("--records", 150)
    run_well("train_world_model.py", *arguments(recorded, tmp_path / "one", *few))
    torchrun("train_world_model.py", *arguments(recorded, tmp_path / "two", *few))
    one, two = (load_model(tmp_path / name / "small" / "model.safetensors") for name in ("one", "two"))
    assert one[1] == two[1]
    other = two[0].network.state_dict()
    for name, item in one[0].network.state_dict().items():
        torch.testing.assert_close(other[name], item, atol=1e-4, rtol=1e-3, msg=name)
    files = (tmp_path / name / "small" / "metrics.jsonl" for name in ("one", "two"))
    lines = [[orjson.loads(line) for line in file.read_bytes().splitlines()] for file in files]
    assert len(lines[0]) == len(lines[1]) > 0
    for alone, together in zip(*lines, strict=True):
        for name in alone.keys() - {"samples_per_second"}:
            assert together[name] == pytest.approx(alone[name], rel=1e-3, abs=1e-4), name
