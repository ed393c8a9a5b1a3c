"""One self-contained page that plays a replay in any browser, offline."""

import base64
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from analysis.clustering import NOISE
from analysis.materials import HARVESTED, MATERIALS
from analysis.replay import NPC_KINDS, SLOTS, STYLES, Replay
from analysis.replay_clusters import UNLABELLED, ReplayClusters
from analysis.replay_colours import NPC_COLOURS, NPC_SHAPES, cluster_colours, policy_colours
from analysis.replay_events import CAUSES, EVENT_KINDS, Events

_HERE = Path(__file__).parent
_SCRIPTS = ("data.js", "state.js", "glyphs.js", "map_view.js", "timeline.js", "panels.js", "controls.js", "main.js")
_BEST = 9


def replay_page(replay: Replay, events: Events, clusters: ReplayClusters | None, title: str) -> str:
    """Return the page as HTML; `title` is the replay's file name."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined)
    columns, content = _packed(replay, events, clusters)
    return environment.get_template("template.html").render(
        title=title,
        replay=replay,
        policies=sorted(set(replay.players.policies)),
        materials=MATERIALS,
        npc_kinds=NPC_KINDS,
        clusters=clusters,
        facts=_embedded(_facts(replay, clusters, title) | {"columns": columns}),
        content=base64.b64encode(content).decode(),
        style=Markup((_HERE / "style.css").read_text()),
        scripts=[Markup((_HERE / name).read_text()) for name in _SCRIPTS],
    )


def _embedded(content: dict[str, Any]) -> Any:
    """Return JSON that is safe inside a script element, whatever its texts hold."""
    from markupsafe import Markup

    text = orjson.dumps(content).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _facts(replay: Replay, clusters: ReplayClusters | None, title: str) -> dict[str, Any]:
    """All that is named once: everything but the tables."""
    policies = sorted(set(replay.players.policies))
    colours = policy_colours(replay.players.policies)
    found = clusters.clusters if clusters else []
    return {
        "title": title,
        "ticks": replay.ticks,
        "rows": replay.tiles.shape[0],
        "cols": replay.tiles.shape[1],
        "skills": replay.skills,
        "policies": [{"name": policy, "colour": colours[policy]} for policy in policies],
        "players": {
            "ids": replay.players.ids.tolist(),
            "names": replay.players.names,
            "policy": [policies.index(policy) for policy in replay.players.policies],
        },
        "npcs": {"ids": replay.npcs.ids.tolist(), "names": replay.npcs.names},
        "npcKinds": [{"name": k, "colour": NPC_COLOURS[k], "shape": NPC_SHAPES[k]} for k in NPC_KINDS],
        "materials": [{"name": m.name, "colour": m.colour, "note": m.note} for m in MATERIALS],
        "harvested": HARVESTED.tolist(),
        "styles": STYLES,
        "slots": SLOTS,
        "eventKinds": EVENT_KINDS,
        "causes": CAUSES,
        "clusters": {
            "run": clusters.run, "noise": NOISE, "unlabelled": UNLABELLED,
            "colours": {str(label): colour for label, colour in cluster_colours(found).items()},
        } if clusters else None,
    }  # fmt: skip


def _packed(replay: Replay, events: Events, clusters: ReplayClusters | None) -> tuple[list[dict[str, Any]], bytes]:
    """Pack all tables into one run of bytes; returns what describes it, and it, deflated."""
    described, parts = [], []
    for name, array in _tables(replay, events, clusters).items():
        kind, packed = _differences(array)
        described.append({"name": name, "kind": kind, "shape": array.shape})
        parts.append(packed)
    texts = orjson.dumps([[[i.name, i.level, i.quantity, i.slot] for i in items] for items in replay.inventories])
    described.append({"name": "inventories", "kind": "json", "shape": [len(texts)]})
    return described, zlib.compress(b"".join([*parts, texts]), _BEST)


def _tables(replay: Replay, events: Events, clusters: ReplayClusters | None) -> dict[str, np.ndarray]:
    tables = {"tiles": replay.tiles.ravel()}
    skipped = {"ids", "names", "skill_level", "skill_experience"}
    for prefix, entities in (("player", replay.players), ("npc", replay.npcs)):
        # One life after the other, since what belongs to one agent changes little from tick to tick.
        tables |= {f"{prefix}.{name}": table.T for name, table in vars(entities).items() if name not in skipped}
    for number, skill in enumerate(replay.skills):
        tables[f"player.level.{skill}"] = replay.players.skill_level[:, :, number].T
        tables[f"player.experience.{skill}"] = replay.players.skill_experience[:, :, number].T
    places, offsets = _toggles(replay)
    tables |= {"toggle.place": places, "toggle.offset": offsets}
    tables |= {f"event.{name}": column for name, column in vars(events).items()}
    if clusters:
        tables |= {"player.cluster": clusters.label.T, "player.exact": clusters.exact.T}
    return tables


def _toggles(replay: Replay) -> tuple[np.ndarray, np.ndarray]:
    """Return the tiles that were harvested or grew again at each tick, and where those of each tick start."""
    before = (np.zeros(0, dtype=np.int32), *replay.harvested[:-1])
    changed = [np.setxor1d(old, new) for old, new in zip(before, replay.harvested, strict=True)]
    return np.concatenate(changed), np.concatenate([[0], np.cumsum([len(places) for places in changed])])


def _differences(array: np.ndarray) -> tuple[str, bytes]:
    """Store differences along the last axis, in the smallest integers that hold the values: they deflate well."""
    values = array.astype(np.int64)
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    kind = next(kind for kind in ("i1", "i2", "i4") if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max)
    steps = np.diff(values, axis=-1, prepend=0)
    # Where a step does not fit it wraps round, and adding it up wraps round the same way.
    return kind, steps.astype(f"<{kind}").tobytes()
