"""One self-contained offline page that shows an intervention run: results, replays side by side, and figures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from activation_store.interventions import (
    EDITED_REPLAY,
    REPLAYED_EPISODE,
    UNEDITED_REPLAY,
    Arm,
    LivesTable,
    replayed_arms,
)
from analysis.interventions.page.scripts import page_scripts
from analysis.pages.pages import embedded, environment, picture, scripts_of, style_of
from analysis.replays.file import read_replay
from analysis.replays.page.page import packed_replay
from analysis.replays.replay import Entities, Replay, events_of
from analysis.runs.finished_files import open_finished
from analysis.runs.run_folder import DONE_FILE
from common.files import sha256
from common.user_error import UserError

_HERE = Path(__file__).parent
AnyEntities = TypeVar("AnyEntities", bound=Entities)

_SAME = -1
_NAMED = 5
_PARTS = {
    "row": "place", "col": "place", "health": "health", "food": "food", "water": "water", "target": "attack",
    "style": "attack", "damage": "damage", "gold": "gold", "inventory": "inventory", "skill_level": "skills",
    "skill_experience": "skills", "level": "skills",
}  # fmt: skip
"""What a difference in each table is called; differences in other tables alone are called `state`."""


@dataclass(frozen=True)
class ComparedReplays:
    """An episode without and with an edit; both replays have the same number of ticks."""

    unedited: Replay  # the first replay; after the end of either nobody is present in it
    edited: Replay
    ends: tuple[int, int]  # last tick of each before it was made longer
    drawn: np.ndarray  # which agents were drawn at random to be edited, (P,) bool
    first: np.ndarray  # tick at which each agent first differs, -1 if it never does, (P,) int32
    differs: tuple[tuple[str, ...], ...]
    """What differs at that tick, by player, such as ("place", "food"); empty if nothing ever does."""

    @property
    def ids(self) -> np.ndarray:
        """The agents' ids, (P,) int32."""
        return self.unedited.players.ids

    @property
    def first_tick(self) -> int | None:
        """The first tick at which any agent differs; None if none ever does."""
        ticks = self.first[self.first != _SAME]
        return int(ticks.min()) if len(ticks) else None


Films = Mapping[str, tuple[Arm, ComparedReplays]]
"""The replay of each dose of an edit beside the unedited one, by file: of one episode, the lowest dose first; all have
as many ticks."""


def read_films(folder: Path, lives: LivesTable, arms: Sequence[Arm], progress: Callable[[float], None]) -> Films:
    """Read the replays of a run, and compare each edited one with the unedited one.

    Runs of versions that kept a replay of the largest dose alone have that one.

    Raises:
        UserError: one is missing, damaged or was changed, or they do not fit the run.
    """
    wanted = replayed_arms(arms)
    # What is not as an earlier report of the run listed it is refused.
    proofs = open_finished(folder).sha256 if (folder / DONE_FILE).exists() else {}
    for name in wanted:
        if not (folder / name).exists() and name in {UNEDITED_REPLAY, EDITED_REPLAY, *proofs}:
            raise UserError(f"{name} is missing")
        if name in proofs and sha256(folder / name) != proofs[name]:
            raise UserError(f"{name} does not match its SHA-256 in {DONE_FILE}: it is damaged or was edited")
    names = {name: arm for name, arm in wanted.items() if (folder / name).exists()}
    read: dict[str, Replay] = {}
    for name in names:
        read[name] = read_replay(folder / name, lambda share: progress((len(read) + share) / len(names)))
    unedited, ticks = read.pop(UNEDITED_REPLAY), max(replay.ticks for replay in read.values())
    mine = lives.of_arm(names[EDITED_REPLAY].name)
    drawn = mine.agent[(mine.episode == REPLAYED_EPISODE) & mine.edited].tolist()
    by_dose = sorted(read, key=lambda name: names[name].dose or 0)
    return {name: (names[name], compare(unedited, read[name], drawn, ticks)) for name in by_dose}


def intervention_page(name: str, summary: Sequence[str], films: Films | str, figures: Mapping[Path, str]) -> str:
    """Return the page as HTML; instead of films, the reason why there are none."""
    return (
        environment(_HERE, trim=True)
        .get_template("template.html")
        .render(
            name=name,
            summary=_paragraphs(summary),
            figures=[
                {"name": path.name, "caption": caption, "uri": picture(path)} for path, caption in figures.items()
            ],
            style=style_of("document", _HERE, dark="preferred"),
            scripts=scripts_of((), ()) if isinstance(films, str) else page_scripts(),
            reason=films,
            **{"films": ()} if isinstance(films, str) else _shown(films),
        )
    )


def _shown(films: Films) -> dict[str, Any]:
    shown = list(films).index(EDITED_REPLAY)
    arm, compared = films[EDITED_REPLAY]
    of_films = [
        {
            "name": arm.name, "dose": arm.dose, "first": film.first.tolist(), "differs": film.differs,
            "firstTick": film.first_tick, "difference": first_difference(film), "end": film.ends[1],
        }
        for arm, film in films.values()
    ]  # fmt: skip
    facts = {
        "drawn": compared.drawn.tolist(), "unedited": compared.ends[0], "shown": shown, "films": of_films
    }  # fmt: skip
    edited = {f"edited-{number}": _content(film.edited) for number, (_, film) in enumerate(films.values())}
    return {
        "films": films,
        "arm": arm,
        "compared": compared,
        "first": shown,
        "episode": REPLAYED_EPISODE,
        "difference": first_difference(compared),
        "facts": embedded(facts),
        "contents": {"unedited": _content(compared.unedited), **edited},
    }


