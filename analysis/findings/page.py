"""The page of a study: its claims with their numbers, tables, figures, commands, and what it does not show.

And the table of all claims of all pages, with one more correction over all of their tests.
"""

import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from pydantic import ConfigDict

from analysis.findings.page_template import Words, template_of
from analysis.findings.results import Results, formatted, number_or_nan, rows_of_claims
from analysis.findings.study_file import BY_EPISODE, Claim, Forest, ResultTable, Study, read_study
from analysis.statistics.inference import false_discovery
from common.checked_json import in_shape
from common.files import PARTIAL_SUFFIX, make_folder, read_bytes, read_json, visible, write_json, write_text
from common.user_error import UserError

STUDY_FILE = "study.yaml"
PLAYED_FILE = "stages.json"
_REPLACED = ".replaced"  # what lay beside a page until now, in what takes its place
START, END = "<!-- claims: written by study.py claims -->", "<!-- end of claims -->"
"""Lines between which the table of all claims stands in a file."""


@dataclass(frozen=True)
class Played:
    """A stage as it was run."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")

    name: str
    command: str  # as typed, with the folder of results that is the default
    seconds: float
    read: dict[str, str]  # SHA-256 of each file that it read, by path


@dataclass(frozen=True)
class Named:
    """When a study's primary outcomes were named."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")

    since: str  # the day, as in 2026-11-26
    begun: int  # how many stages had been begun by then
    outcomes: list[str]  # each in words


