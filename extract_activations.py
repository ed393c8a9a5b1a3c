"""Record the hidden activations of a trained policy, beside what it saw and did.

    python extract_activations.py --list                            # which policies are there?
    python extract_activations.py --smoke-test                      # does everything work? needs nothing
    python extract_activations.py pve -p NAME -o activation_data    # all agents of a world play policies/NAME
    python extract_activations.py pvp -p A,B -o activation_data     # A and B share worlds; a dump of each
    python extract_activations.py pve -p NAME --checkpoint all      # NAME as it was at each of its checkpoints

A dump lies in activation_data/NAME/: activations.json, one record for each living agent and tick, or with
--format parquet a file an episode; and metadata.json. What was stopped goes on with --resume.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

import command_line
from activation_store.layers import check_layers
from user_error import UserError

if TYPE_CHECKING:
    from reinforcement_learning.play.contest import Contest
    from reinforcement_learning.play.entrants import Entrant
    from reinforcement_learning.play.extraction import Plan

FIELDS = ("Market", "Task", "ActionTargets", "Logits")
SMOKE_TEST_AGENT = "neurips23_start_kit"
SMOKE_TEST_STEPS = 20


@dataclass(frozen=True)
class Arguments:
    """Arguments of extract_activations.py."""

    mode: Annotated[Literal["pve", "pvp"] | None, tyro.conf.Positional] = None
    """pve: a policy plays all agents of a world, one policy after the other; pvp: the policies share worlds."""
    policies: Annotated[str | None, tyro.conf.arg(aliases=["-p"])] = None
    """Names of policies, separated by commas: files NAME.safetensors in the policies folder."""
    checkpoint: str | None = None
    """Take a policy as it was in training: after this many agent-steps, or `all` for all checkpoints kept, in
    runs/NAME/checkpoints/ or the policies folder's checkpoints/."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("activation_data")
    """Folder that the dumps' folders, named after the policies, go into."""
    episodes: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 4
    """Episodes to play, of up to the world's horizon, 1,024 ticks by default."""
    max_steps: int | None = None
    """Most ticks to play of each episode; by default all."""
    seed: Annotated[int, tyro.conf.arg(aliases=["-s"])] = 1
    """Seed of the episodes and of the actions."""
    layers: str = "action_decoder"
    """Layers to record, separated by commas: encoder_output, lstm_hidden, lstm_cell, action_decoder; of a policy with
    several LSTM layers these are the last one's, and lstm_hidden_1, lstm_cell_1 the first one's, and so on. Or `all`
    that the policy has."""
    untrained_twin: bool = False
    """Record beside them what the LSTM of a like network with fresh weights, drawn from --seed, makes of the same
    observations: untrained_lstm_hidden, untrained_lstm_cell."""
    shadow_networks: str = ""
    """Record likewise the LSTMs of the policy's own checkpoints in training, as steps_NUMBER_lstm_hidden and _cell:
    numbers of agent-steps, separated by commas, or `all`."""
    fields: str = ""
    """Record these too, separated by commas: Market, Task (its embedding), ActionTargets (what was allowed), Logits."""
    format: Literal["json", "parquet"] = "json"
    """Of the dump: json is what the original tools read; parquet takes a sixth of the space and reads at once."""
    precision: Literal["float32", "float16"] = "float32"
    """Of the activations: float32 is exact; float16 (parquet only) takes half, its error is stated in the metadata."""
    resume: bool = False
    """Go on with unfinished dumps of the same plan, to the same content as if they had not been stopped."""
    num_envs: int = 0
    """Worlds that run side by side, four to a process; 0 leaves it to --workers."""
    workers: int = 0
    """Processes that play, four worlds each; 0 takes one for each core."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the networks run; auto takes a GPU if there is one."""
    curriculum: Annotated[str | None, tyro.conf.arg(aliases=["-c"])] = None
    """Tasks that agents are given: training, evaluation, survival or a YAML file; by default the policy's own."""
    task: Annotated[str | None, tyro.conf.arg(aliases=["-t"])] = None
    """Give every agent this one task of the curriculum: its number, its name, or a part that no other name has."""
    policies_dir: Path = Path("policies")
    """Folder of trained policies."""
    runs_dir: Path = Path("runs")
    """Folder of training runs, for --checkpoint."""
    maps_dir: Path = Path("maps")
    """Folder of generated maps."""
    embeddings_dir: Path = Path("task_embeddings")
    """Folder that keeps what language models made of tasks."""
    list: bool = False
    """List the policies that can be studied, and end."""
    smoke_test: bool = False
    """Record an untrained policy on a small map for a few ticks, read the dump back, and end."""

    @property
    def layer_names(self) -> tuple[str, ...]:
        """The layers to record."""
        return split(self.layers)

    @property
    def shadow_steps(self) -> tuple[int | None, ...]:
        """The checkpoints that watch, None for all of them."""
        return tuple(None if name == "all" else int(name) for name in split(self.shadow_networks))

    @property
    def field_names(self) -> tuple[str, ...]:
        """The fields to record beyond those of every record."""
        return split(self.fields)


