"""One self-contained offline page that plays a replay in any browser."""

from pathlib import Path
from typing import Any

import numpy as np

from analysis.labels import NOISE
from analysis.materials import HARVESTED, MATERIALS
from analysis.pages.pages import BASE, embedded, environment, pack, scripts_of, style_of
from analysis.replays.clusters import ReplayClusters
from analysis.replays.replay import (
    CAUSES,
    EVENT_KINDS,
    NPC_KINDS,
    STYLES,
    UNLABELLED,
    Events,
    Replay,
    cluster_colours,
    npc_facts,
    policy_colours,
)


def packed_replay(replay: Replay, events: Events, clusters: ReplayClusters | None) -> tuple[dict[str, Any], str]:
    """Return what `ReplayData.load` in `data.js` reads: facts, as JSON, and everything else as packed tables."""
    inventories = [[vars(item) for item in items] for items in replay.inventories]
    columns, content = pack(_tables(replay, events, clusters), {"inventories": inventories})
    policies = sorted(set(replay.players.policies))
    colours = policy_colours(replay.players.policies)
    named: dict[str, dict[str, str]] | None = None
    if clusters:  # a browser goes through clusters first, in their order
        of_labels = cluster_colours(clusters.clusters)
        names = {NOISE: "noise", UNLABELLED: "no label", **{label: f"cluster {label}" for label in clusters.clusters}}
        named = {str(label): {"name": name, "colour": of_labels[label]} for label, name in names.items()}
    facts = {
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
        "npcs": {
            "ids": replay.npcs.ids.tolist(), "names": replay.npcs.names, "kind": replay.npcs.kind.max(axis=0).tolist(),
        },
        "npcKinds": npc_facts(),
        "materials": [{"name": m.name, "colour": m.colour, "note": m.note} for m in MATERIALS],
        "harvested": HARVESTED.tolist(),
        "styles": STYLES,
        "eventKinds": EVENT_KINDS,
        "causes": CAUSES,
        "clusters": named,
        "columns": columns,
    }  # fmt: skip
    return facts, content


def _tables(replay: Replay, events: Events, clusters: ReplayClusters | None) -> dict[str, np.ndarray]:
    tables = {"tiles": replay.tiles.ravel()}
    skipped = {"ids", "names", "kind", "skill_level", "skill_experience"}
    for prefix, entities in (("player", replay.players), ("npc", replay.npcs)):
        # Grouped by agent, since an agent's values change little from tick to tick.
        tables |= {f"{prefix}.{name}": table.T for name, table in vars(entities).items() if name not in skipped}
    for number, skill in enumerate(replay.skills):
        tables[f"player.level.{skill}"] = replay.players.skill_level[:, :, number].T
        tables[f"player.experience.{skill}"] = replay.players.skill_experience[:, :, number].T
    # The tiles that were harvested or regrew, ordered by tick, and where each tick's tiles start.
    before = (np.zeros(0, dtype=np.int32), *replay.harvested[:-1])
    changed = [np.setxor1d(old, new) for old, new in zip(before, replay.harvested, strict=True)]
    tables["toggle.place"] = np.concatenate(changed)
    tables["toggle.offset"] = np.concatenate([[0], np.cumsum([len(places) for places in changed])])
    tables |= {f"event.{name}": column for name, column in vars(events).items()}
    if clusters:
        tables |= {"player.cluster": clusters.label.T, "player.exact": clusters.exact.T}
    return tables


_HERE = Path(__file__).parent
_KIT = (*BASE, "canvas.js", "glyphs.js", "playback.js")
_SCRIPTS = [_HERE / f"{name}.js" for name in ("data", "state", "map_view", "timeline", "panels", "controls", "main")]


def replay_page(replay: Replay, events: Events, clusters: ReplayClusters | None, title: str) -> str:
    """Return the page as HTML; `title` is the replay's file name."""
    facts, content = packed_replay(replay, events, clusters)
    page = environment(_HERE).get_template("template.html")
    return page.render(
        title=title, replay=replay, policies=sorted(set(replay.players.policies)), materials=MATERIALS,
        npc_kinds=NPC_KINDS, clusters=clusters, facts=embedded(facts), content=content,
        style=style_of("window", _HERE, dark="always"), scripts=scripts_of(_KIT, _SCRIPTS),
    )  # fmt: skip
