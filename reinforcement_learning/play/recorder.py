"""Convert ticks of a policy pool to records of a dump.

What the engine knows and observations hide is recorded for each agent-tick as `truth/NAME`.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from activation_store.columns import COLUMNS, TRUTH, Column, legal_column, logits_column, task_column, truth_column
from activation_store.schema import RaggedRows, Records
from agent_zoo.capture import Captured, capture, layer_units
from agent_zoo.observation import ObservationLayout, PackedRows
from agent_zoo.observation_masking import POSITION, ObservationMask
from reinforcement_learning.play.entrants import ShadowNetwork
from reinforcement_learning.play.policy_pool import EntrantActions, PolicyPool

Read = Callable[[Any, Any], float]


LABELS: dict[str, tuple[Column, Read]] = {
    "spawn_row": (
        truth_column("int16", "tiles", "Row where the life began."), lambda p, _: p.history.starting_position[0],
    ),
    "spawn_col": (
        truth_column("int16", "tiles", "Column where the life began."), lambda p, _: p.history.starting_position[1],
    ),
    "farthest": (
        truth_column(
            "int16", "tiles", "Farthest that it has come from the map's edge, where lives begin, towards the centre."
        ),
        lambda p, _: p.history.exploration,
    ),
    "damage_received": (
        truth_column("int32", "health", "Damage received in this life so far."), lambda p, _: p.history.damage_received,
    ),
    "damage_inflicted": (
        truth_column("int32", "health", "Damage inflicted in this life so far."),
        lambda p, _: p.history.damage_inflicted,
    ),
    "player_kills": (
        truth_column("int16", "kills", "Agents and NPCs killed so far."), lambda p, _: p.history.player_kills,
    ),
    "health_restored": (
        truth_column("int16", "health", "Health restored in the last tick."), lambda p, _: p.resources.health_restore,
    ),
    "task_progress": (
        truth_column("float32", "0 to 1", "Best progress in its task so far."),
        lambda _, task: task.progress_info["max_progress"],
    ),
}  # fmt: skip
"""Name -> its column, and what reads it from the engine's player and the player's task."""
TASK = "task"


def truth_columns() -> dict[str, Column]:
    """Describe the columns, by name."""
    labels = {TRUTH + name: column for name, (column, _) in LABELS.items()}
    task = truth_column("int32", "number", "Number of the agent's task among environment.tasks of the metadata.")
    return {**labels, TRUTH + TASK: task}


def truth_of(game: Any, agents: Sequence[int], task_numbers: dict[str, int]) -> dict[str, np.ndarray]:
    """Read the labels of living agents before they act: column name -> (agents,)."""
    players = [game.realm.players[agent] for agent in agents]
    tasks = [game.agent_task_map[agent][0] for agent in agents]
    pairs = list(zip(players, tasks, strict=True))
    columns = {
        TRUTH + name: np.array([read(player, task) for player, task in pairs], dtype=column.dtype)
        for name, (column, read) in LABELS.items()
    }
    columns[TRUTH + TASK] = np.array([task_numbers[task.spec_name] for task in tasks], dtype=np.int32)
    return columns


def withheld_columns(mask: ObservationMask) -> dict[str, Column]:
    """Describe the columns of an agent's own row hidden from its policy, by name; positions have their own columns."""
    return {
        TRUTH + name: truth_column("int16", "as observed", f"The agent's {name}, which is hidden from its policy.")
        for name in mask.withheld
        if name not in POSITION
    }


