"""Pictures of a replay, one per tick: the whole map, or the surroundings of one agent; and which ticks and agent."""

import functools
from collections import Counter
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from analysis.labels import NOISE
from analysis.materials import PALETTE
from analysis.replays.clusters import ReplayClusters
from analysis.replays.replay import (
    CAUSES,
    DEATH,
    NPC_COLOURS,
    NPC_KINDS,
    NPC_SHAPES,
    UNLABELLED,
    Entities,
    Events,
    Replay,
    cluster_colours,
    policy_colours,
    rgb,
)
from common.user_error import UserError

STRIP = 44
"""Height of the strip below the map, in pixels."""
_VOID = 0
GROUND, TEXT, DIM, RING = "#15181c", "#eef1f4", "#a9b3bd", "#ffd166"
ATTACK = "#d7263d"
VITALS = {"health": "#e4615c", "food": "#e7a33e", "water": "#5eb3e8"}
_MARGIN = 10
_SMALLEST_RADIUS = 4.0
_SMALLEST_NPC = 2.0


@dataclass(frozen=True)
class AgentColours:
    """How agents are coloured."""

    colour: np.ndarray  # index into `colours`, (T, P) int64
    solid: np.ndarray  # False if the colour is from an earlier tick or there is no label, (T, P) bool
    colours: tuple[str, ...]  # `#rrggbb`
    legend: tuple[tuple[str, str], ...]


def colours_by_policy(replay: Replay) -> AgentColours:
    """Colour agents by policy."""
    colours = policy_colours(replay.players.policies)
    places = [list(colours).index(policy) for policy in replay.players.policies]
    shape = replay.players.row.shape
    colour = np.broadcast_to(np.array(places, dtype=np.int64), shape)
    return AgentColours(colour, np.ones(shape, dtype=bool), tuple(colours.values()), tuple(colours.items()))


def colours_by_cluster(clusters: ReplayClusters) -> AgentColours:
    """Colour agents by cluster."""
    colours = cluster_colours(clusters.clusters)
    labels = np.array(sorted(colours))
    names = {UNLABELLED: "no label", NOISE: "noise"}
    ordered = [(names.get(label, f"cluster {label}"), colours[label]) for label in labels.tolist()]
    legend = tuple(sorted(ordered, key=lambda entry: entry[0] in names.values()))
    place = np.searchsorted(labels, clusters.label)
    return AgentColours(place, clusters.exact, tuple(colour for _, colour in ordered), legend)


