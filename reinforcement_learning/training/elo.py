"""Elo ratings of a learner and of its earlier checkpoints, in a table that grows with the run."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import orjson
from pydantic import ConfigDict, TypeAdapter, ValidationError

from common.files import append_bytes, read_lines, write_bytes
from common.user_error import UserError

TABLE_FILE = "elo.tsv"
HISTORY_FILE = "elo.jsonl"
START = 1000.0
_STEP = 32.0
_TEN_TO_ONE = 400.0


@dataclass(frozen=True)
class _Line:
    """A line of `elo.jsonl`; for its fields see `Ratings`."""

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    learner: float = START
    others: dict[str, float] = field(default_factory=dict)
    games: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.others.keys() != self.games.keys():
            raise ValueError("ratings and games are of different policies")


@dataclass
class Ratings:
    """Ratings that follow the usual rule: 32 times the difference between outcome and expectation."""

    folder: Path  # of the run. `elo.jsonl` has a line of all ratings for each update, `elo.tsv` the last one as a table
    learner: float = START  # its rating, which checkpoints start with
    others: dict[str, float] = field(default_factory=dict)  # name of a checkpoint -> rating
    games: dict[str, int] = field(default_factory=dict)  # name of a checkpoint -> updates in which it met the learner

    @staticmethod
    def after(folder: Path, updates: int) -> "Ratings":
        """Return the ratings after some updates, dropping later ones; new ones for a new run.

        Raises:
            UserError: the last line to keep is damaged.
        """
        path = folder / HISTORY_FILE
        lines = read_lines(path)[:updates] if updates else []
        try:
            last = TypeAdapter(_Line).validate_json(lines[-1], strict=True) if lines else _Line()
        except ValidationError:
            raise UserError(f"{path} is damaged in line {len(lines)}: remove it, and all ratings begin anew") from None
        write_bytes(path, b"".join(lines))
        return Ratings(folder, last.learner, last.others, last.games)

    def know(self, names: Iterable[str]) -> None:
        """Rate checkpoints that have not played as the learner is now."""
        for name in names:
            self.others.setdefault(name, self.learner)
            self.games.setdefault(name, 0)

    def learn(self, leads: Mapping[str, float]) -> None:
        """Change ratings by the outcomes of one update.

        Args:
            leads: name of a checkpoint -> how much better the learner did; 0 is a draw.
        """
        before = self.learner
        for name, lead in leads.items():
            expected = 1 / (1 + 10 ** ((self.others[name] - before) / _TEN_TO_ONE))
            change = _STEP * ((lead > 0) + 0.5 * (lead == 0) - expected)
            self.learner += change
            self.others[name] -= change
            self.games[name] += 1

    def save(self, name: str) -> None:
        """Append the ratings of an update, and write the table, best first."""
        content = {"learner": self.learner, "others": self.others, "games": self.games}
        append_bytes(self.folder / HISTORY_FILE, orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE))
        rows = [(name, self.learner, sum(self.games.values()))]
        rows += [(other, rating, self.games[other]) for other, rating in self.others.items()]
        lines = ["policy_name\trating\tgames", *(f"{who}\t{rating:.1f}\t{games}" for who, rating, games in _best(rows))]
        write_bytes(self.folder / TABLE_FILE, "\n".join([*lines, ""]).encode())


def _best(rows: list[tuple[str, float, int]]) -> list[tuple[str, float, int]]:
    return sorted(rows, key=lambda row: -row[1])
