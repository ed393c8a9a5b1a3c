"""Attributions of all samples, and what they say on average, with intervals over samples."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.materials import MATERIAL_NAMES
from analysis.statistics.resampling import Estimate, draws_of

ENTITY_KINDS = {1: "a player", 2: "an NPC"}
"""Names of the numbers in `Attributions.entity_kind`; 0 is the agent itself, or nobody."""
PARTS = ("tiles", "entities", "own row", "inventory", "task", "memory")
WATER = MATERIAL_NAMES.index("water")
NEAR = 2
"""Tiles within which water counts as near."""
ARRAYS = (
    "value", "material", "tiles", "entities", "own", "inventory", "task", "memory", "components", "entity_kind"
)  # fmt: skip
"""The arrays of `Attributions` that samples have one by one."""
RAGGED = ("entities", "inventory", "entity_kind")
"""Those whose last axis is as long as the largest table."""
RESAMPLES = 2000
_ENDS = (0.025, 0.975)


@dataclass(frozen=True, eq=False)
class Attributions:
    """Attributions of N states of some samples, T ticks each, latest last."""

    sample: np.ndarray  # of each state, (N,)
    value: np.ndarray  # the target, (N,); NaN where it is not defined, for example an illegal option
    material: np.ndarray  # of the tiles in view, (N, tiles)
    tiles: np.ndarray  # (N, T, tiles)
    entities: np.ndarray  # of each visible entity but the agent itself, (N, T, most entities)
    own: np.ndarray  # by column of the agent's own row, (N, T, columns)
    inventory: np.ndarray  # (N, T, most items)
    task: np.ndarray  # (N, T)
    memory: np.ndarray  # of each number of the memory before the window, hidden states first, (N, S)
    components: np.ndarray  # of each component of that memory, (N, K)
    # entity_kind: of each visible entity in the present tick, a key of `ENTITY_KINDS` or 0, (N, most entities)
    entity_kind: np.ndarray
    columns: tuple[str, ...]
    component_names: tuple[str, ...] = ()
    has_cell: bool = False  # whether the second half of `memory` is of cell states

    def __len__(self) -> int:
        return len(self.sample)

    @property
    def known(self) -> np.ndarray:
        """In which states the target is defined, (N,) bool; maps of the others are zero."""
        return np.isfinite(self.value)

    def where(self, states: np.ndarray) -> "Attributions":
        """Return those of some states, (N,) bool."""
        return replace(self, sample=self.sample[states], **{name: getattr(self, name)[states] for name in ARRAYS})

    def sizes(self) -> np.ndarray:
        """Return the summed |attribution| of each part in each tick, (N, T, parts); memory counts in the first tick."""
        count, ticks = self.task.shape
        totals = np.zeros((count, ticks, len(PARTS)))
        for number, part in enumerate((self.tiles, self.entities, self.own, self.inventory)):
            totals[:, :, number] = np.nansum(np.abs(part), axis=2)
        totals[:, :, 4] = np.nan_to_num(np.abs(self.task))
        totals[:, 0, 5] = np.abs(self.memory).sum(axis=1)
        return totals

    def by_material(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sum the present tick's attributions of tiles by material, in each state.

        Returns:
            Signed sums, sums of sizes, and tiles in view, (N, materials) each.
        """
        now = np.nan_to_num(self.tiles[:, -1])
        count = len(MATERIAL_NAMES)
        key = (np.arange(len(self))[:, None] * count + self.material).ravel()
        sums = [
            np.bincount(key, weights.ravel(), len(self) * count) for weights in (now, np.abs(now), np.ones_like(now))
        ]
        signed, size, tiles = (total.reshape(len(self), count) for total in sums)
        return signed, size, tiles


