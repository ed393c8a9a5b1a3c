"""Let a world model simulate lives of the policy inside it, and write them as a dump like recorded ones.

    python simulate.py world_models/NAME -n 6000                    # go on from recorded ticks on new maps
    python simulate.py world_models/NAME --from random --ticks 32   # from the model's own random starts
    python simulate.py world_models/NAME --act north,north,stay     # what if every agent did that first
    python simulate.py world_models/NAME --quality --ticks 16       # how far ahead is it right?

The policy sees the model's predictions and its actions drive the next tick; trade and gifts are left out. The dump in
activation_data/NAME-simulated/ has `origin: simulated` and the layers world_hidden, world_latent and bottleneck beside
those of the policy; analyses read it like any other. --quality simulates no lives, but measures errors on maps that
the model was not trained on, and writes tables and a figure to quality/ in the model's folder. See docs/world_model.md.
"""

import environment_check  # isort: skip  # noqa: F401 (must come first)

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

import command_line
from argument_checks import at_least, between, check, did_you_mean, seed_value, split
from user_error import UserError

DIRECTIONS = ("north", "south", "east", "west", "stay")
"""Options of the game's Move.Direction, in order."""


@dataclass(frozen=True)
class Arguments:
    """Arguments of simulate.py."""

    model: tyro.conf.Positional[Path]
    """World model: a folder written by train_world_model.py, or its model.safetensors."""
    lives: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 6000
    """Lives to simulate, at least 1."""
    beginning: Annotated[Literal["informed", "random"], tyro.conf.arg(name="from")] = "informed"
    """informed: go on from recorded ticks on maps that the model was not trained on; random: from the model's random
    starts."""
    ticks: int = 32
    """Ticks of each life, 1 to 1024; a life that ends earlier is shorter."""
    quality: bool = False
    """Measure how well each of --ticks ticks is predicted from recorded starts, beside copying the last tick seen.
    -n, --from and --act do not apply."""
    act: str = ""
    """Comma-separated moves that every agent makes in its first ticks: north, south, east, west, stay, or policy for
    the policy's own choice."""
    dump: Path | None = None
    """Recorded dump to start from; by default activation_data/ and the name of the dump that the model was trained
    on."""
    seed: int = 0
    """Seed of starts, actions and latent states, 0 to 4294967295."""
    name: str | None = None
    """Name of the dump's folder; by default that of the recorded dump followed by -simulated."""
    output_dir: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = field(default=Path("activation_data"))
    """Parent folder of the dump."""

    def check(self) -> None:
        """Refuse values that make no sense.

        Raises:
            UserError: names the option, and the allowed values.
        """
        check(self, lives=at_least(self.lives, 1), ticks=between(self.ticks, 1, 1024), seed=seed_value(self.seed))
        if len(self.moves) > self.ticks:
            raise UserError(f"--act names {len(self.moves)} moves, more than --ticks {self.ticks}")

    @property
    def moves(self) -> tuple[int | None, ...]:
        """Options of the first ticks; None where the policy chooses.

        Raises:
            UserError: there is no such move.
        """
        found: list[int | None] = []
        for each in split(self.act):
            if each not in (*DIRECTIONS, "policy"):
                hint = did_you_mean(each, DIRECTIONS)
                raise UserError(f"--act names {each!r}: must be {', '.join(DIRECTIONS)} or policy{hint}")
            found.append(None if each == "policy" else DIRECTIONS.index(each))
        return tuple(found)


def main() -> None:
    """Parse, load the model, simulate, and print where the dump is."""
    arguments = command_line.parse(Arguments, __doc__)
    arguments.check()

    from activation_store.files import sha256
    from activation_store.reader import read_metadata
    from progress_view import progress
    from representation.world_model.model import load_model
    from representation.world_model.settings import MODEL_FILE
    from representation.world_model.simulation import Request, check_recorded, simulate

    path = arguments.model / MODEL_FILE if arguments.model.is_dir() else arguments.model
    model, origin = load_model(path)
    recorded = arguments.dump or Path("activation_data") / origin.dump
    check_recorded(recorded, read_metadata(recorded), origin)
    if arguments.quality:
        from representation.world_model.quality import QUALITY_FOLDER, headline, measure_quality, save_quality

        with progress("measuring quality") as share:
            quality = measure_quality(model, origin, recorded, arguments.ticks, arguments.seed, share)
        save_quality(path.parent / QUALITY_FOLDER, quality)
        print(f"{headline(quality)}\ntables and figure: {path.parent / QUALITY_FOLDER}")
        return
    target = arguments.output_dir / (arguments.name or f"{recorded.resolve().name}-simulated")
    request = Request(arguments.lives, arguments.ticks, arguments.beginning, arguments.seed, arguments.moves)
    with progress("simulating", "lives") as show:
        simulate(model, origin, sha256(path), recorded, request, target, show)
    print(f"dump of {arguments.lives:,} simulated lives: {target}")


if __name__ == "__main__":
    command_line.run(main)
