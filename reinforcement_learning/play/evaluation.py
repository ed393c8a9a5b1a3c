"""An evaluation: which policies play together, which episodes are still missing, and playing them."""

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Literal

from rich.console import Console

import agent_zoo
from agent_zoo.data_parallel import pick_device
from common.number_text import plural
from common.progress_view import progress
from common.user_error import UserError, one_line
from reinforcement_learning.game.tasks import check_tasks, curriculum, find_task
from reinforcement_learning.play.contest import Contest, Group, PlayedAgain, make_maps
from reinforcement_learning.play.entrants import Entrant, admit, load_entrants, shared_tasks, untrained_entrant
from reinforcement_learning.play.evaluation_results import SeedResults, play_to_the_end
from reinforcement_learning.play.parallel_play import play_groups, processes_of
from reinforcement_learning.play.policy_pool import EpisodeLives
from reinforcement_learning.play.workers import Workers
from reinforcement_learning.run_settings import Protocol
from reinforcement_learning.settings import EnvironmentSettings, PolicySettings, Settings, TaskSettings

UNTRAINED_SEED = 0
_TICKS_LIVED = 235
"""Of a shipped policy's agents, on average, in worlds of 1,024 ticks."""
_LEFT_OUT_SHOWN = 3
_STEPS_PER_CORE = 1_600
"""Agent-steps per second, half of what `benchmarks.extraction` measured on two cores."""


@dataclass(frozen=True)
class Evaluation:
    """The settings of an evaluation."""

    folder: Path  # of the policies and of the results
    mode: Literal["pvp", "pve"]  # pvp, policies share worlds; pve, one plays all agents
    names: tuple[str, ...]  # of the requested policies; empty for all that fit the world
    untrained: str | None  # folder in agent_zoo/ of an untrained agent to add
    env: EnvironmentSettings
    task: TaskSettings
    protocol: Protocol  # as in `Contest`; the world is already that of the protocol
    seeds: range
    episodes: int  # of each seed
    prefix: str | None  # of the names of result files; None for the mode's own
    workers: Workers
    device: str  # where the networks run: auto, cpu or cuda


def contests(evaluation: Evaluation) -> list[Contest]:
    """Load the policies and decide which play together; policies that do not fit are named on standard error.

    Raises:
        UserError: a requested policy, or every policy, does not fit the world; or too few or too many are left to
            share one.
    """
    device = pick_device(evaluation.device)
    trained = load_entrants(evaluation.folder, evaluation.names)
    check_tasks(evaluation.task, evaluation.env)
    maps = make_maps(evaluation.env, evaluation.seeds, evaluation.episodes)
    if evaluation.mode == "pve":
        planned = [admit([entrant], evaluation.env, evaluation.task, maps, must_fit=True)[:2] for entrant in trained]
        if evaluation.untrained:
            floor = _floor(evaluation, evaluation.task, maps)
            planned.append(((floor,), shared_tasks([floor], evaluation.task)))
    else:
        named = bool(evaluation.names)
        entrants, tasks, left_out = admit(trained, evaluation.env, evaluation.task, maps, must_fit=named)
        for reason in left_out[:_LEFT_OUT_SHOWN]:
            print(f"left out: {one_line(reason)}", file=sys.stderr)
        if (more := len(left_out) - _LEFT_OUT_SHOWN) > 0:
            print(f"left out: {more} more; name one with -p to see why", file=sys.stderr)
        floors = (_floor(evaluation, tasks, maps),) if evaluation.untrained else ()
        planned = [((*entrants, *floors), tasks)]
        if not 2 <= len(planned[0][0]) <= evaluation.env.num_agents:
            raise UserError(
                f"pvp needs at least two policies and at most one for each of {evaluation.env.num_agents} agents, not "
                f"{len(planned[0][0])}: use pve for a single policy"
            )
    return [
        Contest(together, evaluation.env, tasks, maps, device, protocol=evaluation.protocol)
        for together, tasks in planned
    ]


def _floor(evaluation: Evaluation, tasks: TaskSettings, maps: Path) -> Entrant:
    agent = evaluation.untrained
    assert agent is not None
    settings = Settings(
        env=evaluation.env, task=tasks, policy=PolicySettings(lstm_layers=agent_zoo.usual_memory_layers(agent))
    )
    return untrained_entrant(agent, settings, maps, UNTRAINED_SEED)


