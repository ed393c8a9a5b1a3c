"""From the options of saliency.py to an event and to components of the memory, in the samples of a run."""

from collections.abc import Sequence

import numpy as np

from activation_store.directions import read_directions
from activation_store.lives import places_of
from activation_store.schema import LIFE_KEY, DumpMetadata
from agent_zoo.base import RecurrentPolicy
from analysis.clusters.dataset import Step
from representation.attribution.around_event import AroundEvent, around_event
from representation.attribution.components import MemoryComponents, chosen_components, fitted_components
from representation.attribution.events import Event, Onsets, find_onsets
from representation.attribution.found import Found
from representation.attribution.samples import Sample, layers_needed
from representation.attribution.settings import SaliencySettings


def event_onsets(settings: SaliencySettings, metadata: DumpMetadata, show: Step) -> Onsets | None:
    """Find where the event of `--event` begins; None without one."""
    if not settings.event:
        return None
    before, after, lead = settings.before, settings.ticks - settings.before, settings.window - 1
    with show(f"looking for {settings.event.strip()} in all lives") as progress:
        return find_onsets(settings.dump, metadata, Event.parse(settings.event), before, after, lead, progress)


def sample_starts(begins: Onsets, settings: SaliencySettings) -> dict[tuple[int, ...], list[int]]:
    """Return the ticks of each life that a sample around the event may begin with."""
    return {life: [place - settings.before for place in places] for life, places in begins.place.items()}


def compared_around(
    settings: SaliencySettings, found: Found, samples: Sequence[Sample], begins: Onsets | None
) -> AroundEvent | None:  # fmt: skip
    """Compare before and after the event, in the samples that were drawn."""
    if begins is None:
        return None
    held = []
    for sample in samples:
        shown = places_of(sample.shown)
        key = tuple(int(shown[name][0]) for name in LIFE_KEY)
        born = begins.born[key]
        place = int(shown["tick"][settings.before]) - born
        held.append(begins.held[key][begins.place[key].index(place)])
    return around_event(found, settings.event.strip(), float(np.mean(held)), settings.before, settings.seed)


def asked_components(
    settings: SaliencySettings, metadata: DumpMetadata, policy: RecurrentPolicy, samples: Sequence[Sample]
) -> MemoryComponents | None:  # fmt: skip
    """Read the components of `--components`, with their patterns in the samples; None without them."""
    if not settings.components or settings.directions is None:
        return None
    directions = read_directions(settings.directions)
    chosen = chosen_components(settings.components, directions, policy, metadata.checkpoint_sha256 or "")
    states = {
        name: np.concatenate([sample.records.activations[name] for sample in samples]) for name in layers_needed(policy)
    }
    return fitted_components(chosen, policy, states)
