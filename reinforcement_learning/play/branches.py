"""Play an episode on from one of its ticks twice: as it was, and with other dice for all but a few agents.

These agents are drawn at random, and do the same in both courses. So what they see differs by what the others do, and
by the game's own dice. Also the world that a dump was recorded in, to play its episodes again, and ticks of it drawn at
random.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import nmmo
import numpy as np
import torch

from activation_store.reader import read_dump
from activation_store.records import Records
from activation_store.schema import DumpMetadata, refuse_kept_memory
from activation_store.selection import CAN_BE_LEFT_OUT
from agent_zoo.capture import capture
from agent_zoo.checkpoint_files import policy_names, policy_path
from agent_zoo.observation import ActionHead, ObservationLayout, PackedObservation
from common.user_error import UserError
from reinforcement_learning.game.maps import ensure_maps
from reinforcement_learning.play.contest import Contest, Group, maps_of_group
from reinforcement_learning.play.entrants import load_entrant
from reinforcement_learning.play.policy_pool import EntrantActions, PolicyPool
from reinforcement_learning.play.recorder import Batch, Recorder
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings

FIELDS = ("Market", "Task", "ActionTargets")
"""Fields that are recorded, so that the policy's observations can be rebuilt."""
OTHER_DICE = 1
_KIND = ("type_id", "level")
"""Columns that tell kinds of items apart."""


@dataclass(frozen=True)
class BranchPoint:
    """Where the two courses part."""

    episode: int  # number of the episode in its seed's sequence
    tick: int  # of the episode, from 0; its actions are the first that differ


@dataclass(frozen=True)
class BranchPlan:
    """What to play from each point, and what of it to keep."""

    seed: int
    agents: int  # drawn at random at each point; of fewer that are alive, all are taken
    before: int  # ticks to record before the point
    after: int  # ticks to record after it
    layers: tuple[str, ...]
    throw: int = OTHER_DICE  # number of the throw of the other dice; 0 throws the same ones

    def ticks(self, point: BranchPoint) -> range:
        """Return the ticks that are recorded."""
        return range(point.tick - self.before, point.tick + self.after + 1)


Branch = tuple[Records, Records]
"""Two courses of an episode from one point on: records of the drawn agents in the episode as it is, from some ticks
before the point, and of the same agents where the others' dice, and the game's own, were thrown anew at the point."""


