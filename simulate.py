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

import environment_check  # isort: skip  # noqa: F401 (must come first)

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import command_line
from agent_zoo.edit_options import EditOptions, separate_edits
from representation.world_model.options import SimulationOptions, refuse_directions_by_number

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from activation_store.records import Records
    from representation.world_model.model import Origin, WorldModel
    from representation.world_model.outcomes import Outcomes
    from representation.world_model.search import Target


def main() -> None:
    """Parse, load the model, simulate, and print where the dump is."""
    options = parse(sys.argv[1:])

    from activation_store.files import sha256
    from activation_store.reader import read_metadata
    from progress_view import progress
    from representation.world_model.arms import edited_arms, grid_arms, maximising_arms
    from representation.world_model.model import load_model
    from representation.world_model.settings import MODEL_FILE
    from representation.world_model.simulation import Request, on_new_maps, simulate

    path = options.model / MODEL_FILE if options.model.is_dir() else options.model
    model, origin = load_model(path)
    recorded = options.dump or Path("activation_data") / origin.dump
    origin = on_new_maps(recorded, read_metadata(recorded), model, origin)
    if options.quality:
        measure_quality(options, model, origin, recorded, path.parent)
        return
    if options.compare:
        compare_findings(options, model, origin, recorded, path.parent)
        return
    if options.validate:
        validate(options, model, origin, recorded, path)
        return
    if options.jacobians is not None:
        compare_jacobians(options, model, origin, recorded, path.parent)
        return
    if options.saliency is not None:
        differentiate(options, model, origin, recorded, path.parent)
        return
    request = Request(options.wanted, options.ticks, options.beginning, options.seed, options.ways_steps)
    targets: Mapping[str, Target] = {}
    if options.act_grid:
        arms = grid_arms(options.act_grid)
    elif options.maximise is not None:
        arms, targets = maximising_arms(options, model, origin, recorded)
    else:
        arms = edited_arms(options, model, origin, sha256(path), recorded, request)
    with progress("simulating", "lives") as show:
        found = simulate(model, origin, sha256(path), recorded, request, list(arms.values()), show, targets)
    for arm in arms.values():
        if arm.target:
            print(f"dump of {options.wanted:,} simulated lives: {arm.target}")
    report(dict(zip(arms, found, strict=True)), options, path.parent)


def parse(arguments: list[str]) -> SimulationOptions:
    """Parse the command line, and refuse what cannot be simulated before anything heavy is loaded."""
    refuse_directions_by_number(arguments)
    first, edits = separate_edits(arguments, kept=0)
    options = command_line.parse(SimulationOptions, __doc__, args=first)
    options = replace(options, edits=tuple(command_line.parse(EditOptions, __doc__, args=each) for each in edits))
    options.check()
    return options


def measure_quality(
    options: SimulationOptions, model: "WorldModel", origin: "Origin", recorded: Path, folder: Path
) -> None:
    """Measure how well ticks are predicted; print the headline and write tables and a figure."""
    from progress_view import progress
    from representation.world_model import noise_ceiling, quality

    courses = real_courses(options, origin, recorded) if options.other_dice else None
    with progress("measuring quality") as share:
        found = quality.measure_quality(model, origin, recorded, options.ticks, options.seed, share)
    if courses:
        with progress("other dice", "branches") as show:
            found = replace(found, other_dice=noise_ceiling.measure_other_dice(
                model, courses, options.seed, lambda done: show(done, options.other_dice)
            ))  # fmt: skip
    quality.save_quality(folder / quality.QUALITY_FOLDER, found)
    print(f"{quality.headline(found)}\ntables and figure: {folder / quality.QUALITY_FOLDER}")


