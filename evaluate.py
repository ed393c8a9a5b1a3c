"""Evaluate trained policies on the 63 held-out tasks, against each other (pvp) or one at a time (pve).

    python evaluate.py policies pvp -r 10           # all policies in the folder share worlds; ten seeds
    python evaluate.py --list                       # the shipped policies and your own
    python evaluate.py policies pve -p start_kit_3M # one policy plays all agents
    python evaluate.py policies pvp --untrained neurips23_start_kit   # add an untrained baseline
    python analysis/proc_eval_result.py policies    # afterwards: scores with intervals, tables, a figure

Results are written to eval_<mode>_<seed>.json in the same folder. To continue an interrupted evaluation, repeat the
command.
"""

import common.environment_check  # isort: skip  # noqa: F401 (must come first)

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

import agent_zoo
from agent_zoo.agent_settings import SHOWN
from agent_zoo.checkpoint_files import SHIPPED, import_hint, not_imported, policy_names
from common import argument_checks, command_line
from common.argument_checks import at_least, seed_value, split
from common.user_error import UserError
from reinforcement_learning.play.workers import Vectorization, chosen_device, chosen_workers
from reinforcement_learning.run_settings import (
    ORIGINAL_EVALUATE,
    Protocol,
    evaluation_world,
    played_by,
    refuse_original,
)
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings

if TYPE_CHECKING:
    from reinforcement_learning.play.evaluation_results import SeedResults

EPISODES = {"pvp": 200, "pve": 32}


@dataclass(frozen=True)
class Arguments:
    """Arguments of evaluate.py."""

    folder: tyro.conf.Positional[Path] = SHIPPED
    """Folder of policies (*.safetensors); results are written here too. If it is policies/, names after -p are looked
    up in my_policies/ too."""
    mode: Annotated[Literal["pvp", "pve"] | None, tyro.conf.Positional] = None
    """pvp: agents of all policies share each world; pve: one policy plays all agents."""
    policies: Annotated[str | None, tyro.conf.arg(aliases=["-p"])] = None
    """Comma-separated names of policies to evaluate; by default all policies in the folder that fit the world."""
    repeats: Annotated[int, tyro.conf.arg(aliases=["-r", "--repeat"])] = 1
    """Number of consecutive seeds to play, starting at --seed, at least 1; each has its own result file."""
    episodes: Annotated[int | None, tyro.conf.arg(aliases=["-n", "--num-episode"])] = None
    """Episodes per seed, each of up to 1,024 ticks; by default 200 in pvp and 32 in pve."""
    seed: Annotated[int, tyro.conf.arg(aliases=["-s"])] = 1
    """First seed, 0 to 4294967295."""
    task: Annotated[str | None, tyro.conf.arg(aliases=["-t"])] = None
    """Give every agent this one held-out task: its number, its name, or a part of its name that is unique. Results are
    then written to task_NUMBER_eval_... and do not count towards scores."""
    task_file: Path | None = None
    """Tasks to play instead of the 63 held-out ones: a YAML file, as of `train.py -c` (docs/tasks.md). Results are then
    written to NAME_eval_..., after the file's name, and do not count towards scores."""
    save_file_prefix: str | None = None
    """Results are written to PREFIX_<seed>.json; by default eval_pvp or eval_pve. Only files called
    eval_<mode>_<seed>.json are scored."""
    untrained: str | None = None
    """Add an untrained agent of this folder in agent_zoo/ as a baseline; in pve it plays alone, after the others."""
    vectorization: Vectorization = "multiprocessing"
    """multiprocessing: play in worker processes on this machine; ray: in worker processes on a Ray cluster, one core
    each. The results are the same."""
    ray_address: str = "local"
    """Cluster for ray: local starts one on this machine for the run; auto uses the one that this machine belongs to;
    HOST:PORT is the address of a head node."""
    num_envs: int = 0
    """Worlds that run in parallel, four per process; 0 uses one process per core of the machine or cluster."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the networks run; auto uses a GPU if there is one, except on Ray, which plays on CPUs."""
    protocol: Protocol = "toolkit"
    """Rules of play. original: those of the published evaluations: all agents obey the start kit's restrictions, their
    memory is never cleared, the terrain is flipped (with 4 maps in pve), and ammunition does less damage. Results by
    different protocols are never put together."""
    embeddings_dir: Path = Path("task_embeddings")
    """Cache folder for task embeddings computed by language models; files of embeddings are looked for here, too."""
    embeddings: Annotated[str | None, tyro.conf.arg(name="task.embeddings")] = None
    """File of task embeddings for policies that were trained on one, such as imported ones; by default that which they
    name."""
    list: bool = False
    """List the available policies, the shipped ones and your own, and exit."""
    env: EnvironmentSettings = field(default_factory=evaluation_world)


