"""A world model in one file: its own weights, what it measured on its training records, and its policy."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

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
from analysis.world_model.sightings import Sightings
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
    except (orjson.JSONDecodeError, RuntimeError, TypeError, ValueError, LookupError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)[:200]
        raise UserError(f"{path} does not fit this version's world model ({reason}): train it again") from None
    model.network.eval()
    return model, origin


def _part(arrays: dict[str, Any], part: str) -> dict[str, Any]:
    return {name.removeprefix(f"{part}/"): array for name, array in arrays.items() if name.startswith(f"{part}/")}
