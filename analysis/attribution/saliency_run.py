"""A run of saliency.py: samples, maps, checks, and everything that it writes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import torch
from rich.console import Console

from activation_store.directions import read_directions
from activation_store.lives import life_keys, places_of
from activation_store.records import Records
from activation_store.schema import METADATA_FILE, DumpMetadata
from agent_zoo.base import RecurrentPolicy
from agent_zoo.checkpoint import CheckpointInfo, build_untrained
from agent_zoo.observation import ObservationLayout
from analysis.attribution import figures
from analysis.attribution.attributions import (
    ARRAYS,
    Attributions,
    concatenated,
    group_lines,
    joined,
    part_shares,
    summary_lines,
)
from analysis.attribution.events import (
    around_event,
    event_figure,
    event_lines,
    event_table,
    find_onsets,
    parsed_event,
    share_held,
)
from analysis.attribution.figures import FPS, film_size, frames, saliency_page
from analysis.attribution.methods import Maps, attribute, average_baseline
from analysis.attribution.sanity import TWINS, Check, Sanity, check_maps
from analysis.attribution.settings import TITLES, SaliencySettings
from analysis.attribution.targets import Target, chosen_components, fitted_components, target_named
from analysis.attribution.windows import Differentiable, LifeWindows, Sample, check_agent, read_samples, starts_around
from analysis.lives import places_among
from analysis.pages.pages import command_of
from analysis.recorded.recorded_observation import check_shows_everything, state_layers
from analysis.replays.film import write_film
from analysis.runs.cluster_run import BEHAVIOURS_FILE, LABELS_FILE, ClusterRun, read_cluster_run
from analysis.runs.propagated_labels import read_selection
from analysis.runs.run_folder import Parts, RunFolder
from analysis.tables import tab_separated
from common.files import sha256
from common.progress_view import step
from common.user_error import UserError

_AT_ONCE = 64
"""States whose maps are computed together."""


def attribute_dump(
    settings: SaliencySettings, metadata: DumpMetadata, policy: RecurrentPolicy, info: CheckpointInfo,
    folder: RunFolder,
) -> None:  # fmt: skip
    """Compute the maps of all samples, check them, and write the results."""
    console, layout = Console(), info.layout
    show = partial(step, console)
    directions = None if settings.directions is None else read_directions(settings.directions)
    target = target_named(settings.of, layout, policy, directions, metadata.checkpoint_sha256 or "")
    table = None if target.head is None else layout.heads[target.head].candidates
    if settings.method == "occlusion" and table in ("entity", "inventory"):
        raise UserError(
            f"--of is {settings.of}: its options are rows of a table, which occlusion takes away one by one; use "
            "another --method"
        )
    groups = _groups(settings)
    begins = starts = None
    if settings.event:
        with show(f"looking for {settings.event.strip()} in all lives") as progress:
            begins = find_onsets(settings, metadata, progress)
        starts = {life: [tick - settings.before for tick in held] for life, (_, held) in begins.items()}
    with show("reading samples of lives") as progress:
        among = None if groups is None else np.unique(life_keys(groups.places), axis=0)
        if settings.selection is not None:
            starts = starts_around(settings, read_selection(settings.selection, settings.dump).places)
        samples = read_samples(settings, metadata, policy, progress, among, starts)
    components = None
    if settings.components and directions is not None:
        chosen = chosen_components(settings.components, directions, policy, metadata.checkpoint_sha256 or "")
        states = {
            name: np.concatenate([sample.records.activations[name] for sample in samples])
            for name in state_layers(policy)
        }
        components = fitted_components(chosen, policy, states)
    some, sample_of = _some_windows(samples, policy, layout, settings)
    baseline = average_baseline(policy, some, components)

    def maps_of(network: RecurrentPolicy, windows: LifeWindows) -> Maps:
        return attribute(settings, network, windows, target, baseline, components)

    parts = Parts(settings.run_folder, _key(settings))
    if parts.there:
        console.print(f"going on after {len(parts.there)} samples", highlight=False)
    with show(f"maps of {settings.samples * settings.ticks:,} states by {TITLES[settings.method]}") as progress:
        stored = []
        for number, sample in enumerate(samples):
            windows = sample.windows(policy, layout, settings.window)
            compute = partial(_arrays, sample, policy, windows, target, maps_of)
            stored.append(parts.arrays(f"sample-{number:05d}", compute))
            progress((number + 1) / len(samples))
    names = components.names if components is not None else ()
    attributed = joined(stored, layout.entity_columns, names, has_cell=policy.cell == "lstm" and policy.layers > 0)
    held = None if begins is None else share_held(settings, samples, begins)
    with show("checking maps: replaced tiles, untrained twins, shuffled weights, completeness"):
        kept = _defined(policy, some, target)
        some, sample_of = some.take(torch.from_numpy(kept)), sample_of[kept]
        twins = [build_untrained(info, settings.seed + number).requires_grad_(False) for number in range(TWINS)]
        sanity = check_maps(policy, some, target, partial(maps_of, windows=some), sample_of, twins, settings.seed)
    with show("writing and drawing"):
        _write(settings, metadata, folder, samples, attributed, sanity, target.name, groups, held)
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
        _groups(settings)
    if settings.event:
        parsed_event(settings.event)
    if settings.selection is not None:
        read_selection(settings.selection, settings.dump)


def _groups(settings: SaliencySettings) -> ClusterRun | None:
    if settings.clusters is None:
        return None
    return read_cluster_run(settings.clusters, settings.dump, BEHAVIOURS_FILE if _behaviours(settings) else LABELS_FILE)


def _behaviours(settings: SaliencySettings) -> bool:
    return settings.clusters is not None and (settings.clusters / BEHAVIOURS_FILE).exists()


def _some_windows(
    samples: Sequence[Sample], policy: RecurrentPolicy, layout: ObservationLayout, settings: SaliencySettings
) -> tuple[LifeWindows, np.ndarray]:
    """Draw states of all samples for the baseline and the checks; and the sample of each."""
    random = np.random.default_rng([settings.seed, 2])
    count = -(-settings.check_states // len(samples))
    chosen, number = [], []
    for index, sample in enumerate(samples):
        rows = np.sort(random.permutation(len(sample))[:count])
        chosen.append(sample.windows(policy, layout, settings.window).take(torch.from_numpy(rows)))
        number += [index] * len(rows)
    return LifeWindows.concatenate(chosen), np.array(number)


def _defined(policy: RecurrentPolicy, windows: LifeWindows, target: Target) -> np.ndarray:
    """Return the states in which the target is defined, (n,) int64.

    Raises:
        UserError: it is defined in none.
    """
    (kept,) = np.isfinite(_values(policy, windows, target)).nonzero()
    if len(kept) < 2:
        raise UserError(f"{target.name} is defined in hardly any state: its options are illegal; choose another --of")
    return kept


@torch.no_grad()
def _values(policy: RecurrentPolicy, windows: LifeWindows, target: Target) -> np.ndarray:
    function = Differentiable(policy, windows, target)
    return function(*function.inputs(), torch.arange(len(windows))).numpy()


def _arrays(
    sample: Sample, policy: RecurrentPolicy, windows: LifeWindows, target: Target,
    maps_of: Callable[[RecurrentPolicy, LifeWindows], Maps],
) -> dict[str, np.ndarray]:  # fmt: skip
    """Compute the maps of one sample, some states at a time."""
    parts: list[dict[str, np.ndarray]] = []
    for chosen in torch.arange(len(windows)).split(_AT_ONCE):
        some = windows.take(chosen)
        maps = {name: part.detach().numpy() for name, part in maps_of(policy, some).items()}
        parts.append({**maps, "value": _values(policy, some, target)})
    return {
        **concatenated(parts, parts[0]), "material": sample.shown.tile[:, :, 2].astype(np.uint8),
        "entity_kind": _entity_kinds(sample.shown),
    }  # fmt: skip


def _entity_kinds(records: Records) -> np.ndarray:
    """Return the kind of every visible entity, (N, most entities) uint8, as in `ENTITY_KINDS`; 0 for the agent itself.

    An entity's row begins with its number and its type, which is above 0 for NPCs.
    """
    rows = records.entity
    kinds = np.zeros((len(records), int(rows.counts.max())), np.uint8)
    others = rows.values[:, 0] != records.agent_id[rows.owner]
    place = np.arange(len(rows.values)) - rows.offsets[rows.owner]
    kinds[rows.owner[others], place[others]] = np.where(rows.values[others, 1] > 0, 2, 1)
    return kinds


def _key(settings: SaliencySettings) -> Mapping[str, Any]:
    shown = ("name", "output_dir", "film", "sample_ids", "combine_samples")
    arguments = {name: str(value) for name, value in vars(settings).items() if name not in shown}
    files = (settings.dump / METADATA_FILE, settings.directions, settings.selection)
    return {"arguments": arguments, "inputs": [sha256(path) for path in files if path is not None]}


def _write(
    settings: SaliencySettings, metadata: DumpMetadata, folder: RunFolder, samples: Sequence[Sample],
    attributed: Attributions, sanity: Sanity, target: str, groups: ClusterRun | None, held: float | None,
) -> None:  # fmt: skip
    heading, failures = f"{metadata.policy}: {target}, {TITLES[settings.method]}", sanity.failures()
    lines = [*summary_lines(attributed, target, TITLES[settings.method], settings.seed)]
    known, defined = attributed.known, attributed.where(attributed.known)
    if held is not None:
        event, before = settings.event.strip(), settings.before
        rows = around_event(attributed, before, settings.seed)
        lines += ["", *event_lines(rows, event, held, before, settings.ticks - before)]
        folder.save_text("event.tsv", event_table(rows))
        folder.save_figure("event.png", event_figure(attributed, event, before, heading, settings.seed))
    lines += ["", *sanity_lines(sanity)]
    shown = [places_of(sample.shown) for sample in samples]
    places = {name: np.concatenate([of_sample[name] for of_sample in shown]) for name in shown[0]}
    if groups is not None:
        place = places_among(places, groups.places)
        what = "behaviour" if _behaviours(settings) else "cluster"
        label = np.where(place >= 0, groups.label[place], -1)[known]
        lines += ["", f"What it looks at in each {what} of {groups.path.name}:", *group_lines(defined, label, what)]
        if (label >= 0).any():
            folder.save_figure("groups.png", figures.groups(defined, label, what, heading, failures))
    folder.save_arrays("maps.npz", **places, **{
        name: getattr(attributed, name) for name in ("sample", *ARRAYS)
    }, component_names=np.array(attributed.component_names, dtype=np.str_))  # fmt: skip
    if attributed.component_names:
        folder.save_figure("components.png", figures.memory_components(defined, heading, failures, settings.seed))
    folder.save_text("parts.tsv", tab_separated(part_shares(defined, settings.seed)))
    folder.save_figure("overview.png", figures.overview(defined, heading, failures))
    folder.save_figure("sanity.png", figures.sanity_figure(sanity, heading))
    folder.save_text("summary.txt", "\n".join([*lines, ""]))
    folder.save_json("sanity.json", _sanity_json(sanity))
    on_page = [
        (number, samples[number].shown, vars(attributed.where(attributed.sample == number)))
        for number in settings.shown
    ]
    command = command_of("saliency.py", asdict(settings), vars(SaliencySettings(settings.dump)))
    pictures = {name: caption for name, caption in figures.CAPTIONS.items() if (folder.path / name).exists()}
    folder.save_text("saliency.html", saliency_page(folder.path, heading, lines, failures, on_page, pictures, command))
    if settings.film:
        combine = settings.combine_samples
        pieces = frames(attributed, settings.shown, places["tick"], heading, failures, combine=combine)
        write_film(folder.path / "saliency.mp4", pieces, film_size(attributed), FPS)


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
        name: {"share": curve.share.tolist(), "deletion": curve.deletion.mean(axis=0).tolist(),
               "insertion": curve.insertion.mean(axis=0).tolist()}
        for name, curve in sanity.curves.items()
    }  # fmt: skip
    checks = {
        kind: [{**vars(check), "passed": check.passed} for check in several]
        for kind, several in (
            ("leads", sanity.leads), ("alike", sanity.alike), ("complete", [sanity.complete] if sanity.complete else [])
        )
    }  # fmt: skip
    return {"failures": sanity.failures(), "area": vars(sanity.area), "checks": checks, "curves": curves}
