"""One self-contained offline page of attributions: views with their maps, tick by tick and lag by lag."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from activation_store.records import Records
from analysis.life.action_words import ITEMS
from analysis.pages.packing import embedded, pack
from analysis.pages.pages import BASE, environment, ground_facts, picture, scripts_of, style_of

_HERE = Path(__file__).parent
_KIT = (*BASE, "canvas.js", "glyphs.js", "view.js", "playback.js")
_KINDS = {-1: "immortal NPC", 0: "player", 1: "passive NPC", 2: "neutral NPC", 3: "aggressive NPC"}
_ENTITY = ("id", "npc_type", "row", "col")
"""The first columns of every entity row, in the game's order."""


@dataclass(frozen=True, eq=False)
class ShownSample:
    """Consecutive ticks of a life with their attributions. N ticks, T ticks back, latest last.

    Attributes:
        records: the ticks.
        value: the target, (N,).
        tiles: (N, T, tiles).
        entities: (N, T, most entities).
        own: (N, T, columns).
        inventory: (N, T, most items).
        task: (N, T).
        memory: (N, S).
        columns: names of the columns of `own`.
        components: of each component of the memory before the window, (N, K).
    """

    number: int
    records: Records
    value: np.ndarray
    tiles: np.ndarray
    entities: np.ndarray
    own: np.ndarray
    inventory: np.ndarray
    task: np.ndarray
    memory: np.ndarray
    columns: tuple[str, ...]
    components: np.ndarray
    component_names: tuple[str, ...]


def saliency_page(
    folder: Path, heading: str, summary: Sequence[str], failures: Sequence[str], samples: Sequence[ShownSample],
    figures: Mapping[str, str], command: Sequence[str],
) -> str:  # fmt: skip
    """Return the page as HTML.

    Args:
        folder: of the run, with the figures.
        heading: what is attributed, and how.
        summary: its lines; those that begin with a space are details.
        figures: names of files, and how to read each.
        command: words of the command line that repeats the run.
    """
    shown = [_content(sample) for sample in samples]
    back = samples[0].task.shape[1]
    facts = {**ground_facts(), "samples": [facts for facts, _ in shown]}
    return (
        environment(_HERE, trim=True)
        .get_template("template.html")
        .render(
            name=folder.resolve().name, heading=heading, summary=summary, failures=failures, facts=embedded(facts),
            contents=[content for _, content in shown], command=shlex.join(command), ticks_back=back,
            figures=[
                {"name": name, "caption": caption, "uri": picture(folder / name)} for name, caption in figures.items()
            ],
            style=style_of("document", _HERE), scripts=scripts_of(_KIT, [_HERE / "main.js"]),
        )
    )  # fmt: skip


def _content(sample: ShownSample) -> tuple[dict[str, Any], str]:
    """Return a sample's facts, and its packed tables as base64 text."""
    records = sample.records
    tables = {
        "material": records.tile[:, :, 2].astype(np.uint8),
        **{
            name: np.nan_to_num(getattr(sample, name)).astype(np.float32)
            for name in ("tiles", "entities", "own", "inventory", "task")
        },
        "memory": np.abs(sample.memory).sum(axis=1).astype(np.float32),
        "value": np.nan_to_num(sample.value).astype(np.float32),
        "tick": records.tick.astype(np.int64),
    }
    if sample.component_names:
        tables["components"] = np.nan_to_num(sample.components).astype(np.float32)
    texts = {
        "entities_text": _entities(records),
        "items_text": _items(records),
        "columns": sample.columns,
        "component_names": sample.component_names,
    }
    packed = pack(tables, texts)
    facts = {
        "number": sample.number, "agent": int(records.agent_id[0]), "episode": int(records.episode[0]),
        "ticks": len(records), "columns": packed.columns,
    }  # fmt: skip
    return facts, packed.content


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
    """Name the items of each tick."""
    rows = records.inventory
    kinds = [rows.values[rows.offsets[record] : rows.offsets[record + 1], 1].tolist() for record in range(len(records))]
    return [[ITEMS.get(kind, f"item {kind}") for kind in numbers] for numbers in kinds]
