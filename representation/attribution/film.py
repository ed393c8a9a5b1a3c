"""A film of maps: the view on the left, the map of its tiles on the right."""

from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib import colormaps
from PIL import Image, ImageDraw, ImageFont

from analysis.figures.style import EFFECT_MAP
from analysis.materials import PALETTE
from representation.attribution.found import Found

_TILE = 24
_STRIP = 48
_GROUND, _TEXT, _WARNING = "#15181c", "#eef1f4", "#ffb300"
FPS = 5.0


def film_size(found: Found) -> tuple[int, int]:
    """Return width and height in pixels."""
    side = _TILE * round(found.tiles.shape[2] ** 0.5)
    return 2 * side, side + _STRIP + (side + _STRIP) % 2


def frames(
    found: Found, samples: Sequence[int], ticks: np.ndarray, heading: str, failures: Sequence[str], *, combine: bool
) -> Iterator[np.ndarray]:
    """Yield the pictures of some samples, one sample after the other.

    Args:
        found: attributions.
        samples: numbers of the samples.
        ticks: of the episode, of each state, (N,).
        heading: above nothing else: what is attributed.
        failures: of the sanity checks.
        combine: average the samples, aligned at their first tick, into one: views become mixtures of colours.
    """
    states = [np.flatnonzero(found.sample == number) for number in samples]
    runs = [np.stack(states, axis=1)] if combine else [each[:, None] for each in states]
    far = float(np.nanquantile(np.abs(found.tiles[np.concatenate(states), -1]), 0.995)) or 1.0
    for number, run in zip(("all" if combine else "", *samples) if combine else samples, runs, strict=False):
        for place, rows in enumerate(run):
            view = PALETTE[found.material[rows]].mean(axis=0)  # (tiles, 3)
            tiles = np.nan_to_num(found.tiles[rows, -1]).mean(axis=0)
            told = f"samples {', '.join(map(str, samples))}, tick {place} after the start" if combine else (
                f"sample {number}, tick {ticks[rows[0]]}"
            )  # fmt: skip
            value = float(np.nanmean(found.value[rows])) if np.isfinite(found.value[rows]).any() else float("nan")
            yield _frame(view, tiles / far, f"{heading}: {value:+.3f}   {told}", failures)


def _frame(view: np.ndarray, tiles: np.ndarray, text: str, failures: Sequence[str]) -> np.ndarray:
    side = round(len(tiles) ** 0.5)
    colours = colormaps[EFFECT_MAP]((np.clip(tiles, -1, 1) + 1) / 2)[:, :3] * 255
    pictures = [
        np.kron(each.reshape(side, side, 3), np.ones((_TILE, _TILE, 1))).astype(np.uint8) for each in (view, colours)
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
