"""The files that a run of analyze_dynamics.py writes: arrays, tables and figures of each stage."""

from dataclasses import asdict

import numpy as np

from activation_store.lives import places_of
from analysis.clusters.dataset import Step
from analysis.runs.cluster_run import LABELS_FILE
from analysis.runs.run_folder import RunFolder
from representation.dynamics import figures_lasting, figures_motion, figures_states, report, report_lasting
from representation.dynamics.followed_edits import Compared
from representation.dynamics.lasting_stage import Persisting
from representation.dynamics.memory_use import memory_use
from representation.dynamics.results import Effects, Motion, States
from representation.dynamics.update import Update

BEHAVIOURS_FILE = "behaviour_labels.npz"
"""As `LABELS_FILE`, with the behaviour of each tick of the lives drawn."""


def write_states(states: States, folder: RunFolder, show: Step) -> None:
    """Write and draw components, clusters and the plane."""
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


def write_motion(states: States, motion: Motion, folder: RunFolder, show: Step) -> None:
    """Write the behaviour of each tick, and draw lives."""
    with show("writing and drawing motion"):
        if motion.pairs:
            folder.save_text("behaviour_agreement.tsv", report.table([vars(pair) for pair in motion.pairs]))
        folder.save_arrays(BEHAVIOURS_FILE, **places_of(motion.tracks.records), label=motion.behaviours.label)
        folder.save_figure("trajectories.png", figures_motion.trajectories(motion, states))


def write_correlations(states: States, motion: Motion, effects: Effects | None, folder: RunFolder, show: Step) -> None:
    """Write and draw which components follow which, and, if it was computed, which move which."""
    heading, records = states.data.heading, motion.tracks.records
    lags, components = motion.correlations.r.shape[1:3]
    jacobians, at = np.empty((0, lags, components, components), np.float32), np.empty(0, np.int64)
    more = {}
    if effects is not None:
        jacobians, at, values = effects.jacobians, effects.jacobian_records, effects.eigenvalues
        more = {"eigenvalues_real": values.real, "eigenvalues_imaginary": values.imag}
    with show("writing and drawing correlations"):
        folder.save_arrays(
            "motion.npz", agent_id=records.agent_id, episode=records.episode, tick=records.tick,
            behaviour=motion.behaviours.label, scores=motion.scores.astype(np.float32), r=motion.correlations.r,
            q=motion.correlations.q, behaviour_mean=motion.space.mean, behaviour_spread=motion.space.spread,
            jacobian_records=at, jacobians=jacobians, **more,
        )  # fmt: skip
        if effects is None:
            folder.save_figure("correlations.png", figures_motion.correlations_and_jacobians(motion, None, heading))
            return
        folder.save_text("sign_agreement.tsv", report.table([vars(row) for row in effects.agreement]))
        figure = figures_motion.correlations_and_jacobians(motion, effects, heading)
        folder.save_figure("correlations_jacobians.png", figure)
        folder.save_figure("agreement.png", figures_motion.agreement(effects, heading))
        folder.save_figure("spectra.png", figures_motion.spectrum(effects, heading))


def write_persisting(
    states: States, motion: Motion, found: Persisting, update: Update, folder: RunFolder, show: Step
) -> None:
    """Write and draw half-lives, memory length and fixed points."""
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


def write_compared(compared: list[Compared], folder: RunFolder, heading: str) -> None:
    """Write and draw half-lives of edits, measured and computed, if there are any."""
    if compared:
        folder.save_text(
            "followed_edits.tsv", report.table([asdict(row) for row in report_lasting.compared_rows(compared)])
        )
        folder.save_figure("followed_edits.png", figures_lasting.followed_edits(compared, heading))
