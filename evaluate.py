"""Play trained policies on the 63 held-out tasks, against each other or each among its own kind.

    python evaluate.py policies pvp -r 10           # all policies of the folder share worlds; ten seeds
    python evaluate.py policies pve -p start_kit_3M # one policy plays all agents
    python evaluate.py policies pvp --untrained neurips23_start_kit   # with an untrained one as the floor
    python analysis/proc_eval_result.py policies    # then: scores with intervals, tables, a figure

Results go to eval_<mode>_<seed>.json in the same folder. A run that was stopped goes on where it stopped when the same
command is given again.
"""

import environment_check  # isort: skip  # noqa: F401 (must come first)

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

import agent_zoo
import argument_checks
import command_line
from agent_zoo.checkpoint_files import policy_names
from argument_checks import at_least, seed_value, split
from reinforcement_learning.game.plain_world import evaluation_world
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from user_error import UserError

if TYPE_CHECKING:
    from reinforcement_learning.play.evaluation_results import SeedResults

EPISODES = {"pvp": 200, "pve": 32}


@dataclass(frozen=True)
class Arguments:
    """Arguments of evaluate.py."""

    folder: tyro.conf.Positional[Path]
    """Folder of policies (*.safetensors); results go here too."""
    mode: tyro.conf.Positional[Literal["pvp", "pve"]]
    """pvp: groups of agents of all policies share a world; pve: one policy plays all agents."""
    policies: Annotated[str | None, tyro.conf.arg(aliases=["-p"])] = None
    """Names of policies to take, separated by commas; by default all of the folder that fit the world."""
    repeats: Annotated[int, tyro.conf.arg(aliases=["-r"])] = 1
    """Seeds to play: --seed and those that follow it, a result file each."""
    episodes: Annotated[int | None, tyro.conf.arg(aliases=["-n"])] = None
    """Episodes for each seed, of up to 1,024 ticks; by default 200 in pvp, 32 in pve."""
    seed: Annotated[int, tyro.conf.arg(aliases=["-s"])] = 1
    """First seed."""
    task: Annotated[str | None, tyro.conf.arg(aliases=["-t"])] = None
    """Give everyone this one held-out task: its number, its name, or a part that no other name has. Results then go to
    task_NUMBER_eval_..., and make no score."""
    untrained: str | None = None
    """Add an untrained agent of this folder in agent_zoo/, as the floor; in pve it plays alone, after the others."""
    num_envs: int = 0
    """Worlds that run side by side, four to a process; 0 takes a process for each core."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the networks run; auto takes a GPU if there is one."""
    embeddings_dir: Path = Path("task_embeddings")
    """Folder that keeps what language models made of tasks."""
    env: EnvironmentSettings = field(default_factory=evaluation_world)


def main() -> None:
    """Parse, play what is missing, and show how it went."""
    arguments = command_line.parse(Arguments, __doc__)
    asked = check(arguments)

    from activation_store.files import locked_folder, make_folder
    from reinforcement_learning.play.evaluation import Evaluation, contests, evaluate

    evaluation = Evaluation(
        folder=arguments.folder,
        mode=arguments.mode,
        names=asked,
        untrained=arguments.untrained,
        env=arguments.env,
        task=TaskSettings(curriculum="evaluation", only=arguments.task, embeddings_dir=arguments.embeddings_dir),
        seeds=range(arguments.seed, arguments.seed + arguments.repeats),
        episodes=arguments.episodes or EPISODES[arguments.mode],
        worlds=arguments.num_envs,
        device=arguments.device,
    )
    planned = contests(evaluation)
    make_folder(arguments.folder)  # refuses one that cannot be written to
    with locked_folder(arguments.folder):
        results = [each for contest in planned for each in evaluate(evaluation, contest)]
    report(results)
    if arguments.task is None:
        print(f"scores with intervals: python analysis/proc_eval_result.py {arguments.folder}")


def check(arguments: Arguments) -> tuple[str, ...]:
    """Refuse what cannot work, before anything is loaded; return the names of the policies asked for."""
    argument_checks.check(
        arguments,
        repeats=at_least(arguments.repeats, 1),
        episodes=at_least(arguments.episodes, 1),
        seed=seed_value(arguments.seed),
        num_envs=at_least(arguments.num_envs, 0),
    )
    if arguments.untrained is not None:
        agent_zoo.check_name(arguments.untrained)
    asked = split(arguments.policies)
    names = policy_names(arguments.folder, asked)
    if arguments.mode == "pve" and len(names) > 1 and not asked:
        raise UserError(
            f"pve plays one policy alone, and {arguments.folder} holds {len(names)}: choose one with -p, or several, "
            f"separated by commas, to play one after the other: {', '.join(names)}"
        )
    return tuple(names) if arguments.mode == "pve" else asked


def report(results: "Sequence[SeedResults]") -> None:
    """Show how long each policy lived, and how far it came with its tasks."""
    rows = []
    for each in results:
        for name, summary in each.summaries().items():
            rows.append(
                (
                    name, each.path.name, str(summary.episodes), f"{summary.lives:,}", f"{summary.mean_ticks:.1f}",
                    f"{summary.median_ticks:.0f}", f"{summary.task_progress:.4f}",
                )
            )  # fmt: skip
    heads = ("policy", "results", "episodes", "lives", "ticks lived", "median", "task progress")
    command_line.print_table(heads, rows)


if __name__ == "__main__":
    command_line.run(main)
