"""What simulate.py simulates: the policy's own lives beside edited ones, forced moves, or starts found by search."""

import itertools
from pathlib import Path

import orjson
import torch
from torch.nn import functional

from activation_store.directions import read_directions
from activation_store.reader import read_metadata
from activation_store.schema import COMMAND, OPTIONS
from activation_store.sparse_dictionary import read_dictionary
from activation_store.writer import refuse_existing_dump, state_of
from analysis.interventions.edits.state_edits import check_direction
from analysis.world_model.edits import requested_edits
from analysis.world_model.held_out import HeldOut
from analysis.world_model.imagination import (
    ImaginedTick,
    Number,
    Start,
    bottleneck_start,
    imagine,
    read_out,
)
from analysis.world_model.model import WorldModel
from analysis.world_model.options import LivesOptions, SearchOptions
from analysis.world_model.simulation import Arm, simulated_metadata

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


def value(tick: ImaginedTick) -> torch.Tensor:
    """Return the policy's value, (S,)."""
    return tick.choices.value


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
