"""A run of analyze_dynamics.py: each stage in turn, and the files that it writes, up to the report."""

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial

import numpy as np
from rich.console import Console

from activation_store.directions import DIRECTIONS_FILE, Direction, Source, SourceKind, direction_from, write_directions
from activation_store.lives import places_of
from activation_store.schema import METADATA_FILE, DumpMetadata
from agent_zoo.base import RecurrentPolicy
from agent_zoo.checkpoint import CheckpointInfo
from analysis.clusters.components import cluster_directions
from analysis.dynamics import figures, report
from analysis.dynamics.decompositions import Kind
from analysis.dynamics.memory_length import memory_use
from analysis.dynamics.perturbations import compare, read_followed
from analysis.dynamics.settings import DynamicsSettings
from analysis.dynamics.stages import (
    Effects,
    Motion,
    Persisting,
    StudiedStates,
    study_effects,
    study_motion,
    study_persistence,
    study_states,
)
from analysis.dynamics.tracks import Update
from analysis.features import Feature
from analysis.pages.pages import Section, command_of, summary_page
from analysis.runs.cluster_run import BEHAVIOURS_FILE, LABELS_FILE
from analysis.runs.run_folder import Parts, RunFolder
from analysis.tables import tab_separated
from common.files import sha256
from common.progress_view import Step, step

REPORT_FILE = "report.html"
KINDS: dict[Kind, SourceKind] = {
    "pca": "principal component", "ica": "independent component", "nmf": "non-negative component"
}  # fmt: skip
COMPONENT_UNIT = "standard deviations of the component"
MODE_UNIT = "activity of the mode"
_STATE_FIGURES = {
    "components_features.png": "Pearson's r of each component with each feature within lives. A dot marks q < 0.05. "
    "Labels give the share of the variance that is lost without the component, and its stability, with a star if "
    "that is above components of Gaussians of the same covariance and autocorrelation.",
    "tsne.png": "t-SNE keeps neighbourhoods, not distances or densities: gaps and areas mean little. Grey: outliers.",
}
_MOTION_FIGURES = {
    "trajectories.png": "Lives in the plane of the first two principal components. Nearby colours in a line are a "
    "behaviour that lasts.",
    "correlations_jacobians.png": "Left: which components follow which. Right: how much a later component would change "
    "per unit of an earlier one, through the memory alone, with inputs held as recorded.",
    "correlations.png": "Which components follow which.",
    "agreement.png": "Where lines lie above the dotted one, components that follow each other also move each other. "
    "What passes through the game is in the correlations only.",
    "spectra.png": "Eigenvalues near the circle belong to directions in which the memory keeps what it holds; the time "
    "constant is the number of ticks after which 1/e of it is left.",
}

_LASTING_FIGURES = {
    "half_lives.png": "Compare with `intervene.py --edit steer --direction ic_1 --follow 32`, which makes the same "
    "change in the running game.",
    "memory_length.png": "How much a decision changes if one observation in the past was another life's, and "
    "everything else is as recorded; bands are 95% intervals over lives.",
    "followed_edits.png": "Solid: computed here, inputs held as recorded. Dashed: measured by `intervene.py --follow` "
    "in the running game.",
    "fixed_points.png": "Where the memory would settle if what it reads stayed the same. The plane shows two of many "
    "dimensions: arrows that cross do not in the others.",
}


