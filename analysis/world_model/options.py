"""Every option of train_world_model.py and simulate.py; loads nothing heavy."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from analysis.interventions.edits.edit_options import EditOptions, check_features, check_together, needs_directions
from analysis.recorded.tracking import Wandb
from common.argument_checks import at_least, between, check, did_you_mean, result_name, seed_value, split
from common.result_places import OutputFolder
from common.user_error import UserError

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
    batch: int = 16
    """Windows in a batch, at least 2."""
    bottleneck: Literal["sphere", "gaussian"] = "sphere"
    """sphere: three ticks are squeezed to a vector of length 1, and vectors are spread over the sphere; gaussian: to a
    normal distribution, whose divergence from the standard one is reported."""
    hidden: int = 224
    """Units of the world's deterministic state, at least 8."""
    learning_rate: float = 1e-3
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


DIRECTIONS = ("north", "south", "east", "west", "stay")
"""Options of the game's Move.Direction, in order."""
MOST_STEPS = 128
SETTLING = 4
"""First ticks that do not count with --validate where edits are made in every tick: the memory moves to where edits
hold it. In the game, such ticks are few of a life's."""


_USUAL_LIVES: dict[str | None, int] = {
    "--act-grid": 64, "--maximise": 128, "--compare": 2000, "--validate": 256, "--saliency": 256, "--jacobians": 256,
}  # fmt: skip