class OwnRows:
    """Each agent's own row among the entities that it sees, before masking.

    Attributes:
        values: (B, columns) int16.
    """

    def __init__(self, observations: np.ndarray, layout: ObservationLayout):
        """Find the rows in the game's padded observations, (B,) structured."""
        self._column = {name: place for place, name in enumerate(layout.entity_columns)}
        entities = observations["Entity"]  # (B, rows, columns)
        row = np.argmax(entities[:, :, 0] == observations["AgentId"].reshape(-1, 1), axis=1)
        self.values = entities[np.arange(len(entities)), row]

    @property
    def position(self) -> np.ndarray:
        """Rows and columns on the map, (B, 2) int16."""
        return self.values[:, [self._column[name] for name in POSITION]]

    def withheld(self, mask: ObservationMask) -> dict[str, np.ndarray]:
        """Return the columns described by `withheld_columns`: column name -> (B,) int16."""
        return {name: self.values[:, self._column[name.removeprefix(TRUTH)]] for name in withheld_columns(mask)}


@dataclass(frozen=True)
class Batch:
    """Records of one entrant, of one tick of all worlds."""

    entrant: int  # its index among the entrants
    records: Records
    slots: np.ndarray  # of these agents, (P,) int64


@dataclass(frozen=True)
class Finished:
    """An episode has ended; `description` is its entry in the metadata."""

    number: int
    description: dict[str, Any]


def optional_columns(layout: ObservationLayout, fields: Sequence[str], mask: ObservationMask) -> dict[str, Column]:
    """Describe the optional columns to record; columns hidden from the policy are recorded as `truth/NAME`."""
    sizes = [head.size for head in layout.heads]
    optional = {
        "Task": ("task", task_column(layout.task_size)),
        "ActionTargets": ("legal", legal_column(sizes)),
        "Logits": ("logits", logits_column(sizes)),
    }
    return {
        **{name: COLUMNS[name] for name in ("map", "row", "col", "life", "done")},
        **dict(optional[name] for name in fields if name in optional),
        **truth_columns(),
        **withheld_columns(mask),
    }


