"""Simulate lives with a world model in several ways, and write them as dumps in the ordinary format.

The policy's own lives stand beside edited ones, forced moves, or starts found by search. Records hold the most
probable tiles, entities and items, in the game's units.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import torch
from torch.nn import functional

from activation_store.columns import COLUMNS, legal_column, pack_legal, task_column
from activation_store.directions import read_directions
from activation_store.layers import ACTION_DECODER, BOTTLENECK, ENCODER_OUTPUT
from activation_store.layers import WORLD_HIDDEN as HIDDEN
from activation_store.layers import WORLD_LATENT as LATENT
from activation_store.reader import read_metadata
from activation_store.records import RaggedRows, Records
from activation_store.schema import COMMAND, OPTIONS, SOURCE_DUMP, STARTS, DumpMetadata
from activation_store.sparse_dictionary import read_dictionary
from activation_store.writer import DumpWriter, refuse_existing_dump, state_of
from agent_zoo.network_parts.layers import RowFeatures, entity_features, item_features
from agent_zoo.observation import ActionHead, ObservationLayout, PackedRows
from analysis.interventions.edits.state_edits import check_direction
from analysis.recorded.recorded_observation import state_layers
from analysis.world_model.edits import Edits, EditsWithDonors, UneditedLives, requested_edits
from analysis.world_model.held_out import LIVES_IN_EPISODE, HeldOut, Starts
from analysis.world_model.imagination import (
    ImaginedTick,
    Number,
    Start,
    TickEdits,
    bottleneck_start,
    imagine,
    lived,
    read_out,
    value,
)
from analysis.world_model.model import WorldModel
from analysis.world_model.options import LivesOptions, SearchOptions, SimulationOptions
from analysis.world_model.outcomes import Outcomes, OutcomeSums, concatenated
from analysis.world_model.scene import likeliest, own_columns
from common.command_line import this_command

_FIRST_PLAYER = 1001
_LARGEST = 32767


def layer_units(model: WorldModel) -> dict[str, int]:
    """Return the layers of a simulated dump and their units."""
    units, sizes = model.policy.policy.hidden_size, model.network.sizes
    policy = dict.fromkeys((ENCODER_OUTPUT, *state_layers(model.policy), ACTION_DECODER), units)
    return policy | {HIDDEN: sizes.hidden, LATENT: sizes.latent, BOTTLENECK: sizes.bottleneck}


def records_of(
    model: WorldModel, tick: ImaginedTick, number: int, lives: np.ndarray, done: np.ndarray, start: Start
) -> Records:
    """Return the records of one tick.

    Args:
        number: of the tick, from 0.
        lives: number of each of them in the whole dump, (L,) int64.
        done: whether the life ends with the tick, (L,) bool.
    """
    layout, scene = model.layout, tick.scene
    agent_id = lives % LIVES_IN_EPISODE + 1
    entity, entity_place = _entities(tick, agent_id, layout)
    inventory, slot_place = _items(tick, layout)
    heads, memory = layout.heads, zip(state_layers(model.policy), (*tick.memory.hidden, *tick.memory.cell), strict=True)
    return Records(
        step=np.full(len(lives), number), env_id=lives % LIVES_IN_EPISODE, agent_id=agent_id,
        episode=lives // LIVES_IN_EPISODE, tick=np.full(len(lives), number), reward=_array(tick.reward),
        value=_array(tick.choices.value),
        action=np.stack([_option(tick, head, entity_place, slot_place) for head in heads], axis=1),
        log_probability=np.stack([_log_probability(tick, head) for head in heads], axis=1),
        activations={
            **{name: _array(states) for name, states in {**tick.layers, **dict(memory)}.items()},
            HIDDEN: _array(tick.state.hidden), LATENT: _array(tick.state.latent), BOTTLENECK: _array(start.vector),
        },
        tile=_tiles(scene.material, scene.own, layout),
        entity=entity, inventory=inventory,
        columns={
            "done": done, "task": _array(start.around.task),
            "legal": pack_legal(_legal(tick, layout, entity_place, slot_place)),
        },
        tables={"Market": _ragged(start.around.market)},
    )  # fmt: skip


def _tiles(material: torch.Tensor, own: torch.Tensor, layout: ObservationLayout) -> np.ndarray:
    """Rows, columns and materials of the view, (L, tiles, 3) int16."""
    features, side = entity_features(layout), layout.view_side
    where = [own_columns(layout).index(name) for name in ("row", "col")]
    centre = (own[:, where] * features.scale[where]).round().numpy()  # (L, 2)
    offsets = np.stack(np.meshgrid(*[np.arange(side) - side // 2] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
    kinds = material.argmax(dim=1).numpy()[:, :, None]
    return np.concatenate([centre[:, None] + offsets, kinds], axis=2).astype(np.int16)


def _entities(tick: ImaginedTick, agent_id: np.ndarray, layout: ObservationLayout) -> tuple[RaggedRows, np.ndarray]:
    """Rows that are likely there or attacked, the agent's own first, and the place of each candidate row among them."""
    rows = tick.view.observation.entity
    place = tick.view.kind * layout.tiles + tick.view.cell  # (L, R)
    others_kept = likeliest(tick.scene.kinds.flatten(1)).gather(1, place)
    kept = np.insert(others_kept.numpy(), 0, True, axis=1)  # (L, R + 1)
    attacked = tick.options["Attack.Target"].numpy()
    chosen = np.flatnonzero(attacked < kept.shape[1])
    kept[chosen, attacked[chosen]] = True
    values = _raw(rows.category, rows.values, entity_features(layout), layout.entity_columns)
    kind, cell = tick.view.kind.numpy(), tick.view.cell.numpy()
    others = np.where(kind == 0, _FIRST_PLAYER + cell, -1 - (kind * layout.tiles + cell))
    values[:, :, layout.entity_columns.index("id")] = np.concatenate([agent_id[:, None], others], axis=1)
    return RaggedRows(values[kept], np.concatenate([[0], np.cumsum(kept.sum(axis=1))])), _places(kept)


