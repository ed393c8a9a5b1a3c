"""A run of analyze_dynamics.py: each stage in turn, and everything that it writes."""

from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console

from activation_store.directions import DIRECTIONS_FILE, write_directions
from activation_store.files import sha256
from activation_store.lives import places_of
from activation_store.schema import METADATA_FILE, DumpMetadata
from agent_zoo.base import RecurrentPolicy
from agent_zoo.observation import ObservationLayout
from analysis.clusters.dataset import Step
from analysis.features import Feature
from analysis.runs.cluster_run import LABELS_FILE
from analysis.runs.run_folder import RunFolder
from analysis.summary_page.page import Section, command_of, summary_page
from analysis.terminal import step
from representation.dynamics import figures_lasting, figures_motion, figures_states, report, report_lasting
from representation.dynamics.directions import mode_directions, state_directions
from representation.dynamics.followed_edits import Compared, compare, read_followed
from representation.dynamics.lasting_stage import Persisting, study_persistence
from representation.dynamics.memory_use import memory_use
from representation.dynamics.motion_stage import study_motion
from representation.dynamics.results import Motion, States, distinctive
from representation.dynamics.settings import DynamicsSettings
from representation.dynamics.states_stage import study_states
from representation.dynamics.update import Update
from representation.parts import Parts

REPORT_FILE = "report.html"
BEHAVIOURS_FILE = "behaviour_labels.npz"
"""As `LABELS_FILE`, with the behaviour of each tick of the lives drawn."""
_STATE_FIGURES = {
    "components_features.png": "Pearson's r of each component with each feature within lives. A dot marks q < 0.05. "
    "Labels "
    "give the share of the variance that is lost without the component, and its stability.",
    "tsne.png": "t-SNE keeps neighbourhoods, not distances or densities: gaps and areas mean little. Grey: outliers.",
}
_MOTION_FIGURES = {
    "trajectories.png": "Lives in the plane of the first two principal components. Nearby colours in a line are a "
    "behaviour that lasts.",
    "correlations_jacobians.png": "Left: which components follow which. Right: how much a later component would change "
    "per unit of an earlier one, through the memory alone, with inputs held as recorded.",
    "agreement.png": "Where lines lie above the dotted one, components that follow each other also move each other. "
    "What "
    "passes through the game is in the correlations only.",
    "spectra.png": "Eigenvalues near the circle belong to directions in which the memory keeps what it holds; the time "
    "constant is the number of ticks after which 1/e of it is left.",
}

_LASTING_FIGURES = {
    "half_lives.png": "Compare with `intervene.py --edit steer --direction ic_1 --follow 32`, which makes the same "
    "change "
    "in the running game.",
    "memory_length.png": "How much a decision changes if one observation in the past was another life's, and "
    "everything "
    "else is as recorded; bands are 95% intervals over lives.",
    "followed_edits.png": "Solid: computed here, inputs held as recorded. Dashed: measured by `intervene.py --follow` "
    "in the running game.",
    "fixed_points.png": "Where the memory would settle if what it reads stayed the same. The plane shows two of many "
    "dimensions: arrows that cross do not in the others.",
}


def analyse(
    settings: DynamicsSettings, metadata: DumpMetadata, features: tuple[Feature, ...], policy: RecurrentPolicy,
    layout: ObservationLayout,
    folder: RunFolder,
) -> None:  # fmt: skip
    """Run every stage and write the results; finished stages of an interrupted run are not repeated."""
    console = Console()
    show: Step = partial(step, console)
    update = Update(policy)
    update.place(settings.layer)  # refuses a layer that is no state
    parts = Parts(settings.run_folder, _key(settings))
    edits = read_followed(settings.interventions, metadata.checkpoint_sha256)
    if parts.there:
        console.print(f"going on after: {', '.join(parts.there)}", highlight=False)
    states = study_states(settings, metadata, features, parts, show)
    _write_states(states, folder, show)
    motion = study_motion(settings, metadata, features, states, update, parts, show)
    _write_motion(states, motion, folder, show)
    persisting = study_persistence(settings, policy, layout, states, motion, update, parts, show)
    _write_persisting(states, motion, persisting, update, folder, show)
    compared: list[Compared] = []
    if edits:
        with show(f"following {len(edits)} edits of interventions") as progress:
            reach, seed = settings.reach, settings.seed
            compared = compare(edits, update, motion.tracks, persisting.records, reach, seed, progress)
    _write_compared(compared, folder, states.data.heading)
    names = settings.run_folder.name, settings.dump.resolve().name
    found = [*state_directions(states, *names), *mode_directions(motion.modes, states, *names)]
    write_directions(folder.path / DIRECTIONS_FILE, found)
    of_states = report.state_lines(states)
    of_motion = report.motion_lines(motion, tuple(feature.name for feature in features))
    of_lasting = report_lasting.persistence_lines(persisting, states, settings.reach)
    of_lasting += report_lasting.compared_lines(compared)
    lines = [*of_states, "", *of_motion, "", *of_lasting]
    folder.save_text("summary.txt", "\n".join([*lines, ""]))
    more = report_lasting.persistence_summary(persisting, states)
    folder.save_json("summary.json", {**_summary(states, motion), **more, "interventions": _rows(compared)})
    sections = [
        Section("Single states", of_states, _STATE_FIGURES), Section("Consecutive states", of_motion, _MOTION_FIGURES),
        Section("How long things last", of_lasting, _LASTING_FIGURES),
    ]  # fmt: skip
    heading = f"Dynamics of {metadata.policy}: {settings.layer}"
    command = command_of("analyze_dynamics.py", asdict(settings), defaults_of(type(settings)))
    folder.save_text(REPORT_FILE, summary_page(folder.path, heading, sections, command))
    parts.remove()
    console.print("\n".join(lines), highlight=False, markup=False)