class FrameDrawer:
    """Draws ticks of a replay as (size + `STRIP`, size, 3) uint8."""

    def __init__(
        self, replay: Replay, events: Events, colours: AgentColours, size: int, followed: int | None, radius: int
    ):
        """Draw pictures `size` pixels wide.

        Args:
            followed: column of the player in the middle of the view, except near the world's edges; None shows the
                whole map.
            radius: tiles shown to each side of a followed player.
        """
        self.replay = replay
        self.events = events
        self.colours = colours
        self.size = size
        self.followed = followed
        self.radius = radius
        # First row, first column and side of the smallest square around all non-void tiles, plus a margin.
        self._whole = (0, 0, max(replay.tiles.shape))
        rows, cols = np.nonzero(replay.tiles != _VOID)
        if len(rows):
            side = int(max(np.ptp(rows), np.ptp(cols))) + 3
            top, left = (int(places.min() + places.max() + 1 - side) // 2 for places in (rows, cols))
            self._whole = (top, left, side)
        self._seen_at = None
        if followed is not None:  # for each tick the last one with the player there, or the first such tick if earlier
            present = replay.players.present[:, followed]
            latest = np.maximum.accumulate(np.where(present, np.arange(len(present)), -1))
            self._seen_at = np.where(latest < 0, np.argmax(present), latest)

    def draw(self, tick: int) -> np.ndarray:
        """Return the picture of one tick."""
        top, left, tiles = self._view(tick)
        scale = self.size / tiles
        image = Image.new("RGB", (self.size, self.size + STRIP), GROUND)
        image.paste(Image.fromarray(self._ground(tick, top, left, tiles)), (0, 0))
        draw = ImageDraw.Draw(image)
        self._draw_attacks(draw, tick, (top, left, scale))
        sharing: Counter[tuple[int, int]] = Counter()
        for entities in (self.replay.npcs, self.replay.players):
            self._draw_entities(image, entities, tick, (top, left, scale), sharing)
        if self.followed is not None and self._seen_at is not None:
            players, seen = self.replay.players, self._seen_at[tick]
            x = (int(players.col[seen, self.followed]) - left + 0.5) * scale
            y = (int(players.row[seen, self.followed]) - top + 0.5) * scale
            radius = max(_SMALLEST_RADIUS, 0.38 * scale) + 4
            for width, ring in ((4, EDGE), (2, RING)):
                draw.ellipse((x - radius, y - radius, x + radius, y + radius), outline=ring, width=width)
        # Marks that extend beyond the map's edge must not be drawn over the strip.
        draw.rectangle((0, self.size, self.size, self.size + STRIP), fill=GROUND)
        self._draw_strip(draw, tick)
        return np.asarray(image)

    def _view(self, tick: int) -> tuple[int, int, int]:
        """Return the first row, the first column, and the side of the view in tiles."""
        if self.followed is None or self._seen_at is None:
            return self._whole
        seen = self._seen_at[tick]
        tiles = 2 * self.radius + 1
        top, left, side = self._whole
        if tiles >= side:
            return self._whole
        row, col = (int(table[seen, self.followed]) for table in (self.replay.players.row, self.replay.players.col))
        # Near an edge of the world the view stays inside it, so the agent is off the middle.
        return _within(row - self.radius, top, side - tiles), _within(col - self.radius, left, side - tiles), tiles

    def _ground(self, tick: int, top: int, left: int, tiles: int) -> np.ndarray:
        materials = self.replay.materials_at(tick)
        offsets = np.arange(self.size) * tiles // self.size
        rows, cols = top + offsets, left + offsets
        inside = [(places >= 0) & (places < side) for places, side in zip((rows, cols), materials.shape, strict=True)]
        seen = materials[np.ix_(np.where(inside[0], rows, 0), np.where(inside[1], cols, 0))]
        return PALETTE[np.where(inside[0][:, None] & inside[1], seen, _VOID)]

    def _draw_entities(
        self, image: Image.Image, entities: Entities, tick: int, view: tuple[int, int, float],
        sharing: Counter[tuple[int, int]],
    ) -> None:  # fmt: skip
        """Draw players or NPCs; those that stand on a tile on which others were drawn, beside them."""
        top, left, scale = view
        is_player = entities is self.replay.players
        size = max(_SMALLEST_RADIUS, 0.38 * scale) if is_player else max(_SMALLEST_NPC, 0.28 * scale)
        for column in np.flatnonzero(entities.present[tick]).tolist():
            row, col = int(entities.row[tick, column]), int(entities.col[tick, column])
            angle, distance = 2.4 * sharing[row, col], 0.28 if sharing[row, col] else 0.0  # in tiles
            sharing[row, col] += 1
            down, right = distance * float(np.sin(angle)), distance * float(np.cos(angle))
            x, y = (col - left + 0.5 + right) * scale, (row - top + 0.5 + down) * scale
            if not (0 <= x < self.size and 0 <= y < self.size):
                continue
            if is_player:
                colour = self.colours.colours[self.colours.colour[tick, column]]
                shape = "disc" if self.colours.solid[tick, column] else "ring"
            else:
                kind = NPC_KINDS[self.replay.npcs.kind[tick, column]]
                colour, shape = NPC_COLOURS[kind], NPC_SHAPES[kind]
            shape = shape if entities.alive[tick, column] else "cross"
            paste_sprite(image, (x, y), shape, colour, round(size, 1))

    def _draw_attacks(self, draw: ImageDraw.ImageDraw, tick: int, view: tuple[int, int, float]) -> None:
        top, left, scale = view
        places: dict[int, tuple[float, float]] = {}
        attacks: list[tuple[int, int]] = []
        for entities in (self.replay.npcs, self.replay.players):
            for column in np.flatnonzero(entities.present[tick]).tolist():
                number = int(entities.ids[column])
                x, y = (int(entities.col[tick, column]) - left + 0.5), (int(entities.row[tick, column]) - top + 0.5)
                places[number] = x * scale, y * scale
                if entities.target[tick, column]:
                    attacks.append((number, int(entities.target[tick, column])))
        for attacker, target in attacks:
            if target in places:
                draw.line((*places[attacker], *places[target]), fill="#ffffff", width=4)
                draw.line((*places[attacker], *places[target]), fill=ATTACK, width=2)

    def _draw_strip(self, draw: ImageDraw.ImageDraw, tick: int) -> None:
        middle = self.size + (STRIP // 2 if self.followed is None else 13)
        clock = f"tick {tick}"
        draw.text((self.size - _MARGIN, middle), clock, fill=DIM, font=font(14), anchor="rm")
        room = self.size - 2 * _MARGIN - draw.textlength(clock, font=font(14))
        if self.followed is not None:
            self._draw_vitals(draw, tick, room)
            return
        alive = self.replay.players.alive[tick]
        x, y = _MARGIN, self.size + STRIP // 2
        text = f"{alive.sum()} of {len(alive)} agents"
        draw.text((x, y), text, fill=TEXT, font=font(14), anchor="lm")
        x += round(draw.textlength(text, font=font(14))) + 16
        for name, colour in self.colours.legend:
            width = round(draw.textlength(name, font=font(12))) + 28
            if x + width > room:
                break
            draw.ellipse((x, y - 5, x + 10, y + 5), fill=colour)
            draw.text((x + 15, y), name, fill=DIM, font=font(12), anchor="lm")
            x += width

    def _draw_vitals(self, draw: ImageDraw.ImageDraw, tick: int, room: float) -> None:
        players, column = self.replay.players, self.followed
        assert column is not None and self._seen_at is not None
        seen = self._seen_at[tick]
        name = shortened(draw, players.names[column], room, 14)
        draw.text((_MARGIN, self.size + 13), name, fill=TEXT, font=font(14), anchor="lm")
        if not players.alive[seen, column] and tick >= seen:
            died = np.flatnonzero((self.events.kind == DEATH) & (self.events.player == column))
            fate = "dead"
            if len(died):
                fate = f"died at tick {self.events.tick[died[0]]}: {CAUSES[self.events.detail[died[0]]]}"
            fate = shortened(draw, fate, self.size - 2 * _MARGIN, 12)
            draw.text((_MARGIN, self.size + 32), fate, fill=DIM, font=font(12), anchor="lm")
            return
        width = (self.size - 2 * _MARGIN) // len(VITALS)
        for place, (vital, colour) in enumerate(VITALS.items()):
            value, x, y = int(getattr(players, vital)[seen, column]), _MARGIN + place * width, self.size + 32
            draw.text((x, y), f"{vital} {value}", fill=DIM, font=font(12), anchor="lm")
            start, end = x + 74, x + width - 12
            if end > start:
                draw.rectangle((start, y - 4, end, y + 4), fill="#2a3038")
                draw.rectangle(
                    (start, y - 4, start + (end - start) * min(max(value, 0), 100) / 100, y + 4), fill=colour
                )


def _within(place: int, first: int, room: int) -> int:
    return min(max(place, first), first + room)


@functools.cache
def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Return the font of frames in a size in pixels."""
    return ImageFont.load_default(size)


def shortened(draw: ImageDraw.ImageDraw, text: str, room: float, size: int) -> str:
    """Shorten a text so that it fits."""
    if draw.textlength(text, font=font(size)) <= room:
        return text
    while text and draw.textlength(text + "…", font=font(size)) > room:
        text = text[:-1]
    return text + "…"


EDGE = "#101214"
"""Outline of every mark, so that it is visible on any ground."""
_EDGE_OF_SQUARES = "#ff6b5e"
_SMOOTH = 4
_CORNERS = {
    "triangle": ((0, -1.1), (1.1, 0.85), (-1.1, 0.85)),
    "diamond": ((0, -1.1), (1.1, 0), (0, 1.1), (-1.1, 0)),
    "square": ((-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)),
}


@functools.cache
def sprite_of(shape: str, colour: str, radius: float) -> Image.Image:
    """Draw a shape at a larger scale and shrink it, which smooths its edges."""
    side = 2 * (int(1.5 * radius) + 2)
    image = Image.new("RGBA", (side * _SMOOTH, side * _SMOOTH), (*rgb(colour), 0))
    draw = ImageDraw.Draw(image)
    middle, r = side * _SMOOTH / 2, radius * _SMOOTH

    def disc(share: float, fill: str) -> None:
        draw.ellipse((middle - share * r, middle - share * r, middle + share * r, middle + share * r), fill=fill)

    if shape in ("disc", "ring"):
        layers = ((1.2, EDGE), (1.0, "#ffffff"), (0.78, colour)) if shape == "disc" else (
            (1.2, EDGE), (1.0, colour), (0.52, EDGE),
        )  # fmt: skip
        for share, fill in layers:
            disc(share, fill)
    elif shape == "cross":
        for width, fill in ((0.9 * r, EDGE), (0.45 * r, colour)):
            for slope in (1, -1):
                ends = (middle - r, middle - slope * r, middle + r, middle + slope * r)
                draw.line(ends, fill=fill, width=max(round(width), 2 * _SMOOTH))
    else:
        edge = _EDGE_OF_SQUARES if shape == "square" else EDGE
        for share, fill in ((1.25, edge), (0.9, colour)):
            draw.polygon([(middle + share * r * x, middle + share * r * y) for x, y in _CORNERS[shape]], fill=fill)
    return image.resize((side, side), Image.Resampling.LANCZOS)


def paste_sprite(image: Image.Image, at: tuple[float, float], shape: str, colour: str, radius: float) -> None:
    """Draw a shape with its middle at a point of a picture."""
    sprite, (x, y) = sprite_of(shape, colour, radius), at
    image.paste(sprite, (round(x - sprite.width / 2), round(y - sprite.height / 2)), sprite)


_NAMES_SHOWN = 5


def ticks_between(replay: Replay, start: int, end: int | None, skip: int) -> range:
    """Return the ticks to draw.

    Args:
        end: last tick; None for the replay's last.
        skip: draw one tick in this many, from 1 (all).

    Raises:
        UserError: `start` or `end` is not in the replay.
    """
    last = replay.ticks - 1
    end = last if end is None else end
    if start > last or end > last:
        raise UserError(f"the replay ends at tick {last}: choose --start and --end up to it")
    return range(start, end + 1, skip)


def player_called(wanted: str, replay: Replay) -> int:
    """Return the column of the player with this name or number.

    Raises:
        UserError: there is none.
    """
    players = replay.players
    for column, (name, number) in enumerate(zip(players.names, players.ids.tolist(), strict=True)):
        if wanted in (name, str(number)):
            return column
    some = ", ".join(players.names[:_NAMES_SHOWN])
    raise UserError(f"--follow {wanted}: there is no such agent; there are {len(players)}, such as {some}")