def split(names: str) -> tuple[str, ...]:
    """Split names at commas."""
    return tuple(name.strip() for name in names.split(",") if name.strip())


def main() -> None:
    """Parse, and list, test or extract."""
    arguments = command_line.parse(Arguments, __doc__)
    check(arguments)
    if arguments.list:
        list_policies(arguments.policies_dir)
    elif arguments.smoke_test:
        smoke_test(arguments)
    else:
        extract_policies(arguments)


def check(arguments: Arguments) -> None:
    """Refuse what cannot work, before anything is loaded."""
    for name, value in (("--episodes", arguments.episodes), ("--max-steps", arguments.max_steps)):
        if value is not None and value < 1:
            raise UserError(f"{name} {value} must be at least 1")
    counts = (("--seed", arguments.seed), ("--num-envs", arguments.num_envs), ("--workers", arguments.workers))
    for name, value in counts:
        if value < 0:
            raise UserError(f"{name} {value} must not be negative")
    if arguments.num_envs and arguments.workers:
        raise UserError("--num-envs and --workers both say how many processes play: give one of them")
    if not arguments.layer_names:
        raise UserError("--layers names no layer")
    if arguments.layer_names != ("all",):
        check_layers(arguments.layer_names)
    for name in arguments.field_names:
        if name not in FIELDS:
            raise UserError(f"there is no field {name!r} to record on request; there are: {', '.join(FIELDS)}")
    if arguments.precision == "float16" and arguments.format == "json":
        raise UserError("--precision float16 needs --format parquet: JSON holds float32 only")
    if arguments.checkpoint is not None and arguments.checkpoint != "all" and not arguments.checkpoint.isdecimal():
        raise UserError(f"--checkpoint {arguments.checkpoint} must be a number of agent-steps, or all")
    if not all(name == "all" or name.isdecimal() for name in split(arguments.shadow_networks)):
        raise UserError(
            f"--shadow-networks {arguments.shadow_networks} must be numbers of agent-steps with commas, or all"
        )
    if arguments.list or arguments.smoke_test:
        return
    if arguments.mode is None or not split(arguments.policies or ""):
        raise UserError("say what to extract: `extract_activations.py pve -p NAME`, or --list, or --smoke-test")


def list_policies(folder: Path) -> None:
    """Show the policies of a folder; a file that cannot be read is shown with its fault."""
    from rich.console import Console
    from rich.table import Table

    from agent_zoo.checkpoint import list_checkpoints, read_info

    paths = list_checkpoints(folder)
    if not paths:
        raise UserError(f"there is no policy in {folder}/: train one with `python train.py`")
    table = Table("policy", "agent", "agent-steps", "seed", "task embedding", title=f"policies in {folder}/")
    for path in paths:
        try:
            info = read_info(path)
            row = (info.agent, f"{info.steps:,}", str(info.seed), str(info.layout.task_size))
        except UserError as error:
            row = (f"unreadable: {error}", "", "", "")
        table.add_row(path.stem, *row)
    Console().print(table)


def smoke_test(arguments: Arguments) -> None:
    """Record an untrained policy in a temporary folder and read it back."""
    from activation_store.reader import read_dump
    from agent_zoo.capture import ALL_LAYERS
    from reinforcement_learning.device import pick_device
    from reinforcement_learning.game.maps import ensure_maps
    from reinforcement_learning.play.contest import Contest
    from reinforcement_learning.play.entrants import untrained_entrant
    from reinforcement_learning.play.extraction import Plan, extract
    from reinforcement_learning.settings import EnvironmentSettings, Settings

    with tempfile.TemporaryDirectory() as scratch:
        env = EnvironmentSettings(
            num_agents=8, num_npcs=8, map_size=32, num_maps=2, early_stop_agents=0, maps_dir=Path(scratch) / "maps"
        )
        settings = Settings(env=env)
        maps = ensure_maps(env)
        entrant = untrained_entrant(SMOKE_TEST_AGENT, settings, maps, arguments.seed)
        contest = Contest((entrant,), env, settings.task, maps, pick_device(arguments.device))
        plan = Plan(1, SMOKE_TEST_STEPS, arguments.seed, ALL_LAYERS, format=arguments.format)
        dump = Path(scratch) / "smoke_test"
        extract(contest, plan, [dump], 1, on_records=lambda recorded, episodes: None)
        records = read_dump(dump)
    print(f"smoke test passed: {len(records)} records of {len(records.activations)} layers written and read back")


def extract_policies(arguments: Arguments) -> None:
    """Play episodes with trained policies and write a dump of each."""
    from reinforcement_learning.play.extraction import Plan, extract
    from reinforcement_learning.play.parallel_play import processes_for
    from reinforcement_learning.play.terminal import extraction_progress

    plan = Plan(
        arguments.episodes, arguments.max_steps, arguments.seed, arguments.layer_names, arguments.field_names,
        arguments.format, arguments.precision,
    )  # fmt: skip
    planned = contests(arguments)
    for contest in planned:
        for entrant in contest.entrants:
            refuse_dump(arguments.output / entrant.name, arguments.resume)
    for contest in planned:
        folders = [arguments.output / entrant.name for entrant in contest.entrants]
        announce(contest, plan, arguments.output)
        with extraction_progress() as on_records:
            processes = arguments.workers or processes_for(arguments.num_envs)
            extract(contest, plan, folders, processes, on_records, resume=arguments.resume)
        for folder in folders:
            print(f"dump: {folder}")


