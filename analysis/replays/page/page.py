"""One self-contained offline page that plays a replay in any browser."""

from pathlib import Path

from analysis.materials import MATERIALS
from analysis.pages.packing import embedded
from analysis.pages.pages import BASE, environment, scripts_of, style_of
from analysis.replays.clusters import ReplayClusters
from analysis.replays.events import Events
from analysis.replays.page.content import packed_replay
from analysis.replays.replay import NPC_KINDS, Replay

_HERE = Path(__file__).parent
_KIT = (*BASE, "canvas.js", "glyphs.js", "playback.js")
_SCRIPTS = [_HERE / f"{name}.js" for name in ("data", "state", "map_view", "timeline", "panels", "controls", "main")]


def replay_page(replay: Replay, events: Events, clusters: ReplayClusters | None, title: str) -> str:
    """Return the page as HTML; `title` is the replay's file name."""
    facts, content = packed_replay(replay, events, clusters, title)
    page = environment(_HERE).get_template("template.html")
    return page.render(
        title=title, replay=replay, policies=sorted(set(replay.players.policies)), materials=MATERIALS,
        npc_kinds=NPC_KINDS, clusters=clusters, facts=embedded(facts), content=content,
        style=style_of("window", _HERE, dark="always"), scripts=scripts_of(_KIT, _SCRIPTS),
    )  # fmt: skip
