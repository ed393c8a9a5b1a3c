"""Numbers that a world model takes from its training records before it is trained."""

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch.nn import functional

from representation.world_model.moves import MOVES, displacement
from representation.world_model.scene import ITEM_TYPES, VITAL_LEVELS, SceneShape, vital_levels
from representation.world_model.windows import Windows
from user_error import UserError

HEADS = (
    "material", "kinds", "target", "health", "vitals", "own", "item_type", "items", "legal", "move", "reward", "end",
    "hidden", "cell",
)  # fmt: skip
"""What is predicted, by name; `hidden` and `cell` are the policy's memory after it has seen the predicted tick."""

_LEAST = 1e-3
_LEAST_NATS = 0.5


@dataclass(frozen=True)
class Statistics:
    """Means and spreads of training records.

    Attributes:
        kind_means: of the columns of `Scene.own` over other entities of each kind, (kinds, columns).
        own_mean: mean of each column of `Scene.own`, (columns,).
        own_step: unit in which each column is predicted, (columns,): the root mean square of its change in a tick, or
            a tenth of its standard deviation if that is more; 0 where it never changes.
        item_step: likewise of the columns of items, (columns,).
        reward: mean and standard deviation, (2,).
        memory: mean squared distance of the policy's hidden and cell states from their means, per unit, (2,).
        nats: of each of `HEADS` in a tick, if only the frequencies of values are known, at least half a nat, (heads,).
    """

    kind_means: torch.Tensor
    own_mean: torch.Tensor
    own_step: torch.Tensor
    item_step: torch.Tensor
    reward: torch.Tensor
    memory: torch.Tensor
    nats: torch.Tensor

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the numbers by name."""
        return {each.name: getattr(self, each.name).numpy() for each in fields(self)}

    @staticmethod
    def of_arrays(arrays: dict[str, np.ndarray]) -> "Statistics":
        """Rebuild from `arrays`."""
        return Statistics(**{each.name: torch.from_numpy(arrays[each.name].copy()) for each in fields(Statistics)})


def measure(batches: Iterable[Windows], shape: SceneShape, vitals: list[int]) -> Statistics:
    """Measure them on some windows, all of which are held in memory.

    Raises:
        UserError: there are none.
    """
    windows = list(batches)
    if not windows:
        raise UserError("no life in the training episodes lasts longer than three ticks: record longer episodes")
    own, kept_items, moves = (torch.cat(each) for each in zip(*map(_changes, windows), strict=True))
    rewards, ends, hidden, cell = (
        torch.cat([getattr(each, name).flatten(0, 1)[each.place] for each in windows])
        for name in ("reward", "ends", "hidden", "cell")
    )

    def joined(name: str) -> torch.Tensor:
        return torch.cat([getattr(each.scene, name) for each in windows])

    totals = torch.stack([each.kind_totals for each in windows]).sum(dim=0)
    items = joined("items")[joined("item_type") > 0]
    own_step, item_step = _unit(own, joined("own")), _unit(kept_items, items)
    types, levels = joined("item_type"), vital_levels(joined("own")[:, vitals])
    carried = float((types > 0).float().sum(dim=1).mean())
    nats = {
        "material": shape.side**2 * _entropy(joined("material").flatten(), shape.materials),
        "kinds": _coin_entropy(joined("kinds")),
        "target": _coin_entropy(joined("target")),
        "health": float((joined("kinds").sum(dim=1) > 0).float().sum(dim=1).mean()) / 2,
        "vitals": sum(_entropy(each, VITAL_LEVELS) for each in levels.T),
        "own": float((own_step > 0).sum()) / 2,
        "item_type": sum(_entropy(each, ITEM_TYPES) for each in types.T),
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
        torch.stack([each.var(dim=0).mean().clamp(min=_LEAST**2) for each in (hidden, cell)]),
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