def refuse_dump(folder: Path, resume: bool) -> None:
    """Refuse a folder that holds a dump, unless it is unfinished and to be resumed."""
    from activation_store.writer import refuse_existing_dump, state_of

    if not (resume and state_of(folder) == "unfinished"):
        refuse_existing_dump(folder)


def contests(arguments: Arguments) -> "list[Contest]":
    """Load the policies and decide who shares a world; that is the first one's, as the game is."""
    from reinforcement_learning.device import pick_device
    from reinforcement_learning.game.maps import ensure_maps
    from reinforcement_learning.game.tasks import check_tasks
    from reinforcement_learning.play.contest import Contest
    from reinforcement_learning.play.entrants import shared_tasks
    from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
    from reinforcement_learning.terminal import counted_progress

    device = pick_device(arguments.device)
    entrants = chosen(arguments)
    if arguments.mode == "pvp" and len(entrants) < 2:
        raise UserError(f"pvp needs at least two policies, not {entrants[0].name} alone: add one to -p, or use pve")
    found = []
    for together in [entrants] if arguments.mode == "pvp" else [[entrant] for entrant in entrants]:
        info = together[0].info
        # Training ends episodes early and makes some agents hardy; what is studied is the game as it is.
        world = {**info.environment, "early_stop_agents": 0, "resilient_population": 0.0}
        env = EnvironmentSettings(**{**world, "maps_dir": arguments.maps_dir})
        asked = {**info.task, "embeddings_dir": arguments.embeddings_dir}
        if arguments.curriculum is not None:
            asked |= {"curriculum": arguments.curriculum, "only": None}
        if arguments.task is not None:
            asked |= {"only": arguments.task}
        task = shared_tasks(together, TaskSettings(**asked))
        check_tasks(task, env)
        with counted_progress("generating maps") as progress:
            maps = ensure_maps(env, progress)
        found.append(Contest(tuple(together), env, task, maps, device))
    return found


def chosen(arguments: Arguments) -> "list[Entrant]":
    """Load the policies that were asked for, as they are or as they were in training."""
    from reinforcement_learning.play.entrants import find_checkpoints, load_entrant, policy_names

    names = split(arguments.policies or "")
    if arguments.checkpoint is None:
        folder = arguments.policies_dir
        names = tuple(policy_names(folder, names))
        return [watched(load_entrant(folder / f"{name}.safetensors"), name, arguments) for name in names]
    steps = None if arguments.checkpoint == "all" else int(arguments.checkpoint)
    found = {name: find_checkpoints(checkpoint_folders(arguments, name), name, steps) for name in names}
    return [watched(load_entrant(path), name, arguments) for name, paths in found.items() for path in paths]


def checkpoint_folders(arguments: Arguments, name: str) -> list[Path]:
    """Return where the checkpoints of a policy's training may lie."""
    return [arguments.policies_dir / "checkpoints", arguments.runs_dir / name / "checkpoints"]


def watched(entrant: "Entrant", name: str, arguments: Arguments) -> "Entrant":
    """Let the networks that were asked for watch an entrant; `name` is that of its training."""
    from dataclasses import replace

    from reinforcement_learning.play.entrants import find_checkpoints, load_entrant
    from reinforcement_learning.play.shadow_networks import untrained_twin, with_shadow_networks

    shadow_networks = [untrained_twin(entrant, arguments.seed)] if arguments.untrained_twin else []
    folders = checkpoint_folders(arguments, name)
    for steps in arguments.shadow_steps:
        loaded = map(load_entrant, find_checkpoints(folders, name, steps))
        shadow_networks += [replace(each, name=f"steps_{each.info.steps}") for each in loaded]
    return with_shadow_networks(entrant, tuple(shadow_networks))


def announce(contest: "Contest", plan: "Plan", output: Path) -> None:
    """Say how much to expect, and whether there is room."""
    from activation_store.files import free_bytes
    from activation_store.size_estimate import expected_record_bytes
    from reinforcement_learning.play.extraction import metadata_of

    record_bytes = max(expected_record_bytes(metadata_of(contest, each, plan)) for each in contest.entrants)
    ticks = min(contest.env.horizon, plan.most_ticks or contest.env.horizon)
    most = contest.env.num_agents * ticks * plan.episodes
    size, free = most * record_bytes, free_bytes(output)
    names = ", ".join(each.name for each in contest.entrants)
    print(
        f"{names}: at most {most:,} records of about {record_bytes:,} bytes, {size / 1e9:.1f} GB, "
        f"if every agent lived to the end; {free / 1e9:.1f} GB are free"
    )
    if size > free:
        print("the disk may fill up: then this ends, with the finished episodes kept, to go on with --resume")


if __name__ == "__main__":
    command_line.run(main)