@dataclass(frozen=True)
class SimulationOptions:
    """Arguments of simulate.py."""

    model: tyro.conf.Positional[Path]
    """World model: a folder written by train_world_model.py, or its model.safetensors."""
    lives: Annotated[int | None, tyro.conf.arg(aliases=["-n"])] = None
    """Lives to simulate, at least 1; by default 6000; 64 for each sequence with --act-grid, 128 with --maximise, 2000
    with --compare, 256 with --validate, --saliency
    and --jacobians."""
    beginning: Annotated[Literal["informed", "random", "interpolate"], tyro.conf.arg(name="from")] = "informed"
    """informed: go on from recorded ticks on maps that the model was not trained on; random: from the model's random
    starts; interpolate: from --steps points on the way from one recorded start to another. Give it before --edit, after
    which --from names a direction."""
    steps: int | None = None
    """Starts on each way of --from interpolate, both ends included, 2 to 128; by default 8."""
    ticks: int = 32
    """Ticks of each life, 1 to 1024; a life that ends earlier is shorter."""
    quality: bool = False
    """Measure how well each of --ticks ticks is predicted from recorded starts, beside copying the last tick seen.
    -n, --from, --act and --edit do not apply."""
    other_dice: int = 0
    """With --quality: recorded ticks from which the game itself is played on again, 0 to 4096; 0 for none. One agent of
    16 does the same again, while the dice of all others and of the game are thrown anew. How far that is from what was
    recorded bounds what any model can foresee: `--quality --other-dice 32` says whether a model is bad or the game is
    chance."""
    policies_dir: Path = Path("policies")
    """Folder of the recorded policy, for --other-dice."""
    maps_dir: Path = Path("maps")
    """Folder of generated maps, for --other-dice; those that are missing are generated."""
    act: str = ""
    """Comma-separated moves that every agent makes in its first ticks: north, south, east, west, stay, or policy for
    the policy's own choice."""
    act_grid: int = 0
    """Compare all sequences of the first moves, of this many ticks, 1 to 3, from the same starts; writes a table, and
    no dump."""
    maximise: str | None = None
    """value, or the name of a direction in --directions: search random starts for those where it is largest, and
    simulate from there. Needs --from random."""
    compare: bool = False
    """Compare the policy in simulated and in recorded lives of the same starts: scores of probes of its memory and
    shares of clusters that were fitted on recorded lives, and what its value depends on. Writes a table, and no
    dump."""
    validate: tuple[Path, ...] = ()
    """Folders of finished runs of intervene.py on this policy: make the same edits on recorded and in simulated ticks,
    and compare what they do at once, in play, with what the gradient predicts and with what they did in the game.
    Writes a table, and no dump."""
    saliency: str | None = None
    """Differentiate a number of the last tick of simulated lives by the memory's --components and by the own row, up to
    --lags ticks before, with and without passing through the world: value, Move.Direction:north or
    Move.Direction:north-south, Attack.Style:melee, or direction:NAME. Writes tables, and no dump."""
    components: str = "ic"
    """Comma-separated directions of the memory for --saliency, or what comes before the number in their names: ic for
    all ic_N."""
    jacobians: Path | None = None
    """Finished run of analyze_dynamics.py on --dump: how its independent components move each other in
    simulated lives, with and without passing through the world, and how often that has the sign of their lagged
    correlations in each behaviour. Writes tables, and no dump."""
    lags: int = 10
    """Ticks back to which --saliency goes, 1 to 64; --jacobians takes lags 1, 2, 4 and so on, up to it."""
    directions: Path | None = None
    """directions.safetensors of a run of analyze_activations.py, analyze_dynamics.py or train_probes.py on this
    policy, for --edit, --maximise and --saliency."""
    features: Path | None = None
    """Dictionary of sparse features that train_sparse_autoencoder.py wrote, such as RUN/topk_8x_k32.safetensors, for
    --edit collapse, steer and splice."""
    dump: Path | None = None
    """Recorded dump of the model's policy to start from; by default activation_data/ and the name of the dump that the
    model was trained on. Only episodes on maps that the model was not trained on are used."""
    seed: int = 0
    """Seed of starts, actions and latent states, 0 to 4294967295."""
    name: str | None = None
    """Name of the dump's folder; by default that of the recorded dump followed by -simulated."""
    output_dir: OutputFolder = field(default=Path("activation_data"))
    """Folder that --name goes into."""
    edits: tyro.conf.Suppress[tuple[EditOptions, ...]] = field(default=())
    """Edits of the policy, each with the options after its --edit."""

    def check(self) -> None:
        """Refuse values that make no sense.

        Raises:
            UserError: names the option, and the allowed values.
        """
        check(
            self,
            name=result_name(self.name),
            lives=at_least(self.lives, 1),
            ticks=between(self.ticks, 1, 1024),
            seed=seed_value(self.seed),
            act_grid=between(self.act_grid, 0, min(3, self.ticks)),
            lags=between(self.lags, 1, 64),
            other_dice=between(self.other_dice, 0, 4096),
            steps=between(2 if self.steps is None else self.steps, 2, MOST_STEPS),
        )
        self._check_modes()
        if len(self.moves) > self.ticks:
            raise UserError(f"--act names {len(self.moves)} moves, more than --ticks {self.ticks}")
        self._check_edits()

    def _check_edits(self) -> None:
        for edit in self.edits:
            if edit.edit != "swap" and edit.origin in ("informed", "random", "interpolate"):
                raise UserError(f"--from {edit.origin} belongs before --edit, after which --from names a direction")
        check_together(self.edits, "simulation")
        check_features(self.edits, self.features)
        named = any(needs_directions(edit, self.features) for edit in self.edits)
        named = named or self.maximise not in (None, "value") or self.saliency is not None
        if named and self.directions is None:
            raise UserError("--directions names no file: give the directions.safetensors of a run on this policy")
        if self.directions is not None and not named:
            raise UserError("--directions does nothing here: name one, as in --edit collapse --direction NAME")

    def _check_modes(self) -> None:
        given = self._questions
        if len(given) > 1:
            raise UserError(f"{' and '.join(given)} cannot go together: give one of them")
        alone = bool(set(given) - {"--edit"})
        if alone and self.act:
            raise UserError(f"--act does nothing with {given[0]}: leave it out")
        if self.maximise is not None and self.beginning != "random":
            raise UserError("--maximise searches random starts: add --from random")
        if set(given) - {"--edit", "--act-grid", "--maximise"} and self.beginning != "informed":
            raise UserError(f"{given[0]} needs recorded starts: leave out --from {self.beginning}")
        if self.other_dice and not self.quality:
            raise UserError("--other-dice does nothing without --quality: leave it out")
        if self.steps is not None and self.beginning != "interpolate":
            raise UserError("--steps does nothing without --from interpolate: leave it out")
        if self.compare and self.ticks < 2:
            raise UserError(f"--ticks is {self.ticks}: must be 2 or more with --compare")
        if self.validate and self.ticks <= SETTLING:
            raise UserError(f"--ticks is {self.ticks}: must be {SETTLING + 1} or more with --validate")
        if self.saliency is None and self.components != "ic":
            raise UserError("--components does nothing without --saliency: leave it out")
        if self.saliency is None and self.jacobians is None and self.lags != 10:
            raise UserError("--lags does nothing without --saliency or --jacobians: leave it out")
        if twice := [str(run) for run in self.validate if self.validate.count(run) > 1]:
            raise UserError(f"--validate names {twice[0]} twice")
        if self.beginning == "interpolate" and self.wanted % self.ways_steps:
            raise UserError(f"-n is {self.wanted}: must be a multiple of --steps {self.ways_steps}")

    @property
    def _questions(self) -> list[str]:
        questions = {
            "--quality": self.quality, "--compare": self.compare, "--act-grid": self.act_grid,
            "--maximise": self.maximise is not None, "--edit": self.edits, "--validate": self.validate,
            "--saliency": self.saliency is not None, "--jacobians": self.jacobians is not None,
        }  # fmt: skip
        return [name for name, given in questions.items() if given]

    @property
    def question(self) -> str | None:
        """The option that decides what is asked; None for lives of the policy alone."""
        return next(iter(self._questions), None)

    @property
    def wanted(self) -> int:
        """Lives to simulate, of each sequence with --act-grid."""
        usual = _USUAL_LIVES.get(self.question, 6000)
        return self.lives or usual // self.ways_steps * self.ways_steps

    @property
    def ways_steps(self) -> int:
        """Interpolated starts on each way; 1 where none are."""
        return (self.steps or 8) if self.beginning == "interpolate" else 1

    @property
    def moves(self) -> tuple[int | None, ...]:
        """Options of the first ticks; None where the policy chooses.

        Raises:
            UserError: there is no such move.
        """
        numbers: list[int | None] = []
        for move in split(self.act):
            if move not in (*DIRECTIONS, "policy"):
                hint = did_you_mean(move, DIRECTIONS)
                raise UserError(f"--act names {move!r}: must be {', '.join(DIRECTIONS)} or policy{hint}")
            numbers.append(None if move == "policy" else DIRECTIONS.index(move))
        return tuple(numbers)


def refuse_directions_by_number(arguments: list[str]) -> None:
    """Answer the options with which the original swapped directions by the edits that do the same here.

    Raises:
        UserError: one of them is given; the message says what to use.
    """
    origins, targets = (_numbers(arguments, f"--swap-directions-{part}") for part in ("from", "to"))
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


def _numbers(arguments: list[str], option: str) -> list[str] | None:
    """The values after an option, which may be written with underscores; None if it is not given."""
    for place, argument in enumerate(arguments):
        name, _, value = argument.partition("=")
        if name.replace("_", "-") == option:
            numbers = [value] if value else []
            for following in arguments[place + 1 :]:
                if following.startswith("-"):
                    break
                numbers.append(following)
            return numbers
    return None
