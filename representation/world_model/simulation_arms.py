"""From the options of simulate.py to the arms of a simulation."""

import itertools
from pathlib import Path

import orjson

from activation_store.directions import read_directions
from activation_store.reader import read_metadata
from activation_store.sparse_dictionary import read_dictionary
from activation_store.writer import refuse_existing_dump, state_of
from agent_zoo.state_edits import check_direction
from representation.world_model.imagination import Start, bottleneck_start
from representation.world_model.model import Origin, WorldModel
from representation.world_model.recorded_states import RecordedStates
from representation.world_model.requested_edits import EditSources, requested_edits
from representation.world_model.search import Target, direction_target, searched, value_target
from representation.world_model.simulation import Arm, Request, simulated_metadata
from representation.world_model.simulation_options import DIRECTIONS, SimulationOptions

UNEDITED = "unedited"
OWN_MOVES = "the policy's own"
BEFORE, AFTER = "random starts", "found starts"


def edited_arms(
    options: SimulationOptions, model: WorldModel, origin: Origin, sha: str, recorded: Path, request: Request
) -> dict[str, Arm]:
    """Return the unedited simulation, and one for each dose of the edits if there are any, by name.

    An unedited dump that already holds the same lives is kept as it is.

    Args:
        options: of the simulation.
        model: to simulate with.
        origin: of the model.
        sha: hash of the model's file.
        recorded: dump that starts are taken from.
        request: what to simulate.

    Raises:
        UserError: a target already holds another dump, or a direction does not fit.
    """
    target = options.output_dir / (options.name or f"{recorded.resolve().name}-simulated")
    plain = Arm(target, options.moves)
    if not options.edits:
        refuse_existing_dump(target)
        return {UNEDITED: plain}
    sources = EditSources(
        read_directions(options.directions) if options.directions else None,
        read_dictionary(options.features) if options.features else None,
        RecordedStates(recorded, origin),
    )
    made = requested_edits(options.edits, sources, model, origin)
    edited = {each.name: Arm(target.with_name(f"{target.name}-{each.name}"), options.moves, each) for each in made}
    for each in edited.values():
        assert each.target
        refuse_existing_dump(each.target)
    if _holds_the_same(target, model, recorded, sha, request, plain):
        plain = Arm(None, options.moves)
    else:
        refuse_existing_dump(target)
    return {UNEDITED: plain, **edited}


def grid_arms(ticks: int) -> dict[str, Arm]:
    """Return the policy's own lives, and one simulation for each sequence of moves in the first ticks, by name."""
    sequences = itertools.product(range(len(DIRECTIONS)), repeat=ticks)
    named = {", ".join(DIRECTIONS[move] for move in moves): Arm(None, tuple(moves)) for moves in sequences}
    return {OWN_MOVES: Arm(), **named}


def maximising_arms(
    options: SimulationOptions, model: WorldModel, origin: Origin, recorded: Path
) -> tuple[dict[str, Arm], dict[str, Target]]:
    """Return a simulation from random starts and one from what a search made of them, and the target by its name.

    Raises:
        UserError: the target folder holds a dump, or the direction does not exist or fit.
    """
    name = str(options.maximise)
    target: Target = value_target
    if name != "value":
        assert options.directions
        direction = read_directions(options.directions).named(name)
        check_direction(direction, "state", model.policy.layer_units, origin.policy, origin.policy_sha256)
        target = direction_target(direction)
    folder = options.output_dir / (
        options.name or f"{recorded.resolve().name}-simulated-maximise-{name.replace('/', '_')}"
    )
    refuse_existing_dump(folder)

    def settled(start: Start) -> Start:
        return bottleneck_start(model, start.vector, start.around, None)

    def found(start: Start) -> Start:
        return searched(model, start, target)

    arms = {BEFORE: Arm(begin=settled), AFTER: Arm(folder, begin=found, told=(("maximise", name),))}
    return arms, {} if name == "value" else {name: target}


def _holds_the_same(target: Path, model: WorldModel, recorded: Path, sha: str, request: Request, arm: Arm) -> bool:
    """Tell whether a folder already holds the dump that an arm would write."""
    if state_of(target) != "whole":
        return False
    there, wanted = read_metadata(target), simulated_metadata(model, recorded, sha, request, arm)
    same_world = orjson.dumps(there.environment, option=orjson.OPT_SORT_KEYS) == orjson.dumps(
        wanted.environment, option=orjson.OPT_SORT_KEYS
    )
    return same_world and (there.world_model_sha256, there.seed) == (sha, request.seed)
