"""One self-contained page that reports a run's results: verdict, figures, tables, and how to reproduce them."""

import math
import shlex
from pathlib import Path
from typing import Any

from analysis.clusters.report.captions import CAPTIONS, caption_of
from analysis.clusters.summary import SAME_CLUSTER, format_number
from analysis.clusters.summary_text import format_interval, format_p, format_share
from analysis.figures.style import cluster_colour
from analysis.pages.pages import environment, picture, style_of
from analysis.runs.run_folder import RUN_FILE
from common.files import read_json, visible

SUMMARY_FILE = "summary.json"
EXPLORER_FILE = "explorer.html"
TREE_FILE = "dendrogram_explorer.html"

_HERE = Path(__file__).parent
_POSITIONAL = "dump"
_OUTPUT = "output_dir"
_RESULTS = Path("analysis_results")
_ANEW = Path("analysis_results_again")
"""A folder can hold only one run, so the command that repeats a run writes to another folder."""


def report_html(folder: Path) -> str:
    """Return the report of a run as HTML, from its run.json, summary.json and figures alone.

    Raises:
        UserError: one of the files cannot be read.
    """
    pages = environment(_HERE, trim=True)
    pages.filters |= {
        "number": lambda value: format_number(_nan_if_none(value)),
        "signed": lambda value: format_number(_nan_if_none(value), sign=True),
        "p": lambda value: format_p(_nan_if_none(value)),
        "share": lambda value: format_share(_nan_if_none(value)),
        "short": lambda value: "n/a" if value is None else f"{value:g}",
        "count": lambda value: f"{value:,}",
        "colour": cluster_colour,
        "by_size": lambda effects: sorted(effects, key=lambda effect: -abs(effect["d_complement"] or 0)),
    }
    run: Any = read_json(folder / RUN_FILE)
    return pages.get_template("template.html").render(
        name=folder.resolve().name,
        run=run,
        summary=read_json(folder / SUMMARY_FILE),
        figures=_figures(folder),
        tree=TREE_FILE if (folder / TREE_FILE).exists() else None,
        explorer=EXPLORER_FILE,
        explorer_is_there=(folder / EXPLORER_FILE).exists(),
        explore_command=shlex.join(["python", "explore.py", str(_RESULTS / folder.name)]),
        command=command_of(run["arguments"], run.get("script", "analyze_activations.py")),
        not_repeated=_OUTPUT,
        same_cluster=SAME_CLUSTER,
        interval=lambda low, high: format_interval(_nan_if_none(low), _nan_if_none(high)),
        style=style_of("document"),
    )


def command_of(arguments: dict[str, Any], script: str = "analyze_activations.py") -> str:
    """Return the command line that repeats a run in another folder, ready for a shell.

    The run's location is left out, so that the same analysis gives the same page anywhere.
    """
    words = ["python", *script.split(), str(arguments.get(_POSITIONAL, ""))]
    for name, value in arguments.items():
        if name == _POSITIONAL or value is None or value is False or value == "":
            continue
        value = _ANEW if name == _OUTPUT else value
        words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return shlex.join(words)


def _nan_if_none(value: float | None) -> float:
    return math.nan if value is None else value


def _figures(folder: Path) -> list[dict[str, Any]]:
    """Return each figure's name, caption and content, known figures first."""
    order = list(CAPTIONS)
    names = [path.name for path in visible(folder, "*.png")]
    names.sort(key=lambda name: (order.index(name) if name in order else len(order), name))
    return [{"name": name, "caption": caption_of(name), "uri": picture(folder / name)} for name in names]
