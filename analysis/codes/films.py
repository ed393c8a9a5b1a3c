"""Films of codes: what single agents saw in stretches of lives in one code, and all codes side by side in a grid."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image, ImageDraw

from activation_store.lives import number_lives, places_of
from activation_store.reader import read_dump
from activation_store.schema import TILE_COLUMNS
from analysis.codes.content import CodedDump
from analysis.features.choices import DIRECTIONS, STEPS
from analysis.features.observed import Observed, own_truth_columns
from analysis.features.surroundings import NPC_TYPES
from analysis.lives import places_among
from analysis.materials import PALETTE
from analysis.replays.film import write_film
from analysis.replays.frames import ATTACK, DIM, EDGE, GROUND, RING, TEXT, VITALS, font, paste_sprite, shortened
from analysis.replays.replay import NPC_COLOURS, NPC_SHAPES
from analysis.runs.codebook_rule import called
from common.progress_view import Step
from common.user_error import UserError

SIZE = 256
"""Width and height of a frame in pixels."""
_SIDE = 15
_VIEW = 210
_TILE = _VIEW / _SIDE
_LEFT = (SIZE - _VIEW) // 2
_FULL = 100
_KINDS = {number: kind for kind, number in NPC_TYPES.items()}


def draw_frame(seen: Observed, record: int, title: str, policy: str, colour: str) -> np.ndarray:
    """Draw what an agent saw: terrain, entities, vitals, move and target.

    Args:
        colour: of the agent itself, `#rrggbb`.

    Returns:
        The frame with a title above, (256, 256, 3) uint8.
    """
    image = Image.new("RGB", (SIZE, SIZE), GROUND)
    material = seen.records.tile[record, :, TILE_COLUMNS.index("material")].reshape(_SIDE, _SIDE)
    ground = Image.fromarray(PALETTE[material]).resize((_VIEW, _VIEW), Image.Resampling.NEAREST)
    image.paste(ground, (_LEFT, 18))
    draw = ImageDraw.Draw(image)
    _draw_entities(image, draw, seen, record)
    _draw_own(image, draw, int(seen.option("Move.Direction")[record]), colour)
    draw.rectangle((0, 0, SIZE, 17), fill=GROUND)
    draw.rectangle((0, 18 + _VIEW, SIZE, SIZE), fill=GROUND)
    _draw_line(draw, 9, 12, title, f"tick {seen.records.tick[record]}")
    y, width = 18 + _VIEW + 8, SIZE // len(VITALS)
    for place, (vital, bar) in enumerate(VITALS.items()):
        x, value = place * width, int(seen.own(vital)[record])
        draw.text((x + 6, y), vital, fill=DIM, font=font(10), anchor="lm")
        start, end = x + 40, x + width - 4
        draw.rectangle((start, y - 3, end, y + 3), fill="#2a3038")
        if value > 0:
            draw.rectangle((start, y - 3, start + (end - start) * min(value, _FULL) / _FULL, y + 3), fill=bar)
    _draw_line(
        draw, SIZE - 7, 10, policy, f"agent {seen.records.agent_id[record]}, episode {seen.records.episode[record]}"
    )
    return np.asarray(image)


def _draw_line(draw: ImageDraw.ImageDraw, y: int, size: int, left: str, right: str) -> None:
    room = SIZE - 18 - draw.textlength(right, font=font(size))
    draw.text((6, y), shortened(draw, left, room, size), fill=TEXT, font=font(size), anchor="lm")
    draw.text((SIZE - 6, y), right, fill=DIM, font=font(size), anchor="rm")


def _at(down: float, right: float) -> tuple[float, float]:
    """The middle of a tile in pixels, so many tiles down and right of the agent."""
    return _LEFT + (_SIDE / 2 + right) * _TILE, 18 + (_SIDE / 2 + down) * _TILE


def _draw_entities(image: Image.Image, draw: ImageDraw.ImageDraw, seen: Observed, record: int) -> None:
    start, end = seen.records.entity.offsets[record : record + 2]
    own, target = seen.own_rows[record], int(seen.target_rows[record])
    row, col, kind = (seen.entity(name) for name in ("row", "col", "npc_type"))
    for place in range(int(start), int(end)):
        down, right = int(row[place] - row[own]), int(col[place] - col[own])
        if place == own or max(abs(down), abs(right)) > _SIDE // 2:
            continue
        x, y = _at(down, right)
        named = _KINDS.get(int(kind[place]))
        colour, shape = (NPC_COLOURS[named], NPC_SHAPES[named]) if named else ("#f4f4f4", "disc")
        if place == target:
            draw.line((*_at(0, 0), x, y), fill=ATTACK, width=2)
            draw.rectangle((x - 8, y - 8, x + 8, y + 8), outline=ATTACK, width=2)
        paste_sprite(image, (x, y), shape, colour, 5.0 if named else 5.5)


def _draw_own(image: Image.Image, draw: ImageDraw.ImageDraw, move: int, colour: str) -> None:
    x, y = _at(0, 0)
    paste_sprite(image, (x, y), "disc", colour, 6.0)
    for width, ring in ((4, EDGE), (2, RING)):
        draw.ellipse((x - 9, y - 9, x + 9, y + 9), outline=ring, width=width)
    if move >= len(DIRECTIONS):
        return
    down, right = STEPS[DIRECTIONS[move]]
    tip, base = (x + 21 * right, y + 21 * down), (x + 10 * right, y + 10 * down)
    draw.line((*base, *tip), fill=RING, width=3)
    side = (7 * down, 7 * right)
    corners = (
        (tip[0] + 5 * right, tip[1] + 5 * down),
        (tip[0] - 3 * right + side[0], tip[1] - 3 * down + side[1]),
        (tip[0] - 3 * right - side[0], tip[1] - 3 * down - side[1]),
    )
    draw.polygon(corners, fill=RING)


SHORTEST, LONGEST = 5, 20
"""Ticks of a stretch; of a longer one the first are shown."""
FRAMES, BLACK = 480, 4
"""Frames of a film, and black frames between stretches."""
BEST_SHARE = 0.2

From = Literal["best", "all"]


def stretches_of(coded: CodedDump, chosen: From, seed: int) -> dict[int, list[np.ndarray]]:
    """Draw stretches for each code, from different lives as far as possible, up to the frames of a film.

    Args:
        chosen: "best" for the fifth of the lives with the highest sum of rewards, or the longest if rewards were not
            recorded; "all" for all.

    Returns:
        Code -> records of the dump in each stretch, consecutive ones of one life, `SHORTEST` to `LONGEST`.
    """
    lives, random = coded.lives, np.random.default_rng(seed)
    allowed = np.isin(np.arange(len(lives)), best_lives(coded)) if chosen == "best" else np.ones(len(lives), bool)
    order = lives.order[allowed[lives.index_in_order]]
    label, life, tick = coded.label[order], lives.index[order], coded.records.tick[order]
    begins = np.flatnonzero(
        (np.diff(label, prepend=-2) != 0) | (np.diff(life, prepend=-1) != 0) | (np.diff(tick, prepend=-2) != 1)
    )
    lengths = np.diff(begins, append=len(order))
    stretches: dict[int, list[np.ndarray]] = {}
    for code in coded.labels:
        own = random.permutation(np.flatnonzero((label[begins] == code) & (lengths >= SHORTEST)))
        before: Counter[int] = Counter()
        turn = []  # how often each stretch's life has come before
        for whose in life[begins[own]].tolist():
            turn.append(before[whose])
            before[whose] += 1
        own = own[np.argsort(turn, kind="stable")]  # a second stretch of a life only after one of each life
        stretches[code], frames = [], 0
        for visit in own.tolist():
            length = min(int(lengths[visit]), LONGEST, FRAMES - frames)
            if length < SHORTEST:
                break
            first = begins[visit]
            stretches[code].append(order[first : first + length])
            frames += length + BLACK
    return stretches


def best_lives(coded: CodedDump) -> np.ndarray:
    """Return the numbers of the best fifth of the lives, at least one."""
    lives, reward = coded.lives, coded.records.reward
    score = np.bincount(lives.index, weights=reward) if np.isfinite(reward).all() else lives.lengths
    return np.argsort(-score, kind="stable")[: max(1, round(BEST_SHARE * len(lives)))]


FPS = 8
_COLUMNS = 4
_MOST_IN_GRID = 16


def read_scenes(
    coded: CodedDump, stretches: Mapping[int, Sequence[np.ndarray]], step: Step
) -> tuple[Observed, dict[int, list[np.ndarray]]]:
    """Read what agents saw in some stretches of their lives.

    Returns:
        The records of all stretches, with tiles, and which of them each stretch holds, by code.

    Raises:
        UserError: there is no stretch.
    """
    wanted = [stretch for several in stretches.values() for stretch in several]
    if not wanted:
        raise UserError(
            f"no life of {coded.run.dump} has {SHORTEST} ticks in a row in one code: there is nothing to film; "
            "record longer lives, or fit fewer codes"
        )
    records = coded.records.take(np.unique(np.concatenate(wanted)))
    with step("reading what agents saw") as report:
        read = read_dump(
            coded.run.dump, layers=[], columns=own_truth_columns(coded.metadata), leave_out=["tables"],
            lives=number_lives(places_of(records))[0].tolist(), progress=report,
        )  # fmt: skip
    place = places_among(places_of(coded.records.take(np.concatenate(wanted))), places_of(read))
    parts = iter(np.split(place, np.cumsum(list(map(len, wanted)))[:-1]))
    return Observed(read, coded.metadata), {code: [next(parts) for _ in own] for code, own in stretches.items()}


def write_films(
    coded: CodedDump, stretches: Mapping[int, Sequence[np.ndarray]], folder: Path, formats: Sequence[str], step: Step
) -> Iterator[str]:
    """Write a film of each code, and one with all codes in a grid; yield lines that say what was written.

    Args:
        stretches: as `stretches_of` returns them.
        formats: "mp4", "gif" or both.
    """
    from analysis.figures.style import cluster_colour

    seen, parts = read_scenes(coded, stretches, step)
    folder.mkdir(parents=True, exist_ok=True)
    films = {}
    for label, own in parts.items():
        title = f"code {called(label, coded.names)}"
        if not own:
            yield f"{title}: no stretch of {SHORTEST} ticks or more in these lives, so no film"
            continue
        frame = partial(draw_frame, seen, title=title, policy=coded.metadata.policy, colour=cluster_colour(label))
        with step(f"filming {title}"):
            black = [np.zeros((SIZE, SIZE, 3), np.uint8)] * BLACK  # between stretches
            pictures = [picture for records in own for picture in (*black, *map(frame, records.tolist()))]
            films[label] = np.stack(pictures[BLACK:])
            for form in formats:
                write_film(folder / f"code-{label}.{form}", films[label], (SIZE, SIZE), FPS)
        yield f"{title}: {len(own)} stretches, {folder / f'code-{label}'}.{' and .'.join(formats)}"
    shown = dict(list(films.items())[:_MOST_IN_GRID])
    with step("filming all codes in a grid"):
        for form in formats:
            shrunk = 2 if form == "gif" else 1
            columns, rows = min(_COLUMNS, len(shown)), -(-len(shown) // _COLUMNS)
            size = (columns * SIZE // shrunk, rows * SIZE // shrunk)
            write_film(folder / f"all.{form}", _grid(list(shown.values()), columns, shrunk), size, FPS)
    yield f"all codes: {folder / 'all'}.{' and .'.join(formats)}"


def _grid(films: Sequence[np.ndarray], columns: int, shrunk: int) -> Iterator[np.ndarray]:
    """Yield frames of films side by side; shorter ones start again."""
    rows = -(-len(films) // columns)
    small = [film[:, ::shrunk, ::shrunk] for film in films]
    side = SIZE // shrunk
    for tick in range(max(map(len, films))):
        frame = np.zeros((rows * side, columns * side, 3), np.uint8)
        for place, film in enumerate(small):
            row, column = divmod(place, columns)
            frame[row * side : (row + 1) * side, column * side : (column + 1) * side] = film[tick % len(film)]
        yield frame