def main() -> None:
    """Parse, play the missing episodes, and show the results."""
    refuse_original(sys.argv[1:], ORIGINAL_EVALUATE)
    arguments = command_line.parse(Arguments, __doc__)
    if arguments.list:
        from agent_zoo.checkpoint import print_policies

        print_policies(arguments.folder)
        return
    if arguments.mode is None:
        raise UserError(f"say how to play: `evaluate.py {arguments.folder} pvp`, or pve, or --list")
    names = check(arguments, arguments.mode)
    workers = chosen_workers(arguments.vectorization, arguments.ray_address, worlds=arguments.num_envs)
    device = chosen_device(arguments.device, arguments.vectorization)

    from common.files import locked_folder, make_folder
    from reinforcement_learning.play.evaluation import Evaluation, contests, cost, evaluate, find_results
    from reinforcement_learning.play.parallel_play import processes_of

    processes_of(workers)  # refuses a cluster that does not answer or is too small

    evaluation = Evaluation(
        folder=arguments.folder,
        mode=arguments.mode,
        names=names,
        untrained=arguments.untrained,
        env=played_by(arguments.env, arguments.protocol, arguments.mode),
        protocol=arguments.protocol,
        task=TaskSettings(
            curriculum=str(arguments.task_file or "evaluation"),
            only=arguments.task,
            embeddings=arguments.embeddings,
            embeddings_dir=arguments.embeddings_dir,
        ),
        prefix=arguments.save_file_prefix,
        seeds=range(arguments.seed, arguments.seed + arguments.repeats),
        episodes=arguments.episodes or EPISODES[arguments.mode],
        workers=workers,
        device=device,
    )
    planned = contests(evaluation)
    make_folder(arguments.folder)  # refuses one that cannot be written to
    with locked_folder(arguments.folder):
        known = [(contest, find_results(evaluation, contest)) for contest in planned]
        print(cost(evaluation, known))
        results = [result for contest, seeds in known for result in evaluate(evaluation, contest, seeds)]
    report(results)
    if arguments.task is None and arguments.task_file is None and arguments.save_file_prefix is None:
        print(f"scores with intervals: python analysis/proc_eval_result.py {arguments.folder}")


def check(arguments: Arguments, mode: Literal["pvp", "pve"]) -> tuple[str, ...]:
    """Refuse invalid arguments before anything is loaded; return the names of the requested policies."""
    argument_checks.check(
        arguments,
        repeats=at_least(arguments.repeats, 1),
        episodes=at_least(arguments.episodes, 1),
        seed=seed_value(arguments.seed),
        num_envs=at_least(arguments.num_envs, 0),
    )
    check_files(arguments)
    if arguments.untrained is not None:
        agent_zoo.check_name(arguments.untrained)
    for name, default in SHOWN.items() if arguments.untrained is None else ():
        if getattr(arguments.env, name) != default:
            raise UserError(
                f"--env.{name.replace('_', '-')} applies to the agent of --untrained only: trained policies are shown "
                "what they were shown in training; leave it out, or add --untrained"
            )
    played_by(arguments.env, arguments.protocol, mode)  # refuses what contradicts the protocol
    requested = split(arguments.policies)
    names = policy_names(arguments.folder, requested)
    if mode == "pve" and len(names) > 1 and not requested:
        raise UserError(
            f"pve plays one policy alone, and {arguments.folder} holds {len(names)}: choose one with -p, or several, "
            f"comma-separated, to play one after the other: {', '.join(names)}"
        )
    for path in () if requested else not_imported(arguments.folder):
        print(f"left out: {import_hint(path)}", file=sys.stderr)
    return tuple(names) if mode == "pve" else requested


def check_files(arguments: Arguments) -> None:
    """Refuse a file of tasks that is not read here, and a prefix that is no file name or names the other mode."""
    prefix = arguments.save_file_prefix
    for option, tasks in (("--task-file", arguments.task_file), ("--task", arguments.task)):
        if str(tasks).endswith((".pkl", ".pickle")):
            raise UserError(
                f"{option} {tasks}: pickles are never opened; leave it out to play the 63 held-out tasks, which are "
                "built in, or give a YAML file with --task-file (docs/tasks.md)"
            )
    if prefix is None:
        return
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", prefix):
        raise UserError(f"--save-file-prefix {prefix!r} cannot begin a file's name: use letters, digits, '.', '_', '-'")
    if prefix.startswith("eval_") and prefix != f"eval_{arguments.mode}":
        raise UserError(
            f"--save-file-prefix {prefix}: files called eval_... are read as scores of a mode; use "
            f"eval_{arguments.mode}, or a prefix that does not begin with eval_"
        )


def report(results: "Sequence[SeedResults]") -> None:
    """Show each policy's mean life length and task progress, both over lives; scores are over tasks."""
    rows = []
    for result in results:
        for name, (episodes, lives, mean, median, progress) in result.summaries().items():
            cells = (str(episodes), f"{lives:,}", f"{mean:.1f}", f"{median:.1f}", f"{progress:.4f}")
            rows.append((name, result.path.name, *cells))
    heads = ("policy", "results", "episodes", "lives", "ticks lived", "median", "progress of lives")
    command_line.print_table(heads, rows)


if __name__ == "__main__":
    command_line.run(main)
