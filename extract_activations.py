"""Record the hidden activations of a trained policy together with its observations and actions.

    python extract_activations.py --list                            # list the available policies
    python extract_activations.py --smoke-test                      # check the setup; needs no policy
    python extract_activations.py pve -p NAME --record standard     # policies/NAME plays; for every analysis
    python extract_activations.py pve -p NAME -o activation_data    # the action decoder alone, for the original tools
    python extract_activations.py pvp -p A,B --record standard      # A and B share worlds; one dump for each
    python extract_activations.py pve -p NAME --checkpoint all      # every training checkpoint of NAME

The dump in activation_data/NAME/ consists of metadata.json and activations.json, with one record per living agent and
tick, or with --record standard one parquet file per episode. Continue an interrupted extraction with --resume.
"""

import common.environment_check  # isort: skip  # noqa: F401 (must come first)

import tempfile
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from activation_store.layers import check_layers
from activation_store.recording import FIELDS, RECORDINGS, Record
from activation_store.schema import Format
from agent_zoo.checkpoint_files import policy_names
from common import argument_checks, command_line
from common.argument_checks import (
    MOST_MAP_SEED,
    at_least,
    between,
    did_you_mean,
    regrowth_value,
    result_name,
    seed_value,
    split,
)
from common.result_places import OutputFolder
from common.user_error import UserError
from reinforcement_learning.play.workers import Vectorization, Workers, chosen_device, chosen_workers
from reinforcement_learning.run_settings import Protocol

if TYPE_CHECKING:
    from reinforcement_learning.play.extraction import RecordingPlan
    from reinforcement_learning.play.subjects import Subjects

SMOKE_TEST_TICKS = 20


@dataclass(frozen=True)
class Arguments:
    """Arguments of extract_activations.py."""

    mode: Annotated[Literal["pve", "pvp"] | None, tyro.conf.Positional] = None
    """pve: each policy in turn plays all agents of a world; pvp: the policies share worlds."""
    policies: Annotated[str | None, tyro.conf.arg(aliases=["-p"])] = None
    """Comma-separated names of policies: NAME stands for NAME.safetensors in --policies-dir."""
    checkpoint: str | None = None
    """Record a training checkpoint: the one after this many agent-steps, or `all`. Checkpoints are looked up in
    runs/NAME/checkpoints/ and in checkpoints/ of the policies folder."""
    record: Record = "activations"
    """What to record. standard: what all analyses read: every layer, an untrained network beside it, and all that the
    policy sees, in parquet. everything: the logits too. activations: what the original tools read, the action decoder
    alone, in JSON. Single parts can be chosen with --layers, --fields, --format and -n."""
    output: OutputFolder = Path("activation_data")
    """Folder that the dumps go into."""
    name: str | None = None
    """Name of the dump's folder; by default that of the policy. With several policies, followed by - and the policy."""
    episodes: Annotated[int | None, tyro.conf.arg(aliases=["-n"])] = None
    """Episodes to play, at least 1, each of at most the world's horizon (1,024 ticks by default); by default 4, and 8
    with --record standard or everything, which probes need."""
    max_steps: int | None = None
    """Maximum number of ticks per episode, at least 1; by default the whole episode."""
    seed: Annotated[int, tyro.conf.arg(aliases=["-s"])] = 1
    """Seed of the episodes and actions, 0 to 4294967295."""
    map_seed: int | None = None
    """Seed of the maps, 0 to 1073741824. By default one more than in training: maps that are new to the policy."""
    food_regrowth: float | None = None
    """How fast eaten food grows back, as a multiple of the game's rate, 0 to 40; by default as in training."""
    random_actions: float = 0
    """Probability, 0 to 1, that an agent acts at random in a tick: in every action head it then takes one of its legal
    options at random. Its memory goes on reading what it sees."""
    layers: str | None = None
    """Comma-separated layers, instead of those of --record: encoder_output, lstm_hidden, lstm_cell, action_decoder, or
    `all`. lstm_hidden is the hidden state of any memory (LSTM, GRU or moving averages); only an LSTM has an lstm_cell.
    With several layers of memory, these are those of the last one; lstm_hidden_1 and lstm_cell_1 are those of the
    first, and so on."""
    untrained_twin: bool = False
    """Also record the memory of an untrained network of the same architecture (weights drawn with --seed) on the
    same observations: untrained_lstm_hidden, and of an LSTM untrained_lstm_cell."""
    shadow_networks: str = ""
    """Likewise record the memory of the policy's training checkpoints, as steps_NUMBER_lstm_hidden and _cell:
    comma-separated numbers of agent-steps, or `all`."""
    fields: str | None = None
    """Comma-separated optional fields, instead of those of --record: Market, Task (its embedding), ActionTargets (the
    legal actions), Logits."""
    format: Format | None = None
    """Format of the dump, instead of that of --record: json is readable by the original tools; parquet is about a
    seventh of the size and reads faster."""
    precision: Literal["float32", "float16"] = "float32"
    """Precision of the activations: float32 is exact; float16 (parquet only) halves their size and rounds them; the
    metadata state the error."""
    resume: bool = False
    """Continue unfinished dumps of the same plan; the result is the same as without the interruption."""
    vectorization: Vectorization = "multiprocessing"
    """multiprocessing: play in worker processes on this machine; ray: in worker processes on a Ray cluster, one core
    each. This process writes the dump, which is the same."""
    ray_address: str = "local"
    """Cluster for ray: local starts one on this machine for the run; auto uses the one that this machine belongs to;
    HOST:PORT is the address of a head node."""
    num_envs: int = 0
    """Worlds that run in parallel, four per process; 0 lets --workers decide."""
    workers: int = 0
    """Worker processes, with four worlds each; 0 uses one per core of the machine or cluster."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the networks run; auto uses a GPU if there is one, except on Ray, which plays on CPUs."""
    curriculum: Annotated[str | None, tyro.conf.arg(aliases=["-c"])] = None
    """Tasks given to agents: training, evaluation, survival, two_ways, four_ways, to_water or a YAML file; by default
    those the policy trained on."""
    task: Annotated[str | None, tyro.conf.arg(aliases=["-t"])] = None
    """Give every agent this one task of the curriculum: its number, its name, or a part of its name that is unique."""
    protocol: Protocol = "toolkit"
    """Rules of play. original: those of the published evaluations, as `evaluate.py --protocol original` plays, with the
    held-out tasks by default. Analyses that follow a memory from an empty start refuse such dumps."""
    policies_dir: Path = Path("policies")
    """Folder of trained policies."""
    runs_dir: Path = Path("runs")
    """Folder of training runs, for --checkpoint."""
    maps_dir: Path = Path("maps")
    """Folder of generated maps."""
    embeddings_dir: Path = Path("task_embeddings")
    """Cache folder for task embeddings computed by language models; files of embeddings are looked for here, too."""
    embeddings: Annotated[str | None, tyro.conf.arg(name="task.embeddings")] = None
    """File of task embeddings for policies that were trained on one, such as imported ones; by default that which they
    name."""
    list: bool = False
    """List the available policies, the shipped ones and your own, and exit."""
    smoke_test: bool = False
    """Record an untrained policy on a small map for 20 ticks, read the dump back, and exit."""


