"""The page of a study: its claims with their numbers, tables, figures, commands, and what it does not show."""

import shutil
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from activation_store.files import make_folder, read_bytes, read_json, write_json, write_text
from analysis.findings.results import Results, formatted, number
from analysis.findings.study_file import Claim, Forest, ResultTable, Study, places, read_study
from analysis.statistics.inference import false_discovery
from user_error import UserError

STUDY_FILE = "study.yaml"
PLAYED_FILE = "stages.json"


@dataclass(frozen=True)
class Played:
    """A stage as it was run.

    Attributes:
        name: of the stage.
        command: as typed, with the folder of results that is the default.
        seconds: that it took.
        read: SHA-256 of each file that it read, by path.
    """

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")

    name: str
    command: str
    seconds: float
    read: dict[str, str]


def write_page(study_path: Path, results: Path, played: Sequence[Played], page: Path) -> int:
    """Write a study's page, and beside it what it needs to be checked: the study, its tables, figures and stages.

    Args:
        study_path: the study file.
        results: folder of the stages' folders.
        played: the stages as they were run.
        page: Markdown file to write; the folder beside it, of the same name, is replaced.

    Returns:
        How many numbers the claims and tables hold.

    Raises:
        UserError: a number is not in the results; nothing is changed then.
    """
    from analysis.findings.forest import draw_forest
    from analysis.runs.run_folder import write_figure

    study = read_study(study_path)
    page_text(study, Results(study, results), played, page.stem)
    make_folder(page.parent)
    beside = page.with_suffix("")
    fresh = beside.with_name(f".{beside.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)  # of a run that was killed
    fresh.mkdir()
    shutil.copyfile(study_path, fresh / STUDY_FILE)
    for stage, file in study.shown_files:
        (fresh / stage).mkdir(exist_ok=True)
        shutil.copyfile(results / stage / file, fresh / stage / file)
    for place, forest in enumerate(study.forests, start=1):
        write_figure(fresh / _forest_file(place), draw_forest(forest, study, Results(study, results)))
    write_json(fresh / PLAYED_FILE, {"stages": [asdict(each) for each in played]})
    shutil.rmtree(beside, ignore_errors=True)
    fresh.rename(beside)
    text, numbers = _from_beside(page)
    write_text(page, text)
    return numbers


def verify_page(page: Path) -> int:
    """Check that a page says what the results beside it say, number by number, and return how many it holds.

    Raises:
        UserError: it does not; the message names the first line that differs.
    """
    if not page.exists():
        raise UserError(f"{page} does not exist: give the page of a study, such as docs/findings/memory.md")
    expected, numbers = _from_beside(page)
    try:
        own = read_bytes(page).decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise UserError(f"{page} is not UTF-8 text") from None
    theirs = expected.splitlines()
    for place in range(max(len(own), len(theirs))):
        said, found = (lines[place] if place < len(lines) else "" for lines in (own, theirs))
        if said != found:
            raise UserError(f"{page}, line {place + 1} says {said[:120]!r}, but its results say {found[:120]!r}")
    return numbers


def page_text(study: Study, results: Results, played: Sequence[Played], name: str) -> tuple[str, int]:
    """Return the page as Markdown, and how many numbers its claims and tables hold.

    Args:
        study: what is claimed.
        results: where the numbers are.
        played: the stages as they were run.
        name: of the folder beside the page.
    """
    rows = _rows(study, results)
    said = [_claim(claim, values) for claim, values in zip(study.claims, rows, strict=True)]
    tables = [_table(table, study, results) for table in study.tables]
    lines = [f"# {study.title}", "", study.question, "", "## Findings", ""]
    for text, control, _ in said:
        lines += [f"- {text} *Control:* {control}"]
    for table_lines, _ in tables:
        lines += ["", *table_lines]
    for place, forest in enumerate(study.forests, start=1):
        lines += ["", f"![{forest.title}]({name}/{_forest_file(place)})", "", _forest_caption(forest)]
    for figure in study.figures:
        lines += ["", f"![{figure.caption}]({name}/{figure.stage}/{figure.file})", "", figure.caption]
    lines += ["", "## What this does not show", "", *(f"- {limit}" for limit in study.limits)]
    lines += ["", *_how(played, name)]
    return "\n".join(lines) + "\n", sum(count for *_, count in said) + sum(count for _, count in tables)


def _from_beside(page: Path) -> tuple[str, int]:
    beside = page.with_suffix("")
    if not beside.is_dir():
        raise UserError(f"{page} has no folder {beside} of results beside it: give a page that study.py wrote")
    study = read_study(beside / STUDY_FILE)
    content = read_json(beside / PLAYED_FILE)
    try:
        played = TypeAdapter(dict[str, list[Played]]).validate_python(content, strict=False)["stages"]
    except (ValidationError, KeyError):
        raise UserError(f"{beside / PLAYED_FILE} is damaged: run the study again") from None
    return page_text(study, Results(study, beside), played, beside.name)


def _rows(study: Study, results: Results) -> list[dict[str, dict[str, str]]]:
    """Return the rows of each claim by name. Means over trainings whose q a page says are corrected together."""
    claims = study.claims
    rows = [{name: results.values(row, claim.columns(name)) for name, row in claim.rows.items()} for claim in claims]
    tested = [
        (values[name], column)
        for claim, values in zip(claims, rows, strict=True)
        for name, row in claim.rows.items()
        for column in claim.columns(name)
        if row.several and f"{name}.{column}.q" in places(claim.says) + places(claim.control)
    ]
    q = false_discovery(np.array([float(values[f"{column}.p"]) for values, column in tested]))
    for (values, column), corrected in zip(tested, q, strict=True):
        values[f"{column}.q"] = repr(float(corrected))
    return rows


def _claim(claim: Claim, rows: Mapping[str, Mapping[str, str]]) -> tuple[str, str, int]:
    """Return the sentence, its control, and how many numbers they hold."""
    count = 0
    texts = []
    for text in (claim.says, claim.control):
        parts = []
        for literal, place, form, _ in string.Formatter().parse(text):
            parts.append(literal)
            if place is not None:
                name, _, column = place.partition(".")
                parts.append(formatted(rows[name], column, form or ""))
                count += 1
        texts.append("".join(parts))
    return texts[0], texts[1], count


def _table(table: ResultTable, study: Study, results: Results) -> tuple[list[str], int]:
    """Return a table in Markdown, and how many cells of results it holds."""
    stages = [stage.name for stage in study.named(table.stage)]
    named = len(stages) > 1
    columns = [each.partition(":")[::2] for each in table.columns]
    heads = [*(["stage"] if named else []), *(name for name, _ in columns)]
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    count = 0
    rows = [(stage, row) for stage in stages for row in results.rows(stage, table.file, table.where)]
    if table.largest_first is not None:
        rows.sort(key=lambda each: -number(each[1], str(table.largest_first)))
    for place, (stage, row) in enumerate(rows):
        shown = [_cell(row, name, form) for name, form in columns]
        start = (*([stage] if named else []), *shown)
        key = start if table.across else (*start, str(place))
        across = {} if table.across is None else {formatted(row, table.across, ""): _interval(row, table.digits)}
        lines.setdefault(key, {}).update(across)
        count += len(across) or len(shown)
    more = list(dict.fromkeys(head for cells in lines.values() for head in cells))
    text = [
        f"**{table.title}**",
        "",
        _cells([each.replace("_", " ") for each in (*heads, *more)]),
        _cells(["---"] * (len(heads) + len(more))),
    ]
    text += [_cells([*key[: len(heads)], *(cells.get(head, "") for head in more)]) for key, cells in lines.items()]
    return text, count


def _cell(row: Mapping[str, str], column: str, form: str) -> str:
    """Return what a table shows of a result, which may be empty."""
    return formatted(row, column, form if row.get(column) else "")


def _interval(row: Mapping[str, str], digits: int) -> str:
    value, low, high = (formatted(row, column, f".{digits}f") for column in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


def _forest_file(place: int) -> str:
    return f"forest_{place}.png"


def _forest_caption(forest: Forest) -> str:
    control = "; grey, that of the control" if forest.control else ""
    return (
        f"{forest.title}. Circles are trainings, with 95% intervals over their episodes. Diamonds are means over "
        f"trainings, with 95% intervals over these{control}."
    )


def _how(played: Sequence[Played], name: str) -> Iterator[str]:
    minutes = sum(each.seconds for each in played) / 60
    yield f"## How it was made, in {minutes:.0f} minutes"
    yield ""
    yield "```bash"
    yield from (f"python {each.command}" for each in played)
    yield "```"
    yield ""
    yield f"Tables, figures and the study itself lie in `{name}/`; `python study.py verify` finds every number again."
    files = {path: digest for each in played for path, digest in each.read.items()}
    if files:
        yield ""
        yield "| read | SHA-256 |"
        yield "|---|---|"
        yield from (f"| `{path}` | `{digest}` |" for path, digest in sorted(files.items()))


def _cells(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
