"""Simulate lives with a world model, and write them as dumps in the ordinary format."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from activation_store.columns import COLUMNS, legal_column, task_column
from activation_store.files import sha256
from activation_store.reader import read_metadata
from activation_store.records import Records
from activation_store.schema import METADATA_FILE, DumpMetadata
from activation_store.writer import DumpWriter
from representation.world_model.donors import EditsWithDonors, UneditedLives
from representation.world_model.edits import Edits, TickEdits
from representation.world_model.held_out import Beginning, starts
from representation.world_model.imagination import Start, imagine
from representation.world_model.model import Origin, WorldModel
from representation.world_model.outcomes import Outcomes, OutcomeSums
from representation.world_model.search import Target
from representation.world_model.simulated_records import LIVES_IN_EPISODE, layer_units, records_of
from representation.world_model.windows import check_dump, maps_of_episodes, world_of
from user_error import UserError

_TABLES = ("Market",)


@dataclass(frozen=True)
class Request:
    """What to simulate.

    Attributes:
        lives: number of simulations.
        ticks: of each, at most.
        beginning: see `starts.starts`.
        seed: of starts, actions and latent states.
        steps: interpolated starts on each way.
    """

    lives: int
    ticks: int
    beginning: Beginning
    seed: int
    steps: int = 1


@dataclass(frozen=True, eq=False)
class Arm:
    """One way to simulate the requested lives; all arms have the same starts and the same dice.

    Attributes:
        target: folder of the dump to write; None for none.
        moves: what every agent does in the first ticks; None where the policy chooses.
        edits: of the policy; None for none.
        begin: turns starts into others; None to keep them.
        told: what more to say in the dump's metadata.
    """

    target: Path | None = None
    moves: tuple[int | None, ...] = ()
    edits: Edits | None = None
    begin: Callable[[Start], Start] | None = None
    told: tuple[tuple[str, Any], ...] = ()


def on_new_maps(folder: Path, metadata: DumpMetadata, model: WorldModel, origin: Origin) -> Origin:
    """Return a model's origin with the episodes of a dump that are on maps that it was not trained on.

    Args:
        folder: of the dump: the one that the model was trained on, or another one of the same policy.
        metadata: of the dump.
        model: to simulate with.
        origin: of the model.

    Raises:
        UserError: the dump is of another policy, lacks something, or has no episode on such a map.
    """
    if metadata.origin == "simulated":
        raise UserError(f"{folder} holds simulated lives: give a recorded dump with --dump")
    if metadata.checkpoint_sha256 != origin.policy_sha256:
        raise UserError(
            f"{folder} holds lives of {metadata.policy}, but the model holds the policy {origin.policy} with hash "
            f"{origin.policy_sha256[:12]}: give a dump of that policy with --dump"
        )
    digest = sha256(folder / METADATA_FILE)
    if digest == origin.dump_sha256:
        return origin
    check_dump(folder, metadata, model.policy, model.info, origin.policy_sha256)
    known = origin.train_maps if world_of(metadata) == origin.world else ()
    maps = maps_of_episodes(metadata)
    test = tuple(episode for episode, number in maps.items() if number is not None and number not in known)
    if not test:
        raise UserError(
            f"{folder} has no episode on a map that the model was not trained on: record more --episodes, or give "
            "other maps with --map-seed"
        )
    return replace(origin, dump=folder.resolve().name, dump_sha256=digest, train=(), test=test)


def simulate(
    model: WorldModel, origin: Origin, sha: str, recorded: Path, request: Request, arms: Sequence[Arm],
    report: Callable[[int, int], None] = lambda *_: None, targets: Mapping[str, Target] | None = None,
) -> list[Outcomes]:  # fmt: skip
    """Simulate all arms, and write their dumps; returns what came of the lives of each arm.

    Args:
        model: to simulate with.
        origin: of the model.
        sha: hash of the model's file.
        recorded: dump that starts are taken from; random ones take market and task from it.
        request: what to simulate.
        arms: ways to simulate it; if an edit takes something from donors, the first one has no edits, and gives it.
        report: called with the lives so far, and all of them, counting those of all arms.
        targets: further outcomes, by name.

    Raises:
        UserError: a target already holds a dump, or the recorded one has too few windows.
    """
    parts: list[list[Outcomes]] = [[] for _ in arms]
    done, total = 0, request.lives * len(arms)
    made = [arm.edits for arm in arms if arm.edits and arm.edits.rules]
    has_donors, watched = bool(made), tuple({layer for each in made for layer in each.layers})
    with torch.no_grad(), ExitStack() as stack:
        writers = [
            stack.enter_context(DumpWriter(arm.target, simulated_metadata(model, recorded, sha, request, arm)))
            if arm.target
            else None
            for arm in arms
        ]
        batches = starts(model, origin, recorded, request.beginning, request.lives, request.seed, request.steps)
        for episode, batch in enumerate(batches):
            unedited = UneditedLives(watched)
            for arm, writer, found in zip(arms, writers, parts, strict=True):
                start = arm.begin(batch.start) if arm.begin else batch.start
                edits: TickEdits | None = arm.edits
                if arm.edits and arm.edits.rules:
                    edits = EditsWithDonors(arm.edits, unedited, model.layout, request.seed, episode)
                elif has_donors and not arm.edits:
                    edits = unedited
                found.append(_live(model, start, batch.origin, episode, request, arm, edits, writer, targets))
                done += len(start)
                report(done, total)
    return [Outcomes.joined(each) for each in parts]


def simulated_metadata(model: WorldModel, recorded: Path, sha: str, request: Request, arm: Arm) -> DumpMetadata:
    """Return the metadata of a simulated dump: those of the recorded one, with other layers and columns."""
    played, layout = read_metadata(recorded), model.layout
    sizes = [head.size for head in layout.heads]
    columns = {
        **{name: COLUMNS[name] for name in ("row", "col", "life", "done")},
        "task": task_column(layout.task_size), "legal": legal_column(sizes),
    }  # fmt: skip
    simulated: dict[str, Any] = {
        "lives": request.lives, "ticks": request.ticks, "from": request.beginning, "moves": arm.moves
    }  # fmt: skip
    if request.beginning == "interpolate":
        simulated["steps"] = request.steps
    if arm.edits:
        simulated["edits"] = list(arm.edits.described)
    return replace(
        played, layers=layer_units(model), columns=columns, tables=dict.fromkeys(_TABLES, layout.item_columns),
        environment={**played.environment, "simulated": {**simulated, **dict(arm.told)}}, seed=request.seed,
        precision="float32", format="parquet", precision_error={}, episodes=[], records=0, lives=0, files={},
        unrecorded=(), origin="simulated", world_model_sha256=sha,
    )  # fmt: skip


def _live(
    model: WorldModel, start: Start, origin: np.ndarray, episode: int, request: Request, arm: Arm,
    edits: TickEdits | None, writer: DumpWriter | None, targets: Mapping[str, Target] | None,
) -> Outcomes:  # fmt: skip
    """Simulate some lives until they end, write their ticks, and return what came of them."""
    generator = torch.Generator().manual_seed(request.seed + episode)
    lives, alive = episode * LIVES_IN_EPISODE + np.arange(len(start)), np.ones(len(start), bool)
    sums, parts = OutcomeSums(origin, model.network.vitals, targets), []
    for number, tick in enumerate(imagine(model, start, request.ticks, generator, arm.moves, edits)):
        if isinstance(edits, UneditedLives):
            edits.lived(alive)
        ends = (torch.rand(len(start), generator=generator) < tick.end).numpy()
        sums.add(tick, alive)
        if writer:
            records = records_of(model, tick, number, lives, ends, start.vector, start.around)
            parts.append(records.take(alive))
        alive &= ~ends
        if not alive.any():
            break
    if writer:
        writer.write(Records.concatenate(parts))
        writer.finish_episode(episode, {"episode": episode, "seed": request.seed, "beginning": request.beginning})
    return sums.finish()