def main() -> None:
    """Parse, and list, test or extract."""
    arguments = command_line.parse(Arguments, __doc__)
    check(arguments)
    workers = chosen_workers(arguments.vectorization, arguments.ray_address, arguments.workers, arguments.num_envs)
    device = chosen_device(arguments.device, arguments.vectorization)
    if arguments.list:
        from agent_zoo.checkpoint import print_policies

        print_policies(arguments.policies_dir)
    elif arguments.smoke_test:
        smoke_test(arguments, workers, device)
    else:
        extract_policies(arguments, workers, device)


def check(arguments: Arguments) -> None:
    """Refuse invalid arguments before anything is loaded."""
    argument_checks.check(
        arguments,
        name=result_name(arguments.name),
        episodes=at_least(arguments.episodes, 1),
        max_steps=at_least(arguments.max_steps, 1),
        seed=seed_value(arguments.seed),
        map_seed=between(arguments.map_seed if arguments.map_seed is not None else 0, 0, MOST_MAP_SEED),
        food_regrowth=regrowth_value(arguments.food_regrowth),
        random_actions=between(arguments.random_actions, 0, 1),
        num_envs=at_least(arguments.num_envs, 0),
        workers=at_least(arguments.workers, 0),
        layers=(arguments.layers is None or bool(split(arguments.layers)), "at least one layer"),
        checkpoint=(_is_steps(arguments.checkpoint), "a number of agent-steps, or all"),
        shadow_networks=(
            all(map(_is_steps, split(arguments.shadow_networks))), "comma-separated numbers of agent-steps, or all",
        ),
    )  # fmt: skip
    if split(arguments.layers) != ("all",):
        check_layers(split(arguments.layers))
    for name in split(arguments.fields):
        if name not in FIELDS:
            hint = did_you_mean(name, FIELDS)
            raise UserError(f"there is no optional field {name!r}; there are: {', '.join(FIELDS)}{hint}")
    if arguments.protocol == "original":
        for name in ("map_seed", "untrained_twin", "shadow_networks"):
            if getattr(arguments, name) not in (None, False, ""):
                raise UserError(f"--protocol original cannot have --{name.replace('_', '-')}: leave it out")
    if arguments.precision == "float16" and _format(arguments) == "json":
        raise UserError("--precision float16 needs --format parquet: JSON holds float32 only")
    if arguments.smoke_test and split(arguments.policies):
        raise UserError(
            "--smoke-test plays an untrained policy of its own, not that of -p: leave out either; "
            "`extract_activations.py pve -p NAME -n 1 --max-steps 20` records 20 ticks of NAME"
        )
    if not (arguments.list or arguments.smoke_test):
        if arguments.mode is None or not split(arguments.policies):
            raise UserError("say what to extract: `extract_activations.py pve -p NAME`, or --list, or --smoke-test")
        if arguments.checkpoint is None:
            policy_names(arguments.policies_dir, split(arguments.policies))


