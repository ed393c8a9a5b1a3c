"""One self-contained offline page that plays a replay in any browser."""

from pathlib import Path

from analysis.materials import MATERIALS
from analysis.page_parts.packing import embedded, scripts_of
from analysis.page_parts.pages import Scripts, environment
from analysis.replay_page.content import packed_replay
from analysis.replays.clusters import ReplayClusters
from analysis.replays.events import Events
from analysis.replays.replay import NPC_KINDS, Replay

_HERE = Path(__file__).parent
_SCRIPTS = (
    "page_parts/packing.js", "replay_page/data.js", "replay_page/state.js", "page_parts/glyphs.js",
    "replay_page/map_view.js", "replay_page/timeline.js", "replay_page/panels.js", "replay_page/controls.js",
    "replay_page/main.js",
)  # fmt: skip


def replay_page(replay: Replay, events: Events, clusters: ReplayClusters | None, title: str) -> str:
    """Return the page as HTML; `title` is the replay's file name."""
    from markupsafe import Markup

    facts, content = packed_replay(replay, events, clusters, title)
    page = environment(_HERE).get_template("template.html")
    return page.render(
        title=title,
        replay=replay,
        policies=sorted(set(replay.players.policies)),
        materials=MATERIALS,
        npc_kinds=NPC_KINDS,
        clusters=clusters,
        facts=embedded(facts),
        content=content,
        style=Markup((_HERE / "style.css").read_text()),
        scripts=Scripts.of(scripts_of(*_SCRIPTS)),
    )
