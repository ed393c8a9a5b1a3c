"""Figures, a film and a self-contained page of attributions: what matters, mean maps, and the sanity checks."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image, ImageDraw, ImageFont

from activation_store.records import Records
from analysis.attribution.attributions import PARTS, Attributions, components_by_size
from analysis.attribution.sanity import Check, Sanity
from analysis.figures.style import EFFECT_MAP, category_colour, few_ticks, new_figure, style, title
from analysis.life.events import ITEMS
from analysis.materials import MATERIAL_NAMES, PALETTE
from analysis.pages.pages import BASE, embedded, environment, figures_of, ground_facts, pack, scripts_of, style_of
from analysis.statistics.resampling import as_columns

_GROUPS_SHOWN = 12
_PASSED, _FAILED = "#33475b", "#bd1f01"
_TILE = 24
_STRIP = 48
_GROUND, _TEXT, _WARNING = "#15181c", "#eef1f4", "#ffb300"
FPS = 5.0
CAPTIONS = {
    "overview.png": "What the target depends on. Left: mean attribution of the tile at each place around the agent, "
    "who is at +; red raises the target. Middle: the same by material. Right: mean size by part of the input, by ticks "
    "ago.",
    "event.png": "The target before and after the event, with 95% intervals over samples, and how much is attributed "
    "to each part of the input.",
    "components.png": "Components of the memory before the window: mean attribution with its 95% interval over "
    "samples, and mean size.",
    "groups.png": "Mean attribution of tiles in each cluster or behaviour.",
    "sanity.png": "The checks of the maps. Top: the target as tiles are replaced, or put back, in the map's order and "
    "in simpler ones. Below: by how much the map's order beats these, and how like maps of other weights are. Red "
    "marks what failed.",
}
"""How to read each figure, in the order of the page."""


def overview(maps: Attributions, heading: str, failures: Sequence[str]) -> Figure:
    """Draw the mean map of tiles, the materials, and the parts by tick."""
    with style():
        figure = new_figure(13.0, 4.8)
        view, materials, parts = figure.subplots(1, 3, width_ratios=(1, 1.1, 1.1))
        draw_map(view, np.nanmean(maps.tiles[:, -1], axis=0))
        view.set_title("mean attribution of the tile at each place")
        signed, _, tiles = (grid.sum(axis=0) for grid in maps.by_material())
        there = np.flatnonzero(tiles > 0)
        mean = signed[there] / tiles[there]
        materials.barh(range(len(there)), mean, color=PALETTE[there] / 255, edgecolor="#33475b", linewidth=0.6)
        materials.set_yticks(range(len(there)), [MATERIAL_NAMES[i] for i in there])
        materials.axvline(0, color="#33475b", linewidth=0.8)
        materials.set(xlabel="mean attribution of a tile")
        materials.xaxis.set_major_locator(few_ticks())
        sizes = maps.sizes().mean(axis=0)[::-1]  # (T, parts), the present tick first
        base = np.zeros(len(sizes))
        for number, name in enumerate(PARTS):
            if sizes[:, number].any():
                parts.bar(range(len(sizes)), sizes[:, number], bottom=base, label=name, color=category_colour(number))
                base = base + sizes[:, number]
        parts.set(xlabel="ticks ago", ylabel="mean |attribution|")
        parts.legend(loc="upper center")  # the present tick is on the left, the memory before the window on the right
        figure.suptitle(_marked(heading, "What it depends on", failures))
    return figure


def groups(maps: Attributions, label: np.ndarray, what: str, heading: str, failures: Sequence[str]) -> Figure:
    """Draw the mean map of tiles in each cluster or behaviour."""
    numbers = np.unique(label[label >= 0])[:_GROUPS_SHOWN]
    columns = min(4, len(numbers))
    rows = -(-len(numbers) // columns)
    with style():
        figure = new_figure(3.2 * columns, 3.2 * rows + 0.8)
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, number in zip(panels, numbers, strict=False):
            draw_map(axes, np.nanmean(maps.tiles[label == number, -1], axis=0))
            axes.set_title(f"{what} {number}: {(label == number).sum()} states")
        for axes in panels[len(numbers) :]:
            axes.set_visible(False)
        figure.suptitle(_marked(heading, f"Mean attribution of tiles in each {what}", failures))
    return figure


def memory_components(maps: Attributions, heading: str, failures: Sequence[str], seed: int) -> Figure:
    """Draw what is attributed to each component of the memory: mean with its interval over samples, and mean size."""
    names, size, means = zip(*components_by_size(maps, seed), strict=True)
    place = np.arange(len(names))
    with style():
        figure = new_figure(10.0, 1.6 + 0.24 * len(names))
        signed, sizes = figure.subplots(1, 2, sharey=True)
        middle, low, high = as_columns(means)
        reach = np.maximum([middle - low, high - middle], 0)
        signed.errorbar(middle, place, xerr=reach, fmt="o", color="#33475b", markersize=4)
        signed.axvline(0, color="#888888", linewidth=0.8)
        signed.set_yticks(place, names)
        signed.invert_yaxis()
        signed.set(xlabel="mean attribution, 95% interval over samples")
        sizes.barh(place, size, color="#3f90da")
        sizes.set(xlabel="mean |attribution|")
        for axes in (signed, sizes):
            axes.xaxis.set_major_locator(few_ticks())
        figure.suptitle(_marked(heading, "Components of the memory before the window", failures))
    return figure


def sanity_figure(sanity: Sanity, heading: str) -> Figure:
    """Draw the target as tiles are replaced and put back, the map's leads, and how much it is like other weights'."""
    with style():
        figure = new_figure(15.0, 8.4)
        (deletion, insertion), (leads, alike) = figure.subplots(2, 2)
        for axes, kind, text in ((deletion, "deletion", "tiles replaced"), (insertion, "insertion", "tiles put back")):
            colours = ("#3f90da", "#888888", "#ffa90e")
            for (name, curves), colour in zip(sanity.curves.items(), colours, strict=False):
                curve = getattr(curves, kind).mean(axis=0)
                label = "in the map's order" if name == "the map" else name
                axes.plot(curves.share, curve - curve[0], marker=".", color=colour, label=label)
            axes.axhline(0, color="#dddddd", linewidth=0.8, zorder=0)
            axes.set(xlabel=f"share of {text}", ylabel="change of the target")
            axes.legend(loc="best")
        _draw_checks(leads, sanity.leads)
        leads.set(xlabel="larger area between both curves than in this order")
        leads.set_title("the order of tiles must beat simpler ones: right of 0")
        _draw_checks(alike, sanity.alike)
        alike.set(xlim=(-0.2, 1.05), xlabel="rank correlation of sizes, less what the view alone explains")
        alike.set_title("other weights must give other maps: left of the line")
        figure.suptitle(_marked(heading, "Sanity checks", sanity.failures()))
    return figure


def _draw_checks(axes: Axes, checks: Sequence[Check]) -> None:
    """Draw each number with its interval, red if it failed, and the limit."""
    for place, check in enumerate(checks):
        colour = _PASSED if check.passed else _FAILED
        axes.plot([check.low, check.high], [place, place], color=colour, linewidth=2)
        axes.plot(check.value, place, marker="o", color=colour)
        axes.plot([check.limit] * 2, [place - 0.4, place + 0.4], color="#888888", linestyle="--", linewidth=1)
    names = [check.of + ("" if check.passed else ": FAILED") for check in checks]
    axes.set_yticks(range(len(checks)), names)
    axes.invert_yaxis()


def draw_map(axes: Axes, tiles: np.ndarray) -> None:
    """Draw a map of tiles, (tiles,), with the agent in the middle."""
    side = round(len(tiles) ** 0.5)
    far = float(np.nanmax(np.abs(tiles))) if np.isfinite(tiles).any() else 1.0
    image = axes.imshow(tiles.reshape(side, side), cmap=EFFECT_MAP, vmin=-far, vmax=far)
    axes.plot(side // 2, side // 2, marker="+", color="black")
    axes.set(xticks=[], yticks=[])
    axes.figure.colorbar(image, ax=axes, shrink=0.75)


def _marked(heading: str, text: str, failures: Sequence[str]) -> str:
    if failures:
        text = f"{text}. NOT TO BE TRUSTED: {'; '.join(failures)}"
    return title(heading, text, 120)


def film_size(maps: Attributions) -> tuple[int, int]:
    """Return width and height in pixels."""
    side = _TILE * round(maps.tiles.shape[2] ** 0.5)
    return 2 * side, side + _STRIP + (side + _STRIP) % 2


def frames(
    maps: Attributions, samples: Sequence[int], ticks: np.ndarray, heading: str, failures: Sequence[str], *,
    combine: bool,
) -> Iterator[np.ndarray]:  # fmt: skip
    """Yield the pictures of some samples, one sample after the other.

    Args:
        ticks: of the episode, of each state, (N,).
        combine: average the samples, aligned at their first tick, into one: views become mixtures of colours.
    """
    states = [np.flatnonzero(maps.sample == number) for number in samples]
    runs = [np.stack(states, axis=1)] if combine else [state[:, None] for state in states]
    far = float(np.nanquantile(np.abs(maps.tiles[np.concatenate(states), -1]), 0.995)) or 1.0
    for number, run in zip(["all"] if combine else samples, runs, strict=True):
        for place, rows in enumerate(run):
            view = PALETTE[maps.material[rows]].mean(axis=0)  # (tiles, 3)
            tiles = np.nan_to_num(maps.tiles[rows, -1]).mean(axis=0)
            when = f"samples {', '.join(map(str, samples))}, tick {place} after the start" if combine else (
                f"sample {number}, tick {ticks[rows[0]]}"
            )  # fmt: skip
            value = float(np.nanmean(maps.value[rows])) if np.isfinite(maps.value[rows]).any() else float("nan")
            yield _frame(view, tiles / far, f"{heading}: {value:+.3f}   {when}", failures)


def _frame(view: np.ndarray, tiles: np.ndarray, text: str, failures: Sequence[str]) -> np.ndarray:
    side = round(len(tiles) ** 0.5)
    colours = colormaps[EFFECT_MAP]((np.clip(tiles, -1, 1) + 1) / 2)[:, :3] * 255
    pictures = [
        np.kron(picture.reshape(side, side, 3), np.ones((_TILE, _TILE, 1))).astype(np.uint8)
        for picture in (view, colours)
    ]
    width, height = 2 * side * _TILE, side * _TILE + _STRIP
    image = Image.new("RGB", (width, height + height % 2), _GROUND)
    image.paste(Image.fromarray(np.concatenate(pictures, axis=1)), (0, 0))
    draw = ImageDraw.Draw(image)
    middle = (side // 2 + 0.5) * _TILE
    for left in (0, side * _TILE):
        draw.ellipse((left + middle - 6, middle - 6, left + middle + 6, middle + 6), outline="#000000", width=2)
    font = ImageFont.load_default(13)
    draw.text((8, side * _TILE + 6), text, fill=_TEXT, font=font)
    if failures:
        draw.text((8, side * _TILE + 26), f"NOT TO BE TRUSTED: {failures[0]}", fill=_WARNING, font=font)
    return np.asarray(image)


_PAGE = Path(__file__).parent / "page"
_KIT = (*BASE, "canvas.js", "glyphs.js", "view.js", "playback.js")
_KINDS = {-1: "immortal NPC", 0: "player", 1: "passive NPC", 2: "neutral NPC", 3: "aggressive NPC"}
_ENTITY = ("id", "npc_type", "row", "col")
"""The first columns of every entity row, in the game's order."""

