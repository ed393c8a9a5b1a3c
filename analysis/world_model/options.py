"""Every option of train_world_model.py, and of the commands of simulate.py; loads nothing heavy."""

import argparse
import functools
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

import tyro

from activation_store.schema import OPTIONS
from analysis.interventions.edits.edit_options import EditOptions, check_features, check_together, needs_directions
from common.argument_checks import at_least, between, check, did_you_mean, result_name, seed_value, split
from common.files import sha256
from common.result_places import OutputFolder
from common.user_error import UserError
from common.weights_and_biases import Wandb

LONGEST_HORIZON = 64
SETTINGS_FILE = "settings.json"
MODEL_FILE = "model.safetensors"

_NOT_RESULTS = ("resume", "output_dir", "policies_dir", "name", "track", "wandb", "dump")
"""Options that do not change the weights; the dump's hash does."""


@dataclass(frozen=True)
class WorldSettings:
    """Arguments of train_world_model.py."""

    dump: tyro.conf.Positional[Path]
    """Dump of the policy: a folder written by extract_activations.py --record standard, with episodes on at
    least two maps."""
    records: int = 1_000_000
    """Records (agent-ticks) to predict in training, at least 1. Beyond those of the training maps, they repeat."""
    horizon: int = 16
    """Ticks predicted in a training window, 1 to 64; windows of lives that end earlier are shorter."""
    batch: int = 32
    """Windows in a batch, at least 2."""
    bottleneck: Literal["sphere", "gaussian"] = "sphere"
    """sphere: three ticks are squeezed to a vector of length 1, and vectors are spread over the sphere; gaussian: to a
    normal distribution, whose divergence from the standard one is reported."""
    hidden: int = 224
    """Units of the world's deterministic state, at least 8."""
    learning_rate: float = 1.4e-3
    """Of Adam; rises over the first 2% of the records and falls to zero over the last half."""
    seed: int = 0
    """Seed of the weights, of the maps held out and of the order of windows, 0 to 4294967295."""
    resume: bool = False
    """Continue an interrupted training with the same arguments; the result is the same as without the interruption."""
    policies_dir: Path = Path("policies")
    """Folder of the policy that was recorded."""
    name: str | None = None
    """Name of the model's folder; by default that of the dump."""
    output_dir: OutputFolder = Path("world_models")
    """Folder that --name goes into."""
    track: bool = True
    """Mirror the training curves to Weights & Biases; --no-track for local files only."""
    wandb: Wandb = field(default_factory=Wandb)

    @property
    def folder(self) -> Path:
        """The model's folder."""
        return self.output_dir / (self.name or self.dump.resolve().name)

    @property
    def tracking(self) -> Wandb | None:
        """Where training curves are mirrored to; None for nowhere."""
        return self.wandb if self.track else None

    def check(self) -> None:
        """Refuse values that no dump could make sense of.

        Raises:
            UserError: names the option, and the allowed values.
        """
        check(
            self,
            name=result_name(self.name),
            records=at_least(self.records, 1),
            horizon=between(self.horizon, 1, LONGEST_HORIZON),
            batch=at_least(self.batch, 2),
            hidden=at_least(self.hidden, 8),
            learning_rate=between(self.learning_rate, 1e-6, 1e-1),
            seed=seed_value(self.seed),
        )

    def plain(self) -> dict[str, Any]:
        """Return all options as they would be written to JSON."""
        return {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}

    def deciding(self) -> dict[str, Any]:
        """Return the options that decide the weights."""
        return {name: value for name, value in self.plain().items() if name not in _NOT_RESULTS}


SETTLING = 4
"""First ticks that do not count in validation where edits are made in every tick: the memory moves to where edits
hold it. In the game, such ticks are few of a life's."""


Beginning = Literal["informed", "random", "interpolate"]
"""Where lives begin: at recorded ticks, at the model's random starts, or between two recorded ticks."""


