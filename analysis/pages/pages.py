"""How every page is made from its template: one layout around all, nothing undefined or unescaped, own scripts only."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

_HERE = Path(__file__).parent


def environment(folder: Path, trim: bool = False) -> "Environment":
    """Return what renders the templates of a page's folder, which may extend `layout.html`.

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
    """The scripts of a page, which runs these and no others.

    Attributes:
        elements: the script elements, ready to be put into the page.
        allowed: what the page's Content-Security-Policy must name for the browser to run them.
    """

    elements: Any
    allowed: Any

    @staticmethod
    def of(scripts: Sequence[str]) -> "Scripts":
        """Put scripts into elements, in their order, and allow each by its hash."""
        from markupsafe import Markup

        # A browser hashes what it has parsed, in which every line end is a line feed.
        scripts = [script.replace("\r\n", "\n").replace("\r", "\n") for script in scripts]
        hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
        return Scripts(
            Markup("\n".join(f"<script>{script}</script>" for script in scripts)),
            Markup(" ".join(f"'sha256-{each}'" for each in hashes)),
        )
