"""Let a world model simulate lives of the policy inside it, and write them as a dump like recorded ones.

    python simulate.py world_models/NAME -n 6000                    # go on from recorded ticks on new maps
    python simulate.py world_models/NAME --from random --ticks 32   # from the model's own random starts
    python simulate.py world_models/NAME --from interpolate --steps 8    # from one recorded start to another
    python simulate.py world_models/NAME --act north,north,stay     # what if every agent did that first
    python simulate.py world_models/NAME --edit clear               # the policy's memory emptied before every tick
    python simulate.py world_models/NAME --directions FILE --edit collapse --direction ic_3
    python simulate.py world_models/NAME --directions FILE --edit swap --from ic_10 --to ic_5 --change
    python simulate.py world_models/NAME --directions FILE --edit steer --direction ic_3 --dose -2,2
    python simulate.py world_models/NAME --features FILE --edit splice       # or steer --direction feature_12 --dose 5
    python simulate.py world_models/NAME --edit erase --variable tick --layer lstm_cell
    python simulate.py world_models/NAME --edit transplant --donor self_food --every 16  # another life's memory
    python simulate.py moves world_models/NAME --first 2            # all first moves of two ticks, compared
    python simulate.py maximise world_models/NAME value             # starts that the policy values most
    python simulate.py quality world_models/NAME                    # how far ahead is it right?
    python simulate.py quality world_models/NAME --other-dice 32    # and how far ahead could any model be right?
    python simulate.py compare world_models/NAME                    # are findings the same in recorded lives?
    python simulate.py validate world_models/NAME interventions/RUN interventions/RUN2   # do edits do the same here?
    python simulate.py saliency world_models/NAME value --directions FILE    # what does a number depend on?
    python simulate.py jacobians world_models/NAME RUN              # how components move each other, likewise
    python simulate.py COMMAND --help                               # options of a command; lives where none is named

The policy sees the model's predictions and its actions drive the next tick; trade and gifts are left out. The dump in
activation_data/NAME-simulated/ has `origin: simulated` and the layers world_hidden, world_latent and bottleneck beside
those of the policy; analyses read it like any other. All other tables and figures go to the model's folder. See
docs/world_model.md.

--edit makes an edit of intervene.py in every tick of all lives, with the same options after it: --direction, --from,
--to, --change, --dose, --variable, --layer, --donor and --every. The edited lives have the same starts and the same
dice as the unedited ones. Both are written, edited ones to a folder with the name of the edit, and a table of the
effects is printed and written to effects/ in the model's folder.
"""

import common.environment_check  # isort: skip  # noqa: F401 (must come first)

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.interventions.edits.edit_options import EditOptions, separate_edits
from analysis.world_model.options import (
    Command,
    ComparisonOptions,
    JacobiansOptions,
    LivesOptions,
    MovesOptions,
    QualityOptions,
    SaliencyOptions,
    SearchOptions,
    SimulationOptions,
    ValidationOptions,
    refuse_directions_by_number,
)
from common import command_line
from common.user_error import UserError

if TYPE_CHECKING:
    import numpy as np

    from activation_store.records import Records
    from analysis.sparse.scores import Units
    from analysis.world_model.held_out import HeldOut
    from analysis.world_model.outcomes import Outcomes
    from analysis.world_model.simulation import Arm


def main() -> None:
    """Parse, load the model and the recorded lives, and run one command."""
    name, options = parse(sys.argv[1:])

    from analysis.world_model.held_out import HeldOut
    from analysis.world_model.model import load_model

    model, origin = load_model(options.file)
    held_out = HeldOut.of(model, origin, options.dump or Path("activation_data") / origin.dump)
    COMMANDS[name](options, held_out, options.file.parent)


def parse(arguments: list[str]) -> tuple[str, Any]:
    """Parse the command line, and refuse what cannot be simulated before anything heavy is loaded."""
    refuse_directions_by_number(arguments)
    first, edits = separate_edits(arguments, kept=0)
    name, options = command_line.parse_command(COMMANDS, Command, __doc__, first, usual="lives")
    if edits:
        if not isinstance(options, LivesOptions):
            raise UserError(f"--edit does nothing with {name}: leave it out")
        options = replace(options, edits=tuple(command_line.parse(EditOptions, __doc__, args=edit) for edit in edits))
    options.check()
    return name, options


def simulate_lives(options: LivesOptions, held_out: "HeldOut", folder: Path) -> None:
    """Simulate lives and edited ones, write their dumps, and print what the edits changed."""
    from analysis.world_model.outcomes import over_lives, steps_of
    from analysis.world_model.simulation import edited_arms

    life, before, after = play(options, held_out, edited_arms(options, held_out))
    if options.beginning == "interpolate":
        path = folder / "what_if" / "interpolate.tsv"
        show_table("by place on the way", steps_of(before, options.ways_steps), path)
    for name, changed in after.items():
        units = over_lives(life, options.seed)
        show_effects("unedited", before, name, changed, units, folder / "effects" / f"{name}.tsv")


