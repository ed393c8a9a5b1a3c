"""One self-contained page with a card for each sparse feature: what it goes with, its top records, and their lives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analysis.explorer.views import view_facts, view_tables
from analysis.features.observed import Observed
from analysis.pages.packing import embedded, pack
from analysis.pages.pages import BASE, environment, scripts_of, style_of

_HERE = Path(__file__).parent
_KIT = (*BASE, "canvas.js", "glyphs.js", "view.js")
_SCRIPTS = [_HERE / f"{name}.js" for name in ("data", "life", "main")]


@dataclass(frozen=True, eq=False)
class FeatureCards:
    """What the page shows. F features, R top records of all features, T ticks of the traces of all top records.

    Attributes:
        columns: numbers of each feature, (F,) each, by name.
        by_age: share of the records in each part of life in which each feature is active, (F, parts).
        titles: short names, F.
        descriptions: sentences, F.
        behaviours: names of the behaviours, and their units and definitions.
        seen: the top records, feature by feature.
        feature: of each top record, (R,) ascending.
        strength: of each top record, (R,).
        trace_ticks: ticks of each top record's life, (R,); adds up to T.
        trace_tick: tick of each, (T,).
        trace_strength: strength of the feature there, (T,).
        trace_behaviour: value of its best behaviour there, (T,).
    """

    columns: Mapping[str, np.ndarray]
    by_age: np.ndarray
    titles: Sequence[str]
    descriptions: Sequence[str]
    behaviours: Sequence[Mapping[str, str]]
    seen: Observed
    feature: np.ndarray
    strength: np.ndarray
    trace_ticks: np.ndarray
    trace_tick: np.ndarray
    trace_strength: np.ndarray
    trace_behaviour: np.ndarray


def sparse_page(name: str, facts: Mapping[str, Any], cards: FeatureCards) -> str:
    """Return the page as HTML.

    Args:
        facts: texts that the head of the page says: policy, layer, dictionary, dump, scores and intervals.
    """
    records = cards.seen.records
    tiles = records.tile[:, :, 2].astype(np.uint8)
    tables = {
        **{f"feature.{key}": column for key, column in cards.columns.items()},
        "feature.byAge": cards.by_age.astype(np.float32),
        **view_tables(cards.seen),
        "view.tiles": tiles,
        "top.feature": cards.feature,
        "top.strength": cards.strength.astype(np.float32),
        "top.tick": records.tick,
        "top.agent": records.agent_id,
        "top.episode": records.episode,
        "top.ticks": cards.trace_ticks,
        "trace.tick": cards.trace_tick,
        "trace.strength": cards.trace_strength.astype(np.float32),
        "trace.behaviour": cards.trace_behaviour.astype(np.float32),
    }
    packed = pack(tables, {"titles": list(cards.titles), "descriptions": list(cards.descriptions)})
    content = {
        "columns": packed.columns, **view_facts(), "parts": cards.by_age.shape[1], "behaviours": list(cards.behaviours),
        "dump": facts["dump"],
    }  # fmt: skip
    page = environment(_HERE, trim=True).get_template("template.html")
    return page.render(
        name=name, about=facts, features=len(cards.titles), facts=embedded(content), packed=packed.content,
        style=style_of("window", _HERE), scripts=scripts_of(_KIT, _SCRIPTS),
    )  # fmt: skip
