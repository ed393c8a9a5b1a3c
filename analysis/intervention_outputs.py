"""Write everything that an intervention run shows into its folder."""

from collections.abc import Sequence
from pathlib import Path

from activation_store.files import sha256, write_json, write_text
from activation_store.interventions import LIVES_FILE, RUN_FILE, Arm, LivesTable, Readability, read_lives
from analysis.interventions.erased import readability_lines
from analysis.interventions.run_file import read_run_file
from analysis.interventions.study import study_effects
from analysis.interventions.tables import effects_table
from analysis.interventions.text import summary_lines
from analysis.runs.finished_files import open_finished
from analysis.runs.run_folder import DONE_FILE, write_figure
from analysis.statistics.inference import Inference
from user_error import UserError

EFFECTS_FILE, TABLE_FILE = "effects.json", "effects.tsv"
EFFECTS_FIGURE, DOSES_FIGURE, KL_FIGURE = "effects.png", "dose_response.png", "kl_by_head.png"
OUTPUTS = (EFFECTS_FILE, TABLE_FILE, EFFECTS_FIGURE, DOSES_FIGURE, KL_FIGURE)
"""Names of all files that may be written."""
DRAWS = 9_999
"""Permutations of each test, and resamples of each interval."""


def report_run(folder: Path, draws: int = DRAWS) -> list[str]:
    """Measure the effects of a run that has been played, write them with their figures, and mark the run as done.

    Args:
        folder: of the run.
        draws: as in `write_effects`.

    Returns:
        The summary's lines.

    Raises:
        UserError: the run was not played to its end, or a file is damaged.
    """
    if not (folder / LIVES_FILE).exists():
        state = "has not been played to its end: continue it with --resume" if folder.exists() else "does not exist"
        raise UserError(f"{folder} {state}")
    if (folder / DONE_FILE).exists():
        open_finished(folder).read(LIVES_FILE)  # refuses one that was changed
    run = read_run_file(folder / RUN_FILE)
    lines = write_effects(folder, read_lives(folder / LIVES_FILE), run.arms, draws, run.seed, run.erased)
    files = [folder / name for name in (RUN_FILE, LIVES_FILE, *OUTPUTS) if (folder / name).exists()]
    done = {path.name: {"sha256": sha256(path), "bytes": path.stat().st_size} for path in files}
    write_json(folder / DONE_FILE, {"files": done})
    return lines


def write_effects(
    folder: Path, table: LivesTable, arms: Sequence[Arm], draws: int, seed: int, erased: Sequence[Readability] = ()
) -> list[str]:
    """Measure effects, write effects.json, effects.tsv and figures, and return the summary's lines.

    dose_response.png is written with at least two doses, kl_by_head.png if the KL of heads was recorded; figures of an
    earlier call that this one does not have are removed.

    Args:
        folder: of the run.
        table: of its lives.
        arms: of the run.
        draws: permutations of each test, and resamples of each interval; 9,999 allow for about 500 tests.
        seed: of these draws.
        erased: how well erased variables could be read.

    Raises:
        UserError: as `study_effects`, or a file cannot be written.
    """
    from analysis.figures.intervention_doses import dose_response
    from analysis.figures.intervention_effects import effects_figure, kl_by_head

    study = study_effects(table, arms, Inference(permutations=draws, bootstraps=draws, seed=seed))
    figures = {
        EFFECTS_FIGURE: effects_figure(study),
        DOSES_FIGURE: dose_response(study),
        KL_FIGURE: kl_by_head(study),
    }
    lines = [*summary_lines(study), *readability_lines(erased)]
    write_json(folder / EFFECTS_FILE, {"summary": lines, **vars(study), "erased": [vars(each) for each in erased]})
    write_text(folder / TABLE_FILE, effects_table(study).as_text())
    for name, figure in figures.items():
        if figure is None:
            (folder / name).unlink(missing_ok=True)
        else:
            write_figure(folder / name, figure)
    return lines
