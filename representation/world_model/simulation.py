"""Simulate lives with a world model, and write them as a dump in the ordinary format."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from activation_store.columns import COLUMNS, legal_column, task_column
from activation_store.files import sha256
from activation_store.reader import read_metadata
from activation_store.schema import METADATA_FILE, DumpMetadata
from activation_store.writer import DumpWriter
from representation.world_model.imagination import Start, imagine, informed_start, random_start
from representation.world_model.imagined_view import Surroundings
from representation.world_model.model import Origin, WorldModel
from representation.world_model.simulated_records import LIVES_IN_EPISODE, joined, layer_units, records_of
from representation.world_model.windows import Windows, read_windows
from user_error import UserError

Beginning = Literal["informed", "random"]
_TABLES = ("Market",)


@dataclass(frozen=True)
class Request:
    """What to simulate.

    Attributes:
        lives: number of simulations.
        ticks: of each, at most.
        beginning: informed: from recorded ticks on maps that the model was not trained on; random: from bottlenecks
            drawn by lot.
        seed: of starts, actions and latent states.
        moves: what every agent does in the first ticks; None where the policy chooses.
    """

    lives: int
    ticks: int
    beginning: Beginning
    seed: int
    moves: tuple[int | None, ...] = ()


def check_recorded(folder: Path, metadata: DumpMetadata, origin: Origin) -> None:
    """Refuse a dump that is not the one that the model was trained on.

    Raises:
        UserError: it is another.
    """
    if metadata.checkpoint_sha256 != origin.policy_sha256:
        raise UserError(
            f"{folder} holds lives of {metadata.policy}, but the model holds the policy {origin.policy} with hash "
            f"{origin.policy_sha256[:12]}: give a dump of that policy with --dump"
        )
    if sha256(folder / METADATA_FILE) != origin.dump_sha256:
        raise UserError(
            f"{folder} is not the dump {origin.dump} that the model was trained on, so which maps are new to the model "
            "is unknown: give that dump with --dump"
        )


def simulate(
    model: WorldModel, origin: Origin, sha: str, recorded: Path, request: Request, target: Path,
    report: Callable[[int, int], None] = lambda *_: None,
) -> None:  # fmt: skip
    """Simulate, and write a dump.

    Args:
        model: to simulate with.
        origin: of the model.
        sha: hash of the model's file.
        recorded: dump that starts are taken from; random ones take market and task from it.
        request: what to simulate.
        target: folder of the dump.
        report: called with the lives so far, and all of them.

    Raises:
        UserError: the target already holds a dump, or the recorded one has too few windows.
    """
    with torch.no_grad(), DumpWriter(target, simulated_metadata(model, recorded, sha, request)) as writer:
        first = 0
        for episode, start in enumerate(_starts(model, origin, recorded, request)):
            generator = torch.Generator().manual_seed(request.seed + episode)
            lives = first + np.arange(len(start))
            _write_lives(model, start, lives, request, writer, generator)
            writer.finish_episode(episode, {"episode": episode, "seed": request.seed, "beginning": request.beginning})
            first += len(start)
            report(first, request.lives)


def simulated_metadata(model: WorldModel, recorded: Path, sha: str, request: Request) -> DumpMetadata:
    """Return the metadata of a simulated dump: those of the recorded one, with other layers and columns."""
    played, layout = read_metadata(recorded), model.layout
    sizes = [head.size for head in layout.heads]
    columns = {
        **{name: COLUMNS[name] for name in ("row", "col", "life", "done")},
        "task": task_column(layout.task_size), "legal": legal_column(sizes),
    }  # fmt: skip
    simulated = {"lives": request.lives, "ticks": request.ticks, "from": request.beginning, "moves": request.moves}
    return replace(
        played, layers=layer_units(model), columns=columns, tables=dict.fromkeys(_TABLES, layout.item_columns),
        environment={**played.environment, "simulated": simulated}, seed=request.seed, precision="float32",
        format="parquet", precision_error={}, episodes=[], records=0, lives=0, files={}, unrecorded=(),
        origin="simulated", world_model_sha256=sha,
    )  # fmt: skip


def _write_lives(
    model: WorldModel, start: Start, lives: np.ndarray, request: Request, writer: DumpWriter,
    generator: torch.Generator,
) -> None:  # fmt: skip
    """Simulate some lives and write their ticks until they end."""
    alive = np.ones(len(lives), bool)
    parts = []
    for number, tick in enumerate(imagine(model, start, request.ticks, generator, request.moves)):
        ends = (torch.rand(len(start), generator=generator) < tick.end).numpy()
        records = records_of(model, tick, number, lives, ends, start.vector, start.around)
        parts.append(records.take(alive))
        alive &= ~ends
        if not alive.any():
            break
    writer.write(joined(parts))


def _starts(model: WorldModel, origin: Origin, recorded: Path, request: Request) -> Iterator[Start]:
    """Yield the starts of up to 128 lives at a time."""
    left, epoch = request.lives, 0
    while left > 0:
        before = left
        for windows in _recorded_windows(model, origin, recorded, request.seed + epoch):
            windows = _first(windows, left)
            generator = torch.Generator().manual_seed(request.seed * 2 + 1 + left)
            if request.beginning == "informed":
                yield informed_start(model, windows, generator)
            else:
                yield random_start(model, windows.around, generator)
            left -= len(windows)
            if left <= 0:
                return
        if left == before:
            raise UserError(f"{recorded} holds no life of more than three ticks on the maps kept for testing")
        epoch += 1


def _recorded_windows(model: WorldModel, origin: Origin, recorded: Path, seed: int) -> Iterator[Windows]:
    return read_windows(recorded, origin.test, origin.horizon, LIVES_IN_EPISODE, model.policy, model.info, seed)


def _first(windows: Windows, most: int) -> Windows:
    """Return the first windows of a batch."""
    if len(windows) <= most:
        return windows
    kept = torch.arange(most)
    ticks = int(windows.lengths[:most].sum())
    return replace(
        windows, scene=windows.scene.take(torch.arange(ticks)), place=windows.place[:ticks],
        around=Surroundings(windows.around.market.take(kept), windows.around.task[:most]),
        **{
            name: getattr(windows, name)[:most]
            for name in ("lengths", "action", "reward", "ends", "hidden", "cell", "where", "identity")
        },
    )  # fmt: skip
