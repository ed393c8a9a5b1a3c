"""Segments of lives to attribute: which they are, and what the policy saw and remembered in them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from activation_store.lives import Places, number_lives, rank_in_life
from activation_store.reader import Progress, read_dump, read_identity
from activation_store.recording import record_again
from activation_store.records import Records
from activation_store.schema import DumpMetadata
from agent_zoo.base import RecurrentPolicy
from agent_zoo.capture import memory_from_layers
from agent_zoo.observation import ObservationLayout
from analysis.attribution.settings import SaliencySettings
from analysis.attribution.windows import LifeWindows
from analysis.lives import places_among
from analysis.recorded.recorded_observation import packed_observation, state_layers
from common.user_error import UserError


@dataclass(frozen=True, eq=False)
class Sample:
    """Consecutive ticks of one life."""

    records: Records  # the ticks, and those before them that the windows need
    lead: int  # ticks before the first one that is attributed

    @property
    def shown(self) -> Records:
        """The ticks that are attributed."""
        return self.records.take(np.arange(self.lead, len(self.records)))

    def __len__(self) -> int:
        return len(self.records) - self.lead

    def windows(self, policy: RecurrentPolicy, layout: ObservationLayout, ticks: int) -> LifeWindows:
        """Return a window of this many ticks for each tick that is attributed.

        The memory before a window is the recorded one; that before a life is empty.
        """
        ends = np.arange(self.lead, len(self.records))
        rows = (ends[:, None] - np.arange(ticks - 1, -1, -1)).ravel()
        before = ends - ticks
        names = state_layers(policy)
        if names:
            recorded = {name: self.records.activations[name][np.maximum(before, 0)] for name in names}
            memory = memory_from_layers(policy, recorded)
            memory.clear(torch.from_numpy(np.flatnonzero(before < 0)))
        else:
            memory = policy.initial_state(len(ends))
        observation = packed_observation(self.records.take(rows), layout, policy.mask)
        return LifeWindows(observation, ticks, memory, torch.from_numpy(self.records.action[ends]))


def read_samples(
    settings: SaliencySettings, metadata: DumpMetadata, policy: RecurrentPolicy, progress: Progress,
    among: np.ndarray | None = None, starts: Mapping[tuple[int, ...], Sequence[int]] | None = None,
) -> list[Sample]:  # fmt: skip
    """Draw lives, and a segment of each, at random.

    Args:
        among: slot, agent and episode of the lives to draw from, (L, 3); all where None.
        starts: ticks of each life, counted from its first record, that a segment may begin with; lives without any are
            left out. Any tick where None.

    Raises:
        UserError: the dump lacks a state of the memory, or has too few lives that are long enough.
    """
    dump, ticks = settings.dump, settings.ticks
    if missing := [name for name in state_layers(policy) if name not in metadata.layers]:
        raise UserError(f"{dump} lacks {', '.join(missing)}, the policy's memory: {record_again(dump, metadata)}")
    keys, index = number_lives(read_identity(dump))
    lengths = np.bincount(index)
    lead = settings.window - 1
    possible = lengths >= lead + ticks
    if among is not None:
        possible &= (keys[:, None, :] == among[None]).all(axis=2).any(axis=1)
    if starts is not None:
        possible &= np.array([tuple(key) in starts for key in keys.tolist()], dtype=bool)
    random = np.random.default_rng([settings.seed, 1])
    chosen = random.permutation(np.flatnonzero(possible))[: settings.samples]
    if len(chosen) < settings.samples:
        raise UserError(_too_few(settings, len(chosen), labelled=among is not None))
    first = {}
    for life in chosen:
        key = tuple(keys[life].tolist())
        if starts is None:
            first[key] = int(random.integers(0, lengths[life] - lead - ticks + 1))
        else:
            first[key] = int(random.choice(starts[key])) - lead
    records = read_dump(
        dump, layers=state_layers(policy), columns=["task", "legal"], lives=keys[chosen].tolist(), progress=progress
    )
    own_keys, own = number_lives({"env_id": records.env_id, "agent_id": records.agent_id, "episode": records.episode})
    samples = []
    for number, key in enumerate(own_keys.tolist()):
        (place,) = (own == number).nonzero()
        place = place[np.argsort(records.tick[place], kind="stable")]
        start = first[tuple(key)]
        # One record more than the windows need, for the memory before the first of them.
        begin = max(start - 1, 0)
        samples.append(Sample(records.take(place[begin : start + lead + ticks]), lead + start - begin))
    return samples


def _too_few(settings: SaliencySettings, lives: int, labelled: bool) -> str:
    """Say which lives are too few for --samples, and what to do."""
    dump, ticks, lead, before = settings.dump, settings.ticks, settings.window - 1, settings.before
    where = "that --clusters labels " if labelled else ""
    if settings.event:
        return (
            f"only {lives} lives {where}of {dump} have the --event at least {lead + before} ticks after their start, "
            f"the last {before} without it, and {ticks - before} before their end; --samples needs {settings.samples}: "
            "lower --samples, --ticks or --lags, or extract more"
        )
    selected = "with points of --selection " if settings.selection else ""
    more = "select points of more lives" if selected else "extract more"
    return (
        f"{dump} has {lives} lives {selected}{where}of {lead + ticks} ticks or more, --samples {settings.samples} "
        f"needs as many: lower --samples, --ticks or --lags, or {more}"
    )


def starts_around(settings: SaliencySettings, places: Places) -> dict[tuple[int, ...], list[int]]:
    """Return the ticks of each life that a sample around one of some records may begin with, as `read_samples` takes.

    Args:
        places: of records of the dump.
    """
    identity = read_identity(settings.dump)
    keys, life = number_lives(identity)
    lengths, rank = np.bincount(life), rank_in_life(life, identity["tick"])
    rows = places_among(places, identity)
    starts: dict[tuple[int, ...], list[int]] = {}
    for row in rows[rows >= 0].tolist():
        last = int(lengths[life[row]]) - settings.ticks
        start = min(max(int(rank[row]) - settings.before, settings.window - 1), last)
        starts.setdefault(tuple(keys[life[row]].tolist()), []).append(start)
    return starts
