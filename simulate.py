"""Let a world model simulate lives of the policy inside it, and write them as a dump like recorded ones.

    python simulate.py world_models/NAME -n 6000                    # go on from recorded ticks on new maps
    python simulate.py world_models/NAME --from random --ticks 32   # from the model's own random starts
    python simulate.py world_models/NAME --act north,north,stay     # what if every agent did that first
    python simulate.py world_models/NAME --edit clear               # the policy's memory emptied before every tick
    python simulate.py world_models/NAME --directions FILE --edit collapse --direction ic_3
    python simulate.py world_models/NAME --directions FILE --edit swap --from ic_10 --to ic_5 --change
    python simulate.py world_models/NAME --directions FILE --edit steer --direction ic_3 --dose -2,2
    python simulate.py world_models/NAME --features FILE --edit splice       # or steer --direction feature_12 --dose 5
    python simulate.py world_models/NAME --edit erase --variable tick --layer lstm_cell
    python simulate.py world_models/NAME --edit transplant --donor self_food --every 16  # another life's memory
    python simulate.py world_models/NAME --act-grid 2               # all first moves of two ticks, compared
    python simulate.py world_models/NAME --from interpolate --steps 8    # from one recorded start to another
    python simulate.py world_models/NAME --from random --maximise value  # starts that the policy values most
    python simulate.py world_models/NAME --quality --ticks 16       # how far ahead is it right?
    python simulate.py world_models/NAME --quality --other-dice 32  # and how far ahead could any model be right?
    python simulate.py world_models/NAME --compare --ticks 16       # are findings the same in recorded lives?
    python simulate.py world_models/NAME --validate interventions/RUN interventions/RUN2  # do edits do the same here?
    python simulate.py world_models/NAME --saliency value --directions FILE --components ic   # and through the world
    python simulate.py world_models/NAME --jacobians RUN            # how components move each other, likewise

The policy sees the model's predictions and its actions drive the next tick; trade and gifts are left out. The dump in
activation_data/NAME-simulated/ has `origin: simulated` and the layers world_hidden, world_latent and bottleneck beside
those of the policy; analyses read it like any other. --quality simulates no lives, but measures errors on maps that
the model was not trained on, and writes tables and a figure to quality/ in the model's folder. See docs/world_model.md.

--edit makes an edit of intervene.py in every tick of all lives, with the same options after it: --direction, --from,
--to, --change, --dose, --variable, --layer, --donor and --every. The edited lives have the same starts and the same
dice as the unedited ones. Both are written, edited ones to a folder with the name of the edit, and a table of the
effects is printed and written to effects/ in the model's folder.
"""

import common.environment_check  # isort: skip  # noqa: F401 (must come first)

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.interventions.edits.edit_options import EditOptions, separate_edits
from analysis.world_model.options import MODEL_FILE, SimulationOptions, refuse_directions_by_number
from common import command_line

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from activation_store.records import Records
    from analysis.world_model.held_out import HeldOut


def main() -> None:
    """Parse, load the model and the recorded lives, and answer the question that the options ask."""
    options = parse(sys.argv[1:])

    from analysis.world_model.held_out import HeldOut
    from analysis.world_model.model import load_model

    path = options.model / MODEL_FILE if options.model.is_dir() else options.model
    model, origin = load_model(path)
    held_out = HeldOut.of(model, origin, options.dump or Path("activation_data") / origin.dump)
    QUESTIONS.get(options.question, simulate_lives)(options, held_out, path)


def parse(arguments: list[str]) -> SimulationOptions:
    """Parse the command line, and refuse what cannot be simulated before anything heavy is loaded."""
    refuse_directions_by_number(arguments)
    first, edits = separate_edits(arguments, kept=0)
    options = command_line.parse(SimulationOptions, __doc__, args=first)
    options = replace(options, edits=tuple(command_line.parse(EditOptions, __doc__, args=edit) for edit in edits))
    options.check()
    return options