def real_courses(options: SimulationOptions, origin: "Origin", recorded: Path) -> "Iterator[tuple[Records, Records]]":
    """Refuse what cannot be played; return what is played from recorded ticks on, as it was and with other dice."""
    from activation_store.reader import read_metadata
    from reinforcement_learning.play.branches import Plan, play_branches
    from reinforcement_learning.play.recorded_world import drawn_points, recorded_contest
    from representation.world_model.windows import CONTEXT, memory_layers

    points = drawn_points(recorded, origin.test, options.other_dice, CONTEXT - 1, options.seed)
    metadata, episodes = read_metadata(recorded), sorted({point.episode for point in points})
    contest = recorded_contest(recorded, metadata, options.policies_dir, options.maps_dir, episodes)
    plan = Plan(
        seed=int(metadata.seed or 0), agents=max(1, contest.env.num_agents // 16), before=CONTEXT - 1,
        after=options.ticks, layers=memory_layers(metadata),
    )  # fmt: skip
    return ((each.real, each.other) for each in play_branches(contest.pool(worlds=1), plan, points))


def compare_findings(
    options: SimulationOptions, model: "WorldModel", origin: "Origin", recorded: Path, folder: Path
) -> None:
    """Print and write how findings about the memory differ between recorded and simulated lives."""
    from progress_view import progress
    from representation.world_model import findings

    with progress("comparing") as share:
        found = findings.compare_findings(model, origin, recorded, options.wanted, options.ticks, options.seed, share)
    title = f"recorded and simulated lives, with 95% intervals over {found[0].lives} recorded lives"
    show_table(title, found, folder / "compared.tsv")


def validate(options: SimulationOptions, model: "WorldModel", origin: "Origin", recorded: Path, path: Path) -> None:
    """Print and write what edits do as predicted, as simulated and in the game."""
    from progress_view import progress
    from representation.world_model.at_once import compare_edits
    from representation.world_model.intervened import read_intervened
    from representation.world_model.validation import HEADS, shown, sign_agreement, validated_rows
    from representation.world_model.validation_outputs import (
        AGREEMENT_FILE,
        FIGURE_FILE,
        JSON_FILE,
        TABLE_FILE,
        save_validation,
    )

    runs = [read_intervened(each, origin.policy, origin.policy_sha256) for each in options.validate]
    with progress("validating") as share:
        found = compare_edits(model, origin, recorded, runs, options.wanted, options.ticks, options.seed, share)
    rows = validated_rows(found, options.seed)
    agreement, folder = sign_agreement(rows), path.parent / "validation"
    settings = {"runs": [str(each) for each in options.validate], "lives": options.wanted, "ticks": options.ticks}
    save_validation(folder, rows, agreement, path, {**settings, "seed": options.seed, "dump": origin.dump})
    print("\nchanges at once, in play, with 95% intervals: over recorded lives; in the game over episodes")
    command_line.print_table(HEADS, [shown(row) for row in rows])
    print(f"table: {folder / TABLE_FILE}")
    show_table("sign agreement with the game, of changes that it shows", agreement, folder / AGREEMENT_FILE)
    print(f"all of it and a figure: {folder / JSON_FILE}, {folder / FIGURE_FILE}")


def differentiate(
    options: SimulationOptions, model: "WorldModel", origin: "Origin", recorded: Path, folder: Path
) -> None:
    """Print and write what a number of simulated ticks depends on, with and without passing through the world."""
    from activation_store.directions import read_directions
    from progress_view import progress
    from representation.attribution.components import chosen_components
    from representation.attribution.targets import target_named
    from representation.world_model.saliency import components_of, influences, number_of
    from representation.world_model.saliency_figure import draw_by_lag
    from representation.world_model.tables import write_table

    assert options.saliency and options.directions
    directions, sha = read_directions(options.directions), origin.policy_sha256
    target = target_named(options.saliency, model.layout, model.policy, directions, sha, "--saliency")
    number = number_of(target, model, options.saliency)
    components = components_of(
        model, origin, recorded, chosen_components(options.components, directions, model.policy, sha)
    )
    with progress("differentiating") as share:
        rows, by_lag = influences(
            model, origin, recorded, number, components, options.wanted, options.lags, options.seed, share
        )
    name = "".join(each if each.isalnum() or each in "-_." else "_" for each in options.saliency)
    write_table(folder / "saliency" / f"{name}.tsv", rows)
    draw_by_lag(by_lag, target.name, folder / "saliency" / f"{name}.png")
    title = f"{target.name}: size of its derivatives by all components of the memory, and by the own row"
    show_table(title, by_lag, folder / "saliency" / f"{name}_by_lag.tsv")
    print(f"each component and column, and a figure: {folder / 'saliency' / name}.tsv and .png")


def compare_jacobians(
    options: SimulationOptions, model: "WorldModel", origin: "Origin", recorded: Path, folder: Path
) -> None:
    """Print and write how components move each other, and how often that has the sign of their correlations."""
    from progress_view import progress
    from representation.world_model import jacobians
    from representation.world_model.tables import write_table

    assert options.jacobians
    dynamics = jacobians.read_dynamics(options.jacobians, origin)
    with progress("Jacobians") as share:
        rows, by_lag = jacobians.compare_jacobians(
            model, origin, recorded, dynamics, options.wanted, options.lags, options.seed, share
        )
    write_table(folder / "jacobians" / "agreement.tsv", rows)
    title = "sign agreement of Jacobians with lagged correlations, and what passes through the world"
    show_table(title, by_lag, folder / "jacobians" / "by_lag.tsv")
    print(f"each behaviour: {folder / 'jacobians' / 'agreement.tsv'}")


def report(found: "Mapping[str, Outcomes]", options: SimulationOptions, folder: Path) -> None:
    """Print what came of the simulations, and write it to tables in the model's folder."""
    from representation.world_model.outcomes import effects, group_of, steps_of

    (first, before), *others = found.items()
    if options.act_grid:
        rows = [group_of(first, before, None, options.seed)]
        rows += [group_of(name, after, before, options.seed) for name, after in others]
        title = "by sequence of first moves; better: value above the policy's own lives from the same starts"
        show_table(title, rows, folder / "what_if" / f"act_grid_{options.act_grid}.tsv")
        return
    if options.beginning == "interpolate":
        rows = steps_of(before, options.ways_steps, options.seed)
        show_table("by place on the way", rows, folder / "what_if" / "interpolate.tsv")
    for name, after in others:
        changes = effects(before, after, options.seed)
        path = folder / "effects" / f"{name}.tsv"
        if options.maximise is not None:
            path = folder / "what_if" / f"maximise_{options.maximise.replace('/', '_')}.tsv"
        title = (
            f"{name} after, {first} before: means over simulated lives, 95% intervals over {changes[0].lives} starts"
        )
        show_table(title, changes, path)


def show_table(title: str, rows: "Sequence[DataclassInstance]", path: Path) -> None:
    """Print rows under a title, and write them to a file."""
    from representation.world_model.tables import write_table

    write_table(path, rows)
    heads = list(asdict(rows[0]))
    cells = [[f"{each:.3g}" if isinstance(each, float) else str(each) for each in asdict(row).values()] for row in rows]
    print(f"\n{title}")
    command_line.print_table(heads, cells)
    print(f"table: {path}")


if __name__ == "__main__":
    command_line.run(main)
