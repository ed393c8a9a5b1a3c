"""Play episodes with trained policies and record every living agent's activations at every tick, showing progress."""

import contextlib
import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console

from activation_store.recording import PLACE
from activation_store.schema import ActionHead, DumpMetadata, Format, Precision
from activation_store.writer import DumpWriter
from agent_zoo.agent_settings import SHOWN
from agent_zoo.capture import layer_units
from agent_zoo.checkpoint import versions
from common.progress_view import progress
from reinforcement_learning.game.maps import GameConfig
from reinforcement_learning.game.tasks import curriculum
from reinforcement_learning.play.contest import Contest, Group, PlayedAgain
from reinforcement_learning.play.entrants import Entrant, encoding_of, shadow_layers
from reinforcement_learning.play.parallel_play import play_groups
from reinforcement_learning.play.policy_pool import PolicyPool
from reinforcement_learning.play.recorder import Batch, Finished, Recorder, optional_columns
from reinforcement_learning.play.workers import Workers
from reinforcement_learning.settings import task_record


@dataclass(frozen=True)
class RecordingPlan:
    """What to record."""

    episodes: int
    most_ticks: int | None  # maximum per episode; None plays every episode to its end
    seed: int  # of the episodes and of the actions
    layers: tuple[str, ...]
    """Names of `activation_store.layers`, or `agent_zoo.capture.ALL_LAYERS` for all that a policy has."""
    fields: tuple[str, ...] = ()  # Market, Task, ActionTargets or Logits, in addition to the fields of every record
    format: Format = "json"
    precision: Precision = "float32"


@dataclass(frozen=True)
class Recorded:
    """The current state of all dumps being recorded."""

    episodes: int = 0  # finished
    records: int = 0  # written
    ended_episodes: int = 0
    """In groups that have ended completely; episodes that end before their group are biased short."""
    ended_records: int = 0
    ticks: int = 0  # of all episodes of groups that are being played; those of a group are as far as its latest record
    record_bytes: float | None = None  # size of a record on disk; None until an episode has been stored

    def expected_records(self, episodes: int) -> int | None:
        """Project the number of records of `episodes` episodes; None until a group of episodes has ended."""
        if not self.ended_episodes:
            return None
        return max(self.records, round(self.ended_records / self.ended_episodes * episodes))


class Tally:
    """Counts records and episodes of groups while they are played."""

    def __init__(self) -> None:
        self._records: Counter[Group] = Counter()
        self._finished: Counter[Group] = Counter()
        self._ticks: Counter[Group] = Counter()  # of the episodes that are being played
        self._ticks_before: Counter[Group] = Counter()  # of those that were played in turn before them
        self._written = 0

    def add_records(self, group: Group, count: int, written: int, tick: int = 0) -> None:
        """Count records received from a group, the last of them of a tick, and those written; others are stored."""
        if tick < self._ticks[group]:  # the next one of those that are played in turn has begun
            self._ticks_before[group] += self._ticks[group]
        self._ticks[group] = tick
        self._records[group] += count
        self._written += written

    def finish_episode(self, group: Group) -> None:
        """Count an episode of a group that has ended."""
        self._finished[group] += 1

    def start_over(self, group: Group, dropped: int) -> None:
        """Forget a group that is played again; `dropped` of its records are no longer written."""
        del self._records[group], self._finished[group], self._ticks[group], self._ticks_before[group]
        self._written -= dropped

    def recorded(self, stored_records: int, stored_bytes: int) -> Recorded:
        """Return the current state, given the records and bytes of the stored episodes."""
        ended = [group for group, finished in self._finished.items() if finished == len(group.numbers)]
        return Recorded(
            episodes=self._finished.total(),
            records=self._written,
            ended_episodes=sum(len(group.numbers) for group in ended),
            ended_records=sum(self._records[group] for group in ended),
            ticks=sum(
                len(group.rounds[0]) * (self._ticks_before[group] + ticks)
                for group, ticks in self._ticks.items()
                if group not in ended
            ),
            record_bytes=stored_bytes / stored_records if stored_records else None,
        )


