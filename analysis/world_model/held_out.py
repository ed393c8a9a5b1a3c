"""Recorded lives on maps that a world model was not trained on: where simulations start, and edits are fitted."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from activation_store.reader import read_batches, read_dump, read_metadata
from activation_store.schema import METADATA_FILE
from activation_store.selection import Subsample, select
from analysis.features.observed import Observed, own_truth_columns
from analysis.interventions.edits.edit_options import OWN
from analysis.interventions.edits.linear_readings import JointMoments, Reading
from analysis.recorded.sequences import SequenceBatch
from analysis.world_model.imagination import Start, bottleneck_start, informed_start, random_start
from analysis.world_model.model import Origin, WorldModel
from analysis.world_model.options import Beginning
from analysis.world_model.rules import Rules
from analysis.world_model.windows import (
    CONTEXT,
    Windows,
    check_dump,
    maps_of_episodes,
    read_sequences,
    read_windows,
    world_of,
)
from common.files import sha256
from common.user_error import UserError

LIVES_IN_EPISODE = 128
"""Most simulations in a batch, which are an episode of a simulated dump."""

_ONE_IN = 10
_MANY = 200_000  # records, above which only one in ten is read
_EVERYTHING_BUT_STATES = ("tile", "entity", "inventory", "tables", "reward", "value", "log_probability")


class Starts(NamedTuple):
    """Where S simulations start."""

    start: Start
    life: np.ndarray
    """Number of the recorded life that each goes on from, or of the start itself if it is random, (S,) int64."""
    ticks: np.ndarray | None
    """Episode, agent and tick that each goes on from, (S, 3) int64; None if they do not go on from single ones."""


@dataclass(frozen=True, eq=False)
class HeldOut:
    """A recorded dump of a world model's policy, with episodes on maps that the model was not trained on."""

    model: WorldModel
    origin: Origin  # of the model; `test` are the dump's episodes on other maps
    dump: Path

    @staticmethod
    def of(model: WorldModel, origin: Origin, dump: Path) -> "HeldOut":
        """Find the episodes of a dump: the one that the model was trained on, or another one of the same policy.

        Raises:
            UserError: the dump is of another policy, lacks something, or has no episode on such a map.
        """
        metadata = read_metadata(dump)
        if metadata.origin == "simulated":
            raise UserError(f"{dump} holds simulated lives: give a recorded dump with --dump")
        if metadata.checkpoint_sha256 != origin.policy_sha256:
            raise UserError(
                f"{dump} holds lives of {metadata.policy}, but the model holds the policy {origin.policy} with hash "
                f"{origin.policy_sha256[:12]}: give a dump of that policy with --dump"
            )
        world = metadata.environment
        # Of ages that the policy does not see, all are 0 in what is simulated: nobody would ever be old enough.
        spared = 0 if "time_alive" in model.policy.mask.withheld else world.get("spawn_immunity")
        model.network.rules = Rules.of_game(float(world.get("food_regrowth", 1)), spared)
        digest = sha256(dump / METADATA_FILE)
        if digest == origin.dump_sha256:
            return HeldOut(model, origin, dump)
        check_dump(dump, metadata, model.policy, model.info, origin.policy_sha256)
        known = origin.train_maps if world_of(metadata) == origin.world else ()
        maps = maps_of_episodes(metadata)
        test = tuple(episode for episode, number in maps.items() if number is not None and number not in known)
        if not test:
            raise UserError(
                f"{dump} has no episode on a map that the model was not trained on: record more --episodes, or give "
                "other maps with --map-seed"
            )
        return HeldOut(model, replace(origin, dump=dump.resolve().name, dump_sha256=digest, train=(), test=test), dump)

    def windows(self, horizon: int, seed: int, batch: int = LIVES_IN_EPISODE) -> Iterator[Windows]:
        """Yield windows of the held-out episodes, see `read_windows`."""
        return read_windows(self.dump, self.origin.test, horizon, batch, self.model.policy, self.model.info, seed)

    def sequences(self, horizon: int, seed: int, batch: int = LIVES_IN_EPISODE) -> Iterator[SequenceBatch]:
        """Yield the records of the same windows."""
        return read_sequences(self.dump, self.origin.test, horizon, batch, seed)

    def starts(self, beginning: Beginning, lives: int, seed: int, steps: int = 1) -> Iterator["Starts"]:
        """Yield up to 128 starts at a time; the same arguments give the same ones.

        Args:
            beginning: informed: from recorded ticks; random: from bottlenecks drawn at random, with the market and task
                of recorded ticks; interpolate: from bottlenecks on the way from one recorded start to another.
            lives: number of starts; of interpolated ones, a multiple of `steps`.
            steps: starts on each way, both ends included.

        Raises:
            UserError: the dump has too few windows.
        """
        left, epoch = lives, 0
        while left > 0:
            before = left
            for windows in self.windows(self.origin.horizon, seed + epoch):
                windows = windows.part(0, min(2 * left // steps if beginning == "interpolate" else left, len(windows)))
                generator, ticks = torch.Generator().manual_seed(seed * 2 + 1 + left), None
                if beginning == "informed":
                    start, life = informed_start(self.model, windows, generator), life_numbers(windows)
                    ticks = windows.identity.numpy() + np.array([0, 0, CONTEXT - 1])
                elif beginning == "random":
                    start = random_start(self.model, windows.around, generator)
                    life = lives - left + np.arange(len(windows))
                else:
                    windows = windows.part(0, min(len(windows), 2 * (LIVES_IN_EPISODE // steps)) // 2 * 2)
                    if not len(windows):
                        continue
                    start, life = _between(self.model, windows, steps, generator)
                yield Starts(start, life, ticks)
                left -= len(life)
                if left <= 0:
                    return
            if left == before:
                raise UserError(f"{self.dump} holds no life of more than three ticks on the maps kept for testing")
            epoch += 1

    def states(self, layers: Sequence[str]) -> Mapping[str, np.ndarray]:
        """Return one in ten states of some layers in the held-out episodes, (B, units) each.

        Raises:
            UserError: the dump lacks a layer.
        """
        return read_dump(
            self.dump, subsample=Subsample(_ONE_IN), layers=layers, columns=[], leave_out=_EVERYTHING_BUT_STATES,
            episodes=self.origin.test,
        ).activations  # fmt: skip

    def covariance(self, layer: str) -> np.ndarray:
        """Return the covariance of `states` of a layer, (units, units)."""
        return np.cov(self.states([layer])[layer].astype(np.float64), rowvar=False)

    @property
    def known(self) -> tuple[int, ...]:
        """Episodes on maps that the model was trained on, where no simulation starts; all if the dump has none."""
        stored = tuple(maps_of_episodes(read_metadata(self.dump)))
        return tuple(episode for episode in stored if episode not in self.origin.test) or stored

    def moments(self, reading: Reading) -> JointMoments:
        """Return the moments of a layer's states and of variables of the same records, in the episodes of `known`.

        Of more than 200,000 records, one in ten is read. Variables have the values of the game, also those that the
        policy does not see.

        Raises:
            UserError: the dump lacks the layer.
        """
        metadata = read_metadata(self.dump)
        columns = [name.removeprefix(OWN) for name in reading.variables if name.startswith(OWN)]
        parts = select(
            self.dump, metadata, layers=[reading.layer], columns=own_truth_columns(metadata),
            leave_out=[name for name in _EVERYTHING_BUT_STATES if name != "entity"],
            episodes=self.known,
            subsample=Subsample(_ONE_IN if metadata.records > _MANY else 1),
        )  # fmt: skip
        sums = reading.empty(metadata.layers[reading.layer])
        for batch in read_batches(self.dump, metadata, parts):
            seen = Observed(batch, metadata)
            rows = np.stack([batch.agent_id, *map(seen.own, columns)], axis=1)  # (B, 1 + columns)
            sums += reading.sums(batch.activations[reading.layer], rows, ["", *columns], batch.tick)
        return reading.of(sums)


def _between(model: WorldModel, windows: Windows, steps: int, generator: torch.Generator) -> tuple[Start, np.ndarray]:
    """Return the starts on the ways from each even window's bottleneck to that of the window after it, way by way.

    On the sphere they are on the great circle, at equal angles. Market and task are those of the first end.
    """
    ends = informed_start(model, windows, generator).vector.unflatten(0, (-1, 2))  # (ways, 2, dimensions)
    share = torch.linspace(0, 1, steps).view(1, -1, 1)
    one, other = ends[:, :1], ends[:, 1:]
    if model.network.kind == "sphere":
        angle = (one * other).sum(dim=2, keepdim=True).clamp(-1, 1).acos().clamp(min=1e-4)
        vector = (((1 - share) * angle).sin() * one + (share * angle).sin() * other) / angle.sin()
        vector = torch.nn.functional.normalize(vector, dim=2)
    else:
        vector = (1 - share) * one + share * other
    first = torch.arange(0, len(windows), 2).repeat_interleave(steps)
    start = bottleneck_start(model, vector.flatten(0, 1), windows.around.take(first), generator)
    return start, life_numbers(windows, first)


def life_numbers(windows: Windows, chosen: torch.Tensor | None = None) -> np.ndarray:
    """Return a number for each window's life, (some,) int64; no episode has as many as 100,000 agents."""
    identity = windows.identity if chosen is None else windows.identity[chosen]
    return (identity[:, 0] * 100_000 + identity[:, 1]).numpy()