def simulate_lives(options: SimulationOptions, held_out: "HeldOut", path: Path) -> None:
    """Simulate lives, write their dumps, and print what came of them."""
    from analysis.world_model.arms import arms_of
    from analysis.world_model.outcomes import effects, group_of, steps_of
    from analysis.world_model.simulation import simulate
    from common.files import sha256
    from common.progress_view import progress

    digest, seed = sha256(path), options.seed
    arms = arms_of(options, held_out, digest)
    with progress("simulating", "lives") as show:
        outcomes = simulate(held_out, digest, options, list(arms.values()), show)
    for arm in arms.values():
        if arm.folder:
            print(f"dump of {options.wanted:,} simulated lives: {arm.folder}")
    (first, *others), (before, *after) = arms, outcomes
    folder = path.parent / "what_if"
    if options.act_grid:
        rows = [group_of(first, before, None, seed)]
        rows += [group_of(name, changed, before, seed) for name, changed in zip(others, after, strict=True)]
        title = "by sequence of first moves; better: value above the policy's own lives from the same starts"
        show_table(title, rows, folder / f"act_grid_{options.act_grid}.tsv")
        return
    if options.beginning == "interpolate":
        show_table("by place on the way", steps_of(before, options.ways_steps, seed), folder / "interpolate.tsv")
    for name, changed in zip(others, after, strict=True):
        changes = effects(before, changed, seed)
        target = path.parent / "effects" / f"{name}.tsv"
        if options.maximise is not None:
            target = folder / f"maximise_{options.maximise.replace('/', '_')}.tsv"
        lives = f"means over simulated lives, 95% intervals over {changes[0].lives} starts"
        show_table(f"{name} after, {first} before: {lives}", changes, target)


def measure_quality(options: SimulationOptions, held_out: "HeldOut", path: Path) -> None:
    """Measure how well ticks are predicted; print the headline and write tables and a figure."""
    from analysis.world_model.measures import noise_ceiling, quality
    from common.progress_view import progress

    courses = real_courses(options, held_out) if options.other_dice else None
    with progress("measuring quality") as share:
        measured = quality.measure_quality(held_out, options.ticks, options.seed, share)
    if courses:
        with progress("other dice", "branches") as show:
            measured = replace(measured, other_dice=noise_ceiling.measure_other_dice(
                held_out.model, courses, options.seed, lambda done: show(done, options.other_dice)
            ))  # fmt: skip
    folder = path.parent / "quality"
    quality.save_quality(folder, measured)
    print(f"{quality.headline(measured)}\ntables and figure: {folder}")


