"""The content of the panel: rollouts of recorded and simulated lives, and how the policy's memory moves in them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from activation_store.reader import Progress, read_identity, read_metadata
from activation_store.schema import METADATA_FILE, DumpMetadata
from agent_zoo.base import RecurrentPolicy
from analysis.dynamics.circuits.graph import GRAPH_FILE
from analysis.dynamics.tracks import load_policy_of
from analysis.explorer.behaviours import behaviours_of, fit_rule, main_behaviours, plane, states_of_life
from analysis.explorer.circuits import CIRCUIT_SCRIPT, PanelCircuit, read_circuit
from analysis.lives import places_among
from analysis.panel.ticks import Chosen, PanelTicks, Probabilities, choose, joined_ticks, read_ticks, shared_out
from analysis.recorded.action_probabilities import missing_for_probabilities, probabilities_of
from analysis.runs.dynamics_run import Dynamics
from analysis.runs.finished_files import finished_beside
from analysis.runs.propagated_labels import CarryingRule
from analysis.runs.saliency_maps import MAPS_FILE, SALIENCY_SCRIPT, SaliencyMaps, read_saliency
from common.files import sha256
from common.user_error import UserError

Step = Callable[[str], AbstractContextManager[Progress]]
"""Shows that a step is running and yields a callback for the share done."""


@dataclass(frozen=True)
class PanelSource:
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
class PanelContent:
    """R rollouts with T ticks in all, rollout by rollout.

    Attributes:
        saliency: maps that lie over some ticks.
        circuits: of directions of the policy's memory.
        rule: that gave behaviours to ticks that the run did not label.
        source: number of each rollout's dump, (R,) int64.
        life: slot, agent and episode of each rollout, (R, 3).
        lengths: ticks of each rollout, (R,) int64.
        main: the commonest behaviour of each rollout, (R,) int64; `NOISE` for none.
        plane: place of each rollout, (R, 2) float32.
        behaviour: of each tick, (T,) int64; `NOISE` for none.
        own: whether the run itself labelled the tick, (T,) bool.
        maps: the mapped tick of each run of saliency.py at each tick, (T,) each; -1 for none.
    """

    dynamics: Dynamics
    sources: tuple[PanelSource, ...]
    saliency: tuple[SaliencyMaps, ...]
    circuits: tuple[PanelCircuit, ...]
    rule: CarryingRule
    source: np.ndarray
    life: np.ndarray
    lengths: np.ndarray
    main: np.ndarray
    plane: np.ndarray
    ticks: PanelTicks
    behaviour: np.ndarray
    own: np.ndarray
    maps: tuple[np.ndarray, ...]

    def __len__(self) -> int:
        return len(self.lengths)


def read_source(dump: Path, layers: Mapping[str, int], probabilities: Probabilities | None = None) -> PanelSource:
    """Read a dump's metadata and check that it holds some layers of so many units.

    Raises:
        UserError: it is no dump, or does not hold a layer.
    """
    metadata = read_metadata(dump)
    for layer, units in layers.items():
        if metadata.layers.get(layer) != units:
            has = ", ".join(f"{name} ({size})" for name, size in metadata.layers.items())
            raise UserError(f"{dump} holds no layer {layer} of {units} units, which the run is about, only: {has}")
    return PanelSource(dump, metadata, sha256(dump / METADATA_FILE), probabilities)


def read_panel(
    dynamics: Dynamics, sources: Sequence[PanelSource], saliency: Sequence[SaliencyMaps],
    circuits: Sequence[PanelCircuit], most: int, step: Step,
) -> PanelContent:  # fmt: skip
    """Choose and read rollouts.

    Args:
        sources: the run's own dump, and simulated ones.
        saliency: runs of saliency.py of these dumps.
        circuits: of the run's own dump.

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
    return PanelContent(
        dynamics, tuple(sources), tuple(saliency), tuple(circuits), rule, number,
        np.concatenate([pieces.life for pieces in chosen]), lengths, main, place, ticks, behaviour, own_label,
        tuple(_maps(maps, sources, ticks, np.repeat(number, lengths)) for maps in saliency),
    )  # fmt: skip


def _chosen(
    dynamics: Dynamics, sources: Sequence[PanelSource], saliency: Sequence[SaliencyMaps], most: int
) -> list[Chosen]:
    candidates = []
    for source in sources:
        followed = [dynamics.behaviours.places] if source.sha256 == dynamics.dump_sha256 else []
        mapped = [maps.places for maps in saliency if maps.dump_sha256 == source.sha256]
        candidates.append(choose(read_identity(source.dump), most, followed, mapped, dynamics.run.seed))
    shares = shared_out(most, [len(pieces) for pieces in candidates])
    return [pieces.first(share) for pieces, share in zip(candidates, shares, strict=True)]


