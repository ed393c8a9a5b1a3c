"""Numbers of a study, taken from the tables of its stages."""

import csv
import io
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from activation_store.files import read_bytes
from analysis.findings.study_file import Row, Study
from user_error import UserError

CONFIDENCE = 0.95


class Results:
    """The tables of a study's stages, each read once."""

    def __init__(self, study: Study, folder: Path):
        """Look up in a folder that holds a folder for each stage."""
        self._study = study
        self._folder = folder
        self._tables: dict[Path, list[dict[str, str]]] = {}

    def rows(self, stage: str, file: str, where: Mapping[str, str]) -> list[dict[str, str]]:
        """Return the rows of a stage's table in which columns have these contents, in which * stands for any text.

        Raises:
            UserError: there is no such table or column.
        """
        path = self._folder / stage / file
        if path not in self._tables:
            self._tables[path] = _read(path)
        table = self._tables[path]
        for column in where:
            if table and column not in table[0]:
                raise UserError(f"{path} has no column {column!r}; it has {', '.join(table[0])}")
        return [row for row in table if all(_fits(row[column], value) for column, value in where.items())]

    def values(self, row: Row, columns: Sequence[str] = ()) -> dict[str, str]:
        """Return what a claim may say of a row, by column.

        Args:
            row: of one stage, or of several.
            columns: over several stages: whose means to take. Returned as `COLUMN.mean`, `COLUMN.low`, ...

        Raises:
            UserError: not exactly one row fits, or with several stages, fewer than two have a number.
        """
        if not row.several:
            return dict(self._only(row.stage, row))
        found: dict[str, str] = {}
        for column in columns:
            others = self._numbers(row.minus, row, column) if row.minus else None
            over = mean_over_trainings(self._numbers(row.stage, row, column), others)
            found |= {f"{column}.{name}": value for name, value in over.items()}
        return found

    def _numbers(self, pattern: str, row: Row, column: str) -> list[float]:
        """Return a row's column in each stage of a pattern."""
        return [
            _number(self._only(stage.name, row), column, self._folder / stage.name / row.file)
            for stage in self._study.named(pattern)
        ]

    def _only(self, stage: str, row: Row) -> dict[str, str]:
        found = self.rows(stage, row.file, row.where)
        if len(found) != 1:
            said = ", ".join(f"{name} {value!r}" for name, value in row.where.items()) or "no condition"
            raise UserError(f"{self._folder / stage / row.file} has {len(found)} rows with {said}: must be one")
        return found[0]


def _fits(text: str, wanted: str) -> bool:
    """Tell whether a text is the wanted one, in which * stands for any text."""
    return re.fullmatch(".*".join(map(re.escape, wanted.split("*"))), text) is not None


def mean_over_trainings(numbers: Sequence[float], others: Sequence[float] | None = None) -> dict[str, str]:
    """Return a mean over trainings, or the difference of two, as text with all digits.

    Args:
        numbers: one of each training.
        others: of trainings of another kind, whose mean is subtracted.

    Returns:
        `mean`; `low` and `high`, the ends of its 95% interval, and `p`, two-sided for a mean of 0, both by Student's t
        or, of a difference, Welch's; and `n`, the number of trainings, of both kinds together.

    Raises:
        UserError: fewer than two trainings of a kind, or all have the same number: they are not separate then.
    """
    if len(set(numbers)) == 1 and len(numbers) > 1 and numbers[0]:
        raise UserError(f"{numbers[0]} is the number of all stages: they are not separate trainings, so it has no mean")
    if fewest := [each for each in (numbers, others) if each is not None and len(each) < 2]:
        raise UserError(f"a mean over {len(fewest[0])} training has no interval: name a stage instead of a pattern")
    from scipy import stats

    with (
        warnings.catch_warnings(),
        np.errstate(all="ignore"),
    ):  # of equal numbers
        warnings.simplefilter("ignore", RuntimeWarning)
        if others is None:
            mean, test = np.mean(numbers), stats.ttest_1samp(numbers, 0)
        else:
            mean, test = np.mean(numbers) - np.mean(others), stats.ttest_ind(numbers, others, equal_var=False)
        low, high = test.confidence_interval(CONFIDENCE)
    found = {"mean": mean, "low": low, "high": high, "p": test.pvalue}
    return {name: repr(float(each)) for name, each in found.items()} | {"n": str(len(numbers) + len(others or ()))}


def formatted(values: Mapping[str, str], column: str, form: str) -> str:
    """Return one number as a claim says it.

    Raises:
        UserError: there is no such column, or it holds no number although a format asks for one.
    """
    if column not in values:
        raise UserError(f"there is no column {column!r}; there are {', '.join(values)}")
    text = values[column]
    if not form:
        return text
    value = number(values, column)
    return format(round(value) if form.endswith("d") else value, form)


def number(values: Mapping[str, str], column: str) -> float:
    """Return a number of what `Results.values` returned.

    Raises:
        UserError: there is no such column, or it holds no finite number.
    """
    return _number(values, column, Path("the table"))


def _number(values: Mapping[str, str], column: str, path: Path) -> float:
    if column not in values:
        raise UserError(f"{path} has no column {column!r}; it has {', '.join(values)}")
    try:
        number = float(values[column])
    except ValueError:
        raise UserError(f"{path} holds {values[column]!r} in the column {column}, which is no number") from None
    if not math.isfinite(number):
        raise UserError(f"{path} holds {values[column]!r} in the column {column}, which is no finite number")
    return number


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