def cost(evaluation: Evaluation, planned: Sequence[tuple[Contest, list[SeedResults]]]) -> str:
    """Say in one line what is to be played, and roughly for how long."""
    missing = sum(len(group.numbers) for _, seeds in planned for results in seeds for group in results.missing)
    if not missing:
        return "all episodes are there"
    env, policies, processes = evaluation.env, len(planned[0][0].entrants), processes_of(evaluation.workers)
    least, more = divmod(env.num_agents, policies)
    agents = f"{least} or {least + 1}" if more else str(least)
    who = f"{policies} policies share each world, {agents} of {env.num_agents} agents each"
    if evaluation.mode == "pve":
        who = (
            f"{len(planned)} polic{'y plays' if len(planned) == 1 else 'ies in turn play'} all {env.num_agents} agents"
        )
    steps = missing * env.num_agents * min(env.horizon, _TICKS_LIVED)
    minutes = max(1, round(steps / _STEPS_PER_CORE / processes / 60))
    return (
        f"{missing:,} episodes of up to {env.horizon:,} ticks, {plural(len(evaluation.seeds), 'seed')}; {who}; roughly "
        f"{plural(minutes, 'minute')} on {plural(processes, 'process', 'processes')}, more with policies that live long"
    )


def evaluate(evaluation: Evaluation, contest: Contest, seeds: list[SeedResults]) -> list[SeedResults]:
    """Play the missing episodes of a contest, and return all its results, `seeds`, which `find_results` found.

    What a damaged journal lost is played again, and named on standard error.

    Raises:
        UserError: results on disk are damaged, or were made with other settings.
    """
    for results in seeds:
        if results.damage:
            print(results.damage, file=sys.stderr)
    missing = [group for results in seeds for group in results.missing]
    if missing:
        by_seed = {results.seed: results for results in seeds}
        who = ", ".join(entrant.name for entrant in contest.entrants)
        with evaluation_progress(who, missing, evaluation.env.horizon) as show:
            counted: Counter[Group] = Counter()
            for group, played in play_groups(contest, missing, play_to_the_end, evaluation.workers):
                if isinstance(played, PlayedAgain):  # a group tells its lives once, at its end: only ticks count again
                    print(played.reason, file=sys.stderr)
                    show(group, -counted.pop(group, 0))
                elif isinstance(played, int):
                    counted[group] += played
                    show(group, played)
                else:
                    by_seed[group.seed].add(played)
                    show(group, played)
    return seeds


@contextlib.contextmanager
def evaluation_progress(
    who: str, groups: Sequence[Group], horizon: int
) -> Iterator[Callable[[Group, Sequence[EpisodeLives] | int], None]]:
    """Show the policies and how many ticks are done; yields a callback.

    It takes a group of episodes, and the ticks that it went on by, or what it played if it has ended: 0 and fewer
    ticks take back what it told.

    Args:
        horizon: most ticks of an episode. One that ends earlier counts as whole, so that time left is overestimated.
    """
    console = Console()
    episodes = sum(len(group.numbers) for group in groups)
    whole = {group: horizon * len(group.rounds) for group in groups}
    console.print(f"playing {episodes:,} episodes: {who}", highlight=False, soft_wrap=True)
    start = perf_counter()
    agent_steps = 0
    ticks: Counter[Group] = Counter()
    done = 0
    with progress("playing", "ticks", console) as report:
        report(0, sum(whole.values()))

        def show(group: Group, played: Sequence[EpisodeLives] | int) -> None:
            nonlocal agent_steps, done
            if isinstance(played, int):
                ticks[group] = max(0, ticks[group] + played)
            else:
                agent_steps += sum(life.ticks for episode in played for lives in episode.lives for life in lives)
                done += len(played)
                ticks[group] = whole[group]
            report(ticks.total(), sum(whole.values()), f"{done} of {episodes} episodes finished")

        yield show
    console.print(f"{agent_steps:,} agent-steps in {perf_counter() - start:.0f} s", highlight=False)


def find_results(evaluation: Evaluation, contest: Contest) -> list[SeedResults]:
    """Find out which episodes are on disk, with one result file per seed."""
    prefix, task = evaluation.prefix, evaluation.task
    if not prefix:  # results of other tasks than the held-out ones do not begin with eval
        prefix = "" if task.curriculum == "evaluation" else f"{Path(task.curriculum).stem}_"
        if task.only is not None:
            specs = curriculum(replace(task, only=None), evaluation.env)
            prefix += f"task_{specs.index(find_task(specs, task.only))}_"
        prefix += f"eval_{evaluation.mode}"
    return [
        SeedResults(evaluation.folder / f"{prefix}_{seed}.json", contest, evaluation.mode, seed, evaluation.episodes)
        for seed in evaluation.seeds
    ]