ShownSample = tuple[int, Records, Mapping[str, Any]]
"""The number of a sample, its ticks, and their attributions by the names of the fields of `Attributions`."""


def saliency_page(
    folder: Path, heading: str, summary: Sequence[str], failures: Sequence[str], samples: Sequence[ShownSample],
    figures: Mapping[str, str], command: Sequence[str],
) -> str:  # fmt: skip
    """Return the page as HTML.

    Args:
        summary: its lines; those that begin with a space are details.
    """
    shown = [_content(sample) for sample in samples]
    back = samples[0][2]["task"].shape[1]
    facts = {**ground_facts(), "samples": [facts for facts, _ in shown]}
    return (
        environment(_PAGE, trim=True)
        .get_template("template.html")
        .render(
            name=folder.resolve().name, heading=heading, summary=summary, failures=failures, facts=embedded(facts),
            contents=[content for _, content in shown], command=shlex.join(command), ticks_back=back,
            figures=figures_of(folder, figures),
            style=style_of("document", _PAGE), scripts=scripts_of(_KIT, [_PAGE / "main.js"]),
        )
    )  # fmt: skip


def _content(sample: ShownSample) -> tuple[dict[str, Any], str]:
    """Return a sample's facts, and its packed tables as base64 text."""
    number, records, maps = sample
    # Zero where the target is undefined; but what a method says nothing of stays unknown.
    unknown = [name for name in ("own", "task") if np.isnan(maps[name]).all()]
    size = np.abs(maps["memory"]).sum(axis=1) if maps["memory"].shape[1] else np.full(len(records), np.nan)
    tables = {
        "material": records.tile[:, :, 2].astype(np.uint8),
        **{
            name: (maps[name] if name in unknown else np.nan_to_num(maps[name])).astype(np.float32)
            for name in ("tiles", "entities", "own", "inventory", "task")
        },
        "memory": size.astype(np.float32),
        "value": maps["value"].astype(np.float32),
        "tick": records.tick.astype(np.int64),
    }
    if maps["component_names"]:
        tables["components"] = np.nan_to_num(maps["components"]).astype(np.float32)
    texts = {"entities_text": _entities(records), "items_text": _items(records)}
    columns, content = pack(tables, {**texts, **{name: maps[name] for name in ("columns", "component_names")}})
    facts = {
        "number": number, "agent": int(records.agent_id[0]), "episode": int(records.episode[0]),
        "ticks": len(records), "columns": columns,
    }  # fmt: skip
    return facts, content


def _entities(records: Records) -> list[list[dict[str, Any]]]:
    """Describe the visible entities of each tick: place relative to the agent, and what they are."""
    by_tick = []
    rows = records.entity
    for record in range(len(records)):
        values = rows.values[rows.offsets[record] : rows.offsets[record + 1], : len(_ENTITY)].astype(int)
        own = values[values[:, 0] == records.agent_id[record]]
        origin = own[0, 2:4] if len(own) else np.zeros(2, int)
        by_tick.append(
            [
                {
                    "row": int(row - origin[0]), "col": int(column - origin[1]),
                    "text": "itself" if number == records.agent_id[record] else f"{_KINDS.get(kind, 'NPC')} {number}",
                }
                for number, kind, row, column in values.tolist()
            ]
        )  # fmt: skip
    return by_tick


def _items(records: Records) -> list[list[str]]:
    rows = records.inventory
    kinds = [rows.values[rows.offsets[record] : rows.offsets[record + 1], 1].tolist() for record in range(len(records))]
    return [[ITEMS.get(kind, f"item {kind}") for kind in numbers] for numbers in kinds]
