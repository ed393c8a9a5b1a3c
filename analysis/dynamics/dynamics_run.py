"""A run of analyze_dynamics.py: each stage in turn, what it finds in words, and its report."""

from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from functools import partial
from typing import Any

from rich.console import Console

from activation_store.directions import DIRECTIONS_FILE, write_directions
from activation_store.schema import METADATA_FILE, DumpMetadata
from agent_zoo.base import RecurrentPolicy
from agent_zoo.checkpoint import CheckpointInfo
from analysis.clusters.dataset import Step
from analysis.dynamics import outputs, report, report_lasting
from analysis.dynamics.motion_stages import Persisting, study_effects, study_motion, study_persistence
from analysis.dynamics.perturbations import FollowedEdit, compare, read_followed
from analysis.dynamics.results import Effects, Motion, States
from analysis.dynamics.settings import DynamicsSettings
from analysis.dynamics.states_stage import study_states
from analysis.dynamics.update import Update
from analysis.features import Feature
from analysis.pages.summary.page import Section, command_of, summary_page
from analysis.runs.parts import Parts
from analysis.runs.run_folder import RunFolder
from common.files import sha256
from common.progress_view import step

REPORT_FILE = "report.html"
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
    parts = Parts(settings.run_folder, _key(settings))
    edits = read_followed(settings.interventions, metadata.checkpoint_sha256)
    if parts.there:
        console.print(f"going on after: {', '.join(parts.there)}", highlight=False)
    states = study_states(settings, metadata, features, parts, show)
    outputs.write_states(states, folder, show)
    motion = study_motion(settings, metadata, features, states, update, parts, show)
    outputs.write_motion(states, motion, folder, show)
    effects = persisting = None
    if loaded is not None and update is not None:
        policy, info = loaded
        effects = study_effects(settings, states, motion, update, parts, show)
        outputs.write_correlations(states, motion, effects, folder, show)
        persisting = study_persistence(settings, policy, info.layout, states, motion, update, parts, show)
        outputs.write_persisting(states, motion, persisting, update, folder, show)
        if edits:
            with show(f"following {len(edits)} edits of interventions") as progress:
                edits = compare(
                    edits, update, motion.tracks, persisting.records, settings.reach, settings.seed, progress
                )
        outputs.write_edits(edits, folder, states.data.heading)
    else:
        outputs.write_correlations(states, motion, None, folder, show)
    names = settings.run_folder.name, settings.dump.resolve().name
    modes = [] if effects is None else effects.modes
    directions = [*outputs.state_directions(states, *names), *outputs.mode_directions(modes, states, *names)]
    write_directions(folder.path / DIRECTIONS_FILE, directions)
    sections = _sections(settings, features, states, motion, effects, persisting, edits)
    folder.save_json("summary.json", _summary(states, motion, effects, persisting, edits))
    lines = "\n\n".join("\n".join(section.lines) for section in sections)
    folder.save_text("summary.txt", f"{lines}\n")
    heading = f"Dynamics of {metadata.policy}: {settings.layer}"
    command = command_of("analyze_dynamics.py", asdict(settings), defaults_of(type(settings)))
    folder.save_text(REPORT_FILE, summary_page(folder.path, heading, sections, command))
    parts.remove()
    console.print(lines, highlight=False, markup=False)


def _sections(
    settings: DynamicsSettings, features: tuple[Feature, ...], states: States, motion: Motion,
    effects: Effects | None, persisting: Persisting | None, edits: list[FollowedEdit],
) -> list[Section]:  # fmt: skip
    sections = [
        Section("Single states", report.state_lines(states), _STATE_FIGURES),
        Section("Consecutive states", report.motion_lines(motion, effects, settings.layer, features), _MOTION_FIGURES),
    ]
    if persisting is not None:
        lines = report_lasting.persistence_lines(persisting, states, settings.reach)
        sections.append(Section("How long things last", lines + report_lasting.edit_lines(edits), _LASTING_FIGURES))
    return sections


def _summary(
    states: States, motion: Motion, effects: Effects | None, persisting: Persisting | None, edits: list[FollowedEdit]
) -> dict[str, Any]:
    if effects is None or persisting is None:
        nothing = ("sign_agreement", "slow_modes", "largest_modulus", "half_lives", "memory_length", "fixed_points")
        return {**report.summary(states, motion), **dict.fromkeys((*nothing, "interventions"))}
    return {
        **report.summary(states, motion), **report.effects_summary(effects),
        **report_lasting.persistence_summary(persisting, states), "interventions": report_lasting.edit_rows(edits),
    }  # fmt: skip


def defaults_of(settings: type[Any]) -> dict[str, Any]:
    """Return the default of each option that has one."""
    return {field.name: field.default for field in fields(settings) if field.default is not MISSING}


def _key(settings: DynamicsSettings) -> Mapping[str, Any]:
    arguments = {name: str(value) for name, value in vars(settings).items() if name not in ("name", "output_dir")}
    return {"arguments": arguments, "dump": sha256(settings.dump / METADATA_FILE)}