@dataclass(frozen=True)
class History:
    """How a page's results came about."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")

    stages: list[Played]
    primary: Named | None = None
    """When the primary outcomes were named; None if there are none, or nobody wrote down when."""

    @property
    def commands(self) -> dict[str, str]:
        """The command of each stage."""
        return {stage.name: stage.command for stage in self.stages}


def write_page(study_path: Path, results: Path, history: History, page: Path) -> int:
    """Write a study's page, and beside it what it needs to be checked: the study and its
    template, tables, figures and stages.

    Args:
        results: folder of the stages' folders.
        page: Markdown file to write; the folder beside it, of the same name, is replaced.

    Returns:
        How many numbers the claims and tables hold.

    Raises:
        UserError: a number or a figure is not in the results, or the page is not of a study; nothing is changed then.
    """
    from analysis.findings.forest import draw_forest
    from analysis.runs.run_folder import write_figure

    check_replaceable(page)
    study = read_study(study_path)
    read = Results(study, results, history.commands)
    page_text(study, read, history, page.stem)
    files = [Path(stage, file) for stage, file in study.shown_files]
    missing = [file for file in files if not (results / file).exists()]
    if needed := [file for file in missing if file.name not in BY_EPISODE.values()]:  # earlier runs wrote no episodes
        raise UserError(f"{results / needed[0]} does not exist: the stage did not write it")
    make_folder(page.parent)
    beside = page.with_suffix("")
    fresh = _fresh(beside)
    shutil.rmtree(fresh, ignore_errors=True)  # of a run that was killed
    fresh.mkdir()
    write_json(fresh / PLAYED_FILE, asdict(history))  # first: it marks the folder as one that may be removed
    shutil.copyfile(study_path, fresh / STUDY_FILE)
    shutil.copyfile(template_of(study_path), template_of(fresh / STUDY_FILE))
    for file in files:
        (fresh / file).parent.mkdir(exist_ok=True)
        if file not in missing:
            shutil.copyfile(results / file, fresh / file)
    for place, forest in enumerate(study.forests, start=1):
        write_figure(fresh / _forest_file(place), draw_forest(forest, study, read))
    if beside.exists():  # moved first: a folder that is half removed has lost its mark
        beside.rename(fresh / _REPLACED)
    fresh.rename(beside)
    shutil.rmtree(beside / _REPLACED, ignore_errors=True)
    return rewrite_page(page)


def check_replaceable(page: Path) -> None:
    """Refuse a page, or a folder beside it, that is there and that no study wrote.

    Raises:
        UserError: says which.
    """
    beside = page.with_suffix("")
    for folder in (beside, _fresh(beside)):
        if folder.is_symlink() or (folder.exists() and not _made_by_study(folder)):
            raise UserError(f"{folder} is not of a study, and would be removed: move it away, or choose --pages-dir")
    if page.is_symlink() or (page.exists() and not (beside.exists() or _fresh(beside).exists())):
        raise UserError(f"{page} is not the page of a study: move it away, or choose another --pages-dir")


def _fresh(beside: Path) -> Path:
    return beside.with_name(f".{beside.name}.new")


def _made_by_study(folder: Path) -> bool:
    """Return whether a folder holds the mark of a study, or nothing yet: one that was killed may leave that."""
    if not folder.is_dir():
        return False
    if all(path.name.endswith(PARTIAL_SUFFIX) for path in folder.iterdir()):
        return True
    try:
        _read_history(folder)
    except UserError:
        return False
    return True


def rewrite_page(page: Path) -> int:
    """Write a page again from the results beside it, and return how many numbers it holds."""
    text, numbers = page_text(*read_beside(page), page.stem)
    write_text(page, text)
    return numbers


def verify_page(page: Path) -> int:
    """Check that a page says what the results beside it say, number by number, and return how many it holds.

    Raises:
        UserError: it does not; the message names the first line that differs.
    """
    if not page.exists():
        raise UserError(f"{page} does not exist: give the page of a study, such as docs/findings/memory.md")
    expected, numbers = page_text(*read_beside(page), page.stem)
    try:
        own = read_bytes(page).decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise UserError(f"{page} is not UTF-8 text") from None
    theirs = expected.splitlines()
    for place in range(max(len(own), len(theirs))):
        line, expected_line = (lines[place] if place < len(lines) else "" for lines in (own, theirs))
        if line != expected_line:
            raise UserError(
                f"{page}, line {place + 1} says {line[:120]!r}, but its results say {expected_line[:120]!r}"
            )
    return numbers


def page_text(study: Study, results: Results, history: History, name: str) -> tuple[str, int]:
    """Return the page as Markdown, and how many numbers its claims and tables hold.

    Raises:
        UserError: a number is missing or is none; names the folder of the results.
    """
    try:
        return _page_text(study, results, history, name)
    except UserError as error:
        named = str(results.folder) in str(error)
        raise error if named else UserError(f"{results.folder}: {error}") from None


def _page_text(study: Study, results: Results, history: History, name: str) -> tuple[str, int]:
    claims = {
        claim.name: f"- {_said(claim.says, rows)} *Control:* {_said(claim.control, rows)}\n"
        for claim, rows in zip(study.claims, rows_of_claims(study, results), strict=True)
    }
    tables = [_table(table, study, results) for table in study.tables]
    forests = [
        f"![{forest.title}]({name}/{_forest_file(place)})\n\n{_forest_caption(forest)}"
        for place, forest in enumerate(study.forests, start=1)
    ]
    figures = [
        f"![{figure.caption}]({name}/{figure.stage}/{figure.file})\n\n{figure.caption}" for figure in study.figures
    ]
    parts = {
        "primary": "\n".join(_primary(study, history)),
        "tables": "\n\n".join("\n".join(lines) for lines, _ in tables),
        "forests": "\n\n".join(forests),
        "figures": "\n\n".join(figures),
        "made": "\n".join(_how(history.stages, name)),
    }
    numbers = sum(len(claim.numbers) for claim in study.claims) + sum(count for _, count in tables)
    return study.text.render(claims, parts), numbers


def read_beside(page: Path) -> tuple[Study, Results, History]:
    """Return what lies beside a page: its study, results and history.

    Raises:
        UserError: there is nothing beside it, or it is damaged.
    """
    beside = page.with_suffix("")
    if not beside.is_dir():
        raise UserError(f"{page} has no folder {beside} of results beside it: give a page that study.py wrote")
    study = read_study(beside / STUDY_FILE)
    history = _read_history(beside)
    return study, Results(study, beside, history.commands), history


def _read_history(beside: Path) -> History:
    path = beside / PLAYED_FILE
    return in_shape(History, read_json(path), f"{path} is damaged", "run the study again")


def _said(words: Words, rows: Mapping[str, Mapping[str, str]]) -> str:
    """Return a sentence with its numbers, given the rows of its claim."""
    return "".join(part if isinstance(part, str) else formatted(rows[part.row], part.key, part.form) for part in words)


def _primary(study: Study, history: History) -> Iterator[str]:
    """Say which outcomes the study was made to test, and since when they have been named."""
    named = history.primary
    if not study.primary:
        yield "No primary outcome was named before the stages were run."
        return
    outcomes = [str(outcome) for outcome in study.primary]
    if named is None or named.outcomes != outcomes:
        since = "date not recorded"
    elif named.begun:
        since = f"named on {named.since}, after {named.begun} of {len(study.stages)} stages had been begun"
    else:
        since = f"named on {named.since}, before any stage was begun"
    yield f"Primary outcomes ({since}):"
    yield ""
    yield from (f"- {outcome}" for outcome in outcomes)


def _table(table: ResultTable, study: Study, results: Results) -> tuple[list[str], int]:
    """Return a table in Markdown, and how many cells of results it holds."""
    stages = [stage.name for stage in study.named(table.stage)]
    named = len(stages) > 1
    columns = [column.partition(":")[::2] for column in table.columns]
    heads = [*(["stage"] if named else []), *(name for name, _ in columns)]
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    count = 0
    rows = [(stage, row) for stage in stages for row in results.rows(stage, table.file, table.where)]
    if table.largest_first is not None:
        rows.sort(key=lambda entry: -np.nan_to_num(number_or_nan(entry[1], str(table.largest_first)), nan=-np.inf))
    for place, (stage, row) in enumerate(rows):
        shown = [formatted(row, name, form if row.get(name) else "") for name, form in columns]  # some may be empty
        start = (*([stage] if named else []), *shown)
        key = start if table.across else (*start, str(place))
        across = {}
        if table.across is not None:
            head = formatted(row, table.across, "")
            form = f".{table.digits}f"
            low, high = (formatted(row, name, form if row.get(name) else "") for name in ("low", "high"))
            value = formatted(row, "value", form)
            across = {head: f"{value} ({low} to {high})" if low and high else value}
        cells = lines.setdefault(key, {})
        if cells.keys() & across.keys():
            raise UserError(
                f"the table {table.title!r} has two rows for one cell: tell them apart under columns or where"
            )
        cells.update(across)
        count += len(across) or len(shown)
    more = list(dict.fromkeys(head for cells in lines.values() for head in cells))
    text = [
        f"**{table.title}**",
        "",
        _cells([head.removesuffix("_value").replace("_", " ") for head in (*heads, *more)]),
        _cells(["---"] * (len(heads) + len(more))),
    ]
    text += [_cells([*key[: len(heads)], *(cells.get(head, "") for head in more)]) for key, cells in lines.items()]
    return text, count


def _forest_file(place: int) -> str:
    return f"forest_{place}.png"


def _forest_caption(forest: Forest) -> str:
    control = "; grey, that of the control" if forest.control else ""
    return (
        f"{forest.title}. Circles are trainings, with 95% intervals over their episodes. Diamonds are means over "
        f"trainings, with 95% intervals over these{control}."
    )


def _how(played: Sequence[Played], name: str) -> Iterator[str]:
    minutes = sum(stage.seconds for stage in played) / 60
    yield f"## How it was made, in {minutes:.0f} minutes"
    yield ""
    yield "```bash"
    yield from (f"python {stage.command}" for stage in played)
    yield "```"
    yield ""
    yield f"Tables, figures and the study itself lie in `{name}/`; `python study.py verify` finds every number again."
    files = {path: digest for stage in played for path, digest in stage.read.items()}
    if files:
        yield ""
        yield "| read | SHA-256 |"
        yield "|---|---|"
        yield from (f"| `{path}` | `{digest}` |" for path, digest in sorted(files.items()))


def _cells(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


_HEAD = "| page | claim | tests: p, corrected over all pages |\n|---|---|---|"
_SMALLEST = 0.0001
_RELATIVE_LINK = re.compile(r"\]\((?!\w+:|#)([^)]+)\)")


Claimed = tuple[str, str, dict[str, float]]
"""A claim: the page's name, the sentence, and the p-value of each row of results that it tells with one, by name."""