class Recorder:
    """Records the observations, activations and actions of a pool's entrants in a group of episodes."""

    def __init__(self, pool: PolicyPool, layers: Sequence[str], fields: Sequence[str]):
        """Record the given layers and optional fields (UserError: a policy lacks a layer)."""
        self.pool = pool
        self.layers = [tuple(layer_units(policy, layers)) for policy in pool.policies]
        self.fields = fields
        self.task_numbers = {name: number for number, name in enumerate(pool.tasks)}

    def record(
        self, seed: int, numbers: Sequence[int], most_ticks: int | None, first: bool = True
    ) -> Iterator[Batch | Finished]:
        """Play episodes in parallel, at most `most_ticks` ticks each, and yield their records."""
        with contextlib.ExitStack() as stack:
            captured = [
                stack.enter_context(capture(policy, layers))
                for policy, layers in zip(self.pool.policies, self.layers, strict=True)
            ]
            self.pool.start(seed, numbers, first)
            self.begin()
            while self.running and self.ticks != most_ticks:
                choices, batches = [], []
                for choice in self.pool.decide():
                    choices.append(choice)
                    batches.append(self.before(choice, captured[choice.entrant]))
                self.pool.advance(choices)
                yield from self.after(batches)
            yield from (self._finished(world) for world in self.running)

    def begin(self) -> None:
        """Prepare for the episodes that the pool has just started."""
        self.numbers = np.array(self.pool.numbers)
        self.episodes = [shared.world.episodes.episode for shared in self.pool.shared]
        self.maps = np.array([shared.world.episodes.map_number for shared in self.pool.shared], dtype=np.int32)
        by_world = self.pool.entrant_of.reshape(-1, self.pool.agents)
        self.life_of = np.zeros(self.pool.slots, np.int32)
        for entrant in range(len(self.pool.entrants)):  # in each world, its lives by number: an agent lives once
            played = by_world == entrant
            self.life_of[played.ravel()] = (np.cumsum(played, axis=1) - 1)[played]
        self.shadow_networks = [
            [ShadowNetwork(network, self.pool.slots, self.pool.device) for network in entrant.shadow_networks]
            for entrant in self.pool.entrants
        ]
        self.running = list(range(len(self.numbers)))
        self.ticks = 0

    def before(self, choice: EntrantActions, captured: Captured) -> Batch:
        """Return the records of an entrant's actions before they are played, without their outcome.

        They are copies, since the tick overwrites what they are made of.
        """
        decision, slots = choice.decision, choice.decision.present
        seen, world = decision.observation, slots // self.pool.agents
        full = self.pool.arrival.observations[slots]
        own = OwnRows(full, self.pool.layout)
        tile = full["Tile"].copy()  # (slots, tiles, 3)
        tile[:, :, 2] = seen.material.numpy()
        if not self.pool.policies[choice.entrant].mask.absolute:
            tile[:, :, :2] -= own.position[:, None]
        log_probability = decision.distribution.log_probability(choice.action)
        activations = {layer: captured[layer].cpu().numpy() for layer in self.layers[choice.entrant]}
        for network in self.shadow_networks[choice.entrant]:
            activations |= network.watch(decision)
        records = Records(
            step=np.full(len(slots), self.ticks),
            env_id=slots % self.pool.agents,
            agent_id=seen.agent_id.numpy().astype(np.int64),
            episode=self.numbers[world].astype(np.int64),
            tick=full["CurrentTick"].astype(np.int64).ravel(),
            reward=np.zeros(len(slots), np.float32),
            value=decision.value,
            action=choice.action.cpu().numpy(),
            log_probability=log_probability.cpu().numpy(),
            activations=activations,
            tile=tile,
            entity=_ragged(seen.entity),
            inventory=_ragged(seen.inventory),
            columns=self._columns(choice, world, own),
            tables={"Market": _ragged(seen.market)} if "Market" in self.fields else {},
        )
        return Batch(choice.entrant, records, slots)

    def after(self, batches: Iterable[Batch]) -> Iterator[Batch | Finished]:
        """Yield the records with their outcome, once the tick has been played, and the episodes that it has ended."""
        after = self.pool.arrival
        for batch in batches:
            outcome = {**batch.records.columns, "done": ~after.acting[batch.slots]}
            yield replace(batch, records=replace(batch.records, reward=after.reward[batch.slots], columns=outcome))
        self.ticks += 1
        acting = after.acting.reshape(-1, self.pool.agents)  # (worlds, agents)
        for world in [world for world in self.running if not acting[world].any()]:
            self.running.remove(world)
            yield self._finished(world)

    def _finished(self, world: int) -> Finished:
        number, episode, on = int(self.numbers[world]), self.episodes[world], int(self.maps[world])
        described = {"episode": number, "seed": episode.first_seed, "episode_of_seed": episode.number, "map": on}
        return Finished(number, described)

    def _columns(self, choice: EntrantActions, world: np.ndarray, own: OwnRows) -> dict[str, np.ndarray]:
        seen = choice.decision.observation
        row, col = own.position.T
        life = self.life_of[choice.decision.present]
        columns: dict[str, np.ndarray] = {"map": self.maps[world], "row": row, "col": col, "life": life}
        if "Task" in self.fields:
            columns["task"] = seen.task.numpy().astype(np.float32)
        if "ActionTargets" in self.fields:
            columns["legal"] = seen.legal.numpy()
        if "Logits" in self.fields:
            logits = choice.decision.distribution.log_probabilities
            columns["logits"] = np.concatenate([head.cpu().numpy() for head in logits], axis=1)
        truth = []
        for number in np.unique(world):
            shared = self.pool.shared[number]
            slots = (choice.decision.present[world == number] % self.pool.agents).tolist()
            truth.append(truth_of(shared.world.game, [shared.agents[slot] for slot in slots], self.task_numbers))
        columns |= {name: np.concatenate([part[name] for part in truth]) for name in truth[0]}
        return columns | own.withheld(self.pool.policies[choice.entrant].mask)


def _ragged(rows: PackedRows) -> RaggedRows:
    return RaggedRows(rows.values.numpy(), np.concatenate([[0], np.cumsum(rows.counts.numpy())]))
