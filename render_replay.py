"""Render a replay as a page that plays offline in any browser, or as a GIF or MP4 video.

    python render_replay.py FILE.replay.lzma
    python render_replay.py FILE.replay.lzma --gif --start 100 --end 200 --follow 17
    python render_replay.py FILE.replay.lzma --dump activation_data/NAME --cluster-dir analysis_results/RUN

Replays are recorded by `python train.py -m replay` or by Neural MMO's FileReplayHelper. The result is written next to
FILE by default.
"""

import common.environment_check  # isort: skip  # noqa: F401 (must come first)

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from common import argument_checks, command_line
from common.argument_checks import at_least, between, result_name
from common.number_text import plural
from common.progress_view import say, step
from common.result_places import OutputPlace, result_file
from common.user_error import UserError

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console

    from analysis.replays.clusters import ReplayClusters
    from analysis.replays.replay import Events, Replay

SIZES = (64, 4096)
FASTEST = 100


@dataclass(frozen=True)
class Arguments:
    """Arguments of render_replay.py."""

    file: tyro.conf.Positional[Path]
    """Replay file, .replay.lzma or .replay.json."""
    name: str | None = None
    """Name of the page or video; by default that of FILE."""
    output: OutputPlace = None
    """Folder that it goes into, by default that of FILE; or the page (.html) or video (.gif, .mp4) itself."""
    gif: bool = False
    """Make a GIF."""
    mp4: bool = False
    """Make an MP4."""
    start: int = 0
    """First tick of the video, at least 0."""
    end: int | None = None
    """Last tick of the video; by default the last tick of the replay."""
    follow: str | None = None
    """Name or number of the agent to keep centred in the video; by default the whole map is shown."""
    radius: int = 12
    """Tiles shown on each side of the followed agent, 1 to 200."""
    fps: float = 10.0
    """Frames per second of the video, above 0 and up to 100."""
    skip: int = 1
    """Draw one in this many ticks, at least 1 (all)."""
    size: int = 600
    """Width of the map in the video in pixels, 64 to 4096; must be even for MP4."""
    dump: Path | None = None
    """Activation dump of the same episode, to colour agents by cluster; requires --cluster-dir."""
    cluster_dir: Path | None = None
    """Run of analyze_activations.py on that dump; requires --dump."""

    @property
    def path(self) -> Path:
        """Path of the result."""
        name = self.file.name
        for suffix in (".lzma", ".json", ".replay"):
            name = name.removesuffix(suffix)
        suffix = ".gif" if self.gif else ".mp4" if self.mp4 else ".html"
        return result_file(self.output, self.name, self.file.with_name(name + suffix))


def main() -> None:
    """Parse, check, read, render, and print where the result is."""
    arguments = command_line.parse(Arguments, __doc__)
    check_values(arguments)

    from rich.console import Console

    from analysis.replays.file import read_replay
    from analysis.replays.page.page import replay_page
    from analysis.replays.replay import events_of
    from common.files import write_text

    console = Console()
    with step(console, f"reading {arguments.file.name}") as report:
        replay = read_replay(arguments.file, report)
        events = events_of(replay)
    clusters = None
    if arguments.dump and arguments.cluster_dir:
        from analysis.replays.clusters import clusters_of

        with step(console, f"finding the episode in {arguments.dump.name}") as report:
            clusters = clusters_of(replay, arguments.file, arguments.dump, arguments.cluster_dir, report)
    if arguments.path.suffix.lower() == ".html":
        with step(console, "rendering the page"):
            write_text(arguments.path, replay_page(replay, events, clusters, arguments.file.name))
    else:
        render_film(arguments, replay, events, clusters, console)
    size = arguments.path.stat().st_size
    say(console, f"{arguments.path}: {size / 1e6:.1f} MB")


def check_values(arguments: Arguments) -> None:
    """Refuse values that are invalid for any replay, before anything is read."""
    argument_checks.check(arguments, name=result_name(arguments.name))
    suffix = arguments.path.suffix.lower()
    if arguments.gif and arguments.mp4:
        raise UserError("--gif and --mp4 are given: choose one")
    if suffix not in (".html", ".gif", ".mp4"):
        raise UserError(f"-o {arguments.path} ends in {suffix or 'nothing'!r}: it must end in .html, .gif or .mp4")
    for flag, wanted in ((arguments.gif, ".gif"), (arguments.mp4, ".mp4")):
        if flag and suffix != wanted:
            raise UserError(f"-o {arguments.path} does not end in {wanted}, as --{wanted[1:]} asks: leave one out")
    if (arguments.dump is None) != (arguments.cluster_dir is None):
        raise UserError("--dump and --cluster-dir belong together: give both, or neither")
    if suffix != ".html":
        check_film_values(arguments)
        return
    for name in ("start", "end", "follow", "radius", "fps", "skip", "size"):
        if getattr(arguments, name) != getattr(Arguments, name):
            raise UserError(f"--{name} is for videos: add --gif or --mp4; a page shows every tick and any agent")


def check_film_values(arguments: Arguments) -> None:
    """Refuse invalid options of videos."""
    end, even = arguments.end, arguments.size % 2 == 0 or arguments.path.suffix.lower() == ".gif"
    argument_checks.check(
        arguments,
        start=at_least(arguments.start, 0),
        end=(end is None or end >= arguments.start, f"the start ({arguments.start}) or more"),
        radius=between(arguments.radius, 1, 200),
        fps=(0 < arguments.fps <= FASTEST, f"above 0, up to {FASTEST}"),
        skip=at_least(arguments.skip, 1),
        size=(SIZES[0] <= arguments.size <= SIZES[1] and even, f"{SIZES[0]} to {SIZES[1]}, and even for MP4"),
    )


def render_film(
    arguments: Arguments, replay: "Replay", events: "Events", clusters: "ReplayClusters | None", console: "Console"
) -> None:
    """Draw the chosen ticks and write the video."""
    from analysis.replays.film import write_film
    from analysis.replays.frames import (
        STRIP,
        FrameDrawer,
        colours_by_cluster,
        colours_by_policy,
        player_called,
        ticks_between,
    )

    ticks = ticks_between(replay, arguments.start, arguments.end, arguments.skip)
    followed = None if arguments.follow is None else player_called(arguments.follow, replay)
    colours = colours_by_cluster(clusters) if clusters else colours_by_policy(replay)
    drawer = FrameDrawer(replay, events, colours, arguments.size, followed, arguments.radius)
    with step(console, f"drawing {plural(len(ticks), 'picture')}") as report:

        def frames() -> "Iterator[np.ndarray]":
            for done, tick in enumerate(ticks):
                report(done / len(ticks))
                yield drawer.draw(tick)

        write_film(arguments.path, frames(), (arguments.size, arguments.size + STRIP), arguments.fps)


if __name__ == "__main__":
    command_line.run(main)
