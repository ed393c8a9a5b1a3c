"""What the panel is made from: the run's dump, simulated lives, saliency maps, and the policy's probabilities."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from activation_store.schema import METADATA_FILE, DumpMetadata
from agent_zoo.base import RecurrentPolicy
from analysis.dynamics.tracks import load_policy_of
from analysis.panel.content import Source, read_source
from analysis.panel.dynamics import Dynamics
from analysis.panel.saliency import Saliency, found_beside, read_saliency
from analysis.panel.ticks import Probabilities
from analysis.recorded.action_probabilities import missing_for_probabilities, probabilities_of
from common.user_error import UserError

Say = Callable[[str], None]


def find_sources(dynamics: Dynamics, simulated: Path | None, policy: Path | None, say: Say) -> list[Source]:
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


def find_saliency(dynamics: Dynamics, sources: Sequence[Source], named: Sequence[Path], say: Say) -> list[Saliency]:
    """Return the runs of saliency.py that are named, or that lie beside the run.

    Args:
        sources: dumps of the panel.
        named: folders; empty to look for them.
        say: called with a line on what was found.

    Raises:
        UserError: a folder that was named is no run of saliency.py of these dumps.
    """
    dumps = {source.sha256: source.dump for source in sources}
    paths = list(named) or found_beside(dynamics.path, dumps)
    maps = [read_saliency(path) for path in paths]
    for one in maps:
        if one.dump_sha256 not in dumps:
            there = " or ".join(map(str, dumps.values()))
            raise UserError(f"{one.path} holds maps of another dump than {there}: run saliency.py on that one")
    if maps and not named:
        say(f"with the saliency maps in {', '.join(one.path.name for one in maps)}")
    return sorted(maps, key=lambda one: one.of != "value")  # the value first: it is defined in every state


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


def _with_probabilities(source: Source, policy: RecurrentPolicy | None, say: Say) -> Source:
    if policy is None:
        return source
    if missing := missing_for_probabilities(source.dump, source.metadata):
        say(f"without the probabilities of actions: {missing}")
        return source
    compute: Probabilities = partial(probabilities_of, policy, metadata=source.metadata)
    return Source(source.dump, source.metadata, source.sha256, compute)


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
