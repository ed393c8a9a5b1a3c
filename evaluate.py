"""Play trained policies on the 63 held-out tasks, against each other or each among its own kind.

    python evaluate.py policies pvp -r 10           # all policies of the folder share worlds; ten seeds
    python evaluate.py policies pve -p start_kit_3M # one policy plays all agents
    python evaluate.py policies pvp --untrained neurips23_start_kit   # with an untrained one as the floor
    python analysis/proc_eval_result.py policies    # then: scores with intervals, tables, a figure

Results go to eval_<mode>_<seed>.json in the same folder. A run that was stopped goes on where it stopped when the same
command is given again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

import agent_zoo
import command_line
from reinforcement_learning.settings import EnvironmentSettings, Settings, TaskSettings
from user_error import UserError

if TYPE_CHECKING:
    from reinforcement_learning.play.contest import Contest
    from reinforcement_learning.play.entrants import Entrant
    from reinforcement_learning.play.evaluation_results import SeedResults

EPISODES = {"pvp": 200, "pve": 32}
# The game as it is, on maps that no policy trained with the default map seed has seen.
WORLD = EnvironmentSettings(map_seed=1, resilient_population=0, early_stop_agents=0)
UNTRAINED_SEED = 0


@dataclass(frozen=True)
class Arguments:
    """Arguments of evaluate.py."""

    folder: tyro.conf.Positional[Path]
    """Folder of policies (*.safetensors); results go here too."""
    mode: tyro.conf.Positional[Literal["pvp", "pve"]]
    """pvp: groups of agents of all policies share a world; pve: one policy plays all agents."""
    policies: Annotated[str | None, tyro.conf.arg(aliases=["-p"])] = None
    """Names of policies to take, separated by commas; by default all of the folder."""
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
    env: EnvironmentSettings = field(default_factory=lambda: WORLD)

    @property
    def names(self) -> tuple[str, ...]:
        """Policies asked for; none means all."""
        return () if self.policies is None else tuple(name.strip() for name in self.policies.split(","))


def main() -> None:
    """Parse, play what is missing, and show how it went."""
    arguments = command_line.parse(Arguments, __doc__)
    check(arguments)

    from activation_store.files import locked_folder, make_folder

    planned = contests(arguments)
    make_folder(arguments.folder)  # refuses one that cannot be written to
    with locked_folder(arguments.folder):
        results = [each for contest in planned for each in play(arguments, contest)]
    report(results)
    if arguments.task is None:
        print(f"scores with intervals: python analysis/proc_eval_result.py {arguments.folder}")


def play(arguments: Arguments, contest: "Contest") -> "list[SeedResults]":
    """Play the episodes of a contest that are missing, and return all its results."""
    from reinforcement_learning.play.evaluation_results import play_to_the_end
    from reinforcement_learning.play.parallel_play import play_groups, processes_for
    from reinforcement_learning.play.terminal import evaluation_progress

    seeds = find_results(arguments, contest)
    missing = [group for each in seeds for group in each.missing]
    if missing:
        by_seed = {each.seed: each for each in seeds}
        who = ", ".join(entrant.name for entrant in contest.entrants)
        with evaluation_progress(who, sum(len(group.numbers) for group in missing)) as on_episodes:
            for group, played in play_groups(contest, missing, play_to_the_end, processes_for(arguments.num_envs)):
                by_seed[group.seed].add(played)
                on_episodes(played)
    return seeds


def check(arguments: Arguments) -> None:
    """Refuse what cannot work, before anything is loaded."""
    numbers = (("--repeats", arguments.repeats), ("--episodes", arguments.episodes))
    for name, value in numbers:
        if value is not None and value < 1:
            raise UserError(f"{name} {value} must be at least 1")
    for name, value in (("--seed", arguments.seed), ("--num-envs", arguments.num_envs)):
        if value < 0:
            raise UserError(f"{name} {value} must not be negative")
    if arguments.untrained is not None:
        agent_zoo.check_name(arguments.untrained)


def contests(arguments: Arguments) -> "list[Contest]":
    """Load the policies and decide who plays with whom."""
    from reinforcement_learning.device import pick_device
    from reinforcement_learning.game.maps import ensure_maps
    from reinforcement_learning.game.tasks import check_tasks
    from reinforcement_learning.play.contest import Contest
    from reinforcement_learning.play.entrants import load_entrants, policy_names, shared_tasks
    from reinforcement_learning.terminal import counted_progress

    device = pick_device(arguments.device)
    names = policy_names(arguments.folder, arguments.names)
    if arguments.mode == "pve" and len(names) > 1 and not arguments.names:
        raise UserError(
            f"pve plays one policy alone, and {arguments.folder} holds {len(names)}: choose one with -p, or several, "
            f"separated by commas, to play one after the other: {', '.join(names)}"
        )
    trained = load_entrants(arguments.folder, names)
    asked = TaskSettings(curriculum="evaluation", only=arguments.task, embeddings_dir=arguments.embeddings_dir)
    check_tasks(asked, arguments.env)
    with counted_progress("generating maps") as progress:
        maps = ensure_maps(arguments.env, progress)
    if arguments.mode == "pve":
        floors = [floor(arguments, asked, maps)] if arguments.untrained else []
        alone = [((entrant,), shared_tasks([entrant], asked)) for entrant in [*trained, *floors]]
        return [Contest(entrants, arguments.env, tasks, maps, device) for entrants, tasks in alone]
    tasks = shared_tasks(trained, asked)
    entrants = [*trained, floor(arguments, tasks, maps)] if arguments.untrained else trained
    if not 2 <= len(entrants) <= arguments.env.num_agents:
        raise UserError(
            f"pvp needs at least two policies and at most one for each of {arguments.env.num_agents} agents, not "
            f"{len(entrants)}: a single one plays pve"
        )
    return [Contest(tuple(entrants), arguments.env, tasks, maps, device)]


def floor(arguments: Arguments, tasks: TaskSettings, maps: Path) -> "Entrant":
    """Build the untrained agent that was asked for, to play in the same world."""
    from reinforcement_learning.play.entrants import untrained_entrant

    assert arguments.untrained is not None
    return untrained_entrant(arguments.untrained, Settings(env=arguments.env, task=tasks), maps, UNTRAINED_SEED)


def find_results(arguments: Arguments, contest: "Contest") -> "list[SeedResults]":
    """Find out which episodes are still to be played."""
    from reinforcement_learning.game.evaluation_tasks import evaluation_tasks
    from reinforcement_learning.game.tasks import find_task
    from reinforcement_learning.play.evaluation_results import SeedResults

    before = ""
    if arguments.task is not None:
        specs = evaluation_tasks()
        before = f"task_{specs.index(find_task(specs, arguments.task))}_"
    episodes = arguments.episodes or EPISODES[arguments.mode]
    return [
        SeedResults(
            arguments.folder / f"{before}eval_{arguments.mode}_{seed}.json", contest, arguments.mode, seed, episodes
        )
        for seed in range(arguments.seed, arguments.seed + arguments.repeats)
    ]


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
