"""All claims of all pages, with one more correction over all of their tests."""

import math
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from analysis.findings.page import read_beside, said_of
from analysis.findings.results import rows_of_claims
from analysis.findings.study_file import Claim
from analysis.statistics.inference import false_discovery
from common.files import read_bytes, visible, write_text
from common.user_error import UserError

START, END = "<!-- claims: written by study.py claims -->", "<!-- end of claims -->"
"""Lines between which the table of claims stands in a file."""

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
        rows = rows_of_claims(study, results)
        for claim, values, (says, *_) in zip(study.claims, rows, said_of(study, results), strict=True):
            claims.append((page.stem, says, dict(_tests(claim, values))))
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