def play_branches(pool: PolicyPool, plan: BranchPlan, points: Sequence[BranchPoint]) -> Iterator[Branch]:
    """Play both courses of each point, and yield them in order of episodes and ticks.

    A branch is the same whichever others are played beside it. If none of the drawn agents is alive at the point, it is
    left out.

    Args:
        points: different ones, each at least `plan.before` ticks after its episode's start.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in extraction: with more, sums are rounded differently
    try:
        for episode in sorted({point.episode for point in points}):
            mine = sorted((point for point in points if point.episode == episode), key=lambda point: point.tick)
            for point, real in zip(mine, _unbranched(pool, plan, mine), strict=True):
                if real is not None:
                    yield real, _branched(pool, plan, point, real)
    finally:
        torch.set_num_threads(threads)


def _unbranched(pool: PolicyPool, plan: BranchPlan, points: Sequence[BranchPoint]) -> list[Records | None]:
    """Play an episode as it is, and return what is recorded for each point; None where no drawn agent is alive."""
    course = _Course(pool, plan, points[0].episode)
    drawn: dict[BranchPoint, np.ndarray] = {}
    kept: dict[BranchPoint, list[Records]] = {point: [] for point in points}
    while not course.over(points[-1]):
        now = [point for point in points if pool.ticks in plan.ticks(point)]
        for point in now:
            if point not in drawn:
                drawn[point] = _drawn(pool, plan, point)
        for records in course.tick(bool(now)):
            for point in now:
                kept[point].append(records.take(np.isin(records.agent_id, drawn[point])))
    real = {point: Records.concatenate(ticks) for point, ticks in kept.items() if ticks}
    alive = {point: np.isin(all_.agent_id, all_.agent_id[all_.step == point.tick]) for point, all_ in real.items()}
    return [real[point].take(alive[point]) if point in real and alive[point].any() else None for point in points]


def _branched(pool: PolicyPool, plan: BranchPlan, point: BranchPoint, real: Records) -> Records:
    """Play an episode with other dice from a point on, where the agents of `real` do what they did."""
    course = _Course(pool, plan, point.episode)
    agents, kept = np.unique(real.agent_id), []
    while not course.over(point):
        if pool.ticks == point.tick and plan.throw:
            pool.throw = plan.throw
            throw_anew(pool.shared[0].world.game, [pool.first_seed, point.episode, point.tick, plan.throw])
        done = real if pool.ticks >= point.tick else None
        for records in course.tick(pool.ticks in plan.ticks(point), done):
            kept.append(records.take(np.isin(records.agent_id, agents)))
    return Records.concatenate(kept)


class _Course:
    """One episode, played tick by tick."""

    def __init__(self, pool: PolicyPool, plan: BranchPlan, episode: int):
        self.pool, self.plan = pool, plan
        self.recorder = Recorder(pool, plan.layers, FIELDS)
        pool.start(plan.seed, [episode])
        self.recorder.begin()

    def over(self, last: BranchPoint) -> bool:
        return self.pool.is_over or self.pool.ticks > last.tick + self.plan.after

    def tick(self, recorded: bool, done: Records | None = None) -> Iterator[Records]:
        """Play a tick, in which some agents repeat what they have `done`; yield its records if they are wanted."""
        choices, batches = [], []
        with capture(self.pool.policies[0], self.plan.layers) as captured:
            for choice in self.pool.decide():
                if done is not None:
                    choice = _repeating(choice, done, self.pool)
                choices.append(choice)
                if recorded and choice.entrant == 0:
                    batches.append(self.recorder.before(choice, captured))
        self.pool.advance(choices)
        for event in self.recorder.after(batches):
            if isinstance(event, Batch):
                yield event.records


def _repeating(choice: EntrantActions, done: Records, pool: PolicyPool) -> EntrantActions:
    """Let the agents of some records do what they did in this tick; those that were dead by then do as they like."""
    then = done.take(done.step == pool.ticks)
    decision = choice.decision
    place = {agent: row for row, agent in enumerate(decision.observation.agent_id.tolist())}
    there = np.array([agent in place for agent in then.agent_id.tolist()], bool)
    if not there.any():
        return choice
    then = then.take(there)
    rows = torch.tensor([place[agent] for agent in then.agent_id.tolist()])
    options = same_choices(then, decision.observation, rows, pool.layout).to(choice.action.device)
    return replace(choice, action=choice.action.index_copy(0, rows.to(choice.action.device), options))


def _drawn(pool: PolicyPool, plan: BranchPlan, point: BranchPoint) -> np.ndarray:
    """Draw agents of the first policy among those that are alive when the recording of a point begins, by their ids."""
    alive = np.flatnonzero(pool.arrival.acting & (pool.entrant_of == 0))
    random = np.random.default_rng([pool.first_seed, point.episode, point.tick])
    chosen = random.permutation(alive)[: plan.agents]
    return np.array([pool.shared[0].agents[slot] for slot in chosen.tolist()], np.int64)


def same_choices(
    records: Records, observation: PackedObservation, rows: torch.Tensor, layout: ObservationLayout
) -> torch.Tensor:
    """Return the options that mean in one course what was chosen in another.

    An option that is a row stands for the entity or item there: the row of the same one is chosen. If it is not to be
    seen, an item of the same type and level is chosen instead, the first of them; if there is none, and of entities,
    the no-op. All other options are the same.

    Args:
        records: of P agents in the course to repeat, with the Market.
        observation: of agents in the other course, after their policy's mask.
        rows: which of these are the same P agents, (P,) int64.

    Returns:
        (P, heads) int64.
    """
    seen = observation.take(rows)
    tables = {
        "entity": (records.entity, seen.entity),
        "inventory": (records.inventory, seen.inventory),
        "market": (records.tables["Market"], seen.market),
    }
    options = torch.from_numpy(records.action.copy())
    for column, head in enumerate(layout.heads):
        if head.candidates is None:
            continue
        before, now = tables[head.candidates]
        for agent, option in enumerate(records.action[:, column].tolist()):
            then = before.values[before.offsets[agent] : before.offsets[agent + 1]]
            start = int(now.starts[agent])
            there = now.values[start : start + int(now.counts[agent])].numpy()
            options[agent, column] = _same_row(head, option, then, there, layout)
    return options


def _same_row(head: ActionHead, option: int, then: np.ndarray, now: np.ndarray, layout: ObservationLayout) -> int:
    """Return the row of the same thing, or of one like it, in another table; the no-op if there is none."""
    assert head.noop is not None and head.candidates is not None
    if option >= len(then):
        return head.noop
    (matches,) = np.nonzero(now[:, 0] == then[option, 0])  # column 0 is the id
    if not len(matches) and head.candidates != "entity":
        columns = [layout.item_columns.index(name) for name in _KIND]
        (matches,) = np.nonzero((now[:, columns] == then[option, columns]).all(axis=1))
    return int(matches[0]) if len(matches) else head.noop


def throw_anew(game: nmmo.Env, seed: Sequence[int]) -> None:
    """Replace the game's random numbers in the middle of an episode; all else about the world stays as it is."""
    # Tiles and entities hold this very generator, so it is changed in place.
    generator: Any = game.realm._np_random
    generator.bit_generator.state = np.random.PCG64(np.random.SeedSequence(list(seed))).state
    generator._dir_seq[:] = generator.integers(0, 4, size=len(generator._dir_seq)).tolist()


