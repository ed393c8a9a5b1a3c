"""What users ask for on the command line of `intervene.py`; loads nothing heavy."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from analysis.interventions.edits.edit_options import EditOptions
from common.argument_checks import split
from common.result_places import OutputPlace, result_folder

PATHS = ("heads", "hidden", "cell")
"""From a state that is edited to what comes of it: decisions of the same tick, and the memory that the next one has."""


@dataclass(frozen=True)
class RunOptions(EditOptions):
    """Arguments of intervene.py."""

    policy: Annotated[str | None, tyro.conf.arg(aliases=["-p"])] = None
    """Name of the policy in --policies-dir whose agents are edited."""
    directions: Path | None = None
    """directions.safetensors of a run of analyze_activations.py or train_probes.py on this policy."""
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
