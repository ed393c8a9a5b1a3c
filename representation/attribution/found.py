"""Attributions of all samples, and what they say on average."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.materials import MATERIAL_NAMES

PARTS = ("tiles", "entities", "own row", "inventory", "task", "memory")
WATER = MATERIAL_NAMES.index("water")
NEAR = 2
"""Tiles within which water counts as near."""


@dataclass(frozen=True, eq=False)
class Found:
    """Attributions of N states of some samples, T ticks each, latest last.

    Attributes:
        sample: of each state, (N,).
        value: the target, (N,); NaN where it is not defined, for example an illegal option.
        material: of the tiles in view, (N, tiles).
        tiles: (N, T, tiles).
        entities: of each visible entity but the agent itself, (N, T, most entities).
        own: by column of the agent's own row, (N, T, columns).
        inventory: (N, T, most items).
        task: (N, T).
        memory: of each number of the memory before the window, (N, S).
        columns: names of the columns of `own`.
    """

    sample: np.ndarray
    value: np.ndarray
    material: np.ndarray
    tiles: np.ndarray
    entities: np.ndarray
    own: np.ndarray
    inventory: np.ndarray
    task: np.ndarray
    memory: np.ndarray
    columns: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.sample)

    def sizes(self) -> np.ndarray:
        """Return the summed |attribution| of each part in each tick, (N, T, parts); memory counts in the first tick."""
        count, ticks = self.task.shape
        found = np.zeros((count, ticks, len(PARTS)))
        for number, each in enumerate((self.tiles, self.entities, self.own, self.inventory)):
            found[:, :, number] = np.nansum(np.abs(each), axis=2)
        found[:, :, 4] = np.nan_to_num(np.abs(self.task))
        found[:, 0, 5] = np.abs(self.memory).sum(axis=1)
        return found

    def distance_to(self, material: int) -> np.ndarray:
        """Return the tiles to the nearest tile of a material, a diagonal step counting as one, (N,); inf if none."""
        side = round(self.material.shape[1] ** 0.5)
        away = np.abs(np.indices((side, side)) - side // 2).max(axis=0).ravel()
        return np.where(self.material == material, away, np.inf).min(axis=1)

    def by_material(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sum the present tick's attributions of tiles by material, in each state.

        Returns:
            Signed sums, sums of sizes, and tiles in view, (N, materials) each.
        """
        now = np.nan_to_num(self.tiles[:, -1])
        count = len(MATERIAL_NAMES)
        key = (np.arange(len(self))[:, None] * count + self.material).ravel()
        sums = [np.bincount(key, each.ravel(), len(self) * count) for each in (now, np.abs(now), np.ones_like(now))]
        signed, size, tiles = (each.reshape(len(self), count) for each in sums)
        return signed, size, tiles


def joined(parts: Sequence[dict[str, np.ndarray]], columns: tuple[str, ...]) -> Found:
    """Put the arrays of all samples together; tables get as many places as the largest needs."""
    arrays: dict[str, np.ndarray] = {}
    for name in ("value", "material", "tiles", "entities", "own", "inventory", "task", "memory"):
        values = [part[name] for part in parts]
        if name in ("entities", "inventory"):
            most = max(each.shape[2] for each in values)
            values = [np.pad(each, ((0, 0), (0, 0), (0, most - each.shape[2]))) for each in values]
        arrays[name] = np.concatenate(values)
    sample = np.repeat(np.arange(len(parts)), [len(part["value"]) for part in parts])
    return Found(sample=sample, columns=columns, **arrays)


def summary_lines(found: Found, title: str, method: str) -> list[str]:
    """Return what the attributions say on average."""
    sizes = found.sizes()
    share = sizes.sum(axis=(0, 1)) / max(sizes.sum(), 1e-300)
    known = np.isfinite(found.value)
    lines = [
        f"Attribution of {title} by {method}: {len(found):,} states of {len(np.unique(found.sample))} samples"
        + (f", {(~known).sum()} of them without it (an option is illegal)" if not known.all() else ""),
        "",
        "Shares of the summed |attribution|:",
        *(f"  {name}: {each:.1%}" for name, each in zip(PARTS, share, strict=True) if each > 0),
    ]
    if found.task.shape[1] > 1:
        by_tick = sizes[:, ::-1, :5].sum(axis=(0, 2))
        told = ", ".join(f"{lag}: {each / by_tick.sum():.1%}" for lag, each in enumerate(by_tick))
        lines += ["", f"Of what is attributed to observations, by how many ticks ago they were: {told}"]
    lines += ["", *material_lines(found, np.ones(len(found), bool), "all states")]
    away = found.distance_to(WATER)
    for inside, text in (
        (~np.isfinite(away), "states without water in view"),
        (np.isfinite(away) & (away > NEAR), f"states with water in view, more than {NEAR} tiles away"),
        (away <= NEAR, f"states with water within {NEAR} tiles"),
    ):
        if inside.any():
            lines += ["", *material_lines(found, inside, text)]
    own = np.abs(np.nan_to_num(found.own)).sum(axis=(0, 1))
    if own.any():
        top = np.argsort(-own)[:6]
        told = ", ".join(f"{found.columns[i]} {own[i] / own.sum():.0%}" for i in top if own[i] > 0)
        lines += ["", f"Of what is attributed to its own row: {told}"]
    return lines


def material_lines(found: Found, inside: np.ndarray, text: str) -> list[str]:
    """Return the materials that matter most in some states, (N,) bool."""
    signed, size, tiles = (each[inside].sum(axis=0) for each in found.by_material())
    there = tiles > 0
    mean = np.divide(signed, tiles, out=np.zeros_like(signed), where=there)
    strength = np.divide(size, tiles, out=np.zeros_like(size), where=there)
    order = [i for i in np.argsort(-strength) if there[i]][:6]
    lines = [f"Tiles in {text} ({inside.sum():,}), by material, mean attribution of a tile and mean size:"]
    lines += [
        f"  {MATERIAL_NAMES[i]}: {mean[i]:+.2g}, size {strength[i]:.2g} ({size[i] / (size.sum() or 1.0):.0%} of all)"
        for i in order
    ]
    return lines


def group_lines(found: Found, label: np.ndarray, what: str) -> list[str]:
    """Return, for each cluster or behaviour, what the target looks at in it.

    Args:
        found: of all states.
        label: of each state, (N,); negative for none.
        what: "cluster" or "behaviour".
    """
    signed, size, tiles = found.by_material()
    lines = []
    for number in np.unique(label[label >= 0]):
        inside = label == number
        strength = np.divide(
            size[inside].sum(axis=0), tiles[inside].sum(axis=0), out=np.zeros(size.shape[1]),
            where=tiles[inside].sum(axis=0) > 0,
        )  # fmt: skip
        top = [i for i in np.argsort(-strength)[:2] if strength[i] > 0]
        told = " and ".join(
            f"{MATERIAL_NAMES[i]} ({signed[inside, i].sum() / tiles[inside, i].sum():+.2g} a tile)" for i in top
        )
        lines.append(f"  {what} {number} ({inside.sum()} states): tiles that matter most: {told or 'none'}")
    return lines