def analyse(
    settings: DynamicsSettings, metadata: DumpMetadata, features: tuple[Feature, ...],
    loaded: tuple[RecurrentPolicy, CheckpointInfo] | None, folder: RunFolder,
) -> None:  # fmt: skip
    """Run every stage and write the results; finished stages of an interrupted run are not repeated.

    Args:
        loaded: the dump's policy; None if the layer is no state of its memory.
    """
    console = Console()
    show: Step = partial(step, console)
    update = None
    if loaded is not None:
        update = Update(loaded[0])
        update.place(settings.layer)  # refuses a layer that is no state
    arguments = {name: str(value) for name, value in vars(settings).items() if name not in ("name", "output_dir")}
    parts = Parts(settings.run_folder, {"arguments": arguments, "dump": sha256(settings.dump / METADATA_FILE)})
    edits = read_followed(settings.interventions, metadata.checkpoint_sha256)
    if parts.there:
        console.print(f"going on after: {', '.join(parts.there)}", highlight=False)
    states = study_states(settings, metadata, features, parts, show)
    write_states(states, folder, show)
    motion = study_motion(settings, metadata, features, states, update, parts, show)
    write_motion(states, motion, folder, show)
    effects = None if update is None else study_effects(settings, states, motion, update, parts, show)
    write_correlations(states, motion, effects, folder, show)
    summary = report.summary(states, motion)
    sections: list[Section] = [
        ("Single states", report.state_lines(states), _STATE_FIGURES),
        ("Consecutive states", report.motion_lines(motion, effects, settings.layer, features), _MOTION_FIGURES),
    ]
    if loaded is None or update is None or effects is None:
        nothing = ("sign_agreement", "slow_modes", "largest_modulus", "half_lives", "memory_length", "fixed_points")
        summary |= dict.fromkeys((*nothing, "interventions"))
    else:
        policy, info = loaded
        persisting = study_persistence(settings, metadata, policy, info.layout, states, motion, update, parts, show)
        write_persisting(states, motion, persisting, update, folder, show)
        if edits:
            with show(f"following {len(edits)} edits of interventions") as progress:
                edits = compare(
                    edits, update, motion.tracks, persisting.records, settings.reach, settings.seed, progress
                )
            folder.save_text("followed_edits.tsv", tab_separated(report.edit_rows(edits)))
            folder.save_figure("followed_edits.png", figures.followed_edits(edits, states.data.heading))
        summary |= {**report.effects_summary(effects), **report.persistence_summary(persisting, states)}
        summary["interventions"] = report.edit_rows(edits)
        lines = report.persistence_lines(persisting, states, settings.reach) + report.edit_lines(edits)
        sections.append(("How long things last", lines, _LASTING_FIGURES))
    slow = [] if effects is None else list(effects.mode_read_outs)
    directions = directions_of(states, slow, settings.run_folder.name, settings.dump.resolve().name)
    write_directions(folder.path / DIRECTIONS_FILE, list(directions))
    folder.save_json("summary.json", summary)
    texts = "\n\n".join("\n".join(lines) for _, lines, _ in sections)
    folder.save_text("summary.txt", f"{texts}\n")
    heading = f"Dynamics of {metadata.policy}: {settings.layer}"
    command = command_of("analyze_dynamics.py", asdict(settings), vars(DynamicsSettings(settings.dump)))
    folder.save_text(REPORT_FILE, summary_page(folder.path, heading, sections, command))
    parts.remove()
    console.print(texts, highlight=False, markup=False)


def directions_of(states: StudiedStates, slow: list[np.ndarray], run: str, dump: str) -> Iterator[Direction]:
    """Yield `pc_N`, `ic_N` and `nmf_N`, from 1, `cluster_N`, from 0, and `slow_N`, from 1.

    Read-outs of components are in standard deviations, 0 at the mean state. That of a non-negative component is the
    best linear one. Those of slow modes are their activity, 0 at the mean state.
    """
    data = states.data
    lives, episodes = len(data.lives), len(np.unique(data.records.episode))

    def of(name: str, weight: np.ndarray, kind: SourceKind, unit: str) -> Direction:
        source = Source(kind, run, dump, data.metadata.policy, data.metadata.checkpoint_sha256)
        return direction_from(
            name, data.layer, weight, states.scale.mean, unit, data.activations, lives, episodes, source
        )

    for decomposition in states.decompositions.values():
        weights = decomposition.read_outs / states.scale.spread
        for name, weight in zip(decomposition.names, weights, strict=True):
            yield of(name, weight, KINDS[decomposition.kind], COMPONENT_UNIT)
    yield from cluster_directions(data, states.label, run, dump)
    for number, weight in enumerate(slow, start=1):
        yield of(f"slow_{number}", weight, "slow mode", MODE_UNIT)


