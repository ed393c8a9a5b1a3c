"""How every page is made from its template: one layout around all, nothing undefined or unescaped, own scripts only."""

import base64
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

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

    @staticmethod
    def of(scripts: Sequence[str]) -> "Scripts":
        """Put scripts into elements, in their order, and allow each by its hash."""
        from markupsafe import Markup

        # A browser hashes what it has parsed, in which every line end is a line feed.
        scripts = [script.replace("\r\n", "\n").replace("\r", "\n") for script in scripts]
        return Scripts(
            Markup("\n".join(f"<script>{script}</script>" for script in scripts)),
            Markup(" ".join(_hash_of(script) for script in scripts)),
        )

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
    files = [*(_KIT / name for name in kit), *own]
    return Scripts.of([*libraries, *(f'"use strict";\n\n{path.read_text()}' for path in files)])


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
