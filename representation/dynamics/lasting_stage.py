"""How long the memory keeps something: changes of components, observations, and where it settles for held input."""

from dataclasses import dataclass, fields
from functools import partial

import numpy as np

from activation_store.reader import Progress
from agent_zoo.base import RecurrentPolicy
from agent_zoo.observation import ObservationLayout
from analysis.clusters.dataset import Step
from representation.dynamics.effects_stage import independent_probes
from representation.dynamics.fixed_points import FixedPoints, find_fixed_points
from representation.dynamics.memory_length import MemoryLength, memory_length, read_observations
from representation.dynamics.perturbations import Lasting, distances, lasting
from representation.dynamics.results import Motion, States
from representation.dynamics.settings import DynamicsSettings
from representation.dynamics.tracks import Tracks, tensor
from representation.dynamics.update import Update
from representation.parts import Parts
from representation.recorded_observation import check_shows_everything
from user_error import UserError

STARTS = 48
"""States from which fixed points are looked for, for each held input."""
_BEHAVIOURS_HELD = 4


@dataclass(frozen=True, eq=False)
class HeldInput:
    """A held input, and where the memory settles.

    Attributes:
        name: of the input.
        read: what the memory reads, (units,).
        points: found for it.
        starts: states from which they were looked for, (n, S).
        after: these states one tick later with this input, (n, S).
    """

    name: str
    read: np.ndarray
    points: FixedPoints
    starts: np.ndarray
    after: np.ndarray


@dataclass(frozen=True, eq=False)
class Persisting:
    """How long things last.

    Attributes:
        records: ticks at which something was changed, or decided, (n,).
        lasting: of each independent component, (K,).
        held: fixed points, by held input.
        length: of the memory; None if the dump lacks the observations.
        no_length: why it was not measured.
    """

    records: np.ndarray
    lasting: list[Lasting]
    held: list[HeldInput]
    length: MemoryLength | None
    no_length: str


def study_persistence(
    settings: DynamicsSettings, policy: RecurrentPolicy, layout: ObservationLayout,
    states: States, motion: Motion, update: Update, parts: Parts, step: Step,
) -> Persisting:  # fmt: skip
    """Follow changes of components and of observations, and find fixed points."""
    tracks, reach = motion.tracks, settings.reach
    records = followed_records(tracks, settings)
    probes = independent_probes(states, settings.layer)
    with step(f"following changes of {len(probes.patterns)} components for {reach} ticks") as progress:
        apart = parts.arrays(
            "perturbations", lambda: {"found": distances(update, tracks, records, probes, reach, progress)}
        )["found"]
    life = tracks.lives.index[records]
    kept = [lasting(each, life, settings.seed) for each in apart]
    held = _held(settings, motion, update, records, parts, step)
    length, reason = _length(settings, policy, layout, tracks, update, records, parts, step)
    return Persisting(records, kept, held, length, reason)


def followed_records(tracks: Tracks, settings: DynamicsSettings) -> np.ndarray:
    """Draw the ticks to follow changes from, ascending, with `reach` ticks before and after them in their lives.

    Raises:
        UserError: no life drawn is long enough, or only one.
    """
    there = tracks.with_ticks_around(settings.reach + 1, settings.reach)
    if len(np.unique(tracks.lives.index[there])) < 2:
        raise UserError(
            f"--reach is {settings.reach}: fewer than two of the lives drawn last {2 * settings.reach + 2} ticks; "
            "lower "
            "it or extract longer episodes"
        )
    drawn = np.random.default_rng([settings.seed, 9]).permutation(there)[: settings.followed_states]
    return np.sort(drawn)


def _held(
    settings: DynamicsSettings, motion: Motion, update: Update, records: np.ndarray, parts: Parts, step: Step
) -> list[HeldInput]:
    """Find fixed points for the mean input of all ticks, and of each of the largest behaviours."""
    tracks, label = motion.tracks, motion.behaviours.label
    inputs = {"mean of all ticks": tracks.read.mean(axis=0)}
    for number in range(min(_BEHAVIOURS_HELD, motion.behaviours.count)):
        inputs[f"mean of behaviour {number}"] = tracks.read[label == number].mean(axis=0)
    starts = tracks.state[records[:: max(1, len(records) // STARTS)][:STARTS]]
    found = []
    for number, (name, read) in enumerate(inputs.items()):
        with step(f"fixed points for the {name}") as progress:
            stored = dict(parts.arrays(f"fixed-{number}", partial(_stored, update, read, starts, progress)))
        after = stored.pop("after")
        found.append(HeldInput(name, read, FixedPoints(**stored), starts, after))
    return found


def _stored(update: Update, read: np.ndarray, starts: np.ndarray, progress: Progress) -> dict[str, np.ndarray]:
    points = find_fixed_points(update, read, starts, progress)
    after = update(tensor(starts), tensor(read).expand(len(starts), -1)).numpy()
    return {**{each.name: getattr(points, each.name) for each in fields(points)}, "after": after}


def _length(
    settings: DynamicsSettings, policy: RecurrentPolicy, layout: ObservationLayout,
    tracks: Tracks, update: Update, records: np.ndarray, parts: Parts, step: Step,
) -> tuple[MemoryLength | None, str]:  # fmt: skip
    try:
        check_shows_everything(settings.dump, layout)
    except UserError as error:
        return None, str(error)
    with step(f"memory length at {len(records)} decisions") as progress:

        def compute() -> dict[str, np.ndarray]:
            observation = read_observations(settings.dump, tracks, records, layout, policy)
            return vars(
                memory_length(policy, update, tracks, records, observation, settings.reach, settings.seed, progress)
            )

        stored = parts.arrays("length", compute)
    return MemoryLength(**stored), ""
