"""Films of codes: stretches of lives in one code, one after the other, and all codes side by side in a grid."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from activation_store.lives import places_of
from activation_store.reader import read_dump
from analysis.codes.content import CodedDump, Step
from analysis.codes.stretches import BLACK, SHORTEST, Stretch
from analysis.features.observed import Observed, own_truth_columns
from analysis.lives import places_among
from analysis.replays.agent_frames import SIZE, AgentFrames, black_frame
from analysis.replays.film import write_film
from analysis.runs.names import called
from user_error import UserError

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
    wanted = [stretch for each in stretches.values() for stretch in each]
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
        scenes: what to show.
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
