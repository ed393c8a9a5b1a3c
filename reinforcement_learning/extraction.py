"""Plays episodes with a trained policy and records, for every living agent and tick, what went on inside it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from activation_store.columns import COLUMNS
from activation_store.schema import ActionHead, DumpMetadata, Format, Precision, RaggedRows, Records
from activation_store.writer import DumpWriter
from agent_zoo.base import RecurrentPolicy
from agent_zoo.observation import ObservationLayout, PackedRows
from reinforcement_learning.capture import Captured, capture, layer_units
from reinforcement_learning.checkpoint import CheckpointInfo, build_policy, untrained_info
from reinforcement_learning.environment import Episode, make_environment, observation_layout
from reinforcement_learning.game_config import GameConfig
from reinforcement_learning.player import Arrival, Decision, Player
from reinforcement_learning.settings import EnvironmentSettings, RolloutSettings, Settings, TaskSettings
from reinforcement_learning.stopwatch import Stopwatch
from reinforcement_learning.vectorization import first_episodes, make_worlds
from reinforcement_learning.versions import versions

ONE_WORLD = RolloutSettings(num_envs=1, vectorization="serial")


@dataclass(frozen=True)
class Subject:
    """The policy under study.

    Attributes:
        name: of the policy, and of the dump's folder.
        policy: ready to run.
        info: what its checkpoint says of it.
        sha256: of the checkpoint file; None for a policy that has none.
    """

    name: str
    policy: RecurrentPolicy
    info: CheckpointInfo
    sha256: str | None


@dataclass(frozen=True)
class Plan:
    """What to record.

    Attributes:
        episodes: to play, one after the other.
        max_steps: ticks after which to stop even in mid-episode; None plays every episode to its end.
        seed: of the episodes and of the actions.
        layers: names from `activation_store.schema.LAYERS`.
        env: the world.
        task: what agents are asked to do.
        format: of the dump.
        precision: that activations are stored in.
    """

    episodes: int
    max_steps: int | None
    seed: int
    layers: tuple[str, ...]
    env: EnvironmentSettings
    task: TaskSettings
    format: Format = "json"
    precision: Precision = "float32"


def untrained_subject(agent: str, settings: Settings, maps: Path, seed: int) -> Subject:
    """Build an agent with fresh weights, for a test or as a floor to compare with."""
    layout = observation_layout(make_environment(agent, settings.env, settings.task, maps))
    info = untrained_info(agent, settings, layout)
    torch.manual_seed(seed)
    return Subject(f"untrained_{agent}", build_policy(info).eval(), info, sha256=None)


def extract(subject: Subject, plan: Plan, maps: Path, folder: Path, on_tick: Callable[[int, int], None]) -> None:
    """Play, and write the dump.

    Args:
        subject: who plays: all agents of the world.
        plan: what to record.
        maps: a finished folder from `ensure_maps`.
        folder: of the dump; must not hold one yet.
        on_tick: called after each tick with (episodes begun, records so far).

    Raises:
        UserError: the folder already holds a dump, a layer does not exist, or an activation is not finite.
    """
    metadata = _metadata(subject, plan)
    worlds = make_worlds(subject.info.agent, plan.env, plan.task, ONE_WORLD, maps, first_episodes(plan.seed, 1))
    try:
        player = Player(worlds, subject.policy, subject.info.layout, Stopwatch())
        with capture(subject.policy, plan.layers) as captured, DumpWriter(folder, metadata) as writer:
            episodes = _record(player, plan, writer, captured, on_tick)
            writer.close(episodes)
    finally:
        worlds.close()


def _record(
    player: Player, plan: Plan, writer: DumpWriter, captured: Captured, on_tick: Callable[[int, int], None]
) -> list[dict]:
    """Play the planned episodes and return what the metadata says of them."""
    episodes: list[dict] = []
    records = step = 0
    generator = torch.Generator(player.device).manual_seed(plan.seed)
    player.reset()
    while plan.max_steps is None or step < plan.max_steps:
        for episode in player.arrival.episodes:
            if episodes:
                writer.finish_episode(len(episodes) - 1, episodes[-1])
            episodes.append(_episode(len(episodes), episode))
        decision = player.decide()
        chosen = decision.distribution.sample(generator)
        log_probability = decision.distribution.log_probability(chosen)
        tile = player.arrival.observations["Tile"][decision.present]  # read before the tick overwrites it
        activations = {layer: captured[layer].cpu().numpy() for layer in plan.layers}
        over = not decision.acting.any()
        if over and len(episodes) == plan.episodes:
            break
        player.act(decision, decision.over_slots(chosen))
        batch = _records(decision, chosen, log_probability, activations, tile, player.arrival, step, episodes[-1])
        writer.write(batch)
        records += len(batch)
        step += 1
        on_tick(len(episodes), records)
    return episodes


def _records(
    decision: Decision, chosen: torch.Tensor, log_probability: torch.Tensor, activations: dict[str, np.ndarray],
    tile: np.ndarray, after: Arrival, step: int, episode: dict,
) -> Records:  # fmt: skip
    """Turn one tick's decision, and what came of it, into records of the agents that acted."""
    acting = decision.acting[decision.present]
    slots = decision.present[acting]
    seen = decision.observation
    everyone = Records(
        step=np.full(len(decision.present), step),
        env_id=decision.present,
        agent_id=seen.agent_id.numpy().astype(np.int64),
        episode=np.full(len(decision.present), episode["episode"]),
        tick=seen.tick.numpy().astype(np.int64),
        reward=after.reward[decision.present],
        value=decision.value,
        action=chosen.cpu().numpy(),
        log_probability=log_probability.cpu().numpy(),
        activations=activations,
        tile=tile,
        entity=_ragged(seen.entity),
        inventory=_ragged(seen.inventory),
        columns={
            "map": np.full(len(decision.present), episode["map"], np.int32),
            "done": ~after.acting[decision.present],
        },
    )
    return everyone if len(slots) == len(decision.present) else everyone.take(acting)


def _ragged(rows: PackedRows) -> RaggedRows:
    return RaggedRows(rows.values.numpy(), np.concatenate([[0], np.cumsum(rows.counts.numpy())]))


def _episode(number: int, episode: Episode) -> dict:
    return {
        "episode": number,
        "seed": episode.first_seed,
        "episode_of_seed": episode.number,
        "map": episode.map_number,
    }


def _metadata(subject: Subject, plan: Plan) -> DumpMetadata:
    layout: ObservationLayout = subject.info.layout
    task = {**asdict(plan.task), "embeddings_dir": str(plan.task.embeddings_dir)}
    environment = {**asdict(plan.env), "maps_dir": str(plan.env.maps_dir), "task": task}
    return DumpMetadata(
        policy=subject.name,
        agent=subject.info.agent,
        checkpoint_sha256=subject.sha256,
        steps_trained=subject.info.steps,
        layers=layer_units(subject.policy, plan.layers),
        entity_columns=layout.entity_columns,
        inventory_columns=layout.item_columns,
        action_heads=tuple(ActionHead(head.name, head.size, head.noop) for head in layout.heads),
        environment=environment,
        combat_status_ticks=GameConfig.COMBAT_STATUS_DURATION,
        seed=plan.seed,
        format=plan.format,
        precision=plan.precision,
        columns={name: COLUMNS[name] for name in ("map", "done")},
        versions=versions(),
    )
