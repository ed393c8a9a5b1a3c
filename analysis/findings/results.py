"""Numbers of a study's claims, from its stages' tables, and the families of tests that are corrected together."""

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import numpy as np

from analysis.findings.study_file import BY_EPISODE, OUTCOME, Q_PRIMARY, Study, TableRow, check_apart
from analysis.statistics.inference import false_discovery
from analysis.statistics.over_trainings import ByWorld, in_worlds, over_trainings
from common.files import read_bytes
from common.user_error import UserError

CONFIDENCE = 0.95

_WORLD = "world"
_TEST = re.compile(r"(^|[._])[pq](_primary)?$")
"""Columns with p-values, plain and corrected."""


class Results:
    """The tables of a study's stages, each read once."""

    def __init__(self, study: Study, folder: Path, commands: Mapping[str, str] | None = None):
        """Look up in a folder that holds a folder for each stage.

        Args:
            commands: of stages as they were played; by default those of the study.
        """
        self._study = study
        self.folder = folder
        self._seeds = study.seeds(commands or {})
        self._tables: dict[Path, list[dict[str, str]]] = {}

    def rows(self, stage: str, file: str, where: Mapping[str, str]) -> list[dict[str, str]]:
        """Return the rows of a stage's table in which columns have these contents, in which * stands for any text.

        Raises:
            UserError: there is no such table or column.
        """
        path = self.folder / stage / file
        if path not in self._tables:
            self._tables[path] = _read(path)
        table = self._tables[path]
        for column in where:
            if table and column not in table[0]:
                raise UserError(f"{path} has no column {column!r}; it has {', '.join(table[0])}")
        wanted = {column: re.compile(".*".join(map(re.escape, value.split("*")))) for column, value in where.items()}
        return [row for row in table if all(form.fullmatch(row[column]) for column, form in wanted.items())]

    def values(self, row: TableRow, columns: Sequence[str] = ()) -> dict[str, str]:
        """Return what a claim may say of a row, by column.

        Args:
            columns: over several stages: whose means to take. Returned as `COLUMN.mean`, `COLUMN.low`, ...

        Raises:
            UserError: not exactly one row fits, or with several stages, fewer than two have a number.
        """
        if not row.several:
            return dict(self._only(row.stage, row))
        means: dict[str, str] = {}
        for column in columns:
            kinds = self._kinds(row, column)
            try:
                over = mean_over_trainings(kinds)
            except UserError as error:
                raise UserError(f"{row.file} of {' and '.join(row.patterns)}: {error}") from None
            means |= {f"{column}.{name}": value for name, value in over.items()}
        return means

    def family(self, row: TableRow) -> list[TableRow]:
        """Return a row of several stages with every outcome that its tables hold, in the order of the first's."""
        first = self._study.named(row.stage)[0].name
        where = {name: value for name, value in row.where.items() if name != OUTCOME}
        rows = self.rows(first, row.file, where) if OUTCOME in row.where else []
        return [replace(row, where={**where, OUTCOME: other[OUTCOME]}) for other in rows] or [row]

    def _kinds(self, row: TableRow, column: str) -> list[list[ByWorld]]:
        """Return a row's column in each stage of each of its patterns, world by world.

        Where tables of episodes do not have it, each stage has the one value of its table, and a world of its own.

        Raises:
            UserError: stages without such tables played the same worlds.
        """
        patterns = [[stage.name for stage in self._study.named(pattern)] for pattern in row.patterns]
        names = [name for pattern in patterns for name in pattern]
        values = {name: self._episodes(name, row, column) for name in names}
        if not all(values.values()):
            check_apart(names, self._seeds, row.file)
            values = {
                name: {name: number(self._only(name, row), column, self.folder / name / row.file)} for name in names
            }
        return [[values[name] for name in pattern] for pattern in patterns]

    def _episodes(self, stage: str, row: TableRow, column: str) -> dict[str, float]:
        """Return a row's column in each world; empty if there is no table of episodes, or if it does not have it.

        What stands before the world in a row of that table is what it has in common with the stage's own row.
        """
        own, file = self._only(stage, row), BY_EPISODE.get(row.file)
        path = self.folder / stage / (file or row.file)
        table = self.rows(stage, file, {}) if file and path.exists() else []
        if not table or not {column, _WORLD} <= table[0].keys():
            return {}
        same = [name for name in takewhile(lambda name: name != _WORLD, table[0]) if name in own]
        return {
            world[_WORLD]: number(world, column, path) if world[column] else math.nan
            for world in table
            if all(world[name] == own[name] for name in same)
        }

    def _only(self, stage: str, row: TableRow) -> dict[str, str]:
        rows = self.rows(stage, row.file, row.where)
        if len(rows) != 1:
            conditions = ", ".join(f"{name} {value!r}" for name, value in row.where.items()) or "no condition"
            raise UserError(f"{self.folder / stage / row.file} has {len(rows)} rows with {conditions}: must be one")
        return rows[0]