@dataclass(frozen=True, kw_only=True)
class QuestionOptions:
    """What every command of simulate.py takes."""

    model: tyro.conf.Positional[Path]
    """World model: a folder written by train_world_model.py, or its model.safetensors."""
    dump: Path | None = None
    """Recorded dump of the model's policy to start from; by default activation_data/ and the name of the dump that the
    model was trained on. Only episodes on maps that the model was not trained on are used."""
    seed: int = 0
    """Seed of starts, actions and latent states, 0 to 4294967295."""

    @property
    def file(self) -> Path:
        """The model's file."""
        return self.model / MODEL_FILE if self.model.is_dir() else self.model

    @functools.cached_property
    def sha256(self) -> str:
        """Hash of the model's file, which every dump names."""
        return sha256(self.file)

    def check(self) -> None:
        """Refuse values that make no sense.

        Raises:
            UserError: names the option, and the allowed values.
        """
        check(self, seed=seed_value(self.seed))


@dataclass(frozen=True, kw_only=True)
class SimulationOptions(QuestionOptions):
    """A question that is answered by lives."""

    lives: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 256
    """Lives to simulate, at least 1."""
    ticks: int = 32
    """Ticks of each life, 1 to 1024; a life that ends earlier is shorter."""
    beginning: tyro.conf.Suppress[Beginning] = "informed"
    """Where lives begin."""
    steps: tyro.conf.Suppress[int | None] = None
    """Starts on each way between two recorded ones."""

    least_ticks: ClassVar[int] = 1

    @property
    def ways_steps(self) -> int:
        """Interpolated starts on each way; 1 where none are."""
        return (self.steps or 8) if self.beginning == "interpolate" else 1

    @property
    def wanted(self) -> int:
        """Lives to simulate, of each sequence of moves; of interpolated starts, those of whole ways."""
        return self.lives // self.ways_steps * self.ways_steps

    def check(self) -> None:
        """See `QuestionOptions.check`."""
        super().check()
        check(self, lives=at_least(self.lives, 1), ticks=between(self.ticks, self.least_ticks, 1024))


@dataclass(frozen=True, kw_only=True)
class LivesOptions(SimulationOptions):
    """Simulate lives of the policy, and write them as a dump; the command where none is named."""

    lives: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 6000
    """Lives to simulate, at least 1; with --from interpolate those of whole ways, of --steps lives each."""
    beginning: Annotated[Beginning, tyro.conf.arg(name="from")] = "informed"
    """informed: go on from recorded ticks on maps that the model was not trained on; random: from the model's random
    starts; interpolate: from --steps points on the way from one recorded start to another. Give it before --edit, after
    which --from names a direction."""
    steps: int | None = None
    """Starts on each way of --from interpolate, both ends included, 2 to 128; by default 8."""
    act: str = ""
    """Comma-separated moves that every agent makes in its first ticks: north, south, east, west, stay, or policy for
    the policy's own choice."""
    directions: Path | None = None
    """directions.safetensors of a run of analyze_activations.py, analyze_dynamics.py or train_probes.py on this
    policy, for --edit."""
    features: Path | None = None
    """Dictionary of sparse features that train_sparse_autoencoder.py wrote, such as RUN/topk_8x_k32.safetensors, for
    --edit collapse, steer and splice."""
    until_tick: int | None = None
    """Edit in ticks of a simulated life before this one, at least 1; by default in all. 1: once, in the first."""
    name: str | None = None
    """Name of the dump's folder; by default that of the recorded dump followed by -simulated."""
    output_dir: OutputFolder = field(default=Path("activation_data"))
    """Folder that --name goes into."""
    edits: tyro.conf.Suppress[tuple[EditOptions, ...]] = field(default=())
    """Edits of the policy, each with the options after its --edit."""

    @property
    def moves(self) -> tuple[int | None, ...]:
        """Options of the first ticks; None where the policy chooses.

        Raises:
            UserError: there is no such move.
        """
        names, numbers = OPTIONS["Move.Direction"], list[int | None]()
        for move in split(self.act):
            if move not in (*names, "policy"):
                hint = did_you_mean(move, names)
                raise UserError(f"--act names {move!r}: must be {', '.join(names)} or policy{hint}")
            numbers.append(None if move == "policy" else names.index(move))
        return tuple(numbers)

    def check(self) -> None:
        """See `QuestionOptions.check`."""
        super().check()
        check(self, name=result_name(self.name), steps=between(2 if self.steps is None else self.steps, 2, 128))
        if self.steps is not None and self.beginning != "interpolate":
            raise UserError("--steps does nothing without --from interpolate: leave it out")
        if not self.wanted:
            raise UserError(f"-n is {self.lives}: a way alone takes --steps {self.ways_steps}")
        if len(self.moves) > self.ticks:
            raise UserError(f"--act names {len(self.moves)} moves, more than --ticks {self.ticks}")
        for edit in self.edits:
            if edit.edit != "swap" and edit.origin in get_args(Beginning):
                raise UserError(f"--from {edit.origin} belongs before --edit, after which --from names a direction")
        if self.until_tick is not None:
            check(self, until_tick=at_least(self.until_tick, 1))
            if not self.edits:
                raise UserError("--until-tick does nothing without --edit: leave it out")
        check_together(self.edits, "simulation")
        check_features(self.edits, self.features)
        named = any(needs_directions(edit, self.features) for edit in self.edits)
        if named and self.directions is None:
            raise UserError("--directions names no file: give the directions.safetensors of a run on this policy")
        if self.directions is not None and not named:
            raise UserError("--directions does nothing here: name one, as in --edit collapse --direction NAME")