def recorded_contest(
    folder: Path, metadata: DumpMetadata, policies: Path, maps: Path, episodes: Sequence[int]
) -> Contest:
    """Return the policy of a dump in its world, with the maps of some episodes.

    Args:
        maps: parent folder of maps; those that are missing are generated.

    Raises:
        UserError: the dump was not played by one policy alone and unedited, or the policy is not in the folder, or it
            is another one than played.
    """
    environment = metadata.environment
    if (
        metadata.seed is None
        or metadata.origin != "game"
        or "intervention" in environment
        or environment.get("opponents")
    ):
        raise UserError(
            f"{folder} cannot be played again: give a dump of one policy alone, from extract_activations.py pve"
        )
    refuse_kept_memory(folder, metadata)
    policy_names(policies, (metadata.policy,))
    entrant = load_entrant(policy_path(policies, metadata.policy))
    if entrant.sha256 != metadata.checkpoint_sha256:
        raise UserError(
            f"{folder} was recorded from a policy with hash {str(metadata.checkpoint_sha256)[:12]}, but "
            f"{metadata.policy} in {policies} has {str(entrant.sha256)[:12]}: give the folder that it came from with "
            "--policies-dir"
        )
    world = {field.name: environment[field.name] for field in fields(EnvironmentSettings) if field.name in environment}
    env = EnvironmentSettings(**{**world, "maps_dir": maps})
    task = TaskSettings(**environment["task"])
    folder_of_maps = ensure_maps(env, numbers=maps_of_group(env, Group(metadata.seed, tuple(episodes))))
    random_actions = float(environment.get("random_actions", 0))
    return Contest((entrant,), env, task, folder_of_maps, torch.device("cpu"), random_actions)


def drawn_points(folder: Path, episodes: Sequence[int], number: int, before: int, seed: int) -> list[BranchPoint]:
    """Draw ticks of a dump at random, each as often as it has records, but none twice.

    Args:
        before: ticks that a life must have had before.

    Raises:
        UserError: the episodes have fewer such ticks.
    """
    records = read_dump(folder, episodes=episodes, layers=(), columns=(), leave_out=CAN_BE_LEFT_OUT)
    late = records.step >= before
    moments, counts = np.unique(np.stack([records.episode, records.step], axis=1)[late], axis=0, return_counts=True)
    if len(moments) < number:
        raise UserError(f"{folder} has only {len(moments)} ticks to branch from, not {number}: ask for fewer branches")
    random = np.random.default_rng(seed)
    chosen = random.choice(moments, number, replace=False, p=counts / counts.sum(), axis=0)
    return [BranchPoint(int(episode), int(tick)) for episode, tick in chosen]
