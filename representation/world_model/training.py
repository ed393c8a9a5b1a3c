"""Train a world model; it can be interrupted and continued, with the same result."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import torch

from activation_store.tensor_file import Kind, read_tensors, write_tensors
from agent_zoo.data_parallel import ALONE, Processes
from representation.world_model.model import WorldModel
from representation.world_model.statistics import HEADS
from representation.world_model.unroll import Unrolled, unroll
from representation.world_model.windows import Windows
from user_error import UserError

REPORT_EVERY = 20
"""Batches between two lines of metrics; the state is saved after a line."""

_KIND: Kind = "world model training"
_SAVE_EVERY = 60.0
_GRADIENT_NORM = 10.0
_BETAS = (0.9, 0.99)
_WARM_UP, _DECAY_FROM = 0.02, 0.5
_TESTS_SEED = 1
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")

Metrics = dict[str, float]
Epochs = Callable[[int], Iterator[Windows]]
"""Given the number of an epoch, from 0, its batches in an order that depends on that number alone."""


@dataclass
class Progress:
    """How far a training is.

    Attributes:
        records: predicted so far.
        epoch: number of the current one, from 0.
        batches: of the current epoch that are done.
        lines: of metrics so far.
    """

    records: int = 0
    epoch: int = 0
    batches: int = 0
    lines: int = 0


@dataclass(frozen=True)
class Budget:
    """How long to train, and how.

    Attributes:
        records: to predict.
        learning_rate: at its highest.
        seed: of the latent states drawn in training.
        plan: what decides the weights, as text; a saved state of another plan is refused.
    """

    records: int
    learning_rate: float
    seed: int
    plan: str


@dataclass
class Training:
    """A training between two batches.

    Attributes:
        model: in training.
        budget: of the training.
        progress: so far.
        processes: that share each batch; their weights stay equal.
    """

    model: WorldModel
    budget: Budget
    progress: Progress = field(default_factory=Progress)
    processes: Processes = ALONE

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.budget.seed)
        self.parameters = list(self.model.network.parameters())
        self.optimiser = torch.optim.Adam(self.parameters, lr=self.budget.learning_rate, betas=_BETAS)

    def run(
        self, epochs: Epochs, tests: list[Windows], state: Path, on_line: Callable[[Metrics], None],
        report: Callable[[int, int], None], clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """Train until the budget is spent; only the first process reports and saves.

        Args:
            epochs: of training batches.
            tests: batches to measure the costs on with every line.
            state: file that the training is saved to, at most once a minute.
            on_line: called with each line of metrics.
            report: called with the records so far, and those of the whole training.
            clock: seconds.

        Raises:
            UserError: the loss is no longer finite.
        """
        saved, waiting, began = clock(), list[Unrolled](), clock()
        while self.progress.records < self.budget.records:
            for number, batch in enumerate(epochs(self.progress.epoch)):
                if number < self.progress.batches:
                    continue
                waiting.append(self._step(batch))
                self.progress.batches += 1
                self.progress.records += waiting[-1].ticks
                report(min(self.progress.records, self.budget.records), self.budget.records)
                over = self.progress.records >= self.budget.records
                if len(waiting) == REPORT_EVERY or over:
                    if self.processes.leads:
                        on_line(self._line(waiting, tests, clock() - began))
                    self.progress.lines += 1
                    waiting, began = [], clock()
                    if self.processes.leads and (clock() - saved >= _SAVE_EVERY or over):
                        self.save(state)
                        saved = clock()
                if over:
                    return
            self.progress.epoch, self.progress.batches = self.progress.epoch + 1, 0

    def _step(self, batch: Windows) -> Unrolled:
        found = unroll(self.model, batch, self.generator, self.processes)
        if not np.isfinite(found.total):
            raise UserError(
                f"the loss is no longer finite after {self.progress.records:,} records: give a lower --learning-rate"
            )
        self.optimiser.zero_grad()
        if found.loss.requires_grad:  # a process may be left without a window
            (found.loss * self.processes.size).backward()
        self.processes.average(self.parameters, (), 1)
        torch.nn.utils.clip_grad_norm_(self.parameters, _GRADIENT_NORM)
        done = self.progress.records / self.budget.records
        self.optimiser.param_groups[0]["lr"] = self.budget.learning_rate * schedule(done)
        self.optimiser.step()
        return replace(found, loss=found.loss.detach())

    def _line(self, done: list[Unrolled], tests: list[Windows], seconds: float) -> Metrics:
        """Mean metrics of some batches, and of the test batches."""
        line: Metrics = {"records": self.progress.records, "epoch": self.progress.epoch}
        line |= {f"train/{name}": each for name, each in _means(self.model, done).items()}
        line["samples_per_second"] = sum(each.ticks for each in done) / max(seconds, 1e-9)
        generator = torch.Generator().manual_seed(_TESTS_SEED)
        with torch.no_grad():
            tested = [unroll(self.model, batch, generator) for batch in tests]
        if tested:
            line |= {f"test/{name}": each for name, each in _means(self.model, tested).items()}
        return line

    def save(self, path: Path) -> None:
        """Write everything that the following batches depend on."""
        arrays = {f"network/{name}": each.numpy() for name, each in self.model.network.state_dict().items()}
        for number, parameter in enumerate(self.parameters):
            for part, value in self.optimiser.state.get(parameter, {}).items():
                arrays[f"{part}/{number}"] = value.numpy()
        arrays["random"] = self.generator.get_state().numpy()
        text = {"progress": vars(self.progress), "plan": self.budget.plan}
        write_tensors(path, arrays, orjson.dumps(text).decode(), _KIND)

    def restore(self, path: Path) -> None:
        """Go on from a saved state.

        Raises:
            UserError: the file is damaged, or of another training.
        """
        arrays, text = read_tensors(path, _KIND)
        try:
            told: Any = orjson.loads(text)
            if told["plan"] != self.budget.plan:
                raise UserError(f"{path} belongs to a training with other arguments or another dump: give those again")
            self.progress = Progress(**told["progress"])
            network = self.model.network.state_dict()
            for name, each in network.items():
                each.copy_(torch.from_numpy(arrays[f"network/{name}"].copy()))
            for number, parameter in enumerate(self.parameters):
                if f"step/{number}" in arrays:
                    self.optimiser.state[parameter] = {
                        part: torch.from_numpy(np.array(arrays[f"{part}/{number}"])) for part in _MOMENTS
                    }
            self.generator.set_state(torch.from_numpy(arrays["random"].copy()))
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise UserError(f"{path} is damaged ({error}): delete the model's folder and train again") from None


def schedule(done: float) -> float:
    """Return the learning rate's share at a share of the training: a short rise, a plateau, and a fall to 0."""
    return max(0.0, min(1.0, done / _WARM_UP + 0.02, (1 - done) / (1 - _DECAY_FROM)))


def _means(model: WorldModel, batches: list[Unrolled]) -> Metrics:
    """Means over batches, weighted by their ticks; costs in nats a tick, shares of what frequencies alone leave."""
    weights = np.array([each.ticks for each in batches], float)
    nats = dict(zip(HEADS, model.stats.nats.tolist(), strict=True))

    def mean(values: list[float]) -> float:
        return float(np.average(values, weights=weights))

    found = {"loss": mean([each.total for each in batches])}
    for name in HEADS:
        costs = [each.costs.get(name, float("nan")) for each in batches]
        known = ~np.isnan(costs)
        if known.any():
            found[f"nats/{name}"] = float(np.average(np.array(costs)[known], weights=weights[known]))
            found[f"share/{name}"] = found[f"nats/{name}"] / nats[name]
        starts = [each.start_costs[name] for each in batches if name in each.start_costs]
        if starts:
            found[f"start_share/{name}"] = float(np.mean(starts)) / nats[name]
    found["divergence"] = mean([each.divergence for each in batches])
    found["bottleneck"] = mean([each.bottleneck for each in batches])
    return found