@dataclass(frozen=True, kw_only=True)
class MovesOptions(SimulationOptions):
    """Compare all sequences of the first moves, from the same starts with the same dice."""

    lives: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 64
    """Lives to simulate of each sequence, at least 1."""
    first: int = 2
    """Ticks whose moves are tried, 1 to 3: 5, 25 or 125 sequences."""

    def check(self) -> None:
        """See `QuestionOptions.check`."""
        super().check()
        check(self, first=between(self.first, 1, min(3, self.ticks)))


@dataclass(frozen=True, kw_only=True)
class SearchOptions(SimulationOptions):
    """Search random starts for those where a number is largest, and write the lives from there as a dump."""

    target: tyro.conf.Positional[str]
    """value, or the name of a direction in --directions."""
    lives: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 128
    """Lives to simulate, at least 1."""
    directions: Path | None = None
    """directions.safetensors of a run of analyze_activations.py, analyze_dynamics.py or train_probes.py on this
    policy."""
    name: str | None = None
    """Name of the dump's folder; by default that of the recorded dump followed by -simulated-maximise- and the
    target."""
    output_dir: OutputFolder = field(default=Path("activation_data"))
    """Folder that --name goes into."""
    beginning: tyro.conf.Suppress[Beginning] = "random"
    """See `SimulationOptions.beginning`."""

    def check(self) -> None:
        """See `QuestionOptions.check`."""
        super().check()
        check(self, name=result_name(self.name))
        if self.target != "value" and self.directions is None:
            raise UserError(f"{self.target} is a direction, and --directions names no file that holds it")
        if self.target == "value" and self.directions is not None:
            raise UserError("--directions does nothing with value: leave it out")


@dataclass(frozen=True, kw_only=True)
class QualityOptions(QuestionOptions):
    """Measure how well ticks are predicted from recorded starts, beside the rules and copying the last tick seen."""

    ticks: int = 16
    """Ticks to predict, 1 to 1024."""
    other_dice: int = 0
    """Recorded ticks from which the game itself is played on again, 0 to 4096; 0 for none. One agent of 16 does the
    same again, while the dice of all others and of the game are thrown anew. How far that is from what was recorded
    bounds what any model can foresee: `--other-dice 32` says whether a model is bad or the game is chance."""
    policies_dir: Path = Path("policies")
    """Folder of the recorded policy, for --other-dice."""
    maps_dir: Path = Path("maps")
    """Folder of generated maps, for --other-dice; those that are missing are generated."""

    def check(self) -> None:
        """See `QuestionOptions.check`."""
        super().check()
        check(self, ticks=between(self.ticks, 1, 1024), other_dice=between(self.other_dice, 0, 4096))


@dataclass(frozen=True, kw_only=True)
class ComparisonOptions(SimulationOptions):
    """Compare findings about the policy in simulated and in recorded lives of the same starts.

    Scores of probes of its memory and shares of clusters that were fitted on recorded lives, and what its value depends
    on.
    """

    lives: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 2000
    """Lives to simulate, at least 1."""
    ticks: int = 16
    """Ticks of each life, 2 to 1024; a life that ends earlier is shorter."""

    least_ticks = 2


