"""What users ask for on the command line of `simulate.py`; loads nothing heavy."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from agent_zoo.edit_options import EditOptions
from argument_checks import at_least, between, check, did_you_mean, seed_value, split
from user_error import UserError

DIRECTIONS = ("north", "south", "east", "west", "stay")
"""Options of the game's Move.Direction, in order."""
EDITS = ("collapse", "steer", "swap", "clear", "freeze")
"""Edits that can be made in simulations."""


@dataclass(frozen=True)
class SimulationOptions:
    """Arguments of simulate.py."""

    model: tyro.conf.Positional[Path]
    """World model: a folder written by train_world_model.py, or its model.safetensors."""
    lives: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 6000
    """Lives to simulate, at least 1."""
    beginning: Annotated[Literal["informed", "random"], tyro.conf.arg(name="from")] = "informed"
    """informed: go on from recorded ticks on maps that the model was not trained on; random: from the model's random
    starts. Give it before --edit, after which --from names a direction."""
    ticks: int = 32
    """Ticks of each life, 1 to 1024; a life that ends earlier is shorter."""
    quality: bool = False
    """Measure how well each of --ticks ticks is predicted from recorded starts, beside copying the last tick seen.
    -n, --from, --act and --edit do not apply."""
    act: str = ""
    """Comma-separated moves that every agent makes in its first ticks: north, south, east, west, stay, or policy for
    the policy's own choice."""
    directions: Path | None = None
    """directions.safetensors of a run of analyze_activations.py, analyze_dynamics.py or train_probes.py on this
    policy, for --edit."""
    dump: Path | None = None
    """Recorded dump to start from; by default activation_data/ and the name of the dump that the model was trained
    on."""
    seed: int = 0
    """Seed of starts, actions and latent states, 0 to 4294967295."""
    name: str | None = None
    """Name of the dump's folder; by default that of the recorded dump followed by -simulated."""
    output_dir: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = field(default=Path("activation_data"))
    """Parent folder of the dump."""
    edits: tyro.conf.Suppress[tuple[EditOptions, ...]] = field(default=())
    """Edits of the policy, each with the options after its --edit."""

    def check(self) -> None:
        """Refuse values that make no sense.

        Raises:
            UserError: names the option, and the allowed values.
        """
        check(self, lives=at_least(self.lives, 1), ticks=between(self.ticks, 1, 1024), seed=seed_value(self.seed))
        if len(self.moves) > self.ticks:
            raise UserError(f"--act names {len(self.moves)} moves, more than --ticks {self.ticks}")
        self._check_edits()

    def _check_edits(self) -> None:
        for each in self.edits:
            if each.edit not in EDITS:
                raise UserError(
                    f"--edit {each.edit} cannot be made in simulations: use {', '.join(EDITS)}, or intervene.py in the "
                    "game"
                )
            if each.edit != "swap" and each.origin in ("informed", "random"):
                raise UserError(f"--from {each.origin} belongs before --edit, after which --from names a direction")
            each.check()
        if sum(bool(each.doses) for each in self.edits) > 1:
            raise UserError("only one edit can have several --dose: give the others in a simulation of their own")
        if self.quality and self.edits:
            raise UserError("--quality measures the unedited policy: leave out --edit")
        named = any(each.names for each in self.edits if each.edit not in ("clear", "freeze"))
        if named and self.directions is None:
            raise UserError("--directions names no file: give the directions.safetensors of a run on this policy")
        if self.directions is not None and not named:
            raise UserError("--directions does nothing here: name one, as in --edit collapse --direction NAME")

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


def refuse_directions_by_number(arguments: list[str]) -> None:
    """Answer the options with which the original swapped directions by the edits that do the same here.

    Raises:
        UserError: one of them is given; the message says what to use.
    """
    origins, targets = (_numbers(arguments, f"--swap-directions-{part}") for part in ("from", "to"))
    if origins is None and targets is None:
        return
    said = []
    for number, origin in enumerate(origins or ["A"]):
        target = targets[number] if targets and number < len(targets) else "B"
        if target.lower() == "none":
            said.append(f"--edit collapse --direction ic_{origin} --change")
        else:
            said.append(f"--edit swap --from ic_{origin} --to ic_{target} --change")
    raise UserError(f"directions have names here; with those of analyze_dynamics.py, use {' '.join(said)}")


def _numbers(arguments: list[str], option: str) -> list[str] | None:
    """The values after an option, which may be written with underscores; None if it is not given."""
    for place, each in enumerate(arguments):
        name, _, value = each.partition("=")
        if name.replace("_", "-") == option:
            found = [value] if value else []
            for following in arguments[place + 1 :]:
                if following.startswith("-"):
                    break
                found.append(following)
            return found
    return None
