"""How every page is made from its template: one layout around all, nothing undefined or unescaped, own scripts only.

Tables in a page are packed into one run of bytes that deflates well; facts are JSON that is safe inside a script
element. And the page of a run that is a text: what it found, in lines and figures, and the command that repeats it.
"""

import base64
import hashlib
import math
import re
import shlex
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import orjson

from activation_store.schema import TILES_IN_VIEW
from analysis.materials import MATERIALS

if TYPE_CHECKING:
    from jinja2 import Environment


Look = Literal["window", "document"]
Dark = Literal["never", "preferred", "always"]
_HERE = Path(__file__).parent
_KIT = _HERE / "kit"
_SCRIPT = re.compile(
    r"<script(?![^>]*application/(?:json|octet-stream))[^>]*>(.*?)</script>", re.DOTALL | re.IGNORECASE
)
BASE = ("page.js", "unpacking.js")
"""Scripts of the kit that every page with data needs; then `canvas.js`, `glyphs.js`, `view.js` and `playback.js`."""


def environment(folder: Path, trim: bool = False) -> "Environment":
    """Return what renders the templates of a page's folder, which may extend and import those beside this file.

    Args:
        trim: leave no empty lines where the template's own commands stood.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader([folder, _HERE]), autoescape=True, undefined=StrictUndefined,
        trim_blocks=trim, lstrip_blocks=trim,
    )  # fmt: skip


@dataclass(frozen=True)
class Scripts:
    """The scripts of a page, which runs these and no others."""

    elements: Any  # the script elements, ready to be put into the page
    allowed: Any  # what the page's Content-Security-Policy must name for the browser to run them

    def allow(self, page: str) -> bool:
        """Tell whether every script of another page is one of these; elements of data are none."""
        return all(_hash_of(script) in self.allowed for script in _SCRIPT.findall(page))


def _hash_of(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def scripts_of(kit: Sequence[str], own: Sequence[Path], libraries: Sequence[str] = ()) -> Scripts:
    """Return a page's scripts; libraries run first, then the kit's, then its own, in JavaScript's strict mode.

    Args:
        libraries: their content.
    """
    from markupsafe import Markup

    files = [*(_KIT / name for name in kit), *own]
    contents = [*libraries, *(f'"use strict";\n\n{path.read_text()}' for path in files)]
    # A browser hashes what it has parsed, in which every line end is a line feed.
    scripts = [content.replace("\r\n", "\n").replace("\r", "\n") for content in contents]
    return Scripts(
        Markup("\n".join(f"<script>{script}</script>" for script in scripts)),
        Markup(" ".join(_hash_of(script) for script in scripts)),
    )


def style_of(look: Look, folder: Path | None = None, dark: Dark = "never") -> Any:
    """Return the style of a page: the kit's, then its own `style.css`.

    Args:
        look: whether the page is a window full of things to use, or a text to read.
        folder: of the page; without one it has no style of its own.
        dark: whether it is dark, or where the reader's system is.
    """
    from markupsafe import Markup

    parts = [(_KIT / name).read_text() for name in ("base.css", f"{look}.css")]
    if dark != "never":
        colours = (_KIT / "dark.css").read_text()
        parts.append(colours if dark == "always" else f"@media (prefers-color-scheme: dark) {{\n{colours}}}\n")
    if folder is not None:
        parts.append((folder / "style.css").read_text())
    return Markup("".join(parts))


def picture(path: Path) -> str:
    """Return the address of a PNG that holds its content."""
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()


def figures_of(folder: Path, captions: Mapping[str, str]) -> list[dict[str, str]]:
    """Return those of a folder's figures that are there, as the kit's macro `figure` draws them."""
    return [
        {"name": name, "caption": caption, "uri": picture(folder / name)}
        for name, caption in captions.items()
        if (folder / name).exists()
    ]


def ground_facts() -> dict[str, Any]:
    """Return the facts that `view.js` reads of tiles."""
    return {
        "side": math.isqrt(TILES_IN_VIEW),
        "materials": [{"name": material.name, "colour": material.colour} for material in MATERIALS],
        "harvestable": {material.name: True for material in MATERIALS if material.leaves is not None},
    }


_BEST = 9
_SIGNED_BYTE = 127


def pack(tables: Mapping[str, np.ndarray], texts: Mapping[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """Pack tables of integers, of truth values and of floats, exactly, and JSON values, as `unpacking.js` reads them.

    Returns name, kind and shape of each, names must differ, and all in that order, deflated, as base64 text.

    Bytes (uint8) are taken as they are, other integers as differences along the last axis.

    Raises:
        ValueError: an integer needs more than 32 bits.
    """
    columns, parts = [], []
    for name, array in tables.items():
        if array.dtype == np.uint8:
            kind, content = "u1", array.tobytes()
        elif array.dtype.kind == "f":
            # All first bytes, then all second bytes and so on: like bytes side by side deflate well.
            width = array.dtype.itemsize
            kind = f"f{width}"
            flat = np.ascontiguousarray(array, dtype=f"<{kind}").reshape(-1)
            content = flat.view(np.uint8).reshape(array.size, width).T.tobytes()
        else:
            kind, content = _differences(array)
        columns.append({"name": name, "kind": kind, "shape": array.shape})
        parts.append(content)
    for name, value in texts.items():
        content = orjson.dumps(value)
        columns.append({"name": name, "kind": "json", "shape": [len(content)]})
        parts.append(content)
    return columns, base64.b64encode(zlib.compress(b"".join(parts), _BEST)).decode()


def embedded(content: Any) -> Any:
    """Return JSON that is safe inside a script element, whatever its texts hold."""
    from markupsafe import Markup

    text = orjson.dumps(content).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def signed_bytes(values: np.ndarray, most: np.ndarray) -> np.ndarray:
    """Return values in 127ths of the largest of them, int8, rounded; `most` must broadcast, and may be 0."""
    return np.rint(values / np.where(most > 0, most, 1) * _SIGNED_BYTE).astype(np.int8)


def _differences(array: np.ndarray) -> tuple[str, bytes]:
    """Store differences along the last axis, in the smallest integers that hold the values: they deflate well."""
    values = array.astype(np.int64)
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    fitting = [kind for kind in ("i1", "i2", "i4") if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max]
    if not fitting:
        raise ValueError(f"values from {low} to {high} need more than 32 bits")
    steps = np.diff(values, axis=-1, prepend=0)
    # Where a step does not fit it wraps round, and adding it up wraps round the same way.
    return fitting[0], steps.astype(f"<{fitting[0]}").tobytes()


Section = tuple[str, Sequence[str], Mapping[str, str]]
"""A part of a page: its title; what was found, where lines that begin with a space are details of the line before, and
empty ones begin a new paragraph; and how to read each figure, by its file's name in the run's folder."""


def summary_page(folder: Path, heading: str, sections: Sequence[Section], command: Sequence[str]) -> str:
    """Return the page as HTML.

    Args:
        sections: in order; figures that were not drawn are left out.
    """
    shown = []
    for title, lines, figures in sections:
        parts = [list(part) for is_text, part in groupby(lines, bool) if is_text]
        paragraphs = [
            {
                "lines": [line for line in part if not line.startswith(" ")],
                "details": [line.strip() for line in part if line.startswith(" ")],
            }
            for part in parts
        ]
        shown.append({"title": title, "paragraphs": paragraphs, "figures": figures_of(folder, figures)})
    page = environment(_HERE, trim=True).get_template("summary.html")
    return page.render(
        name=folder.resolve().name, heading=heading, sections=shown, command=shlex.join(command),
        style=style_of("document"),
    )  # fmt: skip


def command_of(script: str, arguments: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[str]:
    """Return the command line of a run: the dump, and every option that differs from its default."""
    words = ["python", *script.split(), str(arguments["dump"])]
    for name, value in arguments.items():
        if name == "dump" or value == defaults.get(name):
            continue
        words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return words