def widened(values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return arrays whose last axes are as long as the longest, filled with zeros."""
    most = max(array.shape[-1] for array in values)
    return [np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, most - array.shape[-1])]) for array in values]


def concatenated(parts: Sequence[Mapping[str, np.ndarray]], names: Iterable[str]) -> dict[str, np.ndarray]:
    """Put arrays of several parts together by name; tables get as many places as the largest needs."""
    arrays = {name: [part[name] for part in parts] for name in names}
    return {name: np.concatenate(widened(some) if name in RAGGED else some) for name, some in arrays.items()}


def joined(
    parts: Sequence[Mapping[str, np.ndarray]], columns: tuple[str, ...], component_names: tuple[str, ...], *,
    has_cell: bool,
) -> Attributions:  # fmt: skip
    """Put the arrays of all samples together."""
    arrays = concatenated(parts, ARRAYS)
    # Earlier ticks of a window may have had more entities in view than any present tick.
    arrays["entity_kind"], _ = widened([arrays["entity_kind"], arrays["entities"]])
    sample = np.repeat(np.arange(len(parts)), [len(part["value"]) for part in parts])
    return Attributions(sample=sample, columns=columns, component_names=component_names, has_cell=has_cell, **arrays)


def summary_lines(maps: Attributions, title: str, method: str, seed: int) -> list[str]:
    """Return what the attributions say on average."""
    states, samples, known = len(maps), len(np.unique(maps.sample)), maps.known
    maps = maps.where(known)
    sizes = maps.sizes()
    share = sizes.sum(axis=(0, 1)) / max(sizes.sum(), 1e-300)
    lines = [
        f"Attribution of {title} by {method}: {states:,} states of {samples} samples"
        + (f", {(~known).sum()} of them without it (an option is illegal) and left out" if not known.all() else ""),
        "",
        "Shares of the summed |attribution|:",
        *(f"  {name}: {part_share:.1%}" for name, part_share in zip(PARTS, share, strict=True) if part_share > 0),
    ]
    if maps.has_cell and maps.memory.any():
        hidden, cell = (np.abs(half).sum() for half in np.split(maps.memory, 2, axis=1))
        lines += [
            "",
            f"Of what is attributed to the memory before the window: hidden states {hidden / (hidden + cell):.1%}, "
            f"cell states {cell / (hidden + cell):.1%}",
        ]
    if maps.component_names:
        lines += [
            "",
            "Components of the memory before the window, relative to their mean in these samples: mean size of their "
            "attribution, and mean with 95% interval over samples:",
            *(
                f"  {name}: size {size:.2g}, mean {mean.value:+.2g} ({mean.low:+.2g} to {mean.high:+.2g})"
                for name, size, mean in components_by_size(maps, seed)
            ),
        ]
    if maps.task.shape[1] > 1:
        by_tick = sizes[:, ::-1, :5].sum(axis=(0, 2))
        shares = ", ".join(f"{lag}: {amount / by_tick.sum():.1%}" for lag, amount in enumerate(by_tick))
        lines += ["", f"Of what is attributed to observations, by how many ticks ago they were: {shares}"]
    lines += ["", *material_lines(maps, np.ones(len(maps), bool), "all states")]
    side = round(maps.material.shape[1] ** 0.5)
    steps = np.abs(np.indices((side, side)) - side // 2).max(axis=0).ravel()  # diagonal ones count as one
    away = np.where(maps.material == WATER, steps, np.inf).min(axis=1)  # (N,), inf without water in view
    for inside, text in (
        (~np.isfinite(away), "states without water in view"),
        (np.isfinite(away) & (away > NEAR), f"states with water in view, more than {NEAR} tiles away"),
        (away <= NEAR, f"states with water within {NEAR} tiles"),
    ):
        if inside.any():
            lines += ["", *material_lines(maps, inside, text)]
    own = np.abs(np.nan_to_num(maps.own)).sum(axis=(0, 1))
    if own.any():
        top = np.argsort(-own)[:6]
        shares = ", ".join(f"{maps.columns[i]} {own[i] / own.sum():.0%}" for i in top if own[i] > 0)
        lines += ["", f"Of what is attributed to its own row: {shares}"]
    return lines


def part_shares(maps: Attributions, seed: int) -> list[dict[str, object]]:
    """Return the share of the summed |attribution| that each part has in all ticks, and in each tick, as rows.

    Intervals (95%) are over samples. The memory before the window counts in the window's first tick.
    """
    sizes = maps.sizes()[:, ::-1]  # (N, T, parts), the present tick first
    over, total = OverSamples(maps.sample, seed), sizes.sum(axis=(1, 2))
    of_ticks = [("all", sizes.sum(axis=1)), *((str(lag), sizes[:, lag]) for lag in range(sizes.shape[1]))]
    rows: list[dict[str, object]] = []
    for number, part in enumerate(PARTS):
        for ticks_ago, amounts in of_ticks:
            share = over.mean(amounts[:, number], total)
            rows.append(
                {"part": part, "ticks_ago": ticks_ago, "share": share.value, "low": share.low, "high": share.high}
            )
    return rows


def components_by_size(maps: Attributions, seed: int) -> list[tuple[str, float, Estimate]]:
    """Return name, mean size and mean attribution of each component of the memory, the largest first."""
    over, size = OverSamples(maps.sample, seed), np.abs(maps.components).mean(axis=0)
    return [
        (maps.component_names[place], float(size[place]), over.mean(maps.components[:, place], np.ones(len(maps))))
        for place in np.argsort(-size)
    ]


def per_tile(amounts: np.ndarray, tiles: np.ndarray) -> np.ndarray:
    """Divide amounts of each material by its tiles, (materials,) each; 0 where there are none."""
    return np.divide(amounts, tiles, out=np.zeros_like(amounts), where=tiles > 0)


def material_lines(maps: Attributions, inside: np.ndarray, text: str) -> list[str]:
    """Return the materials that matter most in some states, (N,) bool."""
    signed, size, tiles = (grid[inside].sum(axis=0) for grid in maps.by_material())
    there = tiles > 0
    mean, strength = per_tile(signed, tiles), per_tile(size, tiles)
    order = [i for i in np.argsort(-strength) if there[i]][:6]
    lines = [f"Tiles in {text} ({inside.sum():,}), by material, mean attribution of a tile and mean size:"]
    lines += [
        f"  {MATERIAL_NAMES[i]}: {mean[i]:+.2g}, size {strength[i]:.2g} ({size[i] / (size.sum() or 1.0):.0%} of all)"
        for i in order
    ]
    return lines


def group_lines(maps: Attributions, label: np.ndarray, what: str) -> list[str]:
    """Return, for each cluster or behaviour, what the target looks at in it.

    Args:
        label: of each state, (N,); negative for none.
        what: "cluster" or "behaviour".
    """
    signed, size, tiles = maps.by_material()
    lines = []
    for number in np.unique(label[label >= 0]):
        inside = label == number
        strength = per_tile(size[inside].sum(axis=0), tiles[inside].sum(axis=0))
        top = [i for i in np.argsort(-strength)[:2] if strength[i] > 0]
        materials = " and ".join(
            f"{MATERIAL_NAMES[i]} ({signed[inside, i].sum() / tiles[inside, i].sum():+.2g} a tile)" for i in top
        )
        lines.append(f"  {what} {number} ({inside.sum()} states): tiles that matter most: {materials or 'none'}")
    return lines


class OverSamples:
    """Resamples of samples, the same for every mean."""

    def __init__(self, sample: np.ndarray, seed: int):
        """Draw the resamples of the samples that states belong to, (N,)."""
        _, self._number = np.unique(sample, return_inverse=True)
        self._count = int(self._number.max()) + 1
        self._draws = draws_of(self._count, RESAMPLES, [seed, 11])  # (R, samples)

    def mean(self, values: np.ndarray, weight: np.ndarray) -> Estimate:
        """Return the sum of values, (N,), over that of weights, 1 for a mean over states, with its 95% interval."""
        return self._estimate(*self._ratio(values, weight))

    def difference(self, values: np.ndarray, weight: np.ndarray, one: np.ndarray, other: np.ndarray) -> Estimate:
        """Return how much larger the `mean` over some states, (N,) bool, is than over others, with its 95% interval."""
        first, first_drawn = self._ratio(values * one, weight * one)
        second, second_drawn = self._ratio(values * other, weight * other)
        return self._estimate(first - second, first_drawn - second_drawn)

    def _ratio(self, values: np.ndarray, weight: np.ndarray) -> tuple[float, np.ndarray]:
        tops, bottoms = (np.bincount(self._number, terms, self._count) for terms in (values, weight))
        drawn = self._draws @ bottoms
        ratio = np.divide(self._draws @ tops, drawn, out=np.full(RESAMPLES, np.nan), where=drawn > 0)
        return float(tops.sum() / bottoms.sum()) if bottoms.sum() > 0 else float("nan"), ratio

    def _estimate(self, value: float, drawn: np.ndarray) -> Estimate:
        if self._count < 2 or not np.isfinite(drawn).any():
            return Estimate(value)
        low, high = np.nanquantile(drawn, _ENDS)
        return Estimate(value, float(low), float(high))
