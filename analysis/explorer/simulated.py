"""Simulated lives that go on from ticks of a page: what a world model expects there, beside what happened."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from activation_store.lives import number_lives, places_of
from activation_store.reader import Progress, read_dump, read_metadata
from activation_store.schema import METADATA_FILE, SOURCE_DUMP, STARTS, DumpMetadata, Records
from analysis.explorer.base import NothingOfThePage
from analysis.features.observed import Observed
from analysis.life.timeline import Timeline, columns_used, timeline_of
from analysis.lives import places_among
from common.files import sha256
from common.user_error import UserError


@dataclass(frozen=True, eq=False)
class Simulated:
    """Lives that a world model simulated, each from a tick of a page on. L lives."""

    dump: Path
    seen: Observed
    timeline: Timeline  # of the lives, one after the other
    begins: np.ndarray  # index of the page's tick that each life begins with, (L,) int64

    @property
    def name(self) -> str:
        """Name of the dump's folder, which says how its lives were edited."""
        return self.dump.resolve().name

    @property
    def edits(self) -> str:
        """What was done in them, in words."""
        described = self.seen.metadata.environment["simulated"]
        edits = [_in_words(edit) for edit in described.get("edits", ())]
        until = f" until tick {described['until_tick']}" if "until_tick" in described else ""
        first = ", first moves given" if described.get("moves") else ""
        return (" and ".join(edits) + until if edits else "unedited") + first

    @property
    def behind(self) -> np.ndarray:
        """How many ticks after the first one of its life each tick is, (S,) int64."""
        lengths = self.timeline.lives.lengths
        return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _in_words(edit: Mapping[str, Any]) -> str:
    names = [edit.get(kind, ()) for kind in ("directions", "features", "r_squared")]
    words = [str(edit["edit"]), *(str(name).rpartition("/")[2] for some in names for name in some)]
    dose = edit.get("dose")
    return " ".join(words) + (f", dose {dose:+g}" if isinstance(dose, int | float) else "")


def is_simulated(path: Path) -> bool:
    """Whether a folder is a dump of simulated lives; `UserError` if it is one that cannot be read."""
    return (path / METADATA_FILE).exists() and read_metadata(path).origin == "simulated"


def read_simulated(dump: Path, source: Path, ticks: Records, most: int, report: Progress) -> Simulated:
    """Read the simulated lives that go on from ticks of a page.

    Args:
        source: the recorded dump of the page, which it must have been simulated from.
        ticks: of the page.
        most: maximum of simulated ticks to read; above it, the last lives are left out.

    Raises:
        UserError: as `read_dump`; its lives were simulated from another dump, from no single ticks, or from none of the
            page.
    """
    metadata = read_metadata(dump)
    described: Any = metadata.environment.get("simulated")
    if not isinstance(described, dict) or described.get(SOURCE_DUMP) != sha256(source / METADATA_FILE):
        raise UserError(f"{dump} was not simulated from {source}: simulate from it, with --dump {source}")
    lives, starts = _starts(dump, metadata)
    begins = places_among(_without_slot(starts), _without_slot(places_of(ticks)))
    kept = np.flatnonzero(begins >= 0)[: max(1, most // max(1, int(described.get("ticks", 1))))]
    if not len(kept):
        raise NothingOfThePage(f"{dump} has no life from a tick of this page on: simulate more, or raise --max-ticks")
    read = read_dump(
        dump, layers=[], columns=columns_used(metadata), leave_out=["tables"], lives=lives[kept].tolist(),
        progress=report,
    )  # fmt: skip
    timeline = timeline_of(read, metadata)
    there, _ = number_lives(places_of(timeline.records))  # (L, 3), in the order of the timeline
    place = {tuple(life): int(begin) for life, begin in zip(lives[kept].tolist(), begins[kept], strict=True)}
    return Simulated(
        dump, Observed(timeline.records, metadata), timeline, np.array([place[tuple(life)] for life in there.tolist()])
    )


def _starts(dump: Path, metadata: DumpMetadata) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return slot, agent and episode of each simulated life, (L, 3), and the recorded ticks that they go on from."""
    if not all(STARTS in episode for episode in metadata.episodes):
        raise UserError(f"{dump} does not say which ticks its lives go on from: simulate it again, without --from")
    try:
        rows = [(episode["episode"], np.array(episode[STARTS], np.int64)) for episode in metadata.episodes]
        starts = np.concatenate([start.reshape(-1, 3) for _, start in rows])
        slots = np.concatenate([np.arange(len(start)) for _, start in rows])
        episodes = np.repeat([int(number) for number, _ in rows], [len(start) for _, start in rows])
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{dump / METADATA_FILE} is damaged: copy the dump or simulate it again") from error
    named = dict(zip(("episode", "agent_id", "tick"), starts.T, strict=True))
    return np.stack([slots, slots + 1, episodes], axis=1), named


def _without_slot(places: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the identity of ticks without the slot, which follows from the episode."""
    return {**places, "env_id": np.zeros_like(places["tick"])}