def write_claims(file: Path, pages: Path) -> int:
    """Write the table of all claims into a file, in place of the one that stands there, and return how many there are.

    Raises:
        UserError: the file has no place for it, or a page is damaged.
    """
    if not (there := visible(pages, "*.md")):
        raise UserError(f"{pages} holds no pages of studies: give the folder that study.py wrote them to")
    claims = claims_of(there)
    try:
        text = read_bytes(file).decode("utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{file} is not UTF-8 text") from None
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise UserError(f"{file} has no lines {START} and {END}: put them where the table of claims belongs")
    write_text(file, f"{before}{claims_table(claims, os.path.relpath(pages, file.parent))}{after}")
    return len(claims)


def claims_of(pages: Sequence[Path]) -> list[Claimed]:
    """Return the claims of pages, in order.

    Raises:
        UserError: a page has nothing beside it, or it is damaged.
    """
    claims = []
    for page in pages:
        study, results, _ = read_beside(page)
        claims += [
            (page.stem, _said(claim.says, rows), dict(_tests(claim, rows)))
            for claim, rows in zip(study.claims, rows_of_claims(study, results), strict=True)
        ]
    return claims


def claims_table(claims: Sequence[Claimed], folder: str) -> str:
    """Return the table of all claims, between the lines that mark its place.

    Args:
        folder: of the pages, from where the table stands.
    """
    q = iter(false_discovery(np.array([value for *_, p in claims for value in p.values()])).tolist())
    lines = [START, _HEAD]
    for page, says, p in claims:
        tests = [f"{name}: {_short(value)}, {_short(next(q))}" for name, value in p.items()]
        linked = _RELATIVE_LINK.sub(rf"]({folder}/\1)", says.replace("|", "\\|"))
        lines.append(f"| [{page}]({folder}/{page}.md) | {linked} | {'; '.join(tests) or 'none'} |")
    return "\n".join([*lines, END])


def _tests(claim: Claim, values: dict[str, dict[str, str]]) -> Iterator[tuple[str, float]]:
    """Yield the name and the p-value of everything that a claim's sentence tells and that was tested."""
    for name, row in claim.rows.items():
        for column in claim.tested(name) if row.several else [""]:
            key = f"{column}.p" if row.several else "p"
            p = float(values[name].get(key) or math.nan)
            if math.isfinite(p) and claim.tested(name):
                yield name if column in ("", "value") else f"{name} {column}", p


def _short(p: float) -> str:
    return "< .0001" if p < _SMALLEST else f"{p:.4f}".lstrip("0") if p < 1 else "1"