def _labelled(
    dynamics: Dynamics, sources: Sequence[PanelSource], rule: CarryingRule, ticks: PanelTicks, source: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the behaviour of each tick, and whether the run itself labelled it."""
    label = behaviours_of(rule, ticks.states)
    followed = np.array([other.sha256 == dynamics.dump_sha256 for other in sources])[source]
    place = places_among(ticks.places, dynamics.behaviours.places)
    own = (place >= 0) & followed
    label[own] = dynamics.behaviours.label[place[own]]
    return label, own


def _maps(saliency: SaliencyMaps, sources: Sequence[PanelSource], ticks: PanelTicks, source: np.ndarray) -> np.ndarray:
    """Return the mapped tick at each tick, -1 for none."""
    of_dump = np.array([other.sha256 == saliency.dump_sha256 for other in sources])[source]
    return np.where(of_dump, saliency.rows_at(ticks.places), -1)


Say = Callable[[str], None]


def find_sources(dynamics: Dynamics, simulated: Path | None, policy: Path | None, say: Say) -> list[PanelSource]:
    """Return the run's own dump, and the simulated one that is named or lies beside it.

    Args:
        simulated: dump that was named; None to look beside the recorded one.
        policy: checkpoint that was named; None for the one that the run used.
        say: called with a line on what was found, and on what is left out.

    Raises:
        UserError: a dump or a checkpoint that was named cannot be used.
    """
    loaded = _policy(dynamics, policy, say)
    own = read_source(dynamics.dump, dynamics.units)
    sources = [_with_probabilities(own, loaded, say)]
    other = simulated or _beside(dynamics, own.metadata)
    if other is None:
        return sources
    source = read_source(other, dynamics.units)
    if not source.simulated:
        raise UserError(f"--simulated {other} was recorded in the game: give a dump written by simulate.py")
    if source.metadata.checkpoint_sha256 != own.metadata.checkpoint_sha256:
        raise UserError(f"--simulated {other} holds lives of another policy than {dynamics.dump}: simulate that one")
    if simulated is None:
        say(f"with the simulated lives in {other}")
    return [*sources, _with_probabilities(source, loaded, say)]


def find_saliency(
    dynamics: Dynamics, sources: Sequence[PanelSource], named: Sequence[Path], say: Say
) -> list[SaliencyMaps]:
    """Return the runs of saliency.py that are named, or that lie beside the run.

    Args:
        named: folders; empty to look for them.

    Raises:
        UserError: a folder that was named is no run of saliency.py of these dumps.
    """
    dumps = {source.sha256: source.dump for source in sources}
    paths = list(named) or finished_beside(dynamics.path, SALIENCY_SCRIPT, MAPS_FILE, dumps)
    maps = [read_saliency(path) for path in paths]
    for one in maps:
        if one.dump_sha256 not in dumps:
            there = " or ".join(map(str, dumps.values()))
            raise UserError(f"{one.path} holds maps of another dump than {there}: run saliency.py on that one")
    if maps and not named:
        say(f"with the saliency maps in {', '.join(one.path.name for one in maps)}")
    return sorted(maps, key=lambda one: one.of != "value")  # the value first: it is defined in every state


def find_circuits(dynamics: Dynamics, named: Sequence[Path], say: Say) -> list[PanelCircuit]:
    """Return the circuits that are named, or that lie beside the run.

    Args:
        named: folders; empty to look for them.

    Raises:
        UserError: a folder that was named is no circuit of the run's dump.
    """
    own = {dynamics.dump_sha256: dynamics.dump}
    circuits = [
        read_circuit(path) for path in list(named) or finished_beside(dynamics.path, CIRCUIT_SCRIPT, GRAPH_FILE, own)
    ]
    for circuit in circuits:
        if circuit.dump_sha256 not in own:
            raise UserError(
                f"{circuit.path} holds a circuit of another dump than {dynamics.dump}: find one of that one"
            )
    if circuits and not named:
        say(f"with the circuits in {', '.join(circuit.path.name for circuit in circuits)}")
    return circuits


def _policy(dynamics: Dynamics, policy: Path | None, say: Say) -> RecurrentPolicy | None:
    """Load the policy; None, and a line that says why, where none was named and that of the run is not there."""
    metadata = read_source(dynamics.dump, dynamics.units).metadata
    arguments = dynamics.run.arguments
    of_run, folder = arguments.get("policy"), arguments.get("policies_dir")
    named = policy or (Path(of_run) if isinstance(of_run, str) else None)
    try:
        return load_policy_of(metadata, dynamics.dump, named, Path(str(folder or "policies")))[0]
    except UserError as error:
        if policy is not None:
            raise
        say(f"without the probabilities of actions: {error}")
        return None


def _with_probabilities(source: PanelSource, policy: RecurrentPolicy | None, say: Say) -> PanelSource:
    if policy is None:
        return source
    if missing := missing_for_probabilities(source.dump, source.metadata):
        say(f"without the probabilities of actions: {missing}")
        return source
    compute: Probabilities = partial(probabilities_of, policy, metadata=source.metadata)
    return PanelSource(source.dump, source.metadata, source.sha256, compute)


def _beside(dynamics: Dynamics, metadata: DumpMetadata) -> Path | None:
    """Return the dump of simulated lives beside the recorded one, if it is there and of the same policy."""
    dump = dynamics.dump.resolve()
    path = dump.with_name(f"{dump.name}-simulated")
    if not (path / METADATA_FILE).is_file():
        return None
    try:
        source = read_source(path, dynamics.units)
    except UserError:
        return None
    same = source.metadata.checkpoint_sha256 == metadata.checkpoint_sha256
    return path if source.simulated and same else None