def write_states(states: StudiedStates, folder: RunFolder, show: Step) -> None:
    """Write and draw components, clusters and the plane."""
    records, z = states.data.records, states.scale.z(states.data.activations)
    arrays: dict[str, np.ndarray] = {name: getattr(records, name) for name in ("agent_id", "episode", "tick")}
    for kind, decomposition in states.decompositions.items():
        arrays |= {
            f"{kind}_scores": decomposition.scores(z).astype(np.float32),
            f"{kind}_patterns": decomposition.patterns,
        }
    with show("writing and drawing states"):
        folder.save_arrays(
            "states.npz", **arrays, mean=states.scale.mean, spread=states.scale.spread, cluster=states.label,
            outlier=states.outlier, neighbour_distance=states.distance, plane=states.plane,
            plane_records=states.plane_records,
        )  # fmt: skip
        folder.save_arrays(LABELS_FILE, **places_of(records), label=states.label)
        folder.save_text("components.tsv", tab_separated(report.component_rows(states)))
        folder.save_text("component_features.tsv", tab_separated(report.association_rows(states)))
        folder.save_figure("components_features.png", figures.components_and_features(states))
        folder.save_figure("tsne.png", figures.plane(states))


def write_motion(states: StudiedStates, motion: Motion, folder: RunFolder, show: Step) -> None:
    """Write the behaviour of each tick, and draw lives."""
    with show("writing and drawing motion"):
        if motion.pairs:
            folder.save_text("behaviour_agreement.tsv", tab_separated([vars(pair) for pair in motion.pairs]))
        folder.save_arrays(BEHAVIOURS_FILE, **places_of(motion.tracks.records), label=motion.behaviours.label)
        folder.save_figure("trajectories.png", figures.trajectories(motion, states))


def write_correlations(
    states: StudiedStates, motion: Motion, effects: Effects | None, folder: RunFolder, show: Step
) -> None:
    """Write and draw which components follow which, and, if it was computed, which move which."""
    heading, records = states.data.heading, motion.tracks.records
    names = states.decompositions["ica"].names
    lags, components = motion.r.shape[1:3]
    jacobians, at = np.empty((0, lags, components, components), np.float32), np.empty(0, np.int64)
    more = {}
    if effects is not None:
        jacobians, at, values = effects.jacobians, effects.jacobian_records, effects.eigenvalues
        more = {"eigenvalues_real": values.real, "eigenvalues_imaginary": values.imag}
    with show("writing and drawing correlations"):
        folder.save_arrays(
            "motion.npz", agent_id=records.agent_id, episode=records.episode, tick=records.tick,
            behaviour=motion.behaviours.label, scores=motion.scores.astype(np.float32), r=motion.r, q=motion.q,
            behaviour_mean=np.concatenate([scale.mean for scale in motion.space.values()]),
            behaviour_spread=np.concatenate([scale.spread for scale in motion.space.values()]),
            jacobian_records=at, jacobians=jacobians, **more,
        )  # fmt: skip
        if effects is None:
            folder.save_figure("correlations.png", figures.correlations_and_jacobians(motion, None, names, heading))
            return
        folder.save_text("sign_agreement.tsv", tab_separated([vars(row) for row in effects.agreement]))
        figure = figures.correlations_and_jacobians(motion, effects, names, heading)
        folder.save_figure("correlations_jacobians.png", figure)
        folder.save_figure("agreement.png", figures.agreement(effects, heading))
        folder.save_figure("spectra.png", figures.spectrum(effects, heading))


def write_persisting(
    states: StudiedStates, motion: Motion, persisting: Persisting, update: Update, folder: RunFolder, show: Step
) -> None:
    """Write and draw half-lives, memory length and fixed points."""
    heading = states.data.heading
    with show("writing and drawing how long things last"):
        left = np.stack([course.left for course in persisting.lasting])
        arrays = {"records": persisting.records, "left": left}
        for number, points in enumerate(persisting.held.values()):
            arrays |= {f"input_{number}": points.read, f"points_{number}": points.state}
        if not isinstance(persisting.length, str):
            arrays |= vars(persisting.length)
            uses = memory_use(persisting.length, motion.behaviours.label[persisting.records])
            folder.save_text("memory_use.tsv", tab_separated([vars(use) for use in uses]))
        folder.save_arrays("lasting.npz", **arrays)
        folder.save_figure("half_lives.png", figures.half_lives(persisting, states))
        folder.save_figure("fixed_points.png", figures.flow(persisting, motion, states, update))
        if (figure := figures.memory_length_figure(persisting, heading)) is not None:
            folder.save_figure("memory_length.png", figure)
