"""Train a world model; it can be interrupted and continued, with the same result."""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import torch
from matplotlib.axes import Axes
from rich.console import Console

from activation_store.reader import read_metadata
from activation_store.schema import METADATA_FILE
from agent_zoo.base import RecurrentPolicy
from agent_zoo.checkpoint import CheckpointInfo, load_checkpoint
from agent_zoo.checkpoint_files import policy_path
from agent_zoo.data_parallel import ALONE, Processes, join_processes
from analysis.figures.style import cluster_colour, new_figure, style
from analysis.runs.run_folder import write_figure
from analysis.world_model.model import HEADS, Origin, WorldModel, build, measure, save_model
from analysis.world_model.network import Sizes
from analysis.world_model.options import MODEL_FILE, SETTINGS_FILE, WorldSettings
from analysis.world_model.unroll import Unrolled, fit_sightings, unroll
from analysis.world_model.windows import (
    Windows,
    check_dump,
    maps_of,
    read_windows,
    split_maps,
    world_of,
)
from common.array_files import Kind, read_tensors, write_tensors
from common.command_line import this_command
from common.files import (
    append_bytes,
    locked_folder,
    make_folder,
    read_json,
    read_json_lines,
    read_lines,
    sha256,
    write_bytes,
    write_json,
)
from common.progress_view import progress, step
from common.user_error import UserError
from common.weights_and_biases import mirrored
from reinforcement_learning.processes import keep_freed_memory

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
    """How far a training is."""

    records: int = 0  # predicted so far
    epoch: int = 0
    batches: int = 0  # of the current epoch that are done
    lines: int = 0


