"""The scripts of the page of an intervention run, apart from what makes its content."""

from pathlib import Path

from analysis.pages.pages import BASE, Scripts, scripts_of

_HERE = Path(__file__).parent
_KIT = (*BASE, "canvas.js", "glyphs.js", "playback.js")
_REPLAY = _HERE.parents[1] / "replays" / "page"
_SCRIPTS = [
    *(_REPLAY / f"{name}.js" for name in ("data", "state", "map_view")),
    *(_HERE / f"{name}.js" for name in ("state", "arm_view", "panels", "controls", "main")),
]


def page_scripts() -> Scripts:
    """Return the scripts of the page; a page that shows it in a frame must allow them too."""
    return scripts_of(_KIT, _SCRIPTS)
