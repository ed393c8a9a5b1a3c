"""A run of saliency.py: samples, maps, checks, and everything that it writes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from functools import partial
from typing import Any

import numpy as np
import torch
from rich.console import Console

from activation_store.directions import read_directions
from activation_store.files import sha256
from activation_store.lives import life_keys, places_of
from activation_store.records import Records
from activation_store.schema import METADATA_FILE, DumpMetadata
from agent_zoo.base import RecurrentPolicy
from agent_zoo.checkpoint import CheckpointInfo, build_untrained
from agent_zoo.observation import ObservationLayout
from analysis.lives import places_among
from analysis.replays.film import write_film
from analysis.runs.cluster_run import LABELS_FILE, ClusterRun, read_cluster_run
from analysis.runs.run_folder import RunFolder
from analysis.saliency_page.page import ShownSample, saliency_page
from analysis.summary_page.page import command_of
from analysis.terminal import step
from representation.attribution import figures
from representation.attribution.attributions import ARRAYS, RAGGED, Found, group_lines, joined, summary_lines, widened
from representation.attribution.components import MemoryComponents
from representation.attribution.events import (
    AroundEvent,
    Event,
    asked_components,
    compared_around,
    event_figure,
    event_lines,
    event_onsets,
    event_table,
    sample_starts,
)
from representation.attribution.figures import FPS, film_size, frames
from representation.attribution.methods import Baseline, Maps, attribute, average_baseline
from representation.attribution.samples import Sample, read_samples
from representation.attribution.sanity import TWINS, Check, Sanity, check_maps
from representation.attribution.settings import TITLES, SaliencySettings
from representation.attribution.targets import Target, target_named
from representation.attribution.windows import Differentiable, Windows, check_agent
from representation.parts import Parts
from representation.recorded_observation import check_shows_everything
from user_error import UserError

BEHAVIOURS_FILE = "behaviour_labels.npz"
_AT_ONCE = 64
"""States whose maps are computed together."""


def attribute_dump(
    settings: SaliencySettings, metadata: DumpMetadata, policy: RecurrentPolicy, info: CheckpointInfo,
    folder: RunFolder,
) -> None:  # fmt: skip
    """Compute the maps of all samples, check them, and write the results."""
    console, layout = Console(), info.layout
    show = partial(step, console)
    target = _target(settings, metadata, policy, layout)
    labels, what = _labels(settings)
    begins = event_onsets(settings, metadata, show)
    with show("reading samples of lives") as progress:
        samples = read_samples(
            settings.dump, metadata, policy, settings.samples, settings.ticks, settings.window, settings.seed,
            None if labels is None else np.unique(life_keys(labels.places), axis=0), progress,
            None if begins is None else sample_starts(begins, settings),
        )  # fmt: skip
    components = asked_components(settings, metadata, policy, samples)
    windows = partial(_windows, policy=policy, layout=layout, ticks=settings.window)
    some = _some_windows(samples, windows, settings)
    baseline = average_baseline(policy, some[0], components)
    maps_of = partial(_maps_of, settings=settings, target=target, baseline=baseline, components=components)
    parts = Parts(settings.run_folder, _key(settings))
    if parts.there:
        console.print(f"going on after {len(parts.there)} samples", highlight=False)
    with show(f"maps of {settings.samples * settings.ticks:,} states by {TITLES[settings.method]}") as progress:
        stored = []
        for number, sample in enumerate(samples):
            compute = partial(_arrays, sample, policy, windows, target, maps_of)
            stored.append(parts.arrays(f"sample-{number:05d}", compute))
            progress((number + 1) / len(samples))
    names = components.names if components is not None else ()
    found = joined(stored, layout.entity_columns, names, has_cell=policy.cell == "lstm" and policy.layers > 0)
    around = compared_around(settings, found, samples, begins)
    with show("checking maps: replaced tiles, untrained twins, shuffled weights, completeness"):
        checked = _known(policy, some, target)
        again: Callable[[RecurrentPolicy], Maps] = lambda other: maps_of(other, checked[0])  # noqa: E731
        twins = [build_untrained(info, settings.seed + number).requires_grad_(False) for number in range(TWINS)]
        sanity = check_maps(policy, checked[0], target, again(policy), checked[1], again, twins, settings.seed)
    with show("writing and drawing"):
        _write(settings, metadata, folder, samples, found, sanity, target, labels, what, around)
    parts.remove()
    console.print((folder.path / "summary.txt").read_text(), highlight=False, markup=False)


def check_before(settings: SaliencySettings, policy: RecurrentPolicy, layout: ObservationLayout) -> None:
    """Refuse what cannot be attributed, before anything is written.

    Raises:
        UserError: names the reason.
    """
    check_agent(policy)
    check_shows_everything(settings.dump, layout)
    if policy.memory is None and settings.lags:
        raise UserError(f"--lags is {settings.lags}: the policy is feed-forward and has no memory; give --lags 0")
    if settings.clusters is not None:
        _labels(settings)
    if settings.event:
        Event.parse(settings.event)


def _target(
    settings: SaliencySettings, metadata: DumpMetadata, policy: RecurrentPolicy, layout: ObservationLayout
) -> Target:
    directions = None if settings.directions is None else read_directions(settings.directions)
    return target_named(settings.of, layout, policy, directions, metadata.checkpoint_sha256 or "")


def _labels(settings: SaliencySettings) -> tuple[ClusterRun | None, str]:
    """Read the behaviours of a run of analyze_dynamics.py, or the clusters of another analysis."""
    if settings.clusters is None:
        return None, ""
    behaviours = (settings.clusters / BEHAVIOURS_FILE).exists()
    file = BEHAVIOURS_FILE if behaviours else LABELS_FILE
    return read_cluster_run(settings.clusters, settings.dump, file), "behaviour" if behaviours else "cluster"


def _windows(sample: Sample, policy: RecurrentPolicy, layout: ObservationLayout, ticks: int) -> Windows:
    return sample.windows(policy, layout, ticks)


def _some_windows(
    samples: Sequence[Sample], windows: Callable[[Sample], Windows], settings: SaliencySettings
) -> tuple[Windows, np.ndarray]:
    """Draw states of all samples for the baseline and the checks; and the sample of each."""
    random = np.random.default_rng([settings.seed, 2])
    each = -(-settings.check_states // len(samples))
    chosen, number = [], []
    for index, sample in enumerate(samples):
        rows = np.sort(random.permutation(len(sample))[:each])
        chosen.append(windows(sample).take(torch.from_numpy(rows)))
        number += [index] * len(rows)
    return _joined_windows(chosen), np.array(number)


def _joined_windows(parts: Sequence[Windows]) -> Windows:
    memory = type(parts[0].memory)(
        torch.cat([each.memory.hidden for each in parts], dim=1), torch.cat([each.memory.cell for each in parts], dim=1)
    )
    observation = type(parts[0].observation).concatenate([each.observation for each in parts])
    return Windows(observation, parts[0].ticks, memory, torch.cat([each.action for each in parts]))


def _known(policy: RecurrentPolicy, some: tuple[Windows, np.ndarray], target: Target) -> tuple[Windows, np.ndarray]:
    """Keep the states in which the target is defined.

    Raises:
        UserError: it is defined in none.
    """
    (kept,) = np.isfinite(_values(policy, some[0], target)).nonzero()
    if len(kept) < 2:
        raise UserError(f"{target.name} is defined in hardly any state: its options are illegal; choose another --of")
    return some[0].take(torch.from_numpy(kept)), some[1][kept]


@torch.no_grad()
def _values(policy: RecurrentPolicy, windows: Windows, target: Target) -> np.ndarray:
    function = Differentiable(policy, windows, target)
    return function(*function.inputs(), torch.arange(len(windows))).numpy()


def _maps_of(
    policy: RecurrentPolicy, windows: Windows, settings: SaliencySettings, target: Target, baseline: Baseline,
    components: MemoryComponents | None,
) -> Maps:  # fmt: skip
    return attribute(
        settings.method, policy, windows, target, baseline, steps=settings.steps, copies=settings.copies,
        noise=settings.noise, seed=settings.seed, components=components,
    )  # fmt: skip


def _arrays(
    sample: Sample, policy: RecurrentPolicy, windows: Callable[[Sample], Windows], target: Target,
    maps_of: Callable[[RecurrentPolicy, Windows], Maps],
) -> dict[str, np.ndarray]:  # fmt: skip
    """Compute the maps of one sample, some states at a time."""
    whole = windows(sample)
    found: list[dict[str, np.ndarray]] = []
    for some in torch.arange(len(whole)).split(_AT_ONCE):
        maps = maps_of(policy, whole.take(some))
        found.append({each.name: getattr(maps, each.name).detach().numpy() for each in fields(maps)})
    values = [_values(policy, whole.take(some), target) for some in torch.arange(len(whole)).split(_AT_ONCE)]
    arrays = {
        name: np.concatenate(widened(each) if name in RAGGED else each)
        for name, each in ((name, [part[name] for part in found]) for name in found[0])
    }
    seen = {"material": sample.shown.tile[:, :, 2].astype(np.uint8), "entity_kind": _entity_kinds(sample.shown)}
    return {**arrays, "value": np.concatenate(values), **seen}


def _entity_kinds(records: Records) -> np.ndarray:
    """Return the kind of every visible entity, (N, most entities) uint8, as in `ENTITY_KINDS`; 0 for the agent itself.

    An entity's row begins with its number and its type, which is above 0 for NPCs.
    """
    rows = records.entity
    found = np.zeros((len(records), int(rows.counts.max())), np.uint8)
    others = rows.values[:, 0] != records.agent_id[rows.owner]
    place = np.arange(len(rows.values)) - rows.offsets[rows.owner]
    found[rows.owner[others], place[others]] = np.where(rows.values[others, 1] > 0, 2, 1)
    return found


def _key(settings: SaliencySettings) -> Mapping[str, Any]:
    """Return everything that maps depend on."""
    shown = ("name", "output_dir", "film", "sample_ids", "combine_samples")
    arguments = {name: str(value) for name, value in vars(settings).items() if name not in shown}
    files = [settings.dump / METADATA_FILE, *([settings.directions] if settings.directions else [])]
    return {"arguments": arguments, "inputs": [sha256(path) for path in files]}


def _write(
    settings: SaliencySettings, metadata: DumpMetadata, folder: RunFolder, samples: Sequence[Sample], found: Found,
    sanity: Sanity, target: Target, labels: ClusterRun | None, what: str, around: AroundEvent | None,
) -> None:  # fmt: skip
    heading, failures = f"{metadata.policy}: {target.name}, {TITLES[settings.method]}", sanity.failures()
    lines = [*summary_lines(found, target.name, TITLES[settings.method], settings.seed)]
    if around is not None:
        lines += ["", *event_lines(around)]
        folder.save_text("event.tsv", event_table(around))
        folder.save_figure("event.png", event_figure(around, found, heading, settings.seed))
    lines += ["", *sanity_lines(sanity)]
    places = {
        name: np.concatenate([places_of(sample.shown)[name] for sample in samples])
        for name in places_of(samples[0].shown)
    }
    if labels is not None:
        place = places_among(places, labels.places)
        label = np.where(place >= 0, labels.label[place], -1)
        lines += ["", f"What it looks at in each {what} of {labels.path.name}:", *group_lines(found, label, what)]
        if (label >= 0).any():
            folder.save_figure("groups.png", figures.groups(found, label, what, heading, failures))
    folder.save_arrays("maps.npz", **places, **{
        name: getattr(found, name) for name in ("sample", *ARRAYS)
    }, component_names=np.array(found.component_names, dtype=np.str_))  # fmt: skip
    if found.component_names:
        folder.save_figure("components.png", figures.memory_components(found, heading, failures, settings.seed))
    folder.save_figure("overview.png", figures.overview(found, heading, failures))
    folder.save_figure("sanity.png", figures.sanity_figure(sanity, heading))
    folder.save_text("summary.txt", "\n".join([*lines, ""]))
    folder.save_json("sanity.json", _sanity_json(sanity))
    shown = [_shown(samples[number], found, number) for number in settings.shown]
    defaults = {each.name: each.default for each in fields(settings) if each.default is not MISSING}
    command = command_of("saliency.py", asdict(settings), defaults)
    pictures = [
        name
        for name in ("overview.png", "event.png", "components.png", "groups.png", "sanity.png")
        if (folder.path / name).exists()
    ]
    folder.save_text("saliency.html", saliency_page(folder.path, heading, lines, failures, shown, pictures, command))
    if settings.film:
        pieces = frames(found, settings.shown, places["tick"], heading, failures, combine=settings.combine_samples)
        write_film(folder.path / "saliency.mp4", pieces, film_size(found), FPS)


def _shown(sample: Sample, found: Found, number: int) -> ShownSample:
    own = found.sample == number
    return ShownSample(
        number, sample.shown, found.value[own], found.tiles[own], found.entities[own], found.own[own],
        found.inventory[own], found.task[own], found.memory[own], found.columns,
        found.components[own], found.component_names,
    )  # fmt: skip


def sanity_lines(sanity: Sanity) -> list[str]:
    """Return what the checks say: each with its own number, its limit, and whether it passed."""
    failures, area = sanity.failures(), sanity.area
    failed = sum(not check.passed for check in sanity.checks)
    title = f"{failed} of {len(sanity.checks)} failed: {'; '.join(failures)}" if failures else "all passed"
    lines = [
        f"Sanity checks: {title}",
        "  Tiles replaced and put back in the map's order: area "
        f"{area.value:+.3g} ({area.low:+.3g} to {area.high:+.3g}). "
        "It must be larger than in each order that does not know the policy or the state:",
        *(f"    {_verdict(check)} {check.of}: larger by {_number(check, '+.3g')}" for check in sanity.leads),
        "  Sizes must change with the weights: rank correlation, less what the view alone explains, with the maps of",
        *(
            f"    {_verdict(check)} {check.of}: {_number(check, '.2f')}; must be below {check.limit:.2f}"
            for check in sanity.alike
        ),
    ]
    if sanity.complete is not None:
        lines.append(
            f"  {_verdict(sanity.complete)} integrated gradients add up to the difference within "
            f"{sanity.complete.value:.1%} (median; 5% is tolerated)"
        )
    return lines


def _verdict(check: Check) -> str:
    return "passed" if check.passed else "FAILED"


def _number(check: Check, form: str) -> str:
    return f"{check.value:{form}} ({check.low:{form}} to {check.high:{form}})"


def _sanity_json(sanity: Sanity) -> dict[str, Any]:
    curves = {
        name: {"share": each.share.tolist(), "deletion": each.deletion.mean(axis=0).tolist(),
               "insertion": each.insertion.mean(axis=0).tolist()}
        for name, each in sanity.curves.items()
    }  # fmt: skip
    checks = {
        kind: [{**vars(check), "passed": check.passed} for check in several]
        for kind, several in (
            ("leads", sanity.leads), ("alike", sanity.alike), ("complete", [sanity.complete] if sanity.complete else [])
        )
    }  # fmt: skip
    return {"failures": sanity.failures(), "area": vars(sanity.area), "checks": checks, "curves": curves}