def compare_moves(options: MovesOptions, held_out: "HeldOut", folder: Path) -> None:
    """Simulate all sequences of first moves, and print and write how good they are."""
    from analysis.world_model.outcomes import group_of, over_lives
    from analysis.world_model.simulation import move_arms

    life, before, after = play(options, held_out, move_arms(options.first))
    units, rows = over_lives(life, options.seed), [group_of("the policy's own", before)]
    rows += [group_of(name, own, units.mean(own["value"] - before["value"])) for name, own in after.items()]
    title = "by sequence of first moves; better: value above the policy's own lives from the same starts"
    show_table(title, rows, folder / "what_if" / f"moves_{options.first}.tsv")


def maximise(options: SearchOptions, held_out: "HeldOut", folder: Path) -> None:
    """Search starts where a number is largest, write the lives from there, and print what is different in them."""
    from analysis.world_model.outcomes import over_lives
    from analysis.world_model.simulation import search_arms

    life, before, after = play(options, held_out, search_arms(options, held_out))
    path = folder / "what_if" / f"maximise_{options.target.replace('/', '_')}.tsv"
    for name, changed in after.items():
        show_effects("random starts", before, name, changed, over_lives(life, options.seed), path)


def play(
    options: SimulationOptions, held_out: "HeldOut", arms: "dict[str, Arm]"
) -> "tuple[np.ndarray, Outcomes, dict[str, Outcomes]]":
    """Simulate the same lives in several ways.

    Returns:
        Number of the recorded life that each goes on from, (L,) int64, what came of the first way, and of the others
        by name.
    """
    from analysis.world_model.simulation import simulate
    from common.progress_view import progress

    with progress("simulating", "lives") as show:
        life, (before, *after) = simulate(held_out, options, list(arms.values()), show)
    for arm in arms.values():
        if arm.folder:
            print(f"dump of {options.wanted:,} simulated lives: {arm.folder}")
    return life, before, dict(zip(list(arms)[1:], after, strict=True))


def show_effects(first: str, before: "Outcomes", name: str, after: "Outcomes", units: "Units", path: Path) -> None:
    """Print and write how the outcomes of the same lives differ between two ways to simulate them."""
    from analysis.world_model.outcomes import effects

    changes = effects(before, after, units)
    lives = f"means over simulated lives, 95% intervals over {units.draws.shape[1]} starts"
    show_table(f"{name} after, {first} before: {lives}", changes, path)


def measure_quality(options: QualityOptions, held_out: "HeldOut", folder: Path) -> None:
    """Measure how well ticks are predicted; print the headline and write tables and a figure."""
    from analysis.world_model import open_loop, quality
    from common.progress_view import progress

    courses = real_courses(options, held_out) if options.other_dice else None
    with progress("measuring quality") as share:
        measured = quality.measure_quality(held_out, options.ticks, options.seed, share)
    if courses:
        with progress("other dice", "branches") as show:
            measured = replace(measured, other_dice=open_loop.measure_other_dice(
                held_out.model, courses, options.seed, lambda done: show(done, options.other_dice)
            ))  # fmt: skip
    quality.save_quality(folder / "quality", measured)
    print(f"{quality.headline(measured)}\ntables and figure: {folder / 'quality'}")


