"""A world model in one file: its own weights, what it measured on its training records, and its policy.

Its network says where others are likely to be, but one that predicts from its own predictions forgets within a few
ticks who was where. The last view in which others were seen does not change, so it is kept, with how far they are
likely to have drifted since; both are weighed by how many ticks ago that was.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from math import isqrt
from pathlib import Path
from typing import Any, Self

import numpy as np
import orjson
import torch
from torch.nn import functional

from agent_zoo.base import RecurrentPolicy
from agent_zoo.checkpoint import CheckpointInfo, as_arrays, as_tensors, build_policy
from agent_zoo.observation import ObservationLayout
from analysis.world_model.network import Bottleneck, Sizes, WorldNetwork
from analysis.world_model.policy_interface import action_size
from analysis.world_model.scene import (
    ITEM_TYPES,
    KINDS,
    MOVES,
    VITAL_LEVELS,
    SceneShape,
    SoftScene,
    Tables,
    displacement,
    own_columns,
    vital_columns,
    vital_levels,
)
from analysis.world_model.windows import Windows
from common.array_files import Kind, read_tensors, write_tensors
from common.user_error import UserError

HEADS = (
    "material", "kinds", "target", "health", "vitals", "own", "item_type", "items", "legal", "move", "reward", "end",
    "hidden", "cell",
)  # fmt: skip
"""What is predicted, by name; `hidden` and `cell` are the policy's memory after it has seen the predicted tick."""

_LEAST = 1e-3
_LEAST_NATS = 0.5


@dataclass(frozen=True)
class Statistics(Tables):
    """Means and spreads of training records."""

    kind_means: torch.Tensor  # of the columns of `Scene.own` over other entities of each kind, (kinds, columns)
    own_mean: torch.Tensor  # mean of each column of `Scene.own`, (columns,)
    # own_step: unit in which each column is predicted, (columns,): the root mean square of its change in a tick, or a
    # tenth of its standard deviation if that is more; 0 where it never changes
    own_step: torch.Tensor
    item_step: torch.Tensor  # likewise of the columns of items, (columns,)
    reward: torch.Tensor  # mean and standard deviation, (2,)
    # memory: mean squared distance of the policy's hidden and cell states from their means, per unit, (2,)
    memory: torch.Tensor
    # nats: of each of `HEADS` in a tick, if only the frequencies of values are known, at least half a nat, (heads,)
    nats: torch.Tensor


def measure(batches: Iterable[Windows], layout: ObservationLayout) -> Statistics:
    """Measure them on some windows, all of which are held in memory.

    Raises:
        UserError: there are none.
    """
    windows, shape, vitals = list(batches), SceneShape.of(layout), vital_columns(layout)
    if not windows:
        raise UserError("no life in the training episodes lasts longer than three ticks: record longer episodes")
    own, kept_items, moves = (torch.cat(part) for part in zip(*map(_changes, windows), strict=True))
    rewards, ends, hidden, cell = (
        torch.cat([getattr(window, name).flatten(0, 1)[window.place] for window in windows])
        for name in ("reward", "ends", "hidden", "cell")
    )

    def joined(name: str) -> torch.Tensor:
        return torch.cat([getattr(window.scene, name) for window in windows])

    totals = torch.stack([window.kind_totals for window in windows]).sum(dim=0)
    items = joined("items")[joined("item_type") > 0]
    own_step, item_step = _unit(own, joined("own")), _unit(kept_items, items)
    types, levels = joined("item_type"), vital_levels(joined("own")[:, vitals])
    carried = float((types > 0).float().sum(dim=1).mean())
    nats = {
        "material": shape.side**2 * _entropy(joined("material").flatten(), shape.materials),
        "kinds": _coin_entropy(joined("kinds")),
        "target": _coin_entropy(joined("target")),
        "health": float((joined("kinds").sum(dim=1) > 0).float().sum(dim=1).mean()) / 2,
        "vitals": sum(_entropy(column, VITAL_LEVELS) for column in levels.T),
        "own": float((own_step > 0).sum()) / 2,
        "item_type": sum(_entropy(column, ITEM_TYPES) for column in types.T),
        "items": float((item_step > 0).sum()) * carried / 2,
        "legal": _coin_entropy(joined("legal")),
        "move": _entropy(moves, len(MOVES)),
        "reward": 0.5,
        "end": _coin_entropy(ends.unsqueeze(1)),
        "hidden": 0.5,
        "cell": 0.5,
    }
    return Statistics(
        (totals[:, :-1] / totals[:, -1:].clamp(min=1)).float(), joined("own").mean(dim=0), own_step, item_step,
        torch.stack([rewards.mean(), rewards.std().clamp(min=_LEAST)]),
        torch.stack([state.var(dim=0).mean().clamp(min=_LEAST**2) for state in (hidden, cell)]),
        torch.tensor([max(nats[name], _LEAST_NATS) for name in HEADS]),
    )  # fmt: skip


