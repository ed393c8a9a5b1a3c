"""The content of the panel: rollouts of recorded and simulated lives, and how the policy's memory moves in them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from activation_store.reader import Progress, read_identity, read_metadata
from activation_store.schema import METADATA_FILE, DumpMetadata
from analysis.lives import places_among
from analysis.panel.behaviours import behaviours_of, fit_rule, main_behaviours, plane, states_of_life
from analysis.panel.dynamics import Dynamics
from analysis.panel.rollouts import Chosen, choose, shared_out
from analysis.panel.saliency import Saliency
from analysis.panel.ticks import Probabilities, Ticks, joined_ticks, read_ticks
from analysis.runs.propagated_labels import CarryingRule
from common.files import sha256
from common.user_error import UserError

Step = Callable[[str], AbstractContextManager[Progress]]
"""Shows that a step is running and yields a callback for the share done."""


@dataclass(frozen=True)
class Source:
    """A dump that rollouts are taken from, and how to get its options' probabilities; None if they are left out."""

    dump: Path
    metadata: DumpMetadata
    sha256: str
    probabilities: Probabilities | None

    @property
    def simulated(self) -> bool:
        """Whether a world model simulated its lives."""
        return self.metadata.origin == "simulated"


@dataclass(frozen=True, eq=False)
class Panel:
    """R rollouts with T ticks in all, rollout by rollout.

    Attributes:
        sources: dumps that rollouts are from.
        saliency: maps that lie over some ticks.
        rule: that gave behaviours to ticks that the run did not label.
        source: number of each rollout's dump, (R,) int64.
        life: slot, agent and episode of each rollout, (R, 3).
        lengths: ticks of each rollout, (R,) int64.
        main: the commonest behaviour of each rollout, (R,) int64; `NOISE` for none.
        plane: place of each rollout, (R, 2) float32.
        ticks: what was seen, done and remembered.
        behaviour: of each tick, (T,) int64; `NOISE` for none.
        own: whether the run itself labelled the tick, (T,) bool.
        maps: the mapped tick of each run of saliency.py at each tick, (T,) each; -1 for none.
    """

    dynamics: Dynamics
    sources: tuple[Source, ...]
    saliency: tuple[Saliency, ...]
    rule: CarryingRule
    source: np.ndarray
    life: np.ndarray
    lengths: np.ndarray
    main: np.ndarray
    plane: np.ndarray
    ticks: Ticks
    behaviour: np.ndarray
    own: np.ndarray
    maps: tuple[np.ndarray, ...]

    def __len__(self) -> int:
        return len(self.lengths)


def read_source(dump: Path, layers: Mapping[str, int], probabilities: Probabilities | None = None) -> Source:
    """Read a dump's metadata and check that it holds some layers of so many units.

    Raises:
        UserError: it is no dump, or does not hold a layer.
    """
    metadata = read_metadata(dump)
    for layer, units in layers.items():
        if metadata.layers.get(layer) != units:
            has = ", ".join(f"{name} ({size})" for name, size in metadata.layers.items())
            raise UserError(f"{dump} holds no layer {layer} of {units} units, which the run is about, only: {has}")
    return Source(dump, metadata, sha256(dump / METADATA_FILE), probabilities)


def read_panel(
    dynamics: Dynamics, sources: Sequence[Source], saliency: Sequence[Saliency], most: int, step: Step
) -> Panel:
    """Choose and read rollouts.

    Args:
        sources: the run's own dump, and simulated ones.
        saliency: runs of saliency.py of these dumps.
        most: rollouts in all.
        step: shows progress.

    Raises:
        UserError: a dump cannot be read.
    """
    with step("reading the lives that the run followed") as progress:
        rule = fit_rule(dynamics, progress)
    chosen = _chosen(dynamics, sources, saliency, most)
    parts = []
    for source, own in zip(sources, chosen, strict=True):
        if not len(own):
            continue
        with step(f"reading {len(own):,} rollouts of {source.dump.name}") as progress:
            parts.append(
                read_ticks(
                    source.dump, source.metadata, own, tuple(dynamics.units),
                    lambda states: states_of_life(dynamics, rule, states), source.probabilities, progress,
                )
            )  # fmt: skip
    ticks = joined_ticks(parts)
    lengths = np.concatenate([pieces.stop - pieces.start for pieces in chosen])
    number = np.repeat(np.arange(len(sources)), [len(pieces) for pieces in chosen])
    with step(f"behaviours of {len(ticks):,} ticks"):
        behaviour, own_label = _labelled(dynamics, sources, rule, ticks, np.repeat(number, lengths))
    main = main_behaviours(behaviour, lengths, len(dynamics.shares))
    with step(f"UMAP of {len(lengths):,} rollouts"):
        place = plane(ticks.states["trajectory"], behaviour, lengths, main, dynamics.run.seed)
    return Panel(
        dynamics, tuple(sources), tuple(saliency), rule, number, np.concatenate([pieces.life for pieces in chosen]),
        lengths, main, place, ticks, behaviour, own_label,
        tuple(_maps(maps, sources, ticks, np.repeat(number, lengths)) for maps in saliency),
    )  # fmt: skip


def _chosen(dynamics: Dynamics, sources: Sequence[Source], saliency: Sequence[Saliency], most: int) -> list[Chosen]:
    candidates = []
    for source in sources:
        followed = [dynamics.behaviours.places] if source.sha256 == dynamics.dump_sha256 else []
        mapped = [maps.places for maps in saliency if maps.dump_sha256 == source.sha256]
        candidates.append(choose(read_identity(source.dump), most, followed, mapped, dynamics.run.seed))
    shares = shared_out(most, [len(pieces) for pieces in candidates])
    return [pieces.first(share) for pieces, share in zip(candidates, shares, strict=True)]


def _labelled(
    dynamics: Dynamics, sources: Sequence[Source], rule: CarryingRule, ticks: Ticks, source: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the behaviour of each tick, and whether the run itself labelled it."""
    label = behaviours_of(rule, ticks.states)
    followed = np.array([other.sha256 == dynamics.dump_sha256 for other in sources])[source]
    place = places_among(ticks.places, dynamics.behaviours.places)
    own = (place >= 0) & followed
    label[own] = dynamics.behaviours.label[place[own]]
    return label, own


def _maps(saliency: Saliency, sources: Sequence[Source], ticks: Ticks, source: np.ndarray) -> np.ndarray:
    """Return the mapped tick at each tick, -1 for none."""
    of_dump = np.array([other.sha256 == saliency.dump_sha256 for other in sources])[source]
    return np.where(of_dump, saliency.rows_at(ticks.places), -1)