@contextlib.contextmanager
def extraction_progress(most_ticks: int) -> Iterator[Callable[[Recorded, int], None]]:
    """Show ticks and records, and, once some episodes have ended, the projected total and time left.

    Yields a callback that takes the recording so far and the number of episodes to play.

    Args:
        most_ticks: of an episode. One that ends earlier counts as whole, so that time left is overestimated.
    """
    console = Console()
    start = perf_counter()
    last = Recorded()
    with progress("recording", "ticks", console) as report:

        def show(recorded: Recorded, episodes: int) -> None:
            nonlocal last
            if recorded.ended_episodes > last.ended_episodes and recorded.episodes < episodes:
                text = projection(recorded, episodes, perf_counter() - start)
                console.print(text, highlight=False, soft_wrap=True)
            last = recorded
            detail = f"{recorded.records:,} records, {recorded.episodes} of {episodes} episodes finished"
            report(recorded.ended_episodes * most_ticks + recorded.ticks, episodes * most_ticks, detail)

        yield show
    console.print(f"{last.records:,} records in {perf_counter() - start:.0f} s", highlight=False)


def projection(recorded: Recorded, episodes: int, seconds: float) -> str:
    """Describe the projected size and remaining time of a recording, `seconds` after its start.

    At least one group of episodes must have ended.
    """
    expected = recorded.expected_records(episodes) or 0
    size = (recorded.record_bytes or 0) * expected
    left = seconds / max(1, recorded.records) * (expected - recorded.records)
    return (
        f"{recorded.episodes} of {episodes} episodes are finished: all of them will hold about {expected:,} records, "
        f"{size / 1e9:.2f} GB, and take about {left / 60:.0f} more minutes"
    )


def extract(
    contest: Contest, plan: RecordingPlan, folders: Sequence[Path], workers: Workers,
    on_records: Callable[[Recorded, int], None], *, resume: bool = False,
) -> None:  # fmt: skip
    """Play, and write a dump for each entrant.

    Args:
        folders: of the dumps, one per entrant; they must not hold one yet.
        on_records: called at intervals with what is recorded and the number of episodes to play, without stored ones.

    Raises:
        UserError: a folder already holds a dump, a policy lacks a layer, or an activation is not finite.
    """
    job = functools.partial(record_group, layers=plan.layers, fields=plan.fields, most_ticks=plan.most_ticks)
    for entrant in contest.entrants:
        layer_units(entrant.policy, plan.layers)  # refuses layers that the policy lacks before anything is written
    with contextlib.ExitStack() as stack:
        writers = [
            stack.enter_context(DumpWriter(folder, metadata_of(contest, entrant, plan), resume=resume))
            for folder, entrant in zip(folders, contest.entrants, strict=True)
        ]
        wanted = [group for group in contest.groups(plan.seed, plan.episodes) if not _stored(group, writers)]
        if wanted:
            played = sum(len(group.numbers) for group in wanted)
            events = play_groups(contest, wanted, job, workers)
            write(events, writers, lambda recorded: on_records(recorded, played))


def record_group(
    pool: PolicyPool, group: Group, layers: Sequence[str], fields: Sequence[str], most_ticks: int | None
) -> Iterator[Batch | Finished]:
    """Record a group of episodes; see `Recorder.record`."""
    recorder = Recorder(pool, layers, fields)
    for place, numbers in enumerate(group.rounds):
        yield from recorder.record(group.seed, numbers, most_ticks, first=place == 0)


