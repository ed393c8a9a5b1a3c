"""One training of a world model: check, measure, train, and write the model and its curves."""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import orjson
import torch
from rich.console import Console

from activation_store.files import locked_folder, make_folder, sha256, write_bytes, write_json
from activation_store.reader import read_metadata
from activation_store.schema import METADATA_FILE, DumpMetadata
from agent_zoo.base import RecurrentPolicy
from agent_zoo.checkpoint import CheckpointInfo, load_checkpoint
from agent_zoo.data_parallel import Processes, join_processes
from agent_zoo.freed_memory import keep_freed_memory
from analysis.terminal import step
from progress_view import progress
from representation.tracking import Mirror, check_login
from representation.world_model.model import Origin, WorldModel, build, save_model
from representation.world_model.scene import SceneShape, vital_columns
from representation.world_model.settings import MODEL_FILE, SETTINGS_FILE, WorldSettings
from representation.world_model.states import Sizes
from representation.world_model.statistics import measure
from representation.world_model.training import Budget, Metrics, Training
from representation.world_model.windows import (
    MapSplit,
    Windows,
    check_dump,
    read_windows,
    split_maps,
    trained_maps,
    world_of,
)  # fmt: skip
from user_error import UserError

METRICS_FILE = "metrics.jsonl"
CURVES_FILE = "curves.png"
STATE_FILE = "training_state.safetensors"

_MEASURED = 24
_TESTED = 2


@dataclass(frozen=True, eq=False)
class Material:
    """What a world model is trained on.

    Attributes:
        folder: of the dump.
        metadata: of the dump.
        policy: that was recorded.
        info: of its checkpoint.
        sha256: of its checkpoint.
        split: of the dump's episodes.
    """

    folder: Path
    metadata: DumpMetadata
    policy: RecurrentPolicy
    info: CheckpointInfo
    sha256: str
    split: MapSplit

    def batches(self, settings: WorldSettings, episodes: tuple[int, ...], seed: int | None) -> Iterator[Windows]:
        """Read windows of some episodes."""
        return read_windows(self.folder, episodes, settings.horizon, settings.batch, self.policy, self.info, seed)


def check_material(settings: WorldSettings) -> Material:
    """Load what the settings name, and refuse what does not fit, before anything is written.

    Raises:
        UserError: the policy is missing, or the dump does not fit.
    """
    metadata = read_metadata(settings.dump)
    path = settings.policies_dir / f"{metadata.policy}.safetensors"
    if not path.exists():
        raise UserError(f"{path}, whose lives {settings.dump} holds, is not there: give --policies-dir")
    policy, info = load_checkpoint(path)
    digest = sha256(path)
    check_dump(settings.dump, metadata, policy, info, digest)
    return Material(settings.dump, metadata, policy, info, digest, split_maps(settings.dump, metadata, settings.seed))


def train_world_model(settings: WorldSettings, material: Material) -> Path:
    """Train a world model, alone or with other processes that `torchrun` started; returns its file."""
    keep_freed_memory()
    processes = join_processes(torch.device("cpu"))
    with ExitStack() as stack:
        plan = _plan(settings, material)
        if processes.leads:
            check_login(settings.tracking)
            make_folder(settings.folder)
            stack.enter_context(locked_folder(settings.folder))
            _claim(settings, plan)
        processes.total(0)  # the others wait until the folder is claimed
        path = _train(settings, material, plan, Console(), processes)
        processes.leave()
        return path


def _plan(settings: WorldSettings, material: Material) -> str:
    """Return the text of what decides the weights."""
    decided = {**settings.deciding(), "dump_sha256": sha256(settings.dump / METADATA_FILE), "policy": material.sha256}
    return orjson.dumps(decided, option=orjson.OPT_SORT_KEYS).decode()


