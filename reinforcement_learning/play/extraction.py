"""Play episodes with trained policies and record every living agent's activations at every tick."""

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from activation_store.schema import ActionHead, DumpMetadata, Format, Precision
from activation_store.writer import DumpWriter
from agent_zoo.agent_settings import SHOWN
from agent_zoo.capture import layer_units
from agent_zoo.checkpoint import versions
from reinforcement_learning.game.maps import GameConfig
from reinforcement_learning.game.tasks import curriculum
from reinforcement_learning.play.contest import Contest, Group, PlayedAgain
from reinforcement_learning.play.entrants import Entrant, encoding_of
from reinforcement_learning.play.parallel_play import play_groups
from reinforcement_learning.play.policy_pool import PolicyPool
from reinforcement_learning.play.recorder import Batch, Finished, Recorder, optional_columns
from reinforcement_learning.play.shadow_networks import shadow_layers
from reinforcement_learning.play.terminal import Recorded, Tally
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
    world = {**asdict(contest.env), **shown, "maps_dir": str(contest.env.maps_dir)}  # each policy sees in its own way
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
