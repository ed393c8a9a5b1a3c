"""Edit the hidden states of agents in the running game, and measure what that changes.

    python intervene.py -p start_kit_3M --edit clear                        # the memory emptied before every tick
    python intervene.py -p masked_3M --directions RUN/directions.safetensors --edit collapse --direction self_food
    python intervene.py -p NAME --directions FILE --edit collapse --direction ic_1,ic_2,ic_3 --one-by-one   # ranked
    python intervene.py -p NAME --directions FILE --edit steer --direction is_starving --dose -4,-2,-1,0,1,2,4
    python intervene.py -p NAME --directions FILE --edit swap --from component_3 --to component_1 --change
    python intervene.py -p NAME --directions FILE --edit collapse --direction tick --while 'self_food < 30'
    python intervene.py -p NAME --features RUN/topk_8x_k32.safetensors --edit splice       # see docs/sparse_features.md
    python intervene.py -p NAME --features FILE --edit steer --direction feature_12 --dose 0,2,5
    python intervene.py -p NAME --edit erase --variable tick --layer lstm_cell  # what can be read linearly, removed
    python intervene.py -p start_kit_3M --edit transplant --donor self_food --every 16      # another agent's memory
    python intervene.py -p NAME --directions FILE --edit interchange --direction self_food --donor self_food
    python intervene.py --edit interchange --learn activation_data/NAME --donor self_goal   # the subspace, from a dump
    python intervene.py --learn activation_data/NAME --help                             # its options
    python intervene.py -p NAME --directions FILE --edit steer --direction self_food --dose 2 --through cell  # one path
    python intervene.py -p NAME --edit clear --record all                   # and activation dumps of both arms
    python intervene.py -p NAME --edit clear --follow 32                    # and how long a single edit lasts
    python intervene.py report interventions/RUN                            # tables, figures and page again

Some agents of each world are drawn at random and edited; the others share the world. The same episodes are played
without the edit, with random edits of the same size, and with an untrained network. See docs/interventions.md.
"""

import common.environment_check  # isort: skip  # noqa: F401 (must come first)

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from activation_store.layers import check_layers
from activation_store.sparse_dictionary import FEATURE
from agent_zoo.checkpoint_files import policy_names
from analysis.dynamics.alignment_options import LearnOptions
from analysis.interventions.edits.edit_options import (
    PATHS,
    EditOptions,
    RunOptions,
    check_features,
    check_together,
    needs_directions,
    separate_edits,
)
from analysis.interventions.effects.outcomes import margins
from common import argument_checks, command_line
from common.argument_checks import at_least, regrowth_value, result_name, seed_value, split
from common.user_error import UserError
from reinforcement_learning.play.workers import chosen_workers


@dataclass(frozen=True)
class ReportArguments:
    """Arguments of `intervene.py report`."""

    folder: Annotated[Path, tyro.conf.Positional]
    """Folder of a finished run."""
    equivalent_within: str | None = None
    """Other margins of equivalence than those that the run was played with."""


def main() -> None:
    """Parse, and play a run or report one."""
    if sys.argv[1:2] == ["report"]:
        report_arguments = command_line.parse(ReportArguments, __doc__, args=sys.argv[2:])
        report(report_arguments.folder, report_arguments.equivalent_within)
        return
    if any(argument.partition("=")[0] == "--learn" for argument in sys.argv[1:]):
        learn_options = command_line.parse(LearnOptions, __doc__)
        learn_options.check()

        from analysis.dynamics.alignment import learn

        learn(learn_options)
        return
    options = parse(sys.argv[1:])
    workers = chosen_workers(options.vectorization, options.ray_address, options.workers)

    from analysis.interventions.play.intervention_run import play

    play(options, workers)
    report(options.folder)


def parse(arguments: list[str]) -> RunOptions:
    """Parse the command line, and refuse what cannot be played before anything heavy is loaded."""
    first, blocks = separate_edits(arguments)
    options = command_line.parse(RunOptions, __doc__, args=first)
    options = replace(options, further=tuple(command_line.parse(EditOptions, __doc__, args=block) for block in blocks))
    if options.policy is None:
        raise UserError(
            f"-p names no policy; {options.policies_dir} holds {', '.join(policy_names(options.policies_dir))}"
        )
    policy_names(options.policies_dir, (options.policy,))
    argument_checks.check(
        options,
        name=result_name(options.name),
        episodes=at_least(options.episodes, 2),
        max_steps=at_least(options.max_steps, 1),
        seed=seed_value(options.seed),
        share=(0 < options.share <= 1, "above 0 and at most 1"),
        controls=at_least(options.controls, 0),
        follow=at_least(options.follow, 0),
        workers=at_least(options.workers, 0),
        map_seed=seed_value(0 if options.map_seed is None else options.map_seed),
        food_regrowth=regrowth_value(options.food_regrowth),
    )
    margins(options.equivalent_within)
    if split(options.record) not in ((), ("all",)):
        check_layers(split(options.record))
    check_together(options.edits, "run")
    further = "--follow" if options.follow > 0 else "--record" if options.record else None
    if options.through:
        _check_paths(options, further)
    if options.follow and all(edit.edit == "freeze" for edit in options.edits):
        raise UserError(
            "--follow does nothing with --edit freeze, which changes nothing in its first tick: leave it out"
        )
    if options.one_by_one:
        _check_one_by_one(options, further)
    condition = (options.condition or "").strip().startswith(FEATURE)
    if options.features is None and condition:
        raise UserError(f"--while {options.condition!r} needs --features with the dictionary that the feature is in")
    check_features(options.edits, options.features, used_elsewhere=condition)
    if options.directions is None and any(needs_directions(edit, options.features) for edit in options.edits):
        raise UserError("--directions names no file: give the directions.safetensors of a run on this policy")
    return options


def _check_paths(options: RunOptions, further: str | None) -> None:
    if wrong := [path for path in options.paths if path not in PATHS]:
        raise UserError(f"--through names {wrong[0]!r}: the paths are {', '.join(PATHS)}")
    if set(options.paths) == set(PATHS):
        raise UserError("--through names every path, which is what happens without it: leave it out, or name fewer")
    if of_memory := [edit.edit for edit in options.edits if edit.edit in ("clear", "freeze", "transplant")]:
        raise UserError(f"--through is for edits of states in a tick, and --edit {of_memory[0]} is made between ticks")
    if further:
        raise UserError(f"{further} does not go with --through: leave one of them out")


def _check_one_by_one(options: RunOptions, further: str | None) -> None:
    if options.further or options.edit not in ("collapse", "interchange"):
        raise UserError("--one-by-one is for one --edit collapse or interchange: give the others in a run of their own")
    if len(options.names) < 2 or len(set(options.names)) < len(options.names):
        raise UserError(f"--one-by-one needs at least two different directions, but --direction is {options.direction}")
    if further:
        raise UserError(f"{further} works with a single edit: play the direction you want without --one-by-one")


def report(folder: Path, equivalent_within: str | None = None) -> None:
    """Compute effects from what a run played, draw them, and print them."""
    from analysis.interventions.outputs import PAGE_FILE, report_run
    from common.progress_view import progress

    with progress("reporting") as show:
        lines = report_run(folder, progress=show, equivalent_within=equivalent_within)
    print("\n".join(lines))
    print(f"effects, tables and figures: {folder}")
    print(f"all on one page: {folder / PAGE_FILE}")


if __name__ == "__main__":
    command_line.run(main)
