"""Reads what Neural MMO's own replay helper writes: `.replay.lzma`, or `.replay.json` where it did not compress.

Packets become rows of numbers one by one, so that memory holds tables and never the whole JSON, which is a hundred
times larger than the file: `JsonStream` decompresses it piece by piece, within bounds.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from analysis.materials import HARVESTED, MATERIALS
from analysis.replays.replay import SLOTS, STYLES, Item, Npcs, Players, Replay
from analysis.replays.stream import JsonStream
from common.user_error import UserError

Progress = Callable[[float], None]
"""Called with the share of the file read, from 0 to 1."""

MOST_TICKS = 1 << 15
MOST_CELLS = 1 << 21
"""Ticks times players, or NPCs, at most."""
MOST_HARVESTED = 1 << 25
"""Used-up tiles at most, over all ticks."""
_MOST_SIDE = 2048
_MOST_ITEMS = 64
_LONGEST_NAME = 200
_NUMBERS = np.iinfo(np.int32)
_KNOWN_SKILLS = ("melee", "range", "mage", "fishing", "herbalism", "prospecting", "carving", "alchemy")
_STYLE_NUMBER = {style: number for number, style in enumerate(STYLES)}
# What is wrong with a packet surfaces as one of these where it is taken apart.
_FAULTS = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)

_ENTITY = ("alive", "row", "col", "health", "level", "damage", "target", "style")
_PLAYER = (*_ENTITY, "food", "water", "gold", "kills", "inflicted", "received", "frozen", "inventory")
_NPC = (*_ENTITY, "kind")


def read_replay(path: Path, progress: Progress | None = None) -> Replay:
    """Read a replay, compressed or not, whichever its content says.

    Raises:
        UserError: the file is missing, truncated, damaged, too large, or no replay.
    """
    stream = JsonStream(path, progress or (lambda share: None))
    tiles: np.ndarray | None = None
    packets: _Packets | None = None
    for key in stream.members():
        if key == "map" and tiles is None:
            with _faults_of(path, "the map is not a table of materials"):
                tiles = _whole_numbers(stream.value())
                if (
                    tiles.ndim != 2
                    or max(tiles.shape) > _MOST_SIDE
                    or not ((tiles >= 0) & (tiles < len(MATERIALS))).all()
                ):
                    raise ValueError
                tiles = tiles.astype(np.uint8)
        elif key == "packets" and packets is None:
            packets = _packets(stream)
        else:
            stream.fail(f"is not a replay: it holds an unexpected or second {key[:40]!r}")
    stream.end()
    if tiles is None or packets is None or not packets.harvested:
        stream.fail("is not a replay: its map or its packets are missing")
    with _faults_of(path, "the packets contradict the map or each other"):
        return packets.finish(tiles)


def _packets(stream: JsonStream) -> "_Packets":
    packets = _Packets()
    for tick, packet in enumerate(stream.elements()):
        with _faults_of(stream.path, f"packet {tick} is not what Neural MMO 2.1 writes"):
            packets.add(packet)
        cells = max(packets.players.cells, packets.npcs.cells)
        if tick >= MOST_TICKS or cells > MOST_CELLS or packets.harvested_tiles > MOST_HARVESTED:
            stream.fail("is not a replay: it has too many packets, entities or used-up tiles")
    return packets


@dataclass
class _Rows:
    """The entities of one kind, a table of numbers a tick."""

    columns: tuple[str, ...]
    place: dict[int, int] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    ticks: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)

    @property
    def cells(self) -> int:
        return len(self.place) * len(self.ticks)

    def add(self, entities: dict[str, Any], row_of: Callable[[dict[str, Any]], list[Any]], sign: int) -> None:
        """Note the entities of one tick; ids must have the given sign."""
        places, rows = [], []
        for key, entity in entities.items():
            number = int(key)
            if number * sign <= 0 or abs(number) > _NUMBERS.max:
                raise ValueError
            if number not in self.place:
                self.place[number] = len(self.place)
                self.names.append(_text(entity["base"]["name"]))
            places.append(self.place[number])
            rows.append(row_of(entity))
        values = _whole_numbers(rows).reshape(len(rows), len(self.columns))
        if len(set(places)) < len(places):
            raise ValueError
        self.ticks.append((np.array(places, dtype=np.int64), values.astype(np.int32)))

    def tables(self, shape: tuple[int, ...]) -> dict[str, Any]:
        """Lay the rows out as one table a column, (ticks, entities), in the order of ids."""
        order = np.argsort(np.abs(np.fromiter(self.place, dtype=np.int64, count=len(self.place))))
        column_of = np.argsort(order)
        cells = np.zeros((len(self.columns), len(self.ticks), len(order)), dtype=np.int32)
        present = np.zeros(cells.shape[1:], dtype=bool)
        for tick, (places, values) in enumerate(self.ticks):
            cells[:, tick, column_of[places]] = values.T
            present[tick, column_of[places]] = True
        tables = dict(zip(self.columns, cells, strict=True))
        for name, size in zip(("row", "col"), shape, strict=True):
            if not ((tables[name] >= 0) & (tables[name] < size)).all():
                raise ValueError
        ids, names = list(self.place), self.names
        return {
            **tables, "alive": tables["alive"].astype(bool), "present": present,
            "ids": np.array(ids, dtype=np.int32)[order], "names": tuple(names[i] for i in order),
        }  # fmt: skip


class _Packets:
    """All packets so far."""

    def __init__(self) -> None:
        self.harvested: list[np.ndarray] = []
        self.harvested_tiles = 0
        self.skills: tuple[str, ...] | None = None
        self.players = _Rows(_PLAYER)
        self.npcs = _Rows(_NPC)
        self._inventories: dict[tuple[Item, ...], int] = {(): 0}
        self._last: dict[int, tuple[dict[str, Any], int]] = {}  # each player's last inventory, and its number

    def add(self, packet: dict[str, Any]) -> None:
        """Note the packet of the next tick."""
        harvested = _whole_numbers(packet["resource"]).reshape(len(packet["resource"]), 2)
        if not ((harvested >= 0) & (harvested < _MOST_SIDE)).all():
            raise ValueError
        self.harvested.append(harvested.astype(np.int32))
        self.harvested_tiles += len(harvested)
        players = packet["player"]
        if self.skills is None and players:
            skills = next(iter(players.values()))["skills"]
            self.skills = tuple(skill for skill in _KNOWN_SKILLS if skill in skills)
            levels = tuple(f"{skill}.{what}" for skill in self.skills for what in ("level", "exp"))
            self.players.columns = (*_PLAYER, *levels)
        self.players.add(players, self._player, sign=1)
        self.npcs.add(packet["npc"], _npc, sign=-1)

    def finish(self, tiles: np.ndarray) -> Replay:
        """Return the whole replay.

        The game lists harvested tiles, and takes one off its list a tick after it has grown again: so one that is
        missing from the next packet was whole in this one. One that is harvested again in that very tick cannot be
        told.
        """
        listed = []  # sorted places, row * cols + col
        for harvested in self.harvested:
            rows_and_cols = harvested[:, 0], harvested[:, 1]
            places = np.unique(np.ravel_multi_index(rows_and_cols, tiles.shape)).astype(np.int32)
            if (HARVESTED[tiles.flat[places]] == tiles.flat[places]).any():  # it cannot be harvested
                raise ValueError
            listed.append(places)
        still = [np.intersect1d(now, after, assume_unique=True) for now, after in pairwise(listed)]
        shape = (tiles.shape[0], tiles.shape[1])
        skills = self.skills or ()
        players = self.players.tables(shape)
        for name, what in (("skill_level", "level"), ("skill_experience", "exp")):
            columns = [players.pop(f"{skill}.{what}") for skill in skills]
            players[name] = np.stack(columns, axis=2) if columns else np.zeros((*players["row"].shape, 0), np.int32)
        return Replay(
            tiles=tiles,
            harvested=(*still, listed[-1]),
            players=Players(**players),
            npcs=Npcs(**self.npcs.tables(shape)),
            skills=skills,
            inventories=tuple(self._inventories),
        )

    def _player(self, player: dict[str, Any]) -> list[Any]:
        history, resource, metrics = player["history"], player["resource"], player["metrics"]
        values = [
            *_entity(player), resource["food"]["val"], resource["water"]["val"], metrics["Gold"],
            metrics["PlayerDefeats"], history["damage_inflicted"], history["damage_received"],
            player["status"]["freeze"], self._inventory(player),
        ]  # fmt: skip
        for skill in self.skills or ():
            values += (player["skills"][skill]["level"], player["skills"][skill]["exp"])
        return values

    def _inventory(self, player: dict[str, Any]) -> int:
        packet, number = player["inventory"], player["entID"]
        last = self._last.get(number)
        # Comparing is much faster than taking apart, and inventories seldom change.
        if last is None or last[0] != packet:
            items = _items(packet)
            last = self._last[number] = packet, self._inventories.setdefault(items, len(self._inventories))
        return last[1]


def _entity(entity: dict[str, Any]) -> list[Any]:
    base, history = entity["base"], entity["history"]
    attack = history.get("attack")
    return [
        int(entity["alive"]), base["r"], base["c"], entity["resource"]["health"]["val"], base["level"],
        history["damage"], attack["target"] if attack else 0, _STYLE_NUMBER[attack["style"]] if attack else 0,
    ]  # fmt: skip


def _npc(npc: dict[str, Any]) -> list[Any]:
    # The game marks an NPC's kind by a negative population: -1 passive, -2 neutral, -3 aggressive.
    kind = -npc["base"]["population"] - 1
    if kind not in (0, 1, 2):
        raise ValueError
    return [*_entity(npc), kind]


def _items(packet: dict[str, Any]) -> tuple[Item, ...]:
    worn = {slot: packet["equipment"][slot] for slot in SLOTS if slot in packet["equipment"]}
    if len(packet["items"]) > _MOST_ITEMS:
        raise ValueError
    items = []
    for item in packet["items"]:
        # What is worn is repeated by its values alone, without an id; of equal items, one is taken for the worn one.
        slot = next((slot for slot in worn if worn[slot] == item), "")
        worn.pop(slot, None)
        level, quantity = _whole_numbers([item["level"], item["quantity"]]).tolist()
        items.append(Item(_text(item["item"]), level, quantity, slot))
    return tuple(items)


def _whole_numbers(values: Any) -> np.ndarray:
    """Return whole numbers, in a list or in lists of equal length, as int64; anything else is a fault.

    Health comes as 100.0 once it was restored.
    """
    rows = values if values and type(values[0]) is list else [values]
    # First: in an array, one long text would make room for as long a text at every place.
    if not (set(map(type, rows)) <= {list} and set(map(type, chain.from_iterable(rows))) <= {int, float, bool}):
        raise ValueError
    array = np.array(values)
    if array.size == 0:
        return np.zeros(array.shape, dtype=np.int64)
    outside = (array < _NUMBERS.min) | (array > _NUMBERS.max)
    if array.dtype.kind not in "if" or outside.any() or (array != np.rint(array)).any():
        raise ValueError
    return array.astype(np.int64)


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_NAME:
        raise ValueError
    return value


@contextlib.contextmanager
def _faults_of(path: Path, fault: str) -> Iterator[None]:
    try:
        yield
    except _FAULTS as error:
        detail = f" ({error.args[0]!r} is missing)" if isinstance(error, KeyError) else ""
        raise UserError(f"{path} is not a replay, or damaged: {fault}{detail}; record it again") from None