def _content(replay: Replay) -> dict[str, Any]:
    facts, tables = packed_replay(replay, events_of(replay), None)
    return {"facts": embedded(facts), "tables": tables}


def _paragraphs(summary: Sequence[str]) -> list[list[dict[str, Any]]]:
    """Split the summary at its empty lines; details are lines that are indented there."""
    paragraphs: list[list[dict[str, Any]]] = [[]]
    for line in summary:
        if line:
            paragraphs[-1].append({"text": line.strip(), "is_detail": line.startswith((" ", "- "))})
        else:
            paragraphs.append([])
    return [paragraph for paragraph in paragraphs if paragraph]


def compare(unedited: Replay, edited: Replay, drawn: Sequence[int], ticks: int = 0) -> ComparedReplays:
    """Compare two replays of the same episode.

    Args:
        drawn: ids of the agents that were drawn at random to be edited.
        ticks: that both get at least.

    Raises:
        UserError: they have other maps or agents, or some of the drawn agents do not exist.
    """
    ids = unedited.players.ids
    same_agents = np.array_equal(ids, edited.players.ids) and unedited.players.names == edited.players.names
    if not same_agents or not np.array_equal(unedited.tiles, edited.tiles) or unedited.skills != edited.skills:
        raise UserError("the two replays are not of the same episode")
    if not np.isin(drawn, ids).all():
        raise UserError("the replays are of another run: they do not hold all agents that this one drew at random")
    ends = (unedited.ticks - 1, edited.ticks - 1)
    unedited, edited = (_lengthened(replay, max(*ends, ticks - 1) + 1) for replay in (unedited, edited))
    different = _different(unedited, edited)
    anything = np.any(list(different.values()), axis=0)  # (T, P)
    first = np.where(anything.any(axis=0), anything.argmax(axis=0), _SAME).astype(np.int32)
    parts = tuple(_parts(different, int(tick), player) for player, tick in enumerate(first))
    return ComparedReplays(unedited, edited, ends, np.isin(ids, drawn), first, parts)


def first_difference(compared: ComparedReplays) -> str:
    """Say in one or two sentences when the two episodes first differ, and in whom."""
    tick = compared.first_tick
    if tick is None:
        return "The two episodes are equal: at every tick, every agent is in the same place and state in both."
    who = np.flatnonzero(compared.first == tick)
    named = [
        f"agent {compared.ids[player]} ({'edited; ' if compared.drawn[player] else ''}"
        f"{', '.join(compared.differs[player])})"
        for player in who[:_NAMED]
    ]
    more = [f"{len(who) - _NAMED} more"] if len(who) > _NAMED else []
    listed = " and ".join([", ".join([*named, *more][:-1]), [*named, *more][-1]]) if len(who) > 1 else named[0]
    before = (
        "" if tick == 0 else f" Before that, all {len(compared.ids)} agents are in the same place and state in both."
    )
    return f"The two episodes first differ at tick {tick}, in {listed}.{before}"


def _different(unedited: Replay, edited: Replay) -> dict[str, np.ndarray]:
    """Return for each table of the agents where it differs, (T, P) bool."""
    codes = {items: number for number, items in enumerate(dict.fromkeys((*unedited.inventories, *edited.inventories)))}
    ticks = {}
    for field in fields(unedited.players):
        one, other = (getattr(replay.players, field.name) for replay in (unedited, edited))
        if field.name in ("ids", "names"):
            continue
        if field.name == "inventory":
            one, other = (
                np.array([codes[items] for items in replay.inventories])[table]
                for replay, table in ((unedited, one), (edited, other))
            )
        unequal = one != other
        ticks[field.name] = unequal if unequal.ndim == 2 else unequal.any(axis=2)
    return ticks


def _parts(different: dict[str, np.ndarray], tick: int, player: int) -> tuple[str, ...]:
    if tick == _SAME:
        return ()
    if different["alive"][tick, player] or different["present"][tick, player]:
        return ("alive or dead",)
    parts = dict.fromkeys(_PARTS[name] for name in _PARTS if different[name][tick, player])
    return tuple(parts) or ("state",)


def _lengthened(replay: Replay, ticks: int) -> Replay:
    """Add ticks after the last one, in which no entity is present."""
    more = ticks - replay.ticks
    if not more:
        return replay

    def longer(entities: AnyEntities) -> AnyEntities:
        tables: dict[str, Any] = {
            name: np.concatenate([table, np.zeros((more, *table.shape[1:]), table.dtype)])
            for name, table in vars(entities).items()
            if name not in ("ids", "names")
        }
        return replace(entities, **tables)

    harvested = (*replay.harvested, *[replay.harvested[-1]] * more)
    return replace(replay, harvested=harvested, players=longer(replay.players), npcs=longer(replay.npcs))