def real_courses(options: QualityOptions, held_out: "HeldOut") -> "Iterator[tuple[Records, Records]]":
    """Refuse what cannot be played; return what is played from recorded ticks on, as it was and with other dice."""
    from activation_store.reader import read_metadata
    from analysis.world_model.windows import CONTEXT, memory_layers
    from reinforcement_learning.play.branches import BranchPlan, drawn_points, play_branches, recorded_contest

    points = drawn_points(held_out.dump, held_out.origin.test, options.other_dice, CONTEXT - 1, options.seed)
    metadata, episodes = read_metadata(held_out.dump), sorted({point.episode for point in points})
    contest = recorded_contest(held_out.dump, metadata, options.policies_dir, options.maps_dir, episodes)
    plan = BranchPlan(
        seed=int(metadata.seed or 0), agents=max(1, contest.env.num_agents // 16), before=CONTEXT - 1,
        after=options.ticks, layers=memory_layers(metadata),
    )  # fmt: skip
    return play_branches(contest.pool(worlds=1), plan, points)


def compare_findings(options: ComparisonOptions, held_out: "HeldOut", folder: Path) -> None:
    """Print and write how findings about the memory differ between recorded and simulated lives."""
    from analysis.world_model import findings
    from common.progress_view import progress

    with progress("comparing") as share:
        rows = findings.compare_findings(held_out, options.lives, options.ticks, options.seed, share)
    title = f"recorded and simulated lives, with 95% intervals over {rows[0]['lives']} recorded lives"
    show_table(title, rows, folder / "compared.tsv")


def validate(options: ValidationOptions, held_out: "HeldOut", folder: Path) -> None:
    """Print and write what edits do as predicted, as simulated and in the game."""
    from analysis.world_model import validation
    from common.progress_view import progress

    folder = folder / "validation"
    wanted = [edits for run in options.runs for edits in validation.read_intervened(run, held_out)]
    with progress("validating") as share:
        rows = validation.compare_edits(held_out, wanted, options.lives, options.ticks, options.seed, share)
    agreement = validation.sign_agreement(rows)
    settings = {
        "runs": list(map(str, options.runs)), "lives": options.lives, "ticks": options.ticks, "seed": options.seed,
        "dump": held_out.origin.dump,
    }  # fmt: skip
    validation.save_validation(folder, rows, agreement, options.file, settings)
    print("\nchanges at once, in play, with 95% intervals: over recorded lives; in the game over episodes")
    command_line.print_table(validation.HEADS, [validation.shown(row) for row in rows])
    print(f"table: {folder / validation.TABLE_FILE}")
    title = "sign agreement with the game, of changes that it shows"
    show_table(title, agreement, folder / validation.AGREEMENT_FILE)
    print(f"all of it and a figure: {folder / validation.JSON_FILE}, {folder / validation.FIGURE_FILE}")


def differentiate(options: SaliencyOptions, held_out: "HeldOut", folder: Path) -> None:
    """Print and write what a number of simulated ticks depends on, with and without passing through the world."""
    from activation_store.directions import read_directions
    from analysis.attribution.targets import chosen_components, target_named
    from analysis.world_model import derivatives
    from analysis.world_model.outcomes import write_table
    from common.progress_view import progress

    model, sha, folder = held_out.model, held_out.origin.policy_sha256, folder / "saliency"
    assert options.directions
    directions = read_directions(options.directions)
    target = target_named(options.target, model.layout, model.policy, directions, sha, "the target")
    number = derivatives.number_of(target, model, options.target)
    chosen = chosen_components(options.components, directions, model.policy, sha)
    components = derivatives.components_of(held_out, chosen)
    with progress("differentiating") as share:
        rows, by_lag = derivatives.influences(
            held_out, number, components, options.lives, options.lags, options.seed, share
        )
    name = "".join(character if character.isalnum() or character in "-_." else "_" for character in options.target)
    write_table(folder / f"{name}.tsv", rows)
    derivatives.draw_by_lag(by_lag, target.name, folder / f"{name}.png")
    title = f"{target.name}: size of its derivatives by all components of the memory, and by the own row"
    show_table(title, list(map(vars, by_lag)), folder / f"{name}_by_lag.tsv")
    print(f"each component and column, and a figure: {folder / name}.tsv and .png")


def compare_jacobians(options: JacobiansOptions, held_out: "HeldOut", folder: Path) -> None:
    """Print and write how components move each other, and how often that has the sign of their correlations."""
    from analysis.world_model import derivatives
    from analysis.world_model.outcomes import write_table
    from common.progress_view import progress

    dynamics, folder = derivatives.read_dynamics(options.run, held_out.origin), folder / "jacobians"
    with progress("comparing Jacobians") as share:
        rows, by_lag = derivatives.compare_jacobians(
            held_out, dynamics, options.lives, options.lags, options.seed, share
        )
    write_table(folder / "agreement.tsv", rows)
    title = "sign agreement of Jacobians with lagged correlations, and what passes through the world"
    show_table(title, by_lag, folder / "by_lag.tsv")
    print(f"each behaviour: {folder / 'agreement.tsv'}")


def show_table(title: str, rows: Sequence[Mapping[str, object]], path: Path) -> None:
    """Print rows under a title, and write them to a file."""
    from analysis.world_model.outcomes import columns_of, write_table

    write_table(path, rows)
    table = [columns_of(row) for row in rows]
    cells = [[f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row.values()] for row in table]
    print(f"\n{title}")
    command_line.print_table(list(table[0]), cells)
    print(f"table: {path}")


COMMANDS: dict[str, Callable[[Any, "HeldOut", Path], None]] = {
    "lives": simulate_lives, "moves": compare_moves, "maximise": maximise, "quality": measure_quality,
    "compare": compare_findings, "validate": validate, "saliency": differentiate, "jacobians": compare_jacobians,
}  # fmt: skip
"""Each is given its options, the recorded lives, and the model's folder."""


if __name__ == "__main__":
    command_line.run(main)
