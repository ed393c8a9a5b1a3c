"""Let a world model simulate lives of the policy inside it, and write them as a dump like recorded ones.

    python simulate.py world_models/NAME -n 6000                    # go on from recorded ticks on new maps
    python simulate.py world_models/NAME --from random --ticks 32   # from the model's own random starts
    python simulate.py world_models/NAME --act north,north,stay     # what if every agent did that first
    python simulate.py world_models/NAME --edit clear               # the policy's memory emptied before every tick
    python simulate.py world_models/NAME --directions FILE --edit collapse --direction ic_3
    python simulate.py world_models/NAME --directions FILE --edit swap --from ic_10 --to ic_5 --change
    python simulate.py world_models/NAME --directions FILE --edit steer --direction ic_3 --dose -2,2
    python simulate.py world_models/NAME --quality --ticks 16       # how far ahead is it right?

The policy sees the model's predictions and its actions drive the next tick; trade and gifts are left out. The dump in
activation_data/NAME-simulated/ has `origin: simulated` and the layers world_hidden, world_latent and bottleneck beside
those of the policy; analyses read it like any other. --quality simulates no lives, but measures errors on maps that
the model was not trained on, and writes tables and a figure to quality/ in the model's folder. See docs/world_model.md.

--edit edits the policy in every tick, in all lives: collapse, steer, swap, clear or freeze. The options after it are
those of intervene.py: --direction, --from, --to, --change, --dose and --every. The edited lives have the same starts
and the same dice as the unedited ones. Both are written, edited ones to a folder with the name of the edit, and a table
of the effects is printed and written to effects/ in the model's folder.
"""

import environment_check  # isort: skip  # noqa: F401 (must come first)

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import command_line
from agent_zoo.edit_options import EditOptions, separate_edits
from representation.world_model.simulation_options import SimulationOptions, refuse_directions_by_number

if TYPE_CHECKING:
    from representation.world_model.outcomes import Outcomes


def main() -> None:
    """Parse, load the model, simulate, and print where the dump is."""
    options = parse(sys.argv[1:])

    from activation_store.files import sha256
    from activation_store.reader import read_metadata
    from progress_view import progress
    from representation.world_model.model import load_model
    from representation.world_model.settings import MODEL_FILE
    from representation.world_model.simulation import Request, check_recorded, simulate
    from representation.world_model.simulation_arms import edited_arms

    path = options.model / MODEL_FILE if options.model.is_dir() else options.model
    model, origin = load_model(path)
    recorded = options.dump or Path("activation_data") / origin.dump
    check_recorded(recorded, read_metadata(recorded), origin)
    if options.quality:
        from representation.world_model.quality import QUALITY_FOLDER, headline, measure_quality, save_quality

        with progress("measuring quality") as share:
            quality = measure_quality(model, origin, recorded, options.ticks, options.seed, share)
        save_quality(path.parent / QUALITY_FOLDER, quality)
        print(f"{headline(quality)}\ntables and figure: {path.parent / QUALITY_FOLDER}")
        return
    request = Request(options.lives, options.ticks, options.beginning, options.seed)
    arms = edited_arms(options, model, origin, sha256(path), recorded, request)
    with progress("simulating", "lives") as show:
        found = simulate(model, origin, sha256(path), recorded, request, list(arms.values()), show)
    for arm in arms.values():
        if arm.target:
            print(f"dump of {options.lives:,} simulated lives: {arm.target}")
    report_effects(dict(zip(arms, found, strict=True)), options, path.parent / "effects")


def parse(arguments: list[str]) -> SimulationOptions:
    """Parse the command line, and refuse what cannot be simulated before anything heavy is loaded."""
    refuse_directions_by_number(arguments)
    first, edits = separate_edits(arguments, kept=0)
    options = command_line.parse(SimulationOptions, __doc__, args=first)
    options = replace(options, edits=tuple(command_line.parse(EditOptions, __doc__, args=each) for each in edits))
    options.check()
    return options


def report_effects(found: "Mapping[str, Outcomes]", options: SimulationOptions, folder: Path) -> None:
    """Print how each further simulation differs from the first one, and write that to a table each."""
    from representation.world_model.outcomes import effects
    from representation.world_model.tables import write_table

    (_, before), *others = found.items()
    for name, after in others:
        rows = effects(before, after, options.seed)
        write_table(folder / f"{name}.tsv", rows)
        print(f"\n{name}: means over simulated lives, 95% intervals over {rows[0].lives} recorded lives")
        heads = ("outcome", "unedited", "edited", "difference", "low", "high")
        numbers = [(each.before, each.after, each.difference, each.low, each.high) for each in rows]
        lines = [(each.outcome, *(f"{one:.3g}" for one in of)) for each, of in zip(rows, numbers, strict=True)]
        command_line.print_table(heads, lines)
        print(f"table: {folder / f'{name}.tsv'}")


if __name__ == "__main__":
    command_line.run(main)
