"""Convert ticks of a policy pool to records of a dump."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from activation_store.columns import COLUMNS, Column, legal_column, logits_column, task_column
from activation_store.schema import RaggedRows, Records
from agent_zoo.capture import Captured, capture, layer_units
from agent_zoo.observation import ObservationLayout, PackedRows
from agent_zoo.observation_masking import ObservationMask
from reinforcement_learning.game.ground_truth import OwnRows, truth_columns, truth_of, withheld_columns
from reinforcement_learning.play.entrants import ShadowNetwork
from reinforcement_learning.play.policy_pool import EntrantActions, PolicyPool


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