def mean_over_trainings(kinds: Sequence[Sequence[ByWorld]]) -> dict[str, str]:
    """Return a mean over trainings, or the difference of two, as text with all digits.

    Args:
        kinds: trainings of one kind, or of two, of which the second's mean is subtracted.

    Returns:
        `mean`; `low` and `high`, the ends of its 95% interval, and `p`, two-sided for a mean of 0, as `over_trainings`
        has them; and `n`, the number of trainings, of both kinds together.

    Raises:
        UserError: fewer than two trainings of a kind, or all have the same number.
    """
    if fewest := [kind for kind in kinds if len(kind) < 2]:
        raise UserError(f"a mean over {len(fewest[0])} training has no interval: name a stage instead of a pattern")
    values, worlds = in_worlds(kinds)
    if len(kinds) == 1 and values[0].size and np.ptp(values[0]) == 0 and values[0].flat[0]:
        raise UserError(
            f"{values[0].flat[0]} is the number of all stages, so a mean over them has no interval: if these are "
            "separate trainings, name each stage instead of a pattern"
        )
    over = over_trainings(values, worlds, CONFIDENCE)
    numbers = {"mean": over.value, "low": over.low, "high": over.high, "p": over.p}
    return {name: repr(number) for name, number in numbers.items()} | {"n": str(sum(map(len, kinds)))}


def formatted(values: Mapping[str, str], column: str, form: str) -> str:
    """Return one number as a claim says it; a p or q of a column such as `p` or `q_primary` is never said to be 0.

    Raises:
        UserError: there is no such column, or it holds no number although a format asks for one.
    """
    if column not in values:
        raise UserError(f"there is no column {column!r}; there are {', '.join(values)}")
    text = values[column]
    if not form:
        return text
    value = number(values, column)
    said = format(round(value) if form.endswith("d") else value, form)
    if _TEST.search(column) and not said.strip("+0.%"):  # 0 itself is a smaller one, written with too few digits
        return f"< {said.strip('+%')[:-1]}1{'%' if form.endswith('%') else ''}"
    return said


def number(values: Mapping[str, str], column: str, path: Path = Path("a table")) -> float:
    """Return a number of what `Results.values` returned, or of a row of the table at a path.

    Raises:
        UserError: there is no such column, or it holds no finite number.
    """
    if column not in values:
        raise UserError(f"{path} has no column {column!r}; it has {', '.join(values)}")
    try:
        value = float(values[column])
    except ValueError:
        raise UserError(f"{path} holds {values[column]!r} in the column {column}, which is no number") from None
    if not math.isfinite(value):
        raise UserError(f"{path} holds {values[column]!r} in the column {column}, which is no finite number")
    return value


def number_or_nan(values: Mapping[str, str], column: str) -> float:
    """Return a number as `number` does, NaN where there is none: the end of an interval that the data do not allow."""
    return math.nan if values.get(column) in ("", "nan") else number(values, column)


def _read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        raise UserError(f"{path} does not exist: the stage did not write it")
    try:
        text = read_bytes(path).decode("utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{path} is no table: it is not UTF-8 text") from None
    lines = [line for line in csv.reader(io.StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE) if line]
    if not lines:
        raise UserError(f"{path} is empty")
    heads, *rows = lines
    if any(len(row) != len(heads) for row in rows):
        raise UserError(f"{path} is no table: its rows differ in length")
    return [dict(zip(heads, row, strict=True)) for row in rows]


def rows_of_claims(study: Study, results: Results) -> list[dict[str, dict[str, str]]]:
    """Return the rows of each claim by name.

    q corrects p for every mean over trainings of the page, said or not: each outcome that the tables of a claim's or
    a forest plot's stages hold (Benjamini and Hochberg 1995). q_primary corrects it for the primary outcomes alone.
    """
    rows = [
        {name: results.values(row, claim.columns(name)) for name, row in claim.rows.items()} for claim in study.claims
    ]
    q = _corrected({row.key(column): _p(row, column, results) for row, column in means_of(study, results)})
    primary = {one.key(one.column): _p(one, one.column, results) for one in study.primary}
    q_primary = _corrected(primary)
    for claim, values in zip(study.claims, rows, strict=True):
        for name, row in claim.rows.items():
            for column in claim.columns(name) if row.several else ["value"]:
                key, before = row.key(column), f"{column}." if row.several else ""
                if row.several and key in q:
                    values[name][f"{before}q"] = repr(q[key])
                if key in q_primary:
                    values[name][f"{before}{Q_PRIMARY}"] = repr(q_primary[key])
    return rows


def means_of(study: Study, results: Results) -> list[tuple[TableRow, str]]:
    """Return every mean over trainings of a page, said or not: a row of several stages, and the column."""
    columns = [
        (row, column)
        for claim in study.claims
        for name, row in claim.rows.items()
        if row.several
        for column in claim.tested(name)
    ]
    columns += [(row, "value") for forest in study.forests for row in forest.rows]
    means = [(other, column) for row, column in columns for other in (*results.family(row), row)]
    return list({row.key(column): (row, column) for row, column in means if not row.is_level(column)}.values())


def _corrected(p: dict[tuple[object, ...], float]) -> dict[tuple[object, ...], float]:
    """Return p-values corrected together, by what they are of."""
    q = false_discovery(np.array(list(p.values())))
    return dict(zip(p, map(float, q), strict=True))


def _p(row: TableRow, column: str, results: Results) -> float:
    """Return the p-value of a mean, or of the row of one stage; NaN if not all trainings have the outcome."""
    if not row.several:
        return float(results.values(row).get("p") or np.nan)
    try:
        return float(results.values(row, [column])[f"{column}.p"])
    except UserError:
        return np.nan
