"""What users ask for on the command line of `intervene.py` and `simulate.py`: edits and runs; loads nothing heavy.

And the features of agents that edits name: the tick, and the columns of an agent's own row in the game.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro

from activation_store.layers import LSTM_HIDDEN, check_layers
from activation_store.sparse_dictionary import FEATURE
from common.argument_checks import did_you_mean, split
from common.result_places import OutputPlace, result_folder
from common.user_error import UserError

OWN = "self_"
TICK = "tick"
GOAL = "goal"
"""A column after those of the game, where agents play: the side of the map that an agent's task is to go to, 0 to 3 for
north, south, east and west; -1 for another task."""


def check_feature(prefix: str, feature: str, columns: Sequence[str]) -> None:
    """Refuse a feature that agents do not have: they have `tick`, and `self_` with each column."""
    known = [TICK, *(OWN + column for column in columns)]
    if feature not in known:
        raise UserError(f"{prefix}: there is no feature {feature!r}{did_you_mean(feature, known)}")


def feature_values(feature: str, rows: np.ndarray, columns: Sequence[str], tick: int | np.ndarray) -> np.ndarray:
    """Return the true values of a feature, (B,).

    Args:
        rows: the agents' own rows in the game, (B, columns).
        tick: of the episode, from 0; or (B,).
    """
    if feature == TICK:
        return np.full(len(rows), tick)
    return rows[:, list(columns).index(feature.removeprefix(OWN))]


EditKind = Literal["collapse", "steer", "swap", "erase", "clear", "freeze", "transplant", "interchange", "splice"]
Along = Literal["weights", "covariance"]
_NEEDS_DIRECTION = ("collapse", "steer", "interchange")
_NEEDS_DONOR = ("transplant", "interchange")
_HAS_EVERY = ("clear", "transplant")


@dataclass(frozen=True)
class EditOptions:
    """One edit; `--edit` can be repeated, each time followed by its own options, and the edits are applied together."""

    edit: EditKind = "clear"
    """collapse: hold the read-outs of --direction at their means; steer: hold one at its mean plus --dose standard
    deviations; splice: replace states by what the sparse features of --features make of them; swap: move what varies
    along --from to --to; erase: remove what can be read linearly about --variable from --layer; clear: empty the memory
    every --every ticks; freeze: begin every tick with the memory from when the edit began; transplant: begin every
    --every ticks with a donor's memory; interchange: give the read-outs of --direction the values that they have in a
    donor's state. Sparse features are taken out by collapse, and get the strength --dose by steer."""
    direction: str | None = None
    """Comma-separated names of directions, for collapse, steer and interchange; with --features, for collapse and steer
    also of sparse features such as feature_12."""
    origin: Annotated[str | None, tyro.conf.arg(name="from")] = None
    """Direction that swap empties: `--edit swap --from ic_3 --to ic_5` lets agents that would have read high along ic_3
    read high along ic_5 instead."""
    target: Annotated[str | None, tyro.conf.arg(name="to")] = None
    """Direction that swap adds to."""
    change: bool = False
    """Edit what a tick adds to the state instead of the state, for collapse and swap: `--edit collapse --direction tick
    --change` lets the clock stop where it is, where without --change it is set to its mean."""
    dose: str | None = None
    """Comma-separated doses of steer, each an arm: in standard deviations of the read-out, such as -2,0,2; of a sparse
    feature its strength in activation units, such as 0,2,5."""
    variable: str | None = None
    """Comma-separated variables that erase removes: tick, or self_ and a column of the agent's own row, such as
    self_food; also if its policy does not see the value."""
    layer: str | None = None
    """Layer that erase removes them from, such as lstm_cell; by default lstm_hidden."""
    every: int = 1
    """Edited ticks from one emptying of the memory, or one transplant, to the next, at least 1."""
    along: Along = "weights"
    """How states are moved to change a read-out, for collapse, steer and interchange. weights: along the direction
    itself, the shortest way, which may lead where no state ever is; covariance: along what goes with the read-out in
    unedited states, so that edited states look like states that occur."""
    donor: str | None = None
    """For transplant and interchange: the feature by which donors are chosen. With --donor self_food a hungry agent
    takes from one that is full, and the other way round; with self_goal, the side of the map that is its task, from one
    that goes to another side. Features are named as in --while."""

    @property
    def names(self) -> tuple[str, ...]:
        """The directions that it names."""
        if self.edit == "swap":
            return (self.origin or "", self.target or "")
        return split(self.direction)

    @property
    def of_features(self) -> bool:
        """Whether it is about sparse features, if there is a dictionary of them."""
        named = bool(self.names) and all(name.startswith(FEATURE) for name in self.names)
        return self.edit == "splice" or (self.edit in ("collapse", "steer") and named)

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that it erases."""
        return split(self.variable)

    @property
    def erased_layer(self) -> str | None:
        """The layer from which it erases them; None if it erases nothing."""
        return (self.layer or LSTM_HIDDEN) if self.edit == "erase" else None

    @property
    def doses(self) -> tuple[float, ...]:
        """The doses.

        Raises:
            UserError: one of them is no number, or two are equal.
        """
        try:
            doses = tuple(float(dose) for dose in split(self.dose))
        except ValueError:
            raise UserError(f"--dose is {self.dose}: must be comma-separated numbers, such as -2,0,2") from None
        if not all(abs(dose) < float("inf") for dose in doses):
            raise UserError(f"--dose is {self.dose}: must be finite numbers")
        if len(set(doses)) < len(doses):
            raise UserError(f"--dose is {self.dose}: names a dose twice")
        return doses

    def check(self) -> None:
        """Refuse options that the edit needs and does not have, or has and does not need.

        Raises:
            UserError: names the option.
        """
        if self.edit in _NEEDS_DIRECTION and not self.names:
            raise UserError(f"--edit {self.edit} needs --direction with the name of a direction")
        if self.edit == "steer" and (len(self.names) > 1 or not self.doses):
            raise UserError("--edit steer needs one --direction, and --dose with numbers such as -2,0,2")
        if self.edit == "swap" and not (self.origin and self.target and self.origin != self.target):
            raise UserError("--edit swap needs two different directions, --from and --to")
        if self.edit == "erase":
            if not self.variables:
                raise UserError("--edit erase needs --variable with the name of a variable, such as tick or self_food")
            if len(set(self.variables)) < len(self.variables):
                raise UserError(f"--variable is {self.variable}: names a variable twice")
            check_layers([str(self.erased_layer)])
        if self.edit in _NEEDS_DONOR and not self.donor:
            raise UserError(f"--edit {self.edit} needs --donor with the name of a feature, such as self_food")
        needless = {
            "--direction": self.direction is not None and self.edit not in _NEEDS_DIRECTION,
            "--from": self.origin is not None and self.edit != "swap",
            "--to": self.target is not None and self.edit != "swap",
            "--dose": self.dose is not None and self.edit != "steer",
            "--change": self.change and self.edit not in ("collapse", "swap"),
            "--variable": self.variable is not None and self.edit != "erase",
            "--layer": self.layer is not None and self.edit != "erase",
            "--every": self.every != 1 and self.edit not in _HAS_EVERY,
            "--along": self.along != "weights"
            and (self.edit not in _NEEDS_DIRECTION or self.of_features or self.change),
            "--donor": self.donor is not None and self.edit not in _NEEDS_DONOR,
        }
        for option, is_needless in needless.items():
            if is_needless:
                raise UserError(f"{option} does nothing with --edit {self.edit}: leave it out")
        if self.every < 1:
            raise UserError(f"--every is {self.every}: must be 1 or more")


def check_features(edits: Sequence[EditOptions], features: Path | None, *, used_elsewhere: bool = False) -> None:
    """Refuse --features that nothing uses, and edits that lack it or do not go with it.

    Args:
        features: the dictionary's file; None if there is none.
        used_elsewhere: whether something besides the edits names a sparse feature.

    Raises:
        UserError: names the option.
    """
    named = any(name.startswith(FEATURE) for edit in edits for name in edit.names)
    spliced = any(edit.edit == "splice" for edit in edits)
    if features is None:
        if spliced:
            raise UserError("--edit splice needs --features with a dictionary that train_sparse_autoencoder.py wrote")
        return
    if any(edit.change and edit.of_features for edit in edits):
        raise UserError(
            "--change does nothing with sparse features, whose strengths are those of a state: leave it out"
        )
    if not (named or spliced or used_elsewhere):
        raise UserError("--features does nothing here: name a feature, as in --direction feature_12, or --edit splice")


def check_together(edits: Sequence[EditOptions], kind: str) -> None:
    """Check each edit, and refuse edits that cannot be made together.

    Args:
        kind: what makes them, such as run.

    Raises:
        UserError: names the option, or the layer from which two edits erase.
    """
    for edit in edits:
        edit.check()
    if sum(bool(edit.doses) for edit in edits) > 1:
        raise UserError(f"only one edit can have several --dose: give the others in a {kind} of their own")
    erased = [edit.erased_layer for edit in edits if edit.erased_layer]
    for layer in erased:
        if erased.count(layer) > 1:
            raise UserError(
                f"two edits erase from {layer}: name all its variables in one, as in --variable tick,self_food"
            )


def needs_directions(edit: EditOptions, features: Path | None) -> bool:
    """Tell whether an edit names directions, given the file of a dictionary of sparse features."""
    return bool(edit.names) and not (features is not None and edit.of_features)


def separate_edits(arguments: Sequence[str], kept: int = 1) -> tuple[list[str], list[list[str]]]:
    """Separate the options of the second and further edits from the rest of a command line.

    A dose that begins with a minus is joined to its option, since it would pass for an option itself.

    Args:
        kept: number of edits whose options stay on it; 0 separates those of the first edit too.

    Returns:
        The command line without them, and the options of each other edit, beginning with `--edit`.
    """
    joined: list[str] = []
    for argument in arguments:
        if joined and joined[-1] == "--dose":
            joined[-1] = f"--dose={argument}"
        else:
            joined.append(argument)
    own = {"--" + name for option in fields(EditOptions) for name in (_OPTION_NAMES.get(option.name, option.name),)}
    flags = {"--change"}
    first, further, blocks = list[str](), list[list[str]](), 0
    block: list[str] | None = None
    waiting = False  # for the value of an option of a further edit
    for argument in joined:
        name, has_value = argument.partition("=")[0], "=" in argument
        if name == "--edit":
            blocks += 1
            block = [] if blocks > kept else None
            if block is not None:
                further.append(block)
        if block is not None and (name in own or waiting):
            block.append(argument)
            waiting = not waiting and name in own and not has_value and name not in flags
        else:
            first.append(argument)
    return first, further


_OPTION_NAMES = {"origin": "from", "target": "to"}
"""Options whose name is not their field's."""