def _claim(settings: WorldSettings, plan: str) -> None:
    """Refuse a folder with another training."""
    folder = settings.folder
    if (folder / MODEL_FILE).exists():
        raise UserError(f"{folder} already holds a trained world model: give another --name, or delete it")
    path = folder / SETTINGS_FILE
    if path.exists():
        if not settings.resume:
            raise UserError(f"{folder} holds an interrupted training: add --resume to continue it, or delete it")
        if orjson.dumps(orjson.loads(path.read_bytes())["decided"], option=orjson.OPT_SORT_KEYS).decode() != plan:
            raise UserError(f"{folder} was started with other arguments or another dump: give those, or delete it")
        return
    write_json(path, {"settings": settings.plain(), "decided": orjson.loads(plan)})


def _train(settings: WorldSettings, material: Material, plan: str, console: Console, processes: Processes) -> Path:
    folder, split = settings.folder, material.split
    with step(console, "measuring frequencies and spreads"):
        first = itertools.islice(material.batches(settings, split.train, settings.seed), _MEASURED)
        vitals = vital_columns(material.info.layout)
        stats = measure(first, SceneShape.of(material.info.layout), vitals)
        tests = list(itertools.islice(material.batches(settings, split.test, settings.seed), _TESTED))
    torch.manual_seed(settings.seed)
    model = build(material.policy, material.info, stats, Sizes(hidden=settings.hidden), settings.bottleneck)
    training = Training(
        model, Budget(settings.records, settings.learning_rate, settings.seed, plan), processes=processes
    )
    if (folder / STATE_FILE).exists():
        training.restore(folder / STATE_FILE)
    processes.same_weights(model.network)
    if processes.leads:
        _keep_lines(folder / METRICS_FILE, training.progress.lines)
    epochs = lambda epoch: material.batches(settings, split.train, settings.seed + epoch)  # noqa: E731
    with (
        Mirror(settings.tracking if processes.leads else None, folder.name, settings.plain(), folder) as mirror,
        progress("training", "records", console) as show,
    ):

        def on_line(metrics: Metrics) -> None:
            _append(folder / METRICS_FILE, metrics)
            mirror.log(metrics)

        training.run(epochs, tests, folder / STATE_FILE, on_line, lambda done, total: show(done, total))
    if processes.leads:
        _write(settings, material, model, training)
        console.print(_headline(folder / METRICS_FILE), highlight=False, markup=False)
    return folder / MODEL_FILE


def _write(settings: WorldSettings, material: Material, model: WorldModel, training: Training) -> None:
    from representation.world_model.figures import draw_curves

    folder = settings.folder
    draw_curves(folder / METRICS_FILE, folder / CURVES_FILE)
    origin = Origin(
        dump=settings.dump.resolve().name, dump_sha256=sha256(settings.dump / METADATA_FILE),
        policy=material.metadata.policy, policy_sha256=material.sha256, seed=settings.seed, horizon=settings.horizon,
        records=training.progress.records, train=material.split.train, test=material.split.test,
        world=world_of(material.metadata), train_maps=trained_maps(material.metadata, material.split),
    )  # fmt: skip
    save_model(folder / MODEL_FILE, model, origin)
    (folder / STATE_FILE).unlink()


def _keep_lines(path: Path, lines: int) -> None:
    """Drop lines of metrics that an interrupted training wrote after it was last saved."""
    if path.exists():
        write_bytes(path, b"".join(path.read_bytes().splitlines(keepends=True)[:lines]))


def _append(path: Path, metrics: Metrics) -> None:
    with path.open("ab") as file:
        file.write(orjson.dumps(metrics, option=orjson.OPT_APPEND_NEWLINE))


def _headline(path: Path) -> str:
    """Say how well the last batches were predicted."""
    last = orjson.loads(path.read_bytes().splitlines()[-1])
    side = "test" if "test/loss" in last else "train"
    parts = [f"{name} {last[f'{side}/share/{name}']:.2f}" for name in ("material", "kinds", "vitals", "hidden")]
    return (
        f"cost of predictions given the tick itself, as a share of what frequencies alone leave ({side} maps): "
        + ", ".join(parts)
    )