def _changes(batch: Windows) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Changes from tick to tick: of the own row, of items that stay in their slot, and of the agent's place."""
    scene = batch.scene
    later = torch.ones(len(scene), dtype=torch.bool)
    later[batch.starts] = False
    (now,) = later.nonzero(as_tuple=True)
    kept = (scene.item_type[now] > 0) & (scene.item_type[now] == scene.item_type[now - 1])
    where = batch.where.flatten(0, 1)[batch.place]
    return (
        scene.own[now] - scene.own[now - 1],
        (scene.items[now] - scene.items[now - 1])[kept],
        displacement(where[now - 1], where[now]),
    )


def _unit(changes: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The unit of each column, given its changes and its values, (B, columns)."""
    if len(values) < 2:
        return torch.zeros(values.shape[1])
    change = changes.square().mean(dim=0).sqrt() if len(changes) else torch.zeros(values.shape[1])
    return torch.maximum(change, values.std(dim=0) / 10)


def _entropy(values: torch.Tensor, count: int) -> float:
    """Entropy in nats of how often each of `count` values occurs."""
    shares = functional.one_hot(values, count).float().mean(dim=0)
    return float(-(shares * shares.clamp(min=1e-12).log()).sum())


def _coin_entropy(flags: torch.Tensor) -> float:
    """Sum of the entropies of flags, (B, ...), that are 0 or 1."""
    shares = flags.float().mean(dim=0)
    both = torch.stack([shares, 1 - shares])
    return float(-(both * both.clamp(min=1e-12).log()).sum())


REACH = 4
"""Tiles that others are expected to drift at most, in each direction."""
LONGEST = 16
"""Largest number of ticks since a sighting with tables of its own. Beyond it the last odd or even number stands in."""

_LEAST_PROBABILITY = 1e-4
WIDTH = 2 * REACH + 1


@dataclass(frozen=True, eq=False)
class Sightings(Tables):
    """How others drift, and how that is weighed against what a network predicts, by kind and ticks since a sighting."""

    # kernel: probability that one is so many rows and columns from where one of its kind was seen, for each that was
    # seen within `REACH`, (LONGEST, kinds, width, width); and where none was, (LONGEST, kinds)
    kernel: torch.Tensor
    base: torch.Tensor
    weights: torch.Tensor  # of the logits of both, and a constant, (LONGEST, kinds, 3)

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray]) -> Self:
        """See `Tables.of_arrays`; raises ValueError where a table has another shape."""
        read = super().of_arrays(arrays)
        for name, table in no_drift().items():
            if (shape := getattr(read, name).shape) != table.shape:
                raise ValueError(f"sightings/{name} has the shape {tuple(shape)}")
        return read

    def drifted(self, scene: SoftScene) -> SoftScene:
        """Return scenes with others where they have drifted to since they were last seen, whatever is predicted."""
        return self._by_age(scene, lambda age, some: self.drift(age, last_seen(some, REACH)))

    def weighed(self, scene: SoftScene) -> SoftScene:
        """Return scenes with others where both the drift and what is predicted lead one to expect them."""

        def both(age: int, some: SoftScene) -> torch.Tensor:
            own, other, constant = self.weights[age].unsqueeze(2).unbind(1)  # (kinds, 1) each
            drift = self.drift(age, last_seen(some, REACH))
            return (own * logit(some.kinds) + other * logit(drift) + constant).sigmoid()

        return self._by_age(scene, both)

    def _by_age(self, scene: SoftScene, expected: Callable[[int, SoftScene], torch.Tensor]) -> SoftScene:
        """Replace where others are by what is expected at each age; nothing where no sighting is known."""
        kinds = scene.kinds
        for ticks in scene.since[:, 0].unique().tolist():
            if ticks > 0:
                (here,) = (scene.since[:, 0] == ticks).nonzero(as_tuple=True)
                kinds = kinds.index_copy(0, here, expected(_age(ticks), scene.take(here)))
        return replace(scene, kinds=kinds)

    def drift(self, age: int, seen: torch.Tensor) -> torch.Tensor:
        """Return the probabilities of the drift alone, (B, kinds, V).

        Args:
            age: place in the tables.
            seen: as `last_seen` returns it, with a frame of `REACH`.
        """
        near = functional.conv2d(seen, self.kernel[age].unsqueeze(1), groups=len(KINDS))
        return (near + self.base[age].view(-1, 1, 1)).clamp(_LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY).flatten(2)


def no_drift() -> dict[str, torch.Tensor]:
    """Return tables by which what a network predicts stays as it is."""
    shape = (LONGEST, len(KINDS))
    weights = torch.tensor([1.0, 0, 0]).repeat(*shape, 1)
    return {"kernel": torch.zeros(*shape, WIDTH, WIDTH), "base": torch.zeros(shape), "weights": weights}


def _age(ticks: int) -> int:
    """Return the place in the tables of a number of ticks since a sighting, from 1."""
    return min(ticks, LONGEST - (ticks - LONGEST) % 2) - 1


def last_seen(scene: SoftScene, frame: int) -> torch.Tensor:
    """Return where others were last seen, around the agent as it stands now.

    Args:
        frame: tiles beyond the view to return on each side.

    Returns:
        (B, kinds, side + 2 frame, side + 2 frame); 0 beyond the view of then.
    """
    side = isqrt(scene.seen.shape[2])
    along = torch.arange(-frame, side + frame)
    rows, columns = (along + scene.since[:, axis, None] for axis in (1, 2))  # (B, side + 2 frame) each
    inside = [(place >= 0) & (place < side) for place in (rows, columns)]
    place = rows.clamp(0, side - 1).unsqueeze(2) * side + columns.clamp(0, side - 1).unsqueeze(1)
    then = scene.seen.gather(2, place.flatten(1).unsqueeze(1).expand(-1, len(KINDS), -1))
    known = inside[0].unsqueeze(2) & inside[1].unsqueeze(1)
    return then.unflatten(2, known.shape[1:]) * known.unsqueeze(1)


def logit(probabilities: torch.Tensor) -> torch.Tensor:
    """Return log-odds, of probabilities that are neither 0 nor 1 for sure."""
    return probabilities.clamp(_LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY).logit()


FORMAT_VERSION = 4
_KIND: Kind = "world model"


@dataclass(frozen=True)
class Origin:
    """What a world model was trained on."""

    dump: str
    dump_sha256: str
    policy: str
    policy_sha256: str
    seed: int
    horizon: int  # ticks predicted in a training window
    records: int  # predicted in training so far
    train: tuple[int, ...]
    test: tuple[int, ...]
    world: tuple[int, int]  # map_seed and map_size of the dump, which tell its maps from those of other worlds
    train_maps: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class WorldModel:
    """A world model."""

    network: WorldNetwork
    policy: RecurrentPolicy
    info: CheckpointInfo
    stats: Statistics
    sightings: Sightings | None = None  # None before the end of training, and in models of earlier versions

    def weighed(self, scene: SoftScene) -> SoftScene:
        """Return predicted scenes as a simulation shows them to the policy, see `Sightings.weighed`."""
        return self.sightings.weighed(scene) if self.sightings else scene

    def drifted(self, scene: SoftScene) -> SoftScene:
        """Return what the rules say with others where they have drifted to, see `Sightings.drifted`."""
        return self.sightings.drifted(scene) if self.sightings else scene

    @property
    def layout(self) -> ObservationLayout:
        """Of observations and actions."""
        return self.info.layout


def build(
    policy: RecurrentPolicy, info: CheckpointInfo, stats: Statistics, sizes: Sizes, kind: Bottleneck
) -> WorldModel:
    """Build an untrained world model around a policy, whose weights are frozen."""
    policy.requires_grad_(False)
    position = [own_columns(info.layout).index(name) for name in ("row", "col")] if policy.mask.absolute else None
    network = WorldNetwork(
        SceneShape.of(info.layout), sizes, action_size(info.layout), (policy.layers, policy.policy.hidden_size),
        vital_columns(info.layout), position, kind, sees_body=not policy.mask.own,
    )  # fmt: skip
    network.own_mean.copy_(stats.own_mean)
    network.own_step.copy_(stats.own_step)
    network.item_step.copy_(stats.item_step)
    return WorldModel(network, policy, info, stats)


def save_model(path: Path, model: WorldModel, origin: Origin) -> None:
    """Write a world model, whole or not at all."""
    arrays = {f"network/{name}": array for name, array in as_arrays(model.network.state_dict()).items()}
    arrays |= {f"policy/{name}": array for name, array in as_arrays(model.policy.state_dict()).items()}
    arrays |= {f"statistics/{name}": array for name, array in model.stats.arrays().items()}
    if model.sightings:
        arrays |= {f"sightings/{name}": array for name, array in model.sightings.arrays().items()}
    text = {
        "format_version": FORMAT_VERSION, "origin": asdict(origin), "policy": model.info.to_header(),
        "sizes": asdict(model.network.sizes), "bottleneck": model.network.kind,
    }  # fmt: skip
    write_tensors(path, arrays, orjson.dumps(text, option=orjson.OPT_SORT_KEYS).decode(), _KIND)


def load_model(path: Path) -> tuple[WorldModel, Origin]:
    """Read a world model, ready to run.

    Raises:
        UserError: the file is missing, damaged, of another kind or version, or does not fit this version's network.
    """
    arrays, text = read_tensors(path, _KIND)
    try:
        header: Any = orjson.loads(text)
        if header["format_version"] != FORMAT_VERSION:
            raise UserError(
                f"{path} has format version {header['format_version']!r}; this version reads {FORMAT_VERSION}:"
                " train it again"
            )
        info = CheckpointInfo.from_header(header["policy"], path)
        lists = {name: tuple(value) for name, value in header["origin"].items() if isinstance(value, list)}
        origin = Origin(**{**header["origin"], **lists})
        policy = build_policy(info)
        policy.load_state_dict(as_tensors(_part(arrays, "policy")))
        stats = Statistics.of_arrays(_part(arrays, "statistics"))
        model = build(policy.eval(), info, stats, Sizes(**header["sizes"]), header["bottleneck"])
        model.network.load_state_dict(as_tensors(_part(arrays, "network")))
        if sightings := _part(arrays, "sightings"):
            model = replace(model, sightings=Sightings.of_arrays(sightings))
    except (orjson.JSONDecodeError, RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)[:200]
        raise UserError(f"{path} does not fit this version's world model ({reason}): train it again") from None
    model.network.eval()
    return model, origin


def _part(arrays: dict[str, Any], part: str) -> dict[str, Any]:
    return {name.removeprefix(f"{part}/"): array for name, array in arrays.items() if name.startswith(f"{part}/")}
