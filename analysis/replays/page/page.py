"""One self-contained offline page that plays a replay in any browser."""

from pathlib import Path

from analysis.materials import MATERIALS
from analysis.pages.packing import embedded, scripts_of
from analysis.pages.pages import Scripts, environment
from analysis.replays.clusters import ReplayClusters
from analysis.replays.events import Events
from analysis.replays.page.content import packed_replay
from analysis.replays.replay import NPC_KINDS, Replay

_HERE = Path(__file__).parent
_SCRIPTS = (
    "pages/packing.js", "replays/page/data.js", "replays/page/state.js", "pages/glyphs.js",
    "replays/page/map_view.js", "replays/page/timeline.js", "replays/page/panels.js", "replays/page/controls.js",
    "replays/page/main.js",
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