def defaults_of(settings: type[Any]) -> dict[str, Any]:
    """Return the default of each option that has one."""
    return {field.name: field.default for field in fields(settings) if field.default is not MISSING}


def _key(settings: DynamicsSettings) -> Mapping[str, Any]:
    """Return everything that results depend on."""
    arguments = {name: str(value) for name, value in vars(settings).items() if name not in ("name", "output_dir")}
    return {"arguments": arguments, "dump": sha256(settings.dump / METADATA_FILE)}


def _write_states(states: States, folder: RunFolder, show: Step) -> None:
    records = states.data.records
    arrays: dict[str, np.ndarray] = {name: getattr(records, name) for name in ("agent_id", "episode", "tick")}
    for kind, found in states.decompositions.items():
        arrays |= {f"{kind}_scores": found.scores.astype(np.float32), f"{kind}_patterns": found.axes.patterns}
    with show("writing and drawing states"):
        folder.save_arrays(
            "states.npz", **arrays, mean=states.scale.mean, spread=states.scale.spread, cluster=states.label,
            outlier=states.outlier, neighbour_distance=states.distance, plane=states.plane,
            plane_records=states.plane_records,
        )  # fmt: skip
        folder.save_arrays(LABELS_FILE, **places_of(records), label=states.label)
        folder.save_text("components.tsv", report.table(report.component_rows(states)))
        folder.save_text("component_features.tsv", report.table(report.association_rows(states)))
        folder.save_figure("components_features.png", figures_states.components_and_features(states))
        folder.save_figure("tsne.png", figures_states.plane(states))


def _write_motion(states: States, motion: Motion, folder: RunFolder, show: Step) -> None:
    heading, records = states.data.heading, motion.tracks.records
    with show("writing and drawing motion"):
        folder.save_arrays(
            "motion.npz", agent_id=records.agent_id, episode=records.episode, tick=records.tick,
            behaviour=motion.behaviours.label, scores=motion.scores.astype(np.float32), r=motion.correlations.r,
            q=motion.correlations.q, jacobian_records=motion.jacobian_records, jacobians=motion.jacobians,
            eigenvalues_real=motion.eigenvalues.real, eigenvalues_imaginary=motion.eigenvalues.imag,
        )  # fmt: skip
        folder.save_arrays(BEHAVIOURS_FILE, **places_of(records), label=motion.behaviours.label)
        folder.save_text("sign_agreement.tsv", report.table([vars(row) for row in motion.agreement]))
        folder.save_figure("trajectories.png", figures_motion.trajectories(motion, states))
        folder.save_figure("correlations_jacobians.png", figures_motion.correlations_and_jacobians(motion, heading))
        folder.save_figure("agreement.png", figures_motion.agreement(motion, heading))
        folder.save_figure("spectra.png", figures_motion.spectrum(motion, heading))


def _write_persisting(
    states: States, motion: Motion, found: Persisting, update: Update, folder: RunFolder, show: Step
) -> None:
    heading = states.data.heading
    with show("writing and drawing how long things last"):
        left = np.stack([each.left for each in found.lasting])
        arrays = {"records": found.records, "left": left}
        for number, held in enumerate(found.held):
            arrays |= {f"input_{number}": held.read, f"points_{number}": held.points.state}
        if found.length is not None:
            arrays |= vars(found.length)
            label, age = motion.behaviours.label[found.records], motion.tracks.place[found.records]
            folder.save_text(
                "memory_use.tsv", report.table([vars(each) for each in memory_use(found.length, label, age)])
            )
        folder.save_arrays("lasting.npz", **arrays)
        folder.save_figure("half_lives.png", figures_lasting.half_lives(found, states))
        folder.save_figure("fixed_points.png", figures_lasting.flow(found, motion, states, update))
        if (figure := figures_lasting.memory_length_figure(found, heading)) is not None:
            folder.save_figure("memory_length.png", figure)


def _write_compared(compared: list[Compared], folder: RunFolder, heading: str) -> None:
    if compared:
        folder.save_text("followed_edits.tsv", report.table(_rows(compared)))
        folder.save_figure("followed_edits.png", figures_lasting.followed_edits(compared, heading))


def _rows(compared: list[Compared]) -> list[dict[str, Any]]:
    return [asdict(row) for row in report_lasting.compared_rows(compared)]


def _summary(states: States, motion: Motion) -> dict[str, Any]:
    data = states.data
    return {
        "policy": data.metadata.policy, "layer": data.layer, "records": len(data), "lives": len(data.lives),
        "components": report.component_rows(states),
        "explained": {kind: found.total for kind, found in states.decompositions.items()},
        "clusters": {
            "explained": states.explained, "agreement": states.agreement.tolist(),
            "sizes": np.bincount(states.label).tolist(),
        },
        "outliers": {"share": float(states.outlier.mean()), "agreement": states.outlier_agreement},
        "tsne": {"trustworthiness": states.trustworthiness, "agreement": states.plane_agreement},
        "behaviours": {
            "explained": motion.behaviours.explained, "agreement": motion.behaviours.agreement.tolist(),
            "sizes": np.bincount(motion.behaviours.label[motion.behaviours.label >= 0]).tolist(),
            "differences": [
                distinctive(motion.differences, number, tuple(feature.name for feature in data.features))
                for number in range(motion.behaviours.count)
            ],
        },
        "sign_agreement": [vars(row) for row in motion.agreement],
        "slow_modes": [
            {"modulus": abs(mode.eigenvalue), "angle": float(np.angle(mode.eigenvalue))} for mode in motion.modes
        ],
        "largest_modulus": {"median": float(np.median(np.abs(motion.eigenvalues[:, 0])))},
    }  # fmt: skip
