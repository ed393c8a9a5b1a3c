"""One self-contained offline page that shows an intervention run: results, replays side by side, and figures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from activation_store.interventions import (
    EDITED_REPLAY,
    REPLAYED_EPISODE,
    UNEDITED_REPLAY,
    Arm,
    LivesTable,
    replayed_arms,
)
from analysis.pages.packing import embedded
from analysis.pages.pages import BASE, Scripts, environment, picture, scripts_of, style_of
from analysis.replays.compared import ComparedReplays, compare, first_difference
from analysis.replays.events import events_of
from analysis.replays.file import read_replay
from analysis.replays.page.page import packed_replay
from analysis.replays.replay import Replay
from analysis.runs.finished_files import open_finished
from analysis.runs.run_folder import DONE_FILE
from common.files import sha256
from common.user_error import UserError

REPLAYS = (UNEDITED_REPLAY, EDITED_REPLAY)


@dataclass(frozen=True)
class ShownReplays:
    """The replays of a page.

    Attributes:
        arm: name of the edited one's arm.
    """

    compared: ComparedReplays
    arm: str


def read_shown_replays(
    folder: Path, lives: LivesTable, arms: Sequence[Arm], progress: Callable[[float], None]
) -> ShownReplays:
    """Read and compare the two replays of a run.

    Raises:
        UserError: one is missing, damaged or was changed, or they do not fit the run.
    """
    _refuse_changed(folder)
    arm = replayed_arms(arms)[EDITED_REPLAY].name
    unedited = read_replay(folder / UNEDITED_REPLAY, lambda share: progress(share / 2))
    edited = read_replay(folder / EDITED_REPLAY, lambda share: progress((1 + share) / 2))
    mine = lives.of_arm(arm)
    drawn = mine.agent[(mine.episode == REPLAYED_EPISODE) & mine.edited]
    return ShownReplays(compare(unedited, edited, drawn.tolist()), arm)


def _refuse_changed(folder: Path) -> None:
    """Refuse replays that are missing, or are not what an earlier report of the run listed."""
    proofs = open_finished(folder).sha256 if (folder / DONE_FILE).exists() else {}
    for name in REPLAYS:
        if not (folder / name).exists():
            raise UserError(f"{name} is missing")
        if name in proofs and sha256(folder / name) != proofs[name]:
            raise UserError(f"{name} does not match its SHA-256 in {DONE_FILE}: it is damaged or was edited")


_HERE = Path(__file__).parent
_KIT = (*BASE, "canvas.js", "glyphs.js", "playback.js")
_REPLAY = _HERE.parents[1] / "replays" / "page"
_SCRIPTS = [
    *(_REPLAY / f"{name}.js" for name in ("data", "state", "map_view")),
    *(_HERE / f"{name}.js" for name in ("state", "arm_view", "panels", "controls", "main")),
]


def intervention_page(
    name: str, summary: Sequence[str], replays: ShownReplays | str, figures: Mapping[Path, str]
) -> str:
    """Return the page as HTML."""
    shown = replays if isinstance(replays, ShownReplays) else None
    return (
        environment(_HERE, trim=True)
        .get_template("template.html")
        .render(
            name=name,
            summary=_paragraphs(summary),
            figures=[_figure(path, caption) for path, caption in figures.items()],
            style=style_of("document", _HERE, dark="preferred"),
            scripts=scripts_of(_KIT, _SCRIPTS) if shown else Scripts.of(()),
            reason=replays,
            **_shown(shown) if shown else {"compared": None},
        )
    )


def _shown(shown: ShownReplays) -> dict[str, Any]:
    compared = shown.compared
    sides = {"unedited": compared.unedited, "edited": compared.edited}
    facts = {
        "drawn": compared.drawn.tolist(), "first": compared.first.tolist(), "differs": compared.differs,
        "firstTick": compared.first_tick, "ends": dict(zip(sides, compared.ends, strict=True)),
    }  # fmt: skip
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


def _paragraphs(summary: Sequence[str]) -> list[list[dict[str, Any]]]:
    """Split the summary at its empty lines; details are lines that are indented there."""
    paragraphs: list[list[dict[str, Any]]] = [[]]
    for line in summary:
        if line:
            paragraphs[-1].append({"text": line.strip(), "is_detail": line.startswith((" ", "- "))})
        else:
            paragraphs.append([])
    return [paragraph for paragraph in paragraphs if paragraph]


def _figure(path: Path, caption: str) -> dict[str, str]:
    return {"name": path.name, "caption": caption, "uri": picture(path)}
