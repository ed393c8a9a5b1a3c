"""Validation by control: do the edits of finished runs of intervene.py do the same in a world model as in the game?

What they do at once is compared on maps that the model was not trained on, quantity by quantity, with how often signs
agree.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from activation_store.directions import read_directions
from activation_store.interventions import LIVES_FILE, RUN_FILE, Arm, LivesTable, read_lives
from activation_store.schema import OPTIONS
from activation_store.sparse_dictionary import read_dictionary
from analysis.figures.style import cluster_colour, new_figure, style, wrapped
from analysis.interventions.edits.edit_options import EditOptions, needs_directions
from analysis.interventions.effects.inference import OverEpisodes
from analysis.interventions.effects.pairs import read_run_file
from analysis.recorded.recorded_observation import packed_observation
from analysis.runs.finished_files import open_finished
from analysis.runs.run_folder import write_figure
from analysis.sparse.scores import CONFIDENCE
from analysis.statistics.inference import Inference, student_stretch
from analysis.statistics.resampling import Estimate
from analysis.world_model.edits import QUANTITIES, SIDES, Edits, Made, changes_at_once, requested_edits
from analysis.world_model.held_out import HeldOut, life_numbers
from analysis.world_model.options import SETTLING
from analysis.world_model.outcomes import Row, columns_of, concatenated, over_lives, write_table
from analysis.world_model.windows import CONTEXT, as_windows
from common.files import sha256, write_json
from common.user_error import UserError

TABLE_FILE, JSON_FILE, FIGURE_FILE = "validation.tsv", "validation.json", "validation.png"
AGREEMENT_FILE = "sign_agreement.tsv"
HEADS = ("edit", "made", "quantity", "predicted", "replayed", "simulated", "in the game", "same sign")
"""Of the table that is printed; see `shown`."""
GROUPS = {
    "value": ("value",),
    "moves": tuple(f"probability of {name}" for name in OPTIONS["Move.Direction"]),
    "attack style": tuple(f"probability of {name}" for name in OPTIONS["Attack.Style"]),
}
"""Quantities that are summed up together."""
_KINDS: dict[str, Made] = {"edit": "in every tick", "edited once": "once"}
_EDITS = ("collapse", "steer", "swap", "erase", "clear", "splice")
_FEWEST_RUNS, _REDRAWN = 3, 999
_DRAWS = 9_999
"""Resamples of intervals, as many as intervene.py draws."""
_SERIES = {
    "real": "in the game", "simulated": "simulated", "replayed": "in full on recorded ticks",
    "predicted": "gradient on recorded ticks",
}  # fmt: skip
_MARKERS = ("o", "s", "D", "^")
_COLUMNS = 3
_INCHES_AN_EDIT, _INCHES_A_PANEL, _WIDTH = 0.45, 0.8, 12.0
_LETTERS = 28


@dataclass(frozen=True)
class InGame:
    """What an edit of one dose did at once in the game."""

    dose: float | None  # of the edit; None if it has none
    made: Made  # whether agents were edited in every tick, or in single ones with unedited ticks between
    # changes: quantity -> mean over episodes of the mean over edited lives, with its 95% interval
    changes: Mapping[str, Estimate]
    episodes: int


Intervened = tuple[str, Edits, InGame]
"""The folder of a finished run, its edits of one dose, made together, and what they did in the game."""


@dataclass(frozen=True)
class Validated:
    """How an edit changes one quantity at once, with 95% intervals: over recorded lives, in the game over episodes."""

    run: str
    edit: str
    made: Made
    quantity: str  # the value, or the probability of an option
    predicted: Estimate  # by the gradient on recorded ticks
    replayed: Estimate  # in full on recorded ticks
    simulated: Estimate  # in full in simulated ticks
    real: Estimate  # in the game; its interval is NaN where all episodes agree
    predicted_agrees: str  # whether both have the same sign; empty where the game's interval does not exclude 0
    replayed_agrees: str
    simulated_agrees: str
    lives: int  # recorded lives with a simulated change
    episodes: int  # in the game


def read_intervened(folder: Path, held_out: HeldOut) -> list[Intervened]:
    """Read a finished run of intervene.py, dose by dose.

    Raises:
        UserError: the run is another script's, unfinished or damaged, edited another policy, made an edit that
            simulations cannot make, or lacks what is compared; or a direction or a dictionary does not fit.
    """
    finished = open_finished(folder, "intervene.py")
    if LIVES_FILE not in finished:
        raise UserError(f"{folder} is no run of intervene.py: give folders that it wrote")
    run, origin = finished.description(), held_out.origin
    if run.input.get("policy") != origin.policy_sha256:
        raise UserError(
            f"{folder} edited another policy than {origin.policy} in the world model: give runs on that one"
        )
    options = _options(folder, run.arguments)
    features = finished.input_file(run, "features") if run.arguments.get("features") else None
    dictionary = read_dictionary(features) if features else None
    named = any(needs_directions(option, run.arguments.get("features")) for option in options)
    directions = read_directions(finished.input_file(run, "directions")) if named else None
    finished.read(LIVES_FILE)  # refuses one that was changed
    played, lives = read_run_file(folder / RUN_FILE), read_lives(folder / LIVES_FILE)
    arms = [arm for arm in played.arms if arm.policy == "trained" and arm.kind in _KINDS]
    over = OverEpisodes(Inference(permutations=_DRAWS, bootstraps=_DRAWS, seed=played.seed))
    in_game = [_in_game(folder, arm, lives, over) for arm in arms]
    return [
        (str(folder), edits, game)
        for edits in requested_edits(options, held_out, directions, dictionary)
        for game in in_game
        if game.dose == next((edit["dose"] for edit in edits.described if "dose" in edit), None)
    ]


_NOT_SIMULATED = {
    "condition": "--while", "from_tick": "--from-tick", "until_tick": "--until-tick", "through": "--through",
    "one_by_one": "--one-by-one",
}  # fmt: skip
"""Options of intervene.py, by the names of the arguments: simulated lives are edited in every tick, by all edits."""


def _options(folder: Path, arguments: Mapping[str, Any]) -> tuple[EditOptions, ...]:
    for name, option in _NOT_SIMULATED.items():
        if arguments.get(name):
            raise UserError(f"{folder} edited with {option}, which is not simulated: give a run without it")
    names = [field.name for field in fields(EditOptions)]
    made = [arguments, *arguments.get("further", ())]
    options = tuple(EditOptions(**{name: given[name] for name in names if name in given}) for given in made)
    for edit_options in options:
        if edit_options.edit not in _EDITS:
            raise UserError(
                f"{folder} made the edit {edit_options.edit}, which cannot be compared: give runs of "
                f"{', '.join(_EDITS)}"
            )
        edit_options.check()
    return options


def _in_game(folder: Path, arm: Arm, lives: LivesTable, over: OverEpisodes) -> InGame:
    table = lives.of_arm(arm.name)
    if missing := [name for name in QUANTITIES.values() if name not in table.outcomes]:
        raise UserError(f"{folder} lacks {missing[0]}, which is compared: play it with this version's intervene.py")
    episodes, place = np.unique(table.episode, return_inverse=True)
    changes = {}
    for name, outcome in QUANTITIES.items():
        values = table.outcomes[outcome]
        known = table.edited & np.isfinite(values)
        count = np.bincount(place[known], minlength=len(episodes))
        with np.errstate(invalid="ignore"):
            changes[name] = over.estimate(np.bincount(place[known], values[known], len(episodes)) / count)
    return InGame(arm.dose, _KINDS[arm.kind], changes, len(episodes))


def compare_edits(
    held_out: HeldOut, wanted: Sequence[Intervened], lives: int, ticks: int, seed: int,
    report: Callable[[float], None],
) -> list[Validated]:  # fmt: skip
    """Make the edits of finished runs on recorded and in simulated ticks; returns a row for each edit and quantity.

    Args:
        lives: starts; as many as there are if those are fewer.

    Raises:
        UserError: no life is long enough.
    """
    parts: list[list[dict[str, np.ndarray]]] = [[] for _ in wanted]
    life, model = list[np.ndarray](), held_out.model
    for number, sequences in enumerate(held_out.sequences(ticks - 1, seed)):
        done = sum(map(len, life))
        if done >= lives:
            break
        windows = as_windows(sequences, model.policy, model.info).part(0, min(lives - done, len(sequences)))
        observation = packed_observation(sequences.records, model.layout, model.policy.mask)
        life.append(life_numbers(windows))
        for place, (_, edits, game) in enumerate(wanted):
            parts[place].append(changes_at_once(model, windows, observation, edits, game.made, ticks, seed + number))
            report((done + len(windows) * (place + 1) / len(wanted)) / lives)
    if not life:
        raise UserError(f"{held_out.dump} holds no life of more than {CONTEXT} ticks on the maps kept for testing")
    return [
        row
        for (run, edits, game), part in zip(wanted, parts, strict=True)
        for row in validated_rows(run, edits.name, game, concatenated(part), np.concatenate(life), seed)
    ]


def validated_rows(
    run: str, edit: str, game: InGame, changes: Mapping[str, np.ndarray], life: np.ndarray, seed: int
) -> list[Validated]:
    """Return a row for each quantity that an edit of one dose changes.

    Args:
        changes: side of `SIDES` -> mean change of each quantity over the edited ticks of a start, (starts, quantities);
            NaN where none counts.
        life: number of the recorded life of each start, (starts,) int64.
    """
    rows = []
    for place, name in enumerate(QUANTITIES):
        real = game.changes[name]
        sure = real.low > 0 or real.high < 0
        numbers: dict[str, Any] = {"real": real}
        for side in SIDES:
            values = changes[side][:, place]
            known = np.isfinite(values)
            mean = over_lives(life[known], seed).mean(values[known]) if known.any() else Estimate(float("nan"))
            numbers |= {side: mean, f"{side}_agrees": _word(mean.value, real.value) if sure else ""}
        lives = len(np.unique(life[np.isfinite(changes["simulated"][:, place])]))
        rows.append(
            Validated(run=run, edit=edit, made=game.made, quantity=name, lives=lives, episodes=game.episodes, **numbers)
        )
    return rows


def _word(predicted: float, real: float) -> str:
    return ("yes" if np.sign(predicted) == np.sign(real) else "no") if np.isfinite(predicted) else ""


def shown(row: Validated) -> list[str]:
    """Return the cells of a row as it is printed, under `HEADS`."""
    cells = [row.edit, row.made, row.quantity, f"{row.predicted.value:+.2g}", f"{row.replayed.value:+.2g}"]
    for side in (row.simulated, row.real):
        cells.append(f"{side.value:+.2g} ({side.low:+.2g} to {side.high:+.2g})")
    agree = [side for side in SIDES if getattr(row, f"{side}_agrees") == "yes"]
    return [*cells, ", ".join(agree) or "none" if row.predicted_agrees else "not sure"]


def sign_agreement(rows: Sequence[Validated]) -> list[Row]:
    """Say by how edits were made, quantities and side, in how many changes the sign is that of the game.

    Returns:
        `changes`: number of those whose interval in the game excludes 0, `of` all; `agree`: share of them with the
        same sign; `other_edits`: the same if each is compared with what this side says of the edits of other runs: what
        agrees whatever is edited, NaN with a single run; `correlation`: Pearson's r of all changes with those in the
        game, NaN of fewer than three. Intervals are 95% over runs, which are resampled whole; NaN of fewer than three.
    """
    agreements = list[Row]()
    for how in dict.fromkeys(row.made for row in rows):
        for group, names in GROUPS.items():
            some = [row for row in rows if row.made == how and row.quantity in names]
            agreements += [_agreement(some, how, group, side) for side in SIDES]
    return agreements


def _agreement(rows: Sequence[Validated], how: Made, group: str, side: str) -> Row:
    answers = [(row.run, getattr(row, f"{side}_agrees") == "yes") for row in rows if getattr(row, f"{side}_agrees")]
    others = [
        _word(getattr(other, side).value, row.real.value) == "yes"
        for row in rows
        for other in rows
        if getattr(row, f"{side}_agrees") and other.run != row.run and other.quantity == row.quantity
    ]
    pairs = np.array([(getattr(row, side).value, row.real.value) for row in rows])
    known = np.isfinite(pairs).all(axis=1)
    correlation = _over_runs([row.run for row, use in zip(rows, known, strict=True) if use], pairs[known], _correlation)
    agree = _over_runs([run for run, _ in answers], np.array([[agrees] for _, agrees in answers]), _share, least=0)
    return {
        "made": how, "quantities": group, "side": side, "changes": len(answers), "of": len(rows), "agree": agree,
        "other_edits": _share(np.array(others)), "correlation": correlation,
    }  # fmt: skip


def _over_runs(
    runs: Sequence[str], values: np.ndarray, statistic: Callable[[np.ndarray], float], least: float = -1
) -> Estimate:
    """Return a statistic from `least` to 1 of numbers of runs, (B, columns), with its interval over runs."""
    value, names = statistic(values), sorted(set(runs))
    if len(names) < _FEWEST_RUNS or np.isnan(value):
        return Estimate(value)
    of_run = [np.flatnonzero([run == name for run in runs]) for name in names]
    draws = np.random.default_rng(0).integers(len(names), size=(_REDRAWN, len(names)))
    drawn = [statistic(values[np.concatenate([of_run[number] for number in draw])]) for draw in draws]
    # Plain percentiles of few units are too narrow.
    stretch = student_stretch(len(names), CONFIDENCE)
    ends = value + stretch * (np.nanquantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]) - value)
    low, high = np.clip(ends, least, 1)
    return Estimate(value, float(low), float(high))


def _correlation(pairs: np.ndarray) -> float:
    varies = len(pairs) > 2 and bool((np.ptp(pairs, axis=0) > 0).all())
    return float(np.corrcoef(pairs.T)[0, 1]) if varies else float("nan")


def _share(flags: np.ndarray) -> float:
    return float(flags.mean()) if flags.size else float("nan")


def save_validation(
    folder: Path, rows: Sequence[Validated], agreements: Sequence[Row], model: Path, settings: dict[str, Any]
) -> None:
    """Write both tables and the figure."""
    draw_validation(rows, folder / FIGURE_FILE)
    write_table(folder / TABLE_FILE, map(vars, rows))
    header = {"world_model_sha256": sha256(model), "settling_ticks": SETTLING, **settings}
    tables = {"rows": [columns_of(vars(row)) for row in rows], "sign_agreement": list(map(columns_of, agreements))}
    write_json(folder / JSON_FILE, {**header, **tables})


def draw_validation(rows: Sequence[Validated], target: Path) -> None:
    """Draw a panel for each quantity, with a line for each edit, and 95% intervals."""
    edits = list(dict.fromkeys((row.run, row.edit, row.made) for row in rows))
    panels = -(-len(QUANTITIES) // _COLUMNS)
    with style():
        figure = new_figure(_WIDTH, panels * (_INCHES_A_PANEL + _INCHES_AN_EDIT * len(edits)) + 0.5)
        grid = figure.subplots(panels, _COLUMNS, squeeze=False, sharey=True)
        for axes, quantity in zip(grid.flat, QUANTITIES, strict=False):
            _panel(axes, [row for row in rows if row.quantity == quantity])
            axes.set_title(quantity)
        for axes in grid[:, 0]:
            labels = [wrapped(edit if made != "once" else f"{edit} (once)", _LETTERS) for _, edit, made in edits]
            axes.set_yticks(range(len(edits)), labels, fontsize=7)
            axes.set_ylim(len(edits) - 0.5, -0.5)
        for axes in grid[-1]:
            axes.set_xlabel("change at once, in play")
        handles, names = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=len(_SERIES))
        write_figure(target, figure)


def _panel(axes: Axes, rows: Sequence[Validated]) -> None:
    axes.axvline(0, color="0.6", linewidth=0.8)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    places = np.arange(len(rows))
    for number, (side, label) in enumerate(_SERIES.items()):
        estimates = [getattr(row, side) for row in rows]
        values, low, high = (np.array([getattr(one, end) for one in estimates]) for end in ("value", "low", "high"))
        # Lists, since of a single edit matplotlib takes an array for a number.
        arms = [np.nan_to_num(np.maximum(distance, 0)).tolist() for distance in (values - low, high - values)]
        axes.errorbar(
            values, places + 0.18 * (number - 1.5), xerr=arms, linestyle="none", marker=_MARKERS[number], markersize=4,
            linewidth=1, color="0.15" if side == "real" else cluster_colour(number - 1), label=label,
        )  # fmt: skip
