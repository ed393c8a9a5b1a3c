"""One self-contained offline page of attributions: views with their maps, tick by tick and lag by lag."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from activation_store.records import Records
from analysis.life.events import ITEMS
from analysis.pages.pages import BASE, embedded, environment, figures_of, ground_facts, pack, scripts_of, style_of

_HERE = Path(__file__).parent
_KIT = (*BASE, "canvas.js", "glyphs.js", "view.js", "playback.js")
_KINDS = {-1: "immortal NPC", 0: "player", 1: "passive NPC", 2: "neutral NPC", 3: "aggressive NPC"}
_ENTITY = ("id", "npc_type", "row", "col")
"""The first columns of every entity row, in the game's order."""

ShownSample = tuple[int, Records, Mapping[str, Any]]
"""The number of a sample, its ticks, and their attributions by the names of the fields of `Attributions`."""


def saliency_page(
    folder: Path, heading: str, summary: Sequence[str], failures: Sequence[str], samples: Sequence[ShownSample],
    figures: Mapping[str, str], command: Sequence[str],
) -> str:  # fmt: skip
    """Return the page as HTML.

    Args:
        summary: its lines; those that begin with a space are details.
    """
    shown = [_content(sample) for sample in samples]
    back = samples[0][2]["task"].shape[1]
    facts = {**ground_facts(), "samples": [facts for facts, _ in shown]}
    return (
        environment(_HERE, trim=True)
        .get_template("template.html")
        .render(
            name=folder.resolve().name, heading=heading, summary=summary, failures=failures, facts=embedded(facts),
            contents=[content for _, content in shown], command=shlex.join(command), ticks_back=back,
            figures=figures_of(folder, figures),
            style=style_of("document", _HERE), scripts=scripts_of(_KIT, [_HERE / "main.js"]),
        )
    )  # fmt: skip


def _content(sample: ShownSample) -> tuple[dict[str, Any], str]:
    """Return a sample's facts, and its packed tables as base64 text."""
    number, records, maps = sample
    tables = {
        "material": records.tile[:, :, 2].astype(np.uint8),
        **{
            name: np.nan_to_num(maps[name]).astype(np.float32)
            for name in ("tiles", "entities", "own", "inventory", "task")
        },
        "memory": np.abs(maps["memory"]).sum(axis=1).astype(np.float32),
        "value": maps["value"].astype(np.float32),
        "tick": records.tick.astype(np.int64),
    }
    if maps["component_names"]:
        tables["components"] = np.nan_to_num(maps["components"]).astype(np.float32)
    texts = {"entities_text": _entities(records), "items_text": _items(records)}
    columns, content = pack(tables, {**texts, **{name: maps[name] for name in ("columns", "component_names")}})
    facts = {
        "number": number, "agent": int(records.agent_id[0]), "episode": int(records.episode[0]),
        "ticks": len(records), "columns": columns,
    }  # fmt: skip
    return facts, content


def _entities(records: Records) -> list[list[dict[str, Any]]]:
    """Describe the visible entities of each tick: place relative to the agent, and what they are."""
    by_tick = []
    rows = records.entity
    for record in range(len(records)):
        values = rows.values[rows.offsets[record] : rows.offsets[record + 1], : len(_ENTITY)].astype(int)
        own = values[values[:, 0] == records.agent_id[record]]
        origin = own[0, 2:4] if len(own) else np.zeros(2, int)
        by_tick.append(
            [
                {
                    "row": int(row - origin[0]), "col": int(column - origin[1]),
                    "text": "itself" if number == records.agent_id[record] else f"{_KINDS.get(kind, 'NPC')} {number}",
                }
                for number, kind, row, column in values.tolist()
            ]
        )  # fmt: skip
    return by_tick


def _items(records: Records) -> list[list[str]]:
    rows = records.inventory
    kinds = [rows.values[rows.offsets[record] : rows.offsets[record + 1], 1].tolist() for record in range(len(records))]
    return [[ITEMS.get(kind, f"item {kind}") for kind in numbers] for numbers in kinds]
