"""Films of codes: stretches of lives in one code, one after the other, and all codes side by side in a grid."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from activation_store.lives import places_of
from activation_store.reader import read_dump
from analysis.codes.content import CodedDump, Step
from analysis.features.observed import Observed, own_truth_columns
from analysis.lives import places_among
from analysis.replays.agent_frames import SIZE, AgentFrames, black_frame
from analysis.replays.film import write_film
from analysis.runs.names import called
from common.user_error import UserError

SHORTEST, LONGEST = 5, 20
"""Ticks of a stretch; of a longer one the first are shown."""
FRAMES, BLACK = 480, 4
"""Frames of a film, and black frames between stretches."""
BEST_SHARE = 0.2

From = Literal["best", "all"]


@dataclass(frozen=True)
class Stretch:
    """Consecutive records of one life with one code.

    Attributes:
        life: number of the life.
        records: of the dump, in order of ticks, `SHORTEST` to `LONGEST`.
    """

    label: int
    life: int
    records: np.ndarray


def stretches_of(coded: CodedDump, chosen: From, seed: int) -> dict[int, list[Stretch]]:
    """Draw stretches for each code, from different lives as far as possible, up to the frames of a film.

    Args:
        coded: the run and every record of its dump.
        chosen: "best" for the fifth of the lives with the highest sum of rewards, or the longest if rewards were not
            recorded; "all" for all.
        seed: of the draw.

    Returns:
        Code -> stretches; a code without any has none.
    """
    lives, random = coded.lives, np.random.default_rng(seed)
    allowed = np.isin(np.arange(len(lives)), best_lives(coded)) if chosen == "best" else np.ones(len(lives), bool)
    order = lives.order[allowed[lives.index_in_order]]
    label, life, tick = coded.label[order], lives.index[order], coded.records.tick[order]
    begins = np.flatnonzero(
        (np.diff(label, prepend=-2) != 0) | (np.diff(life, prepend=-1) != 0) | (np.diff(tick, prepend=-2) != 1)
    )
    lengths = np.diff(begins, append=len(order))
    stretches: dict[int, list[Stretch]] = {}
    for code in coded.labels:
        own = random.permutation(np.flatnonzero((label[begins] == code) & (lengths >= SHORTEST)))
        turn = _turns(life[begins[own]])
        own = own[np.argsort(turn, kind="stable")]  # a second stretch of a life only after one of each life
        stretches[code], frames = [], 0
        for visit in own.tolist():
            length = min(int(lengths[visit]), LONGEST, FRAMES - frames)
            if length < SHORTEST:
                break
            first = begins[visit]
            stretches[code].append(Stretch(code, int(life[first]), order[first : first + length]))
            frames += length + BLACK
    return stretches


def best_lives(coded: CodedDump) -> np.ndarray:
    """Return the numbers of the best fifth of the lives, at least one."""
    lives, reward = coded.lives, coded.records.reward
    score = np.bincount(lives.index, weights=reward) if np.isfinite(reward).all() else lives.lengths
    return np.argsort(-score, kind="stable")[: max(1, round(BEST_SHARE * len(lives)))]


def _turns(life: np.ndarray) -> np.ndarray:
    """Count how often each life has come before, (n,)."""
    turns, seen = np.zeros(len(life), np.int64), dict[int, int]()
    for place, code in enumerate(life.tolist()):
        turns[place] = seen.get(code, 0)
        seen[code] = turns[place] + 1
    return turns


FPS = 8
_COLUMNS = 4
_MOST_IN_GRID = 16


@dataclass(frozen=True, eq=False)
class Scenes:
    """What films show.

    Attributes:
        policy: name of the policy.
        titles: of each code.
        seen: the records of all stretches, with tiles.
        stretches: code -> the records of `seen` of each stretch.
    """

    policy: str
    titles: dict[int, str]
    seen: Observed
    stretches: dict[int, list[np.ndarray]]


def read_scenes(coded: CodedDump, stretches: Mapping[int, Sequence[Stretch]], step: Step) -> Scenes:
    """Read what agents saw in some stretches of their lives.

    Raises:
        UserError: there is no stretch.
    """
    wanted = [stretch for several in stretches.values() for stretch in several]
    if not wanted:
        raise UserError(
            f"no life of {coded.run.dump} has {SHORTEST} ticks in a row in one code: there is nothing to film; "
            "record longer lives, or fit fewer codes"
        )
    records = coded.records.take(np.unique(np.concatenate([stretch.records for stretch in wanted])))
    keys = np.stack([records.env_id, records.agent_id, records.episode], axis=1)
    with step("reading what agents saw") as report:
        read = read_dump(
            coded.run.dump, layers=[], columns=own_truth_columns(coded.metadata), leave_out=["tables"],
            lives=np.unique(keys, axis=0).tolist(), progress=report,
        )  # fmt: skip
    place = places_among(places_of(coded.records.take(np.concatenate([s.records for s in wanted]))), places_of(read))
    parts = np.split(place, np.cumsum([len(stretch.records) for stretch in wanted])[:-1])
    by_code: dict[int, list[np.ndarray]] = {label: [] for label in stretches}
    for stretch, part in zip(wanted, parts, strict=True):
        by_code[stretch.label].append(part)
    titles = {label: f"code {called(label, coded.names)}" for label in stretches}
    return Scenes(coded.metadata.policy, titles, Observed(read, coded.metadata), by_code)


def write_films(scenes: Scenes, folder: Path, formats: Sequence[str], step: Step) -> Iterator[str]:
    """Write a film of each code, and one with all codes in a grid; yield lines that say what was written.

    Args:
        folder: for the films.
        formats: "mp4", "gif" or both.
        step: shows progress.
    """
    from analysis.figures.style import cluster_colour

    folder.mkdir(parents=True, exist_ok=True)
    films = {}
    for label, stretches in scenes.stretches.items():
        if not stretches:
            yield f"{scenes.titles[label]}: no stretch of {SHORTEST} ticks or more in these lives, so no film"
            continue
        drawer = AgentFrames(scenes.seen, scenes.policy, cluster_colour(label))
        with step(f"filming {scenes.titles[label]}"):
            films[label] = np.stack(list(_frames(drawer, stretches, scenes.titles[label])))
            for form in formats:
                write_film(folder / f"code-{label}.{form}", films[label], (SIZE, SIZE), FPS)
        yield f"{scenes.titles[label]}: {len(stretches)} stretches, {folder / f'code-{label}'}.{' and .'.join(formats)}"
    shown = dict(list(films.items())[:_MOST_IN_GRID])
    with step("filming all codes in a grid"):
        for form in formats:
            shrunk = 2 if form == "gif" else 1
            columns, rows = min(_COLUMNS, len(shown)), -(-len(shown) // _COLUMNS)
            size = (columns * SIZE // shrunk, rows * SIZE // shrunk)
            write_film(folder / f"all.{form}", _grid(list(shown.values()), columns, shrunk), size, FPS)
    yield f"all codes: {folder / 'all'}.{' and .'.join(formats)}"


def _frames(drawer: AgentFrames, stretches: Sequence[np.ndarray], title: str) -> Iterator[np.ndarray]:
    """Yield the frames of a code's film: its stretches, with black frames between them."""
    for number, records in enumerate(stretches):
        if number:
            yield from [black_frame()] * BLACK
        for record in records.tolist():
            yield drawer.draw(record, title)


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
