"""One self-contained offline page that shows an intervention run: results, replays side by side, and figures."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from activation_store.interventions import REPLAYED_EPISODE
from analysis.intervention_page.shown_replays import ShownReplays
from analysis.page_parts.packing import embedded, scripts_of
from analysis.page_parts.pages import Scripts, environment
from analysis.replay_page.content import packed_replay
from analysis.replays.compared import first_difference
from analysis.replays.events import events_of
from analysis.replays.replay import Replay

_HERE = Path(__file__).parent
_SCRIPTS = (
    "page_parts/packing.js", "replay_page/data.js", "replay_page/state.js", "page_parts/glyphs.js",
    "replay_page/map_view.js", "intervention_page/state.js", "intervention_page/arm_view.js",
    "intervention_page/panels.js", "intervention_page/controls.js", "intervention_page/main.js",
)  # fmt: skip


@dataclass(frozen=True)
class _Line:
    """A line of the summary; `is_detail` if it is indented there."""

    text: str
    is_detail: bool


def intervention_page(
    name: str, summary: Sequence[str], replays: ShownReplays | str, figures: Mapping[Path, str]
) -> str:
    """Return the page as HTML.

    Args:
        name: of the run.
        summary: its lines, as `summary_lines` returns them.
        replays: what is shown, or why no replays are.
        figures: files of pictures, and what each shows.
    """
    from markupsafe import Markup

    shown = replays if isinstance(replays, ShownReplays) else None
    return (
        environment(_HERE, trim=True)
        .get_template("template.html")
        .render(
            name=name,
            summary=_paragraphs(summary),
            figures=[_figure(path, caption) for path, caption in figures.items()],
            style=Markup((_HERE / "style.css").read_text()),
            scripts=Scripts.of(scripts_of(*_SCRIPTS) if shown else ()),
            reason=replays,
            **_shown(shown) if shown else {"compared": None},
        )
    )


def _shown(shown: ShownReplays) -> dict[str, Any]:
    compared = shown.compared
    sides = {"unedited": compared.unedited, "edited": compared.edited}
    facts = {
        "drawn": compared.drawn.tolist(),
        "first": compared.first.tolist(),
        "differs": compared.differs,
        "firstTick": compared.first_tick,
        "ends": dict(zip(sides, compared.ends, strict=True)),
    }
    return {
        "compared": compared,
        "arm": shown.arm,
        "episode": REPLAYED_EPISODE,
        "difference": first_difference(compared),
        "facts": embedded(facts),
        "contents": {side: _content(replay, side) for side, replay in sides.items()},
    }


def _content(replay: Replay, side: str) -> dict[str, Any]:
    facts, tables = packed_replay(replay, events_of(replay), None, side)
    return {"facts": embedded(facts), "tables": tables}


def _paragraphs(summary: Sequence[str]) -> list[list[_Line]]:
    """Split the summary at its empty lines."""
    paragraphs: list[list[_Line]] = [[]]
    for line in summary:
        if line:
            paragraphs[-1].append(_Line(line.strip(), line.startswith((" ", "- "))))
        else:
            paragraphs.append([])
    return [paragraph for paragraph in paragraphs if paragraph]


def _figure(path: Path, caption: str) -> dict[str, str]:
    uri = "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()
    return {"name": path.name, "caption": caption, "uri": uri}
