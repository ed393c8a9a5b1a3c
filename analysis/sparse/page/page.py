"""One self-contained page with a card for each sparse feature: what it goes with, its top records, and their lives."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analysis.explorer.views import view_facts
from analysis.pages.packing import embedded, pack
from analysis.pages.pages import BASE, environment, scripts_of, style_of

_HERE = Path(__file__).parent
_KIT = (*BASE, "canvas.js", "glyphs.js", "view.js")
_SCRIPTS = [_HERE / f"{name}.js" for name in ("data", "life", "main")]


def sparse_page(
    name: str, facts: Mapping[str, Any], behaviours: Sequence[Mapping[str, str]], tables: Mapping[str, np.ndarray],
    texts: Mapping[str, Sequence[str]],
) -> str:  # fmt: skip
    """Return the page as HTML.

    Args:
        facts: texts that the head of the page says: policy, layer, dictionary, dump, scores and intervals.
        behaviours: names, units and definitions of those that features are described with.
        tables, texts: as `feature_cards` returns them.
    """
    packed = pack(tables, texts)
    content = {
        "columns": packed.columns, **view_facts(), "parts": tables["feature.byAge"].shape[1],
        "behaviours": list(behaviours), "dump": facts["dump"],
    }  # fmt: skip
    page = environment(_HERE, trim=True).get_template("template.html")
    return page.render(
        name=name, about=facts, features=len(texts["titles"]), facts=embedded(content), packed=packed.content,
        style=style_of("window", _HERE), scripts=scripts_of(_KIT, _SCRIPTS),
    )  # fmt: skip