def write(
    events: Iterable[tuple[Group, Batch | Finished | PlayedAgain]],
    writers: Sequence[DumpWriter],
    on_records: Callable[[Recorded], None],
) -> None:  # fmt: skip
    """Write what was recorded; an episode is stored in all dumps once it has finished.

    If a group is played again, its stored episodes are kept and its unfinished ones are written anew.
    """
    tally, stored_size = Tally(), _stored_size(writers)
    already = [set(writer.stored) for writer in writers]
    for group, event in events:
        if isinstance(event, Batch):
            new = event.records
            if already[event.entrant]:  # the remainder of a group interrupted between two dumps
                new = new.take(~np.isin(new.episode, list(already[event.entrant])))
            if len(new):
                writers[event.entrant].write(new)
            latest = int(event.records.tick.max()) if len(event.records) else 0
            tally.add_records(group, len(event.records), len(new), latest)
        elif isinstance(event, PlayedAgain):
            print(event.reason, file=sys.stderr)
            tally.start_over(group, sum(writer.drop_unfinished(group.numbers) for writer in writers))
            already = [set(writer.stored) for writer in writers]
        else:
            for writer, stored in zip(writers, already, strict=True):
                if event.number not in stored:
                    writer.finish_episode(event.number, event.description)
            tally.finish_episode(group)
            stored_size = _stored_size(writers)
        on_records(tally.recorded(*stored_size))


def metadata_of(contest: Contest, entrant: Entrant, plan: RecordingPlan) -> DumpMetadata:
    """Return the metadata of an entrant's dump."""
    layout = entrant.info.layout
    own = replace(contest.task, **encoding_of(entrant))
    task = {**task_record(own), "embeddings_dir": str(contest.task.embeddings_dir)}
    others = [other.name for other in contest.entrants if other is not entrant]
    tasks = [spec.name for spec in curriculum(contest.task, contest.env)]
    shown = {name: entrant.info.environment.get(name, default) for name, default in SHOWN.items()}
    world = {**asdict(contest.played), **shown, "maps_dir": str(contest.env.maps_dir)}  # each sees in its own way
    environment = {**world, "task": task, "tasks": tasks}
    watching = {
        network.name: {"steps": network.info.steps, "seed": network.info.seed, "sha256": network.sha256}
        for network in entrant.shadow_networks
    }
    seen_layers = {
        layer: network.policy.policy.hidden_size
        for network in entrant.shadow_networks
        for layer in shadow_layers(network.name, network.policy)
    }
    memory = {"cell": entrant.policy.cell, "layers": entrant.policy.layers}
    recording: dict[str, Any] = {
        "opponents": others, "most_ticks": plan.most_ticks, "memory": memory, "shadow_networks": watching,
        **contest.rules,
    }  # fmt: skip
    if place := [other is entrant for other in contest.entrants].index(True):  # left out for the first, as before
        recording[PLACE] = place
    if contest.random_actions:  # left out otherwise, so that a dump says the same as before there were any
        recording["random_actions"] = contest.random_actions
    return DumpMetadata(
        policy=entrant.name,
        agent=entrant.info.agent,
        checkpoint_sha256=entrant.sha256,
        steps_trained=entrant.info.known_steps,
        layers=layer_units(entrant.policy, plan.layers) | seen_layers,
        entity_columns=layout.entity_columns,
        inventory_columns=layout.item_columns,
        action_heads=tuple(ActionHead(head.name, head.size, head.noop) for head in layout.heads),
        environment={**environment, **recording},
        combat_status_ticks=GameConfig.COMBAT_STATUS_DURATION,
        seed=plan.seed,
        format=plan.format,
        precision=plan.precision,
        columns=optional_columns(layout, plan.fields, entrant.policy.mask),
        tables={"Market": layout.item_columns} if "Market" in plan.fields else {},
        versions=versions(),
    )


def _stored_size(writers: Sequence[DumpWriter]) -> tuple[int, int]:
    sizes = [writer.stored_size for writer in writers]
    return sum(records for records, _ in sizes), sum(size for _, size in sizes)


def _stored(group: Group, writers: Sequence[DumpWriter]) -> bool:
    return all(set(group.numbers) <= writer.stored.keys() for writer in writers)
