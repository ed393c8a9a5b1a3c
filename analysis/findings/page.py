"""The page of a study: its claims with their numbers, tables, figures, commands, and what it does not show."""

import shutil
import string
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, ValidationError

from activation_store.files import make_folder, read_bytes, read_json, write_json, write_text
from analysis.findings.results import Results, formatted
from analysis.findings.study_file import Claim, ResultTable, Study, read_study
from user_error import UserError

STUDY_FILE = "study.yaml"
PLAYED_FILE = "stages.json"


@dataclass(frozen=True)
class Played:
    """A stage as it was run.

    Attributes:
        name: of the stage.
        command: as typed, with the folders of the run.
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
    said = [_claim(claim, results) for claim in study.claims]
    tables = [_table(table, study, results) for table in study.tables]
    lines = [f"# {study.title}", "", study.question, "", "## Findings", ""]
    for text, control, _ in said:
        lines += [f"- {text} *Control:* {control}"]
    for table_lines, _ in tables:
        lines += ["", *table_lines]
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


def _claim(claim: Claim, results: Results) -> tuple[str, str, int]:
    """Return the sentence, its control, and how many numbers they hold."""
    rows = {name: results.values(row) for name, row in claim.rows.items()}
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
    stages = [stage.name for stage in study.named(table.stage)]
    heads = (*(("stage",) if len(stages) > 1 else ()), *table.columns)
    lines = [f"**{table.title}**", "", _cells(heads), _cells(["---"] * len(heads))]
    count = 0
    for stage in stages:
        for row in results.rows(stage, table.file, table.where):
            if missing := [column for column in table.columns if column not in row]:
                raise UserError(f"the table {table.file} of {stage} has no column {missing[0]!r}")
            shown = [row[column] for column in table.columns]
            count += len(shown)
            lines.append(_cells([*([stage] if len(stages) > 1 else []), *shown]))
    return lines, count


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
