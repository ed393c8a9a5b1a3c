"""Record the hidden activations of a trained policy, beside what it saw and did.

    python extract_activations.py --list                            # which policies are there?
    python extract_activations.py --smoke-test                      # does everything work? needs nothing
    python extract_activations.py pve -p NAME -o activation_data    # all agents of a world play policies/NAME

The dump lies in activation_data/NAME/: activations.json, one record for each living agent and tick, or with
--format parquet a file an episode; and metadata.json.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

import command_line
from activation_store.schema import check_layers
from user_error import UserError

SMOKE_TEST_AGENT = "neurips23_start_kit"
SMOKE_TEST_STEPS = 20


@dataclass(frozen=True)
class Arguments:
    """Arguments of extract_activations.py."""

    mode: Annotated[Literal["pve"] | None, tyro.conf.Positional] = None
    """pve: one policy plays all agents of a world."""
    policy: Annotated[str | None, tyro.conf.arg(aliases=["-p"])] = None
    """Name of the policy: a file NAME.safetensors in the policies folder."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("activation_data")
    """Folder that the dump's folder, named after the policy, goes into."""
    episodes: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 4
    """Episodes to play."""
    max_steps: int | None = None
    """Stop after this many ticks, even in mid-episode."""
    seed: Annotated[int, tyro.conf.arg(aliases=["-s"])] = 1
    """Seed of the episodes and of the actions."""
    layers: str = "action_decoder"
    """Layers to record, separated by commas: encoder_output, lstm_hidden, lstm_cell, action_decoder."""
    format: Literal["json", "parquet"] = "json"
    """Of the dump: json is what the original tools read; parquet takes a sixth of the space and reads at once."""
    precision: Literal["float32", "float16"] = "float32"
    """Of the activations: float32 is exact; float16 (parquet only) takes half, its error is stated in the metadata."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the network runs; auto takes a GPU if there is one."""
    curriculum: Annotated[str | None, tyro.conf.arg(aliases=["-c"])] = None
    """Tasks that agents are given: training, evaluation, survival or a YAML file; by default the policy's own."""
    task: Annotated[str | None, tyro.conf.arg(aliases=["-t"])] = None
    """Give every agent this one task of the curriculum: its number, its name, or a part that no other name has."""
    policies_dir: Path = Path("policies")
    """Folder of trained policies."""
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
        return tuple(name.strip() for name in self.layers.split(","))


def main() -> None:
    """Parse, and list, test or extract."""
    arguments = command_line.parse(Arguments, __doc__)
    check(arguments)
    if arguments.list:
        list_policies(arguments.policies_dir)
    elif arguments.smoke_test:
        smoke_test(arguments)
    else:
        extract_policy(arguments)


def check(arguments: Arguments) -> None:
    """Refuse what cannot work, before anything is loaded."""
    for name, value in (("--episodes", arguments.episodes), ("--max-steps", arguments.max_steps)):
        if value is not None and value < 1:
            raise UserError(f"{name} {value} must be at least 1")
    if arguments.seed < 0:
        raise UserError(f"--seed {arguments.seed} must not be negative")
    check_layers(arguments.layer_names)
    if arguments.format == "json" and arguments.precision == "float16":
        raise UserError("--precision float16 needs --format parquet: JSON writes numbers out in full")
    if arguments.list or arguments.smoke_test:
        return
    if arguments.mode is None or arguments.policy is None:
        raise UserError("say what to extract: `extract_activations.py pve -p NAME`, or --list, or --smoke-test")


def list_policies(folder: Path) -> None:
    """Show the policies of a folder; a file that cannot be read is shown with its fault."""
    from rich.console import Console
    from rich.table import Table

    from reinforcement_learning.checkpoint import list_checkpoints, read_info

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
    from activation_store.schema import LAYERS
    from reinforcement_learning.extraction import Plan, extract, untrained_subject
    from reinforcement_learning.maps import ensure_maps
    from reinforcement_learning.settings import EnvironmentSettings, Settings

    with tempfile.TemporaryDirectory() as scratch:
        env = EnvironmentSettings(
            num_agents=8, num_npcs=8, map_size=32, num_maps=2, early_stop_agents=0, maps_dir=Path(scratch) / "maps"
        )
        settings = Settings(env=env)
        maps = ensure_maps(env)
        subject = untrained_subject(SMOKE_TEST_AGENT, settings, maps, arguments.seed)
        plan = Plan(1, SMOKE_TEST_STEPS, arguments.seed, LAYERS, env, settings.task)
        dump = Path(scratch) / "smoke_test"
        extract(subject, plan, maps, dump, on_tick=lambda episodes, records: None)
        records = read_dump(dump)
    print(f"smoke test passed: {len(records)} records of {len(LAYERS)} layers written and read back")


def extract_policy(arguments: Arguments) -> None:
    """Play episodes with a trained policy and write its dump."""
    from activation_store.files import sha256
    from activation_store.writer import refuse_existing_dump
    from reinforcement_learning.checkpoint import SUFFIX, load_checkpoint
    from reinforcement_learning.device import pick_device
    from reinforcement_learning.extraction import Plan, Subject, extract
    from reinforcement_learning.maps import ensure_maps
    from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
    from reinforcement_learning.tasks import check_tasks
    from reinforcement_learning.terminal import counted_progress, extraction_progress

    assert arguments.policy is not None  # checked
    folder = arguments.output / arguments.policy
    refuse_existing_dump(folder)
    path = arguments.policies_dir / f"{arguments.policy}{SUFFIX}"
    policy, info = load_checkpoint(path)
    # Training ends episodes early and makes some agents hardy; what is studied is the game as it is.
    world = {**info.environment, "early_stop_agents": 0, "resilient_population": 0.0, "maps_dir": arguments.maps_dir}
    env = EnvironmentSettings(**world)
    asked = {**info.task, "syllabus": "none", "embeddings_dir": arguments.embeddings_dir}
    if arguments.curriculum is not None:
        asked |= {"curriculum": arguments.curriculum, "only": None}
    if arguments.task is not None:
        asked |= {"only": arguments.task}
    task = TaskSettings(**asked)
    check_tasks(task, env)
    plan = Plan(
        arguments.episodes, arguments.max_steps, arguments.seed, arguments.layer_names, env, task,
        arguments.format, arguments.precision,
    )  # fmt: skip
    subject = Subject(arguments.policy, policy.to(pick_device(arguments.device)), info, sha256(path))
    with counted_progress("generating maps") as progress:
        maps = ensure_maps(env, progress)
    with extraction_progress(plan.episodes) as on_tick:
        extract(subject, plan, maps, folder, on_tick)
    print(f"dump: {folder}")


if __name__ == "__main__":
    command_line.run(main)