@dataclass(frozen=True, kw_only=True)
class ValidationOptions(SimulationOptions):
    """Make the edits of finished runs of intervene.py on recorded and in simulated ticks.

    What they do at once, in play, is compared with what the gradient predicts and with what they did in the game.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of finished runs of intervene.py on this policy."""
    ticks: int = 32
    """Ticks of each life, 5 to 1024: the first four do not count where edits are made in every tick."""

    least_ticks = SETTLING + 1

    def check(self) -> None:
        """See `QuestionOptions.check`."""
        super().check()
        if not self.runs:
            raise UserError("name folders of finished runs of intervene.py after the model")
        folders = [run.resolve() for run in self.runs]
        if twice := [str(run) for run, folder in zip(self.runs, folders, strict=True) if folders.count(folder) > 1]:
            raise UserError(f"{twice[-1]} is named twice")


@dataclass(frozen=True, kw_only=True)
class LaggedOptions(QuestionOptions):
    """A question about derivatives by earlier ticks."""

    lives: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 256
    """Lives to simulate, at least 1."""
    lags: int = 10
    """Ticks back to which it goes, 1 to 64."""

    def check(self) -> None:
        """See `QuestionOptions.check`."""
        super().check()
        check(self, lives=at_least(self.lives, 1), lags=between(self.lags, 1, 64))


@dataclass(frozen=True, kw_only=True)
class SaliencyOptions(LaggedOptions):
    """Differentiate a number of the last tick by the memory and the own row of earlier ticks.

    With and without passing through the world.
    """

    target: tyro.conf.Positional[str]
    """value, Move.Direction:north or Move.Direction:north-south, Attack.Style:melee, or direction:NAME."""
    directions: Path | None = None
    """directions.safetensors of a run on this policy; must be given."""
    components: str = "ic"
    """Comma-separated directions of the memory, or what comes before the number in their names: ic for all ic_N."""

    def check(self) -> None:
        """See `QuestionOptions.check`."""
        super().check()
        if self.directions is None:
            raise UserError("--directions names no file: give the directions.safetensors of a run on this policy")


@dataclass(frozen=True, kw_only=True)
class JacobiansOptions(LaggedOptions):
    """Compare how components move each other with their lagged correlations in each behaviour.

    With and without passing through the world; at lags 1, 2, 4 and so on, up to --lags.
    """

    run: tyro.conf.Positional[Path]
    """Finished run of analyze_dynamics.py on --dump."""


Command = (
    Annotated[LivesOptions, tyro.conf.subcommand("lives")]
    | Annotated[MovesOptions, tyro.conf.subcommand("moves")]
    | Annotated[SearchOptions, tyro.conf.subcommand("maximise")]
    | Annotated[QualityOptions, tyro.conf.subcommand("quality")]
    | Annotated[ComparisonOptions, tyro.conf.subcommand("compare")]
    | Annotated[ValidationOptions, tyro.conf.subcommand("validate")]
    | Annotated[SaliencyOptions, tyro.conf.subcommand("saliency")]
    | Annotated[JacobiansOptions, tyro.conf.subcommand("jacobians")]
)


def refuse_directions_by_number(arguments: list[str]) -> None:
    """Answer the options with which the original swapped directions by the edits that do the same here.

    Raises:
        UserError: one of them is given; the message says what to use.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for part in ("from", "to"):
        parser.add_argument(f"--swap-directions-{part}", f"--swap_directions_{part}", nargs="*", dest=part)
    given = vars(parser.parse_known_args(arguments)[0])
    origins, targets = given["from"], given["to"]
    if origins is None and targets is None:
        return
    numbered = []
    for number, origin in enumerate(origins or ["A"]):
        target = targets[number] if targets and number < len(targets) else "B"
        if target.lower() == "none":
            numbered.append(f"--edit collapse --direction ic_{origin} --change")
        else:
            numbered.append(f"--edit swap --from ic_{origin} --to ic_{target} --change")
    raise UserError(f"directions have names here; with those of analyze_dynamics.py, use {' '.join(numbered)}")