def _is_steps(text: str | None) -> bool:
    return text is None or text == "all" or text.isdecimal()


def smoke_test(arguments: Arguments, workers: Workers, device: str) -> None:
    """Record an untrained policy in a temporary folder and read it back."""
    from activation_store.reader import read_dump
    from agent_zoo.capture import ALL_LAYERS
    from reinforcement_learning.play.extraction import RecordingPlan, extract
    from reinforcement_learning.play.subjects import smoke_test_contest

    with tempfile.TemporaryDirectory() as scratch:
        dump = Path(scratch) / "smoke_test"
        contest = smoke_test_contest(arguments.seed, Path(scratch) / "maps", device)
        plan = RecordingPlan(1, SMOKE_TEST_TICKS, arguments.seed, ALL_LAYERS, format=_format(arguments))
        extract(contest, plan, [dump], workers, on_records=lambda recorded, episodes: None)
        records = read_dump(dump)
    print(f"smoke test passed: {len(records)} records of {len(records.activations)} layers written and read back")


def extract_policies(arguments: Arguments, workers: Workers, device: str) -> None:
    """Play episodes with trained policies and write a dump of each."""
    from activation_store.writer import refuse_existing_dump
    from reinforcement_learning.play.contest import make_maps
    from reinforcement_learning.play.extraction import extract, extraction_progress
    from reinforcement_learning.play.parallel_play import processes_of
    from reinforcement_learning.play.subjects import contests, expected_size, other_sizes

    processes_of(workers)  # refuses a cluster that does not answer or is too small
    plan = _plan(arguments)
    planned = contests(_subjects(arguments), plan.seed, device)
    places = _places(arguments, [[entrant.name for entrant in contest.entrants] for contest in planned])
    for folder in chain(*places):
        refuse_existing_dump(folder, arguments.resume)
    for contest in planned:
        make_maps(contest.env, [plan.seed], plan.episodes)
    for contest, folders in zip(planned, places, strict=True):
        print(expected_size(contest, plan, arguments.output))
        print(other_sizes(contest, plan, arguments.untrained_twin))
        most_ticks = min(contest.env.horizon, plan.most_ticks or contest.env.horizon)
        with extraction_progress(most_ticks) as on_records:
            extract(contest, plan, folders, workers, on_records, resume=arguments.resume)
        for folder in folders:
            print(f"dump: {folder}")


def _subjects(arguments: Arguments) -> "Subjects":
    from reinforcement_learning.play.subjects import Subjects

    twin = RECORDINGS[arguments.record].untrained_twin and arguments.protocol == "toolkit"
    steps = arguments.checkpoint
    return Subjects(
        names=split(arguments.policies),
        mode=arguments.mode or "pve",
        checkpoint="trained" if steps is None else "all" if steps == "all" else int(steps),
        untrained_twin="of memories" if twin and not arguments.untrained_twin else arguments.untrained_twin,
        shadow_steps=tuple(None if steps == "all" else int(steps) for steps in split(arguments.shadow_networks)),
        curriculum=arguments.curriculum,
        task=arguments.task,
        map_seed=arguments.map_seed,
        food_regrowth=arguments.food_regrowth,
        policies_dir=arguments.policies_dir,
        runs_dir=arguments.runs_dir,
        maps_dir=arguments.maps_dir,
        embeddings_dir=arguments.embeddings_dir,
        random_actions=arguments.random_actions,
        embeddings=arguments.embeddings,
        protocol=arguments.protocol,
    )


def _plan(arguments: Arguments) -> "RecordingPlan":
    """Return what --record stands for, with the parts that were chosen by themselves."""
    from reinforcement_learning.play.extraction import RecordingPlan

    record = RECORDINGS[arguments.record]
    return RecordingPlan(
        arguments.episodes or record.episodes, arguments.max_steps, arguments.seed,
        record.layers if arguments.layers is None else split(arguments.layers),
        record.fields if arguments.fields is None else split(arguments.fields),
        _format(arguments), arguments.precision,
    )  # fmt: skip


def _format(arguments: Arguments) -> Format:
    return arguments.format or RECORDINGS[arguments.record].format


def _places(arguments: Arguments, names: list[list[str]]) -> list[list[Path]]:
    if arguments.name is None:
        return [[arguments.output / name for name in together] for together in names]
    if sum(map(len, names)) == 1:
        return [[arguments.output / arguments.name]]
    return [[arguments.output / f"{arguments.name}-{name}" for name in together] for together in names]


if __name__ == "__main__":
    command_line.run(main)