@dataclass
class Training:
    """A training between two batches."""

    model: WorldModel
    settings: WorldSettings
    plan: str  # what decides the weights, as text; a saved state of another plan is refused
    progress: Progress = field(default_factory=Progress)
    processes: Processes = ALONE  # that share each batch; their weights stay equal

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.settings.seed)
        self.parameters = list(self.model.network.parameters())
        self.optimiser = torch.optim.Adam(self.parameters, lr=self.settings.learning_rate, betas=_BETAS)

    def run(
        self, epochs: Epochs, tests: list[Windows], state: Path, on_line: Callable[[Metrics], None],
        report: Callable[[int, int], None], clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """Train until the budget is spent; only the first process reports and saves.

        Args:
            tests: batches to measure the costs on with every line.
            state: file that the training is saved to, at most once a minute.

        Raises:
            UserError: the loss is no longer finite.
        """
        saved, waiting, began = clock(), list[Unrolled](), clock()
        while self.progress.records < self.settings.records:
            for number, batch in enumerate(epochs(self.progress.epoch)):
                if number < self.progress.batches:
                    continue
                waiting.append(self._step(batch))
                self.progress.batches += 1
                self.progress.records += waiting[-1].ticks
                report(min(self.progress.records, self.settings.records), self.settings.records)
                over = self.progress.records >= self.settings.records
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
        unrolled = unroll(self.model, batch, self.generator, self.processes)
        if not np.isfinite(unrolled.total):
            raise UserError(
                f"the loss is no longer finite after {self.progress.records:,} records: give a lower --learning-rate"
            )
        self.optimiser.zero_grad()
        if unrolled.loss.requires_grad:  # a process may be left without a window
            (unrolled.loss * self.processes.size).backward()
        self.processes.average(self.parameters, (), 1)
        torch.nn.utils.clip_grad_norm_(self.parameters, _GRADIENT_NORM)
        done = self.progress.records / self.settings.records
        self.optimiser.param_groups[0]["lr"] = self.settings.learning_rate * schedule(done)
        self.optimiser.step()
        return replace(unrolled, loss=unrolled.loss.detach())

    def _line(self, done: list[Unrolled], tests: list[Windows], seconds: float) -> Metrics:
        line: Metrics = {"records": self.progress.records, "epoch": self.progress.epoch}
        line |= {f"train/{name}": value for name, value in _means(self.model, done).items()}
        line["samples_per_second"] = sum(batch.ticks for batch in done) / max(seconds, 1e-9)
        generator = torch.Generator().manual_seed(_TESTS_SEED)
        with torch.no_grad():
            tested = [unroll(self.model, batch, generator) for batch in tests]
        if tested:
            line |= {f"test/{name}": value for name, value in _means(self.model, tested).items()}
        return line

    def save(self, path: Path) -> None:
        """Write everything that the following batches depend on."""
        arrays = {f"network/{name}": tensor.numpy() for name, tensor in self.model.network.state_dict().items()}
        for number, parameter in enumerate(self.parameters):
            for part, value in self.optimiser.state.get(parameter, {}).items():
                arrays[f"{part}/{number}"] = value.numpy()
        arrays["random"] = self.generator.get_state().numpy()
        text = {"progress": vars(self.progress), "plan": self.plan}
        write_tensors(path, arrays, orjson.dumps(text).decode(), _KIND)

    def restore(self, path: Path) -> None:
        """Go on from a saved state.

        Raises:
            UserError: the file is damaged, or of another training.
        """
        arrays, text = read_tensors(path, _KIND)
        try:
            header: Any = orjson.loads(text)
            if header["plan"] != self.plan:
                raise UserError(f"{path} belongs to a training with other arguments or another dump: give those again")
            self.progress = Progress(**header["progress"])
            network = self.model.network.state_dict()
            for name, tensor in network.items():
                tensor.copy_(torch.from_numpy(arrays[f"network/{name}"].copy()))
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
    weights = np.array([batch.ticks for batch in batches], float)
    nats = dict(zip(HEADS, model.stats.nats.tolist(), strict=True))

    def mean(values: list[float]) -> float:
        return float(np.average(values, weights=weights))

    metrics = {"loss": mean([batch.total for batch in batches])}
    for name in HEADS:
        costs = [batch.costs.get(name, float("nan")) for batch in batches]
        known = ~np.isnan(costs)
        if known.any():
            metrics[f"nats/{name}"] = float(np.average(np.array(costs)[known], weights=weights[known]))
            metrics[f"share/{name}"] = metrics[f"nats/{name}"] / nats[name]
        starts = [batch.start_costs[name] for batch in batches if name in batch.start_costs]
        if starts:
            metrics[f"start_share/{name}"] = float(np.mean(starts)) / nats[name]
    metrics["divergence"] = mean([batch.divergence for batch in batches])
    metrics["bottleneck"] = mean([batch.bottleneck for batch in batches])
    return metrics


METRICS_FILE = "metrics.jsonl"
CURVES_FILE = "curves.png"
STATE_FILE = "training_state.safetensors"

_MEASURED = 24
_TESTED = 2


def check_material(settings: WorldSettings) -> tuple[RecurrentPolicy, CheckpointInfo, Origin]:
    """Load what the settings name, and refuse what does not fit, before anything is written.

    Returns:
        The recorded policy, what its checkpoint says, and what is trained on.

    Raises:
        UserError: the policy is missing, or the dump does not fit.
    """
    metadata = read_metadata(settings.dump)
    path = policy_path(settings.policies_dir, metadata.policy)
    if not path.exists():
        raise UserError(f"{path}, whose lives {settings.dump} holds, is not there: give --policies-dir")
    policy, info = load_checkpoint(path)
    digest = sha256(path)
    check_dump(settings.dump, metadata, policy, info, digest)
    train, test = split_maps(settings.dump, metadata, settings.seed)
    return policy, info, Origin(
        dump=settings.dump.resolve().name, dump_sha256=sha256(settings.dump / METADATA_FILE), policy=metadata.policy,
        policy_sha256=digest, seed=settings.seed, horizon=settings.horizon, records=0, train=train, test=test,
        world=world_of(metadata), train_maps=maps_of(metadata, train),
    )  # fmt: skip


def train_world_model(settings: WorldSettings, policy: RecurrentPolicy, info: CheckpointInfo, origin: Origin) -> Path:
    """Train a world model, alone or with other processes that `torchrun` started; returns its file."""
    keep_freed_memory()
    processes, folder = join_processes(torch.device("cpu")), settings.folder
    decided = {**settings.deciding(), "dump_sha256": origin.dump_sha256, "policy": origin.policy_sha256}
    plan = orjson.dumps(decided, option=orjson.OPT_SORT_KEYS).decode()
    with ExitStack() as stack:
        if processes.leads:
            make_folder(folder)
            stack.enter_context(locked_folder(folder))
            _claim(settings, plan)
        processes.total(0)  # the others wait until the folder is claimed

        def batches(episodes: tuple[int, ...], seed: int) -> Iterator[Windows]:
            return read_windows(settings.dump, episodes, settings.horizon, settings.batch, policy, info, seed)

        console = Console()
        with step(console, "measuring frequencies and spreads"):
            stats = measure(itertools.islice(batches(origin.train, settings.seed), _MEASURED), info.layout)
            tests = list(itertools.islice(batches(origin.test, settings.seed), _TESTED))
        torch.manual_seed(settings.seed)
        model = build(policy, info, stats, Sizes(hidden=settings.hidden), settings.bottleneck)
        training = Training(model, settings, plan, processes=processes)
        _train(training, lambda epoch: batches(origin.train, settings.seed + epoch), tests, console)
        if processes.leads:
            draw_curves(folder / METRICS_FILE, folder / CURVES_FILE)
            model.network.eval()
            with step(console, "fitting how others drift"):
                some = itertools.islice(batches(origin.train, settings.seed), _MEASURED)
                sightings = fit_sightings(model.network, some, torch.Generator().manual_seed(settings.seed))
            model = replace(model, sightings=sightings)
            save_model(folder / MODEL_FILE, model, replace(origin, records=training.progress.records))
            (folder / STATE_FILE).unlink()
            console.print(_headline(folder / METRICS_FILE), highlight=False, markup=False)
        processes.leave()
    return folder / MODEL_FILE


def _claim(settings: WorldSettings, plan: str) -> None:
    """Refuse a folder with another training."""
    folder = settings.folder
    if (folder / MODEL_FILE).exists():
        (folder / STATE_FILE).unlink(missing_ok=True)  # of a training that was killed as it ended
        raise UserError(f"{folder} already holds a trained world model: give another --name, or delete it")
    path = folder / SETTINGS_FILE
    if path.exists():
        if not settings.resume:
            raise UserError(f"{folder} holds an interrupted training: add --resume to continue it, or delete it")
        before = read_json(path)
        if not isinstance(before, dict) or "decided" not in before:
            raise UserError(f"{path} is damaged: delete {folder} and train again")
        if before["decided"] != orjson.loads(plan):
            raise UserError(f"{folder} was started with other arguments or another dump: give those, or delete it")
        return
    write_json(path, {"settings": settings.plain(), "decided": orjson.loads(plan), "command": this_command()})


def _train(training: Training, epochs: Epochs, tests: list[Windows], console: Console) -> None:
    """Train from the state in the folder, if there is one, and append to its metrics."""
    settings, folder, leads = training.settings, training.settings.folder, training.processes.leads
    if (folder / STATE_FILE).exists():
        training.restore(folder / STATE_FILE)
    training.processes.same_weights(training.model.network)
    if leads:
        _keep_lines(folder / METRICS_FILE, training.progress.lines)
    with (
        mirrored(settings.tracking if leads else None, folder.name, settings.plain(), folder) as mirror,
        progress("training", "records", console) as show,
    ):

        def on_line(metrics: Metrics) -> None:
            append_bytes(folder / METRICS_FILE, orjson.dumps(metrics, option=orjson.OPT_APPEND_NEWLINE))
            mirror.log(metrics)

        training.run(epochs, tests, folder / STATE_FILE, on_line, show)


def _keep_lines(path: Path, lines: int) -> None:
    """Drop lines of metrics that an interrupted training wrote after it was last saved.

    Raises:
        UserError: the file cannot be read, or a line to keep is damaged.
    """
    if not path.exists():
        return
    kept = read_lines(path)[:lines]
    for number, line in enumerate(kept, 1):
        try:
            whole = isinstance(orjson.loads(line), dict)
        except orjson.JSONDecodeError:
            whole = False
        if not whole:
            raise UserError(f"{path} is damaged in line {number}: delete {path.parent} and train again")
    write_bytes(path, b"".join(kept))


def _headline(path: Path) -> str:
    last = read_json_lines(path)[-1]
    side = "test" if "test/loss" in last else "train"
    parts = [f"{name} {last[f'{side}/share/{name}']:.2f}" for name in ("material", "kinds", "vitals", "hidden")]
    return (
        f"cost of predictions given the tick itself, as a share of what frequencies alone leave ({side} maps): "
        + ", ".join(parts)
    )


def draw_curves(metrics: Path, target: Path) -> None:
    """Draw the costs of training and test windows against records, and the divergence of the latent states."""
    lines = read_json_lines(metrics)
    side = "test" if any("test/loss" in line for line in lines) else "train"
    with style():
        figure = new_figure(10, 6.5)
        (loss, divergence), (first, second) = figure.subplots(2, 2)
        for number, name in enumerate(("train", "test")):
            _line(loss, lines, f"{name}/loss", name, number)
            _line(divergence, lines, f"{name}/divergence", name, number)
        loss.set(title="Loss", xlabel="records", ylabel="sum of balanced costs", yscale="symlog")
        divergence.set(title="Posterior from prior", xlabel="records", ylabel="divergence (nats a tick)")
        halves = HEADS[: len(HEADS) // 2], HEADS[len(HEADS) // 2 :]
        for panel, heads in zip((first, second), halves, strict=True):
            for number, head in enumerate(heads):
                _line(panel, lines, f"{side}/share/{head}", head, number)
            panel.axhline(1, color="0.6", linewidth=0.8, linestyle=":")
            panel.set(xlabel="records", ylabel="cost, share of frequencies alone", yscale="log")
            panel.set_title(f"Predictions on {'maps not trained on' if side == 'test' else 'training maps'}")
        for panel in (loss, divergence, first, second):
            panel.legend(fontsize=7, ncols=2)
        write_figure(target, figure)


def _line(panel: Axes, lines: list[dict[str, float]], name: str, label: str, number: int) -> None:
    points = [(line["records"], line[name]) for line in lines if name in line]
    if points:
        panel.plot(*zip(*points, strict=True), label=label, color=cluster_colour(number), linewidth=1)