def real_courses(options: SimulationOptions, held_out: "HeldOut") -> "Iterator[tuple[Records, Records]]":
    """Refuse what cannot be played; return what is played from recorded ticks on, as it was and with other dice."""
    from activation_store.reader import read_metadata
    from analysis.world_model.windows import CONTEXT, memory_layers
    from reinforcement_learning.play.branches import Plan, play_branches
    from reinforcement_learning.play.recorded_world import drawn_points, recorded_contest

    points = drawn_points(held_out.dump, held_out.origin.test, options.other_dice, CONTEXT - 1, options.seed)
    metadata, episodes = read_metadata(held_out.dump), sorted({point.episode for point in points})
    contest = recorded_contest(held_out.dump, metadata, options.policies_dir, options.maps_dir, episodes)
    plan = Plan(
        seed=int(metadata.seed or 0), agents=max(1, contest.env.num_agents // 16), before=CONTEXT - 1,
        after=options.ticks, layers=memory_layers(metadata),
    )  # fmt: skip
    return ((pair.real, pair.other) for pair in play_branches(contest.pool(worlds=1), plan, points))


def compare_findings(options: SimulationOptions, held_out: "HeldOut", path: Path) -> None:
    """Print and write how findings about the memory differ between recorded and simulated lives."""
    from analysis.world_model import findings
    from common.progress_view import progress

    with progress("comparing") as share:
        rows = findings.compare_findings(held_out, options.wanted, options.ticks, options.seed, share)
    title = f"recorded and simulated lives, with 95% intervals over {rows[0].lives} recorded lives"
    show_table(title, rows, path.parent / "compared.tsv")


def validate(options: SimulationOptions, held_out: "HeldOut", path: Path) -> None:
    """Print and write what edits do as predicted, as simulated and in the game."""
    from analysis.world_model import validation
    from common.progress_view import progress

    origin, folder = held_out.origin, path.parent / "validation"
    runs = [
        validation.read_intervened(run_folder, origin.policy, origin.policy_sha256) for run_folder in options.validate
    ]
    with progress("validating") as share:
        rows = validation.compare_edits(held_out, runs, options.wanted, options.ticks, options.seed, share)
    agreement = validation.sign_agreement(rows)
    settings = {
        "runs": [str(run_folder) for run_folder in options.validate],
        "lives": options.wanted,
        "ticks": options.ticks,
    }
    validation.save_validation(folder, rows, agreement, path, {**settings, "seed": options.seed, "dump": origin.dump})
    print("\nchanges at once, in play, with 95% intervals: over recorded lives; in the game over episodes")
    command_line.print_table(validation.HEADS, [validation.shown(row) for row in rows])
    print(f"table: {folder / validation.TABLE_FILE}")
    title = "sign agreement with the game, of changes that it shows"
    show_table(title, agreement, folder / validation.AGREEMENT_FILE)
    print(f"all of it and a figure: {folder / validation.JSON_FILE}, {folder / validation.FIGURE_FILE}")


def differentiate(options: SimulationOptions, held_out: "HeldOut", path: Path) -> None:
    """Print and write what a number of simulated ticks depends on, with and without passing through the world."""
    from activation_store.directions import read_directions
    from analysis.attribution.components import chosen_components
    from analysis.attribution.targets import target_named
    from analysis.world_model import saliency
    from analysis.world_model.outcomes import write_table
    from common.progress_view import progress

    assert options.saliency and options.directions
    model, sha, folder = held_out.model, held_out.origin.policy_sha256, path.parent / "saliency"
    directions = read_directions(options.directions)
    target = target_named(options.saliency, model.layout, model.policy, directions, sha, "--saliency")
    number = saliency.number_of(target, model, options.saliency)
    chosen = chosen_components(options.components, directions, model.policy, sha)
    components = saliency.components_of(held_out, chosen)
    with progress("differentiating") as share:
        rows, by_lag = saliency.influences(
            held_out, number, components, options.wanted, options.lags, options.seed, share
        )
    name = "".join(character if character.isalnum() or character in "-_." else "_" for character in options.saliency)
    write_table(folder / f"{name}.tsv", rows)
    saliency.draw_by_lag(by_lag, target.name, folder / f"{name}.png")
    title = f"{target.name}: size of its derivatives by all components of the memory, and by the own row"
    show_table(title, by_lag, folder / f"{name}_by_lag.tsv")
    print(f"each component and column, and a figure: {folder / name}.tsv and .png")


def compare_jacobians(options: SimulationOptions, held_out: "HeldOut", path: Path) -> None:
    """Print and write how components move each other, and how often that has the sign of their correlations."""
    from analysis.world_model import jacobians
    from analysis.world_model.outcomes import write_table
    from common.progress_view import progress

    assert options.jacobians
    dynamics, folder = jacobians.read_dynamics(options.jacobians, held_out.origin), path.parent / "jacobians"
    with progress("Jacobians") as share:
        rows, by_lag = jacobians.compare_jacobians(
            held_out, dynamics, options.wanted, options.lags, options.seed, share
        )
    write_table(folder / "agreement.tsv", rows)
    title = "sign agreement of Jacobians with lagged correlations, and what passes through the world"
    show_table(title, by_lag, folder / "by_lag.tsv")
    print(f"each behaviour: {folder / 'agreement.tsv'}")


def show_table(title: str, rows: "Sequence[DataclassInstance]", path: Path) -> None:
    """Print rows under a title, and write them to a file."""
    from analysis.world_model.outcomes import columns_of, write_table

    write_table(path, rows)
    table = [columns_of(row) for row in rows]
    cells = [[f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row.values()] for row in table]
    print(f"\n{title}")
    command_line.print_table(list(table[0]), cells)
    print(f"table: {path}")


QUESTIONS: dict[str | None, Callable[[SimulationOptions, "HeldOut", Path], None]] = {
    "--quality": measure_quality, "--compare": compare_findings, "--validate": validate, "--saliency": differentiate,
    "--jacobians": compare_jacobians,
}  # fmt: skip
"""Options that ask something else than to simulate lives; each is given the options, the recorded lives, and the
model's file."""


if __name__ == "__main__":
    command_line.run(main)