PATHS = ("heads", "hidden", "cell")
"""From a state that is edited to what comes of it: decisions of the same tick, and the memory that the next one has."""


@dataclass(frozen=True)
class RunOptions(EditOptions):
    """Arguments of intervene.py."""

    policy: Annotated[str | None, tyro.conf.arg(aliases=["-p"])] = None
    """Name of the policy in --policies-dir whose agents are edited."""
    directions: Path | None = None
    """File of directions that were found in this policy, such as directions.safetensors of a run of train_probes.py,
    analyze_activations.py or analyze_dynamics.py, or of --learn."""
    features: Path | None = None
    """Dictionary of sparse features that train_sparse_autoencoder.py wrote, such as RUN/topk_8x_k32.safetensors."""
    episodes: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 10
    """Number of episodes of each arm, at least 2; intervals are over episodes."""
    max_steps: int | None = None
    """Maximum number of ticks per episode, at least 1; by default the whole episode. Agents that are alive then do not
    count as dead."""
    seed: int = 0
    """Seed of the episodes, of who is edited, and of the random controls."""
    share: float = 0.125
    """Share of the agents of each world that are edited, above 0 and at most 1; drawn at random for each episode."""
    controls: int = 8
    """Arms of each kind of random control, for every dose and every direction of --one-by-one, 0 or more. Directions
    differ, so an edit must lie beyond what one more of them may do: 2.5 of their standard deviations from their mean
    with 8 arms, 3.0 with 5, 5.0 with 3, 15.6 with 2, before the correction for many tests. One is no control. What is
    measured at once in play is compared with 20 random directions of each kind, unless this is 0."""
    equivalent_within: str = ""
    """Effects smaller than this do not matter: outcomes whose effect is shown to be smaller are called equivalent to
    none. A number is in standard deviations over lives in the twin; OUTCOME=X in the outcome's own unit, such as
    `0.1,ticks=10`; `follows=0.05` and `bend=0.2` are for shares that follow a variable and tiles of bent paths."""
    one_by_one: bool = False
    """Edit each of --direction in arms of its own, and rank them by how far they move the actions at once, in total;
    for one --edit collapse or interchange. All directions share the unedited arms, and q is corrected over all of
    them."""
    from_tick: int = 0
    """First tick of the episode in which agents are edited."""
    until_tick: int | None = None
    """First tick in which they no longer are; by default they are edited until the episode ends."""
    condition: Annotated[str | None, tyro.conf.arg(name="while")] = None
    """Edit only while this holds for the agent, such as 'self_food < 30'; also if its policy does not see the value.
    With --features also 'feature_12 > 3': the strength in the memory with which the tick begins. Or a file of points
    that the explorer saved, such as selection.json: while the memory with which the tick begins is like theirs."""
    through: str = ""
    """Comma-separated paths along which edits of states act, all others being held as they would be without the edit:
    heads, what the action heads read in the same tick; hidden, the hidden states that the next tick reads; cell, the
    cells that it keeps. By default all."""
    follow: int = 0
    """Also make the edit in single ticks, in arms of their own, and say what is left of it in each of this many ticks
    after it; 0 for none. The policy needs a memory."""
    record: str = ""
    """Comma-separated layers, or `all`: also write activation dumps of the unedited and of the edited arms of the
    trained policy, with the activations after the edit, to dumps/ in the run's folder."""
    name: str | None = None
    """Name of the run's folder; by default made of the policy and the edits."""
    output: OutputPlace = None
    """Folder that --name goes into, by default interventions; without --name, the run's folder itself."""
    resume: bool = False
    """Continue an interrupted run with the same arguments; the result is the same as without the interruption."""
    vectorization: Literal["multiprocessing", "ray"] = "multiprocessing"
    """multiprocessing: play in worker processes on this machine; ray: on a Ray cluster. The results are the same."""
    ray_address: str = "local"
    """Cluster for ray: local, auto or HOST:PORT, as in extract_activations.py."""
    workers: int = 0
    """Worker processes, with four worlds each; 0 uses one per core of the machine or cluster."""
    map_seed: int | None = None
    """Seed of the maps; by default maps that the policy was not trained on."""
    food_regrowth: float | None = None
    """How fast eaten food grows back, as a multiple of the game's rate, 0 to 40; by default as in training."""
    policies_dir: Path = Path("policies")
    """Folder of trained policies."""
    maps_dir: Path = Path("maps")
    """Folder of generated maps."""
    embeddings_dir: Path = Path("task_embeddings")
    """Cache folder for task embeddings computed by language models; files of embeddings are looked for here, too."""
    embeddings: Annotated[str | None, tyro.conf.arg(name="task.embeddings")] = None
    """File of task embeddings for a policy that was trained on one, such as an imported one; by default that which it
    was trained or imported with."""
    further: tyro.conf.Suppress[tuple[EditOptions, ...]] = field(default=())
    """The edits after the first."""

    @property
    def edits(self) -> tuple[EditOptions, ...]:
        """All edits, in their order."""
        return (self, *self.further)

    @property
    def steered(self) -> tuple[float, ...]:
        """Doses of the edit that steers, in standard deviations of its read-out; empty if none does."""
        return next((edit.doses for edit in self.edits if edit.doses), ())

    @property
    def selection(self) -> Path | None:
        """The file of points that --while names, if it does."""
        text = (self.condition or "").strip()
        return Path(text) if text.endswith(".json") else None

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths along which edits of states act, as in `PATHS`."""
        return split(self.through) or PATHS

    @property
    def folder(self) -> Path:
        """The run's folder."""
        words = [str(self.policy)]
        for edit in self.edits:
            words += [edit.edit, *(name.replace("/", "_") for name in (*edit.names, *edit.variables))]
            dictionary = self.features.stem if edit.edit == "splice" and self.features else None
            along = edit.along if edit.along != "weights" else None
            words += filter(None, (dictionary, edit.erased_layer, "change" if edit.change else None, along, edit.donor))
        words += ["one-by-one"] if self.one_by_one else []
        words += ["through", *self.paths] if self.through else []
        return result_folder(self.output, self.name, Path("interventions") / "-".join(words))
