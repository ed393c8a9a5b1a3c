"""How every page is made from its template: one layout around all, and nothing undefined or unescaped."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment

_HERE = Path(__file__).parent


def environment(folder: Path, trim: bool = False) -> "Environment":
    """Return what renders the templates of a page's folder, which may extend `layout.html`.

    Args:
        folder: of the page.
        trim: leave no empty lines where the template's own commands stood.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader([folder, _HERE]), autoescape=True, undefined=StrictUndefined,
        trim_blocks=trim, lstrip_blocks=trim,
    )  # fmt: skip