def _items(tick: ImaginedTick, layout: ObservationLayout) -> tuple[RaggedRows, np.ndarray]:
    """Items that are there, used or destroyed, and the place of each slot among them."""
    scene = tick.scene
    kept = scene.item_type.argmax(dim=2).numpy() > 0  # (L, slots)
    for head in ("Use.InventoryItem", "Destroy.InventoryItem"):
        option = tick.options[head].numpy()
        chosen = np.flatnonzero(option < kept.shape[1])
        kept[chosen, option[chosen]] = True
    items = scene.item_type.clone()
    items[:, :, 0] = -1  # an item that is there has some type
    values = _raw(items, scene.items, item_features(layout), layout.item_columns)
    number = layout.item_columns.index("id")
    values[:, :, number] = np.maximum(values[:, :, number], 1)
    return RaggedRows(values[kept], np.concatenate([[0], np.cumsum(kept.sum(axis=1))])), _places(kept)


def _raw(category: torch.Tensor, values: torch.Tensor, features: RowFeatures, columns: tuple[str, ...]) -> np.ndarray:
    """Rows in the game's units, (L, R, columns) int16."""
    ((place, kinds),) = features.categories
    raw = np.zeros((*values.shape[:2], len(columns)), np.int16)
    scaled = (values * features.scale).round().clamp(-_LARGEST, _LARGEST)
    raw[:, :, features.other_columns.numpy()] = scaled.numpy().astype(np.int16)
    raw[:, :, place] = category.argmax(dim=2).numpy() + kinds.first
    return raw


def _places(kept: np.ndarray) -> np.ndarray:
    """Place of each kept row among its agent's, (L, R) int64; -1 for the others."""
    return np.where(kept, np.cumsum(kept, axis=1) - 1, -1)


