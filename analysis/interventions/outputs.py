"""Write everything that an intervention run shows into its folder: tables, text, figures and a page."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, fields
from pathlib import Path

import numpy as np

from activation_store.interventions import (
    LIVES_FILE,
    RUN_FILE,
    UNEDITED_REPLAY,
    Arm,
    LivesTable,
    Readability,
    read_lives,
)
from analysis.interventions.effects.controls import (
    CONTROLS,
    Against,
    Judged,
    PerEpisode,
    controls_of,
    edits,
    on_episodes_of,
)
from analysis.interventions.effects.effects import (
    AtOnce,
    Effect,
    Spillover,
    effect_per_episode,
    level_per_episode,
)
from analysis.interventions.effects.outcomes import Margins, margins, split_outcomes
from analysis.interventions.effects.pairs import FLIPS, Pairs, paired, read_run_file
from analysis.interventions.effects.predicted import Bend, Follows
from analysis.interventions.effects.study import EffectsStudy, edits_one_by_one, study_effects
from analysis.interventions.effects.text import summary_lines
from analysis.interventions.page.page import Films, intervention_page, read_films
from analysis.runs.finished_files import EFFECTS_FILE, open_finished
from analysis.runs.run_folder import DONE_FILE, proof_of, write_figure
from analysis.statistics.inference import Inference
from analysis.statistics.resampling import Estimate
from analysis.tables import Cell, Table, tab_separated_lines
from common.files import write_json, write_text
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
_HEADS = (
    "measure", "arm", "dose", "outcome", "value", "low", "high", "twin", "spread", "episodes", "lives", "left_out",
    "test", "p", "q", "beyond_q", "detectable", "equivalence_q", "verdict",
)  # fmt: skip
_OF_CONTROL = ("value", "difference", "low", "high", "p", "arms", "as_large")
_EPISODE_HEADS = ("measure", "arm", "dose", "outcome", "world", "value", "twin")
_OF_CONTROL_BY_EPISODE = ("value", "difference")


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
    figures = {folder / name: caption for name, caption in _CAPTIONS.items() if (folder / name).exists()}
    write_text(folder / PAGE_FILE, intervention_page(folder.resolve().name, lines, films, figures))
    replays = () if isinstance(films, str) else (UNEDITED_REPLAY, *films)
    names = (RUN_FILE, LIVES_FILE, *OUTPUTS, PAGE_FILE, *replays)
    files = [folder / name for name in names if (folder / name).exists()]
    write_json(folder / DONE_FILE, {"files": {path.name: proof_of(path) for path in files}})
    return [*lines, "", f"{PAGE_FILE} shows no replays: {films}"] if isinstance(films, str) else lines


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
    from analysis.interventions.effects.figures import (
        dose_response,
        effects_figure,
        kl_by_head,
        persistence_figure,
        ranking_figure,
    )

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
    if erased:  # what was not measured stays empty
        rows = [["" if value is None else str(value) for value in astuple(reading)] for reading in erased]
        write_text(folder / ERASED_FILE, tab_separated_lines([field.name for field in fields(Readability)], rows))
    for name, figure in figures.items():
        if figure is None:
            (folder / name).unlink(missing_ok=True)
        else:
            write_figure(folder / name, figure)
    return lines


def effects_table(study: EffectsStudy) -> Table:
    """Return one row for each arm and outcome.

    The measure says what `value` is: `effect` on edited agents, `at once` in the edited state, `follows`, the share of
    ticks in which an option follows the donor's variable minus 0.5, `bend`, the tiles that agents get further along a
    planned displacement within its horizon, `spillover` on unedited agents, or `slope` over doses, per unit of dose.
    `q` is of no effect, `beyond_q` of no more than some kind of control, `equivalence_q` of one at least as large as
    the margin; `detectable` is the size that would be found in 80% of such runs, "inf" if none could be. Columns of a
    control hold its own value, the difference of the edit to it with its interval and p-value, how many arms it has,
    and of directions how many of them have at least as large a value.
    """
    heads = tuple(f"{control.replace(' ', '_')}_{column}" for control in CONTROLS for column in _OF_CONTROL)
    return Table("effects", (*_HEADS, *heads), tuple(_rows(study)))


def _rows(study: EffectsStudy) -> Iterator[tuple[Cell, ...]]:
    broken = "pairing is broken" if study.broken else None
    for effect in study.effects:
        in_twin = effect.left_out, effect.twin, effect.spread
        yield *_measured("effect", effect, effect.outcome, effect.effect, effect.pairs, *in_twin), *_judged(effect)
    for level in study.at_once:
        row = _measured("at once", level, level.outcome, level.level, level.lives, level.left_out)
        yield *row, *[None] * 7, *_controls(level.against)
    for follow in study.follows:
        name = f"follows/{follow.feature}/{follow.option}"
        yield *_measured("follows", follow, name, follow.effect, follow.lives), *_judged(follow)
    for bend in study.bends:
        yield *_measured("bend", bend, f"bend/{bend.plan}/{bend.ticks}", bend.along, bend.lives), *_judged(bend)
    for spilled in study.spillovers:
        row = _measured("spillover", spilled, spilled.outcome, spilled.effect, spilled.pairs, spilled.left_out)
        verdict = broken or ("effect" if spilled.is_found else "undecided")
        yield *row, FLIPS, spilled.p, spilled.q, None, _size(spilled.detectable), None, verdict, *_controls(())
    for slope in study.dose_responses:
        tested = slope.test, slope.p, slope.q, slope.beyond_q, _size(slope.detectable), None, broken or slope.shape
        random = (slope.against,) if slope.against else ()
        yield "slope", None, None, slope.outcome, *astuple(slope.slope), *[None] * 5, *tested, *_controls(random)


def _measured(
    measure: str, result: Effect | AtOnce | Follows | Bend | Spillover, outcome: str, estimate: Estimate, lives: int,
    left_out: int | None = None, twin: float | None = None, spread: float | None = None,
) -> tuple[Cell, ...]:  # fmt: skip
    """Return the first cells of a row, up to how many lives were left out."""
    about = twin, spread, result.episodes, lives, left_out
    return measure, result.arm, result.dose, outcome, *astuple(estimate), *about


def _judged(judged: Judged) -> tuple[Cell, ...]:
    test = judged.test if isinstance(judged, Effect) else FLIPS
    tested = test, judged.p, judged.q, judged.beyond_q, _size(judged.detectable), judged.equivalence_q, judged.words
    return *tested, *_controls(judged.against)


def _size(detectable: float) -> Cell:
    return "inf" if np.isinf(detectable) else detectable


def _controls(against: tuple[Against, ...]) -> tuple[Cell, ...]:
    by_kind = {comparison.control: comparison for comparison in against}
    cells: list[Cell] = []
    for control in CONTROLS:
        if comparison := by_kind.get(control):
            cells += (
                comparison.effect.value, *astuple(comparison.difference), comparison.p, len(comparison.arms),
                comparison.as_large,
            )  # fmt: skip
        else:
            cells += [None] * len(_OF_CONTROL)
    return tuple(cells)


def by_episode_table(table: LivesTable, arms: Sequence[Arm], seed: int) -> Table:
    """Return one row for each edit, outcome and episode; columns as in effects.tsv, whose numbers are means over them.

    Means over several trainings are made from it.

    Args:
        seed: of the episodes. With an episode's number it is the name of the world, `SEED/NUMBER`: maps, places and
            tasks are the same in all runs that played it.
    """
    everything = paired(table, arms)
    in_behaviour, at_once = split_outcomes(table, arms)
    heads = tuple(f"{control.replace(' ', '_')}_{column}" for control in CONTROLS for column in _OF_CONTROL_BY_EPISODE)
    rows = [
        row
        for edit in edits(everything)
        for measure, outcomes, per in (
            ("effect", in_behaviour, effect_per_episode),
            ("at once", at_once, level_per_episode),
        )
        for outcome in outcomes
        for row in _episode_rows(edit, everything, per(outcome), (measure, outcome, seed))
    ]
    return Table("effects_by_episode", (*_EPISODE_HEADS, *heads), tuple(rows))


def _episode_rows(
    edit: Pairs, everything: Sequence[Pairs], per_episode: PerEpisode, named: tuple[str, str, int]
) -> Iterator[tuple[Cell, ...]]:
    measure, outcome, seed = named
    values, nothing = per_episode(edit), np.full(len(edit.episodes), np.nan)
    twin = edit.episode_means(edit.twin[outcome], edit.edited) if measure == "effect" else nothing
    columns = [values, twin]
    controls = controls_of(edit, everything, at_once=outcome if measure == "at once" else None)
    for control in CONTROLS:
        played = [on_episodes_of(edit, arm, per_episode(arm)) for arm in controls.get(control, [])]
        theirs = np.mean(played, axis=0) if played else nothing
        columns += [theirs, values - theirs]
    for episode, *cells in zip(edit.episodes.tolist(), *columns, strict=True):
        yield measure, edit.arm.name, edit.arm.dose, outcome, f"{seed}/{episode}", *map(float, cells)


def readability_lines(erased: Sequence[Readability]) -> list[str]:
    """Return a line for each erased variable of each arm, with a heading; empty if nothing was erased."""
    lines = []
    for reading in erased:
        before, after, unedited, in_play = (
            "n/a" if value is None else f"{value + 0.0:.3f}".replace("-0.000", "0.000")
            for value in (reading.before, reading.after, reading.unedited, reading.in_play)
        )
        play = f"in other episodes {unedited} unedited, {in_play} edited in play"
        if reading.unedited is None and reading.in_play is None:
            play = "not measured in play: it needs more than four episodes"
        lines.append(
            f"  {reading.arm}: {reading.variable} in {reading.layer}: {before} in {reading.states:,} unedited states, "
            f"{after} once they are erased; {play}"
        )
    heading = "Erased variables, by R2 of linear read-outs (1: exact; 0 or less: no better than a constant):"
    return ["", heading, *lines] if erased else []
