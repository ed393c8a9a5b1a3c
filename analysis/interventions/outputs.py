"""Write everything that an intervention run shows into its folder."""

from collections.abc import Callable, Sequence
from pathlib import Path

from activation_store.interventions import (
    LIVES_FILE,
    RUN_FILE,
    UNEDITED_REPLAY,
    Arm,
    LivesTable,
    Readability,
    read_lives,
)
from analysis.interventions.effects.outcomes import Margins, margins
from analysis.interventions.effects.run_file import EFFECTS_FILE, read_run_file
from analysis.interventions.effects.study import edits_one_by_one, study_effects
from analysis.interventions.effects.tables import by_episode_table, effects_table, erased_table, readability_lines
from analysis.interventions.effects.text import summary_lines
from analysis.interventions.page.page import Films, intervention_page, read_films
from analysis.runs.finished_files import open_finished
from analysis.runs.run_folder import DONE_FILE, write_figure
from analysis.statistics.inference import Inference
from common.files import sha256, write_json, write_text
from common.user_error import UserError

TABLE_FILE, ERASED_FILE = "effects.tsv", "erased.tsv"
BY_EPISODE_FILE = "effects_by_episode.tsv"
EFFECTS_FIGURE, DOSES_FIGURE, KL_FIGURE = "effects.png", "dose_response.png", "kl_by_head.png"
LASTING_FIGURE, RANKING_FIGURE = "persistence.png", "ranking.png"
OUTPUTS = (
    EFFECTS_FILE, TABLE_FILE, BY_EPISODE_FILE, ERASED_FILE, EFFECTS_FIGURE, DOSES_FIGURE, KL_FIGURE, LASTING_FIGURE,
    RANKING_FIGURE,
)  # fmt: skip
"""Names of all files that may be written."""
PAGE_FILE = "intervention.html"
_CAPTIONS = {
    RANKING_FIGURE: "Directions, edited one by one, beside random ones, ranked by how far they move actions in total.",
    EFFECTS_FIGURE: "Effects of the edit on edited agents, with intervals, beside those of the controls.",
    DOSES_FIGURE: "Outcomes against the dose of the edit, beside random directions at the same doses.",
    LASTING_FIGURE: "What is left of an edit made in a single tick, in the ticks after it.",
    KL_FIGURE: "How far the edit moves the distribution of each action head at once, in total, beside the controls.",
}
DRAWS = 9_999
"""Permutations of each test, and resamples of each interval."""


def report_run(
    folder: Path,
    draws: int = DRAWS,
    progress: Callable[[float], None] | None = None,
    equivalent_within: str | None = None,
) -> list[str]:
    """Measure the effects of a run that has been played, write them with their figures and page, and mark it as done.

    Args:
        equivalent_within: as `margins` reads it; None for what the run was played with.

    Returns:
        The summary's lines, and one on why the page shows no replays, if it does not.

    Raises:
        UserError: the run was not played to its end, or a file other than the replays is damaged.
    """
    if not (folder / LIVES_FILE).exists():
        state = "has not been played to its end: continue it with --resume" if folder.exists() else "does not exist"
        raise UserError(f"{folder} {state}")
    if (folder / DONE_FILE).exists():
        open_finished(folder).read(LIVES_FILE)  # refuses one that was changed
    run, lives = read_run_file(folder / RUN_FILE), read_lives(folder / LIVES_FILE)
    within = margins(run.equivalent_within if equivalent_within is None else equivalent_within)
    lines = write_effects(folder, lives, run.arms, draws, run.seed, run.erased, within, run.through)
    films: Films | str
    try:
        films = read_films(folder, lives, run.arms, progress or (lambda share: None))
    except UserError as error:
        films = str(error).replace(f"{folder}/", "")  # the page is the same wherever the run is
    write_page(folder, lines, films)
    replays = () if isinstance(films, str) else (UNEDITED_REPLAY, *(film.file for film in films))
    names = (RUN_FILE, LIVES_FILE, *OUTPUTS, PAGE_FILE, *replays)
    files = [folder / name for name in names if (folder / name).exists()]
    done = {path.name: {"sha256": sha256(path), "bytes": path.stat().st_size} for path in files}
    write_json(folder / DONE_FILE, {"files": done})
    return [*lines, "", f"{PAGE_FILE} shows no replays: {films}"] if isinstance(films, str) else lines


def write_page(folder: Path, lines: Sequence[str], films: Films | str) -> None:
    """Write the page of a run whose figures have been written."""
    figures = {folder / name: caption for name, caption in _CAPTIONS.items() if (folder / name).exists()}
    write_text(folder / PAGE_FILE, intervention_page(folder.resolve().name, lines, films, figures))


def write_effects(
    folder: Path, table: LivesTable, arms: Sequence[Arm], draws: int, seed: int, erased: Sequence[Readability] = (),
    within: Margins | None = None, through: Sequence[str] = (),
) -> list[str]:  # fmt: skip
    """Measure effects, write effects.json, effects.tsv, effects_by_episode.tsv and figures; return the summary's lines.

    dose_response.png is written with at least two doses, kl_by_head.png if the KL of heads was recorded, and
    persistence.png if edits were followed. Of directions that were edited one by one, ranking.png takes the place of
    effects.png and kl_by_head.png. Figures of an earlier call that this one does not have are removed.
    erased.tsv says how well erased variables could be read, if there are any.

    Args:
        draws: permutations of each test, and resamples of each interval; 9,999 allow for about 500 tests.
        within: effects smaller than these do not matter; None for none.
        through: paths along which edits acted, if not along all.

    Raises:
        UserError: as `study_effects`, or a file cannot be written.
    """
    from analysis.interventions.figures.curves import dose_response, persistence_figure
    from analysis.interventions.figures.forests import effects_figure, kl_by_head, ranking_figure

    study = study_effects(table, arms, Inference(permutations=draws, bootstraps=draws, seed=seed), within)
    ranked = edits_one_by_one(arms)
    figures = {
        RANKING_FIGURE: ranking_figure(study),
        EFFECTS_FIGURE: None if ranked else effects_figure(study),
        DOSES_FIGURE: dose_response(study),
        KL_FIGURE: None if ranked else kl_by_head(study),
        LASTING_FIGURE: persistence_figure(study),
    }
    lines = [*summary_lines(study), *readability_lines(erased)]
    if through:
        lines.insert(1, f"Edits act through {' and '.join(through)} alone; all else is as without them in each tick.")
    content = {**vars(study), "arms": [arm.content() for arm in arms], "erased": [vars(reading) for reading in erased]}
    write_json(folder / EFFECTS_FILE, {"summary": lines, **content})
    write_text(folder / TABLE_FILE, effects_table(study).as_text())
    write_text(folder / BY_EPISODE_FILE, by_episode_table(table, arms, seed).as_text())
    (folder / ERASED_FILE).unlink(missing_ok=True)
    if erased:
        write_text(folder / ERASED_FILE, erased_table(erased))
    for name, figure in figures.items():
        if figure is None:
            (folder / name).unlink(missing_ok=True)
        else:
            write_figure(folder / name, figure)
    return lines