def _option(tick: ImaginedTick, head: ActionHead, entity: np.ndarray, slots: np.ndarray) -> np.ndarray:
    option = tick.options[head.name].numpy()
    if head.candidates is None:
        return option
    rows = tick.choices.log_probabilities[head.name].shape[1] - 1
    drawn = np.full(len(option), head.size - 1)
    places = {"entity": entity, "inventory": slots}.get(head.candidates)
    (chosen,) = (option < rows).nonzero()
    if places is not None:
        drawn[chosen] = places[chosen, option[chosen]]
    return drawn


def _log_probability(tick: ImaginedTick, head: ActionHead) -> np.ndarray:
    option = tick.options[head.name].unsqueeze(1)
    return _array(tick.choices.log_probabilities[head.name].gather(1, option)[:, 0])


def _legal(tick: ImaginedTick, layout: ObservationLayout, entity: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Legality of all options, (L, mask size) bool: what is more likely legal than not, and what was chosen.

    Of targets: what is more likely legal than not if the entity is there, since the dump shows it.
    """
    parts = []
    for head in layout.heads:
        probability = tick.view.observation.legal[head.name].numpy().copy()
        if head.name == "Attack.Target":
            probability[:, :-1] /= np.maximum(tick.view.observation.entity.presence.numpy(), 1e-9)
        likely = probability > 0.5
        likely[np.arange(len(likely)), tick.options[head.name].numpy()] = True
        if head.candidates:
            flags = np.zeros((len(likely), head.size), bool)
            flags[:, -1] = likely[:, -1]
            places = {"entity": entity, "inventory": slots}.get(head.candidates)
            if places is not None:
                agent, row = np.nonzero(likely[:, :-1] & (places >= 0))
                flags[agent, places[agent, row]] = True
            likely = flags
        parts.append(likely)
    return np.concatenate(parts, axis=1)


def _ragged(rows: PackedRows) -> RaggedRows:
    return RaggedRows(rows.values.numpy(), np.concatenate([[0], np.cumsum(rows.counts.numpy())]))


def _array(values: torch.Tensor) -> np.ndarray:
    return values.detach().numpy().astype(np.float32)


@dataclass(frozen=True, eq=False)
class Arm:
    """One way to simulate the same lives; all arms have the same starts and the same dice."""

    folder: Path | None = None  # of the dump to write; None for none
    moves: tuple[int | None, ...] = ()  # what every agent does in the first ticks; None where the policy chooses
    edits: Edits | None = None
    until: int | None = None  # ticks in which they are made, from the first; None for all
    begin: Callable[[Start], Start] | None = None  # turns starts into others; None to keep them
    described: Mapping[str, Any] = field(default_factory=dict)  # what more to say in the dump's metadata
    targets: Mapping[str, Number] = field(default_factory=dict)  # further outcomes, by name


def simulate(
    held_out: HeldOut, options: SimulationOptions, arms: Sequence[Arm],
    report: Callable[[int, int], None] = lambda *_: None,
) -> tuple[np.ndarray, list[Outcomes]]:  # fmt: skip
    """Simulate all arms, and write their dumps.

    Args:
        arms: ways to simulate; if an edit takes something from donors, the first one has no edits, and gives it.

    Returns:
        Number of the recorded life that each life goes on from, (L,) int64, and what came of the lives of each arm.

    Raises:
        UserError: a folder already holds a dump, or the recorded one has too few windows.
    """
    model, done, total = held_out.model, 0, options.wanted * len(arms)
    life, outcomes = list[np.ndarray](), [list[Outcomes]() for _ in arms]
    with_donors = [arm.edits for arm in arms if arm.edits and arm.edits.donors]
    watched = tuple({layer for edits in with_donors for layer in edits.layers})
    with torch.no_grad(), ExitStack() as stack:
        writers = list[DumpWriter | None]()
        for arm in arms:
            writers.append(None)
            if arm.folder:
                metadata = simulated_metadata(held_out, options, arm)
                metadata.environment[COMMAND] = this_command()
                writers[-1] = stack.enter_context(DumpWriter(arm.folder, metadata))
        batches = held_out.starts(options.beginning, options.wanted, options.seed, options.ways_steps)
        for episode, starts in enumerate(batches):
            unedited = UneditedLives(watched)
            life.append(starts.life)
            for arm, writer, parts in zip(arms, writers, outcomes, strict=True):
                edits: TickEdits | None = arm.edits
                if arm.edits and arm.edits.donors:
                    edits = EditsWithDonors(arm.edits, unedited, model.layout, options.seed, episode)
                elif with_donors and not edits:
                    edits = unedited
                parts.append(_play(model, arm, options, starts, episode, edits, writer))
                done += len(starts.life)
                report(done, total)
    return np.concatenate(life), [concatenated(parts) for parts in outcomes]


def _play(
    model: WorldModel, arm: Arm, options: SimulationOptions, starts: Starts, episode: int, edits: TickEdits | None,
    writer: DumpWriter | None,
) -> Outcomes:  # fmt: skip
    """Simulate some lives until they end, and write their ticks; returns what came of them."""
    start = arm.begin(starts.start) if arm.begin else starts.start
    generator = torch.Generator().manual_seed(options.seed + episode)
    numbers = episode * LIVES_IN_EPISODE + np.arange(len(start))
    sums, parts = OutcomeSums(len(start), model.network.vitals, arm.targets), list[Records]()
    ticks = imagine(model, start, options.ticks, generator, arm.moves, edits, until=arm.until)
    for number, (tick, there, over) in enumerate(lived(ticks, generator)):
        alive, ends = there.numpy(), over.numpy()
        if isinstance(edits, UneditedLives):
            edits.alive.append(alive)
        sums.add(tick, alive)
        if writer:
            parts.append(records_of(model, tick, number, numbers, ends, start).take(alive))
        if not (alive & ~ends).any():
            break
    if writer:
        writer.write(Records.concatenate(parts))
        described = {"episode": episode, "seed": options.seed, "beginning": options.beginning}
        if starts.ticks is not None and not arm.begin:
            described[STARTS] = starts.ticks.tolist()
        writer.finish_episode(episode, described)
    return sums.finish()


def simulated_metadata(held_out: HeldOut, options: SimulationOptions, arm: Arm) -> DumpMetadata:
    """Return the metadata of a simulated dump: those of the recorded one, with other layers and columns."""
    played, layout = read_metadata(held_out.dump), held_out.model.layout
    columns = {
        **{name: COLUMNS[name] for name in ("row", "col", "life", "done")},
        "task": task_column(layout.task_size), "legal": legal_column([head.size for head in layout.heads]),
    }  # fmt: skip
    simulated: dict[str, Any] = {
        "lives": options.wanted, "ticks": options.ticks, "from": options.beginning, "moves": arm.moves,
        SOURCE_DUMP: held_out.origin.dump_sha256,
    }  # fmt: skip
    if options.beginning == "interpolate":
        simulated["steps"] = options.ways_steps
    if arm.edits:
        simulated["edits"] = list(arm.edits.described)
        simulated |= {} if arm.until is None else {"until_tick": arm.until}
    return replace(
        played, layers=layer_units(held_out.model), columns=columns, tables={"Market": layout.item_columns},
        environment={**played.environment, "simulated": {**simulated, **arm.described}}, seed=options.seed,
        precision="float32", format="parquet", precision_error={}, episodes=[], records=0, lives=0, files={},
        unrecorded=(), origin="simulated", world_model_sha256=options.sha256,
    )  # fmt: skip


TICKS = 4
"""A search maximises the mean over these first ticks, with the most probable actions and latent states."""
UPDATES = 40
_RATE = 0.05


def edited_arms(options: LivesOptions, held_out: HeldOut) -> dict[str, Arm]:
    """Return the unedited simulation, and one for each dose of the edits if there are any.

    An unedited dump that already holds the same lives is kept as it is.

    Raises:
        UserError: a folder already holds another dump, or a direction does not exist or fit.
    """
    folder = options.output_dir / (options.name or f"{held_out.dump.resolve().name}-simulated")
    plain = Arm(folder, options.moves)
    if not options.edits:
        refuse_existing_dump(folder)
        return {"unedited": plain}
    directions = read_directions(options.directions) if options.directions else None
    dictionary = read_dictionary(options.features) if options.features else None
    edited = {}
    for edits in requested_edits(options.edits, held_out, directions, dictionary):
        name = edits.name if options.until_tick is None else f"{edits.name}-until_{options.until_tick}"
        target = folder.with_name(f"{folder.name}-{name}")
        refuse_existing_dump(target)
        edited[name] = Arm(target, options.moves, edits, options.until_tick)
    if _is_there(folder, held_out, options, plain):
        plain = Arm(None, options.moves)
    else:
        refuse_existing_dump(folder)
    return {"unedited": plain, **edited}


def _is_there(folder: Path, held_out: HeldOut, options: LivesOptions, arm: Arm) -> bool:
    """Tell whether a folder already holds the dump that an arm would write."""
    if state_of(folder) != "whole":
        return False
    there, wanted = read_metadata(folder), simulated_metadata(held_out, options, arm)
    worlds = [
        orjson.dumps({**metadata.environment, COMMAND: None}, option=orjson.OPT_SORT_KEYS)
        for metadata in (there, wanted)
    ]
    made = [(metadata.world_model_sha256, metadata.seed) for metadata in (there, wanted)]
    return worlds[0] == worlds[1] and made[0] == made[1]


def move_arms(ticks: int) -> dict[str, Arm]:
    """Return the policy's own lives, and one simulation for each sequence of moves in the first ticks."""
    names = OPTIONS["Move.Direction"]
    sequences = itertools.product(range(len(names)), repeat=ticks)
    forced = {", ".join(names[move] for move in moves): Arm(moves=tuple(moves)) for moves in sequences}
    return {"the policy's own": Arm(), **forced}


def search_arms(options: SearchOptions, held_out: HeldOut) -> dict[str, Arm]:
    """Return a simulation from random starts, and one from what a search made of them; errors as `edited_arms`."""
    model, origin, name = held_out.model, held_out.origin, options.target
    target: Number = value
    targets: dict[str, Number] = {}
    if name != "value":
        assert options.directions
        direction = read_directions(options.directions).named(name)
        check_direction(direction, "state", model.policy.layer_units, origin.policy, origin.policy_sha256)
        target = read_out(direction)
        targets = {name: target}
    usual = f"{held_out.dump.resolve().name}-simulated-maximise-{name.replace('/', '_')}"
    folder = options.output_dir / (options.name or usual)
    refuse_existing_dump(folder)
    return {
        "random starts": Arm(
            begin=lambda start: bottleneck_start(model, start.vector, start.around, None), targets=targets
        ),
        "found starts": Arm(
            folder, begin=lambda start: searched(model, start, target), described={"maximise": name}, targets=targets
        ),
    }


def searched(model: WorldModel, start: Start, target: Number) -> Start:
    """Return the best start met on the way up from each given one by gradient ascent (Adam) on its bottleneck."""
    with torch.enable_grad():
        free = start.vector.clone().requires_grad_()
        optimiser = torch.optim.Adam([free], lr=_RATE)
        best, vectors = torch.full((len(start),), -torch.inf), start.vector
        for _ in range(UPDATES + 1):
            vector = functional.normalize(free, dim=1) if model.network.kind == "sphere" else free
            begun = bottleneck_start(model, vector, start.around, None)
            ticks = [target(tick) for tick in imagine(model, begun, TICKS, None)]
            reached = torch.stack(ticks).mean(dim=0)  # (S,)
            better = reached.detach() > best
            best = torch.where(better, reached.detach(), best)
            vectors = torch.where(better.unsqueeze(1), vector.detach(), vectors)
            (free.grad,) = torch.autograd.grad(-reached.sum(), free)
            optimiser.step()
    return bottleneck_start(model, vectors, start.around, None)
