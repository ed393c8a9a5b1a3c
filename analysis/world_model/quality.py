"""How good a world model is on maps and lives that it was not trained on, and whether its lives are like real ones."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes

from analysis.figures.style import cluster_colour, new_figure, style
from analysis.runs.run_folder import write_figure
from analysis.sparse.scores import Units
from analysis.statistics.resampling import Estimate
from analysis.world_model.held_out import HeldOut
from analysis.world_model.imagination import imagine, informed_start, lived
from analysis.world_model.model import WorldModel
from analysis.world_model.open_loop import HIGHER_IS_BETTER, Errors, OtherDice, compared, joined, open_loop
from analysis.world_model.outcomes import Row, columns_of, write_table
from analysis.world_model.scene import KINDS, VITALS
from analysis.world_model.windows import CONTEXT, Windows
from common.files import write_json
from common.user_error import UserError

_STATES_COMPARED = 1000


@dataclass(frozen=True)
class QualityRow:
    """One measure at one horizon, with 95% intervals."""

    measure: str  # name, see `open_loop.HIGHER_IS_BETTER`
    horizon: int  # ticks after the last one seen
    model: Estimate
    rival: str  # name of `open_loop.RIVALS`, whose measure is `other`
    other: float
    better: Estimate  # how much better the model is; above 0 is better, whichever way the measure points
    predictions: int  # ticks predicted
    unit: str  # what is resampled: episode or life


@dataclass(frozen=True, eq=False)
class Quality:
    """Everything that is measured."""

    rows: list[QualityRow]
    end_auroc: float  # of the end of lives, NaN if none ended
    end_brier: float  # mean squared error of its probability; that of the share of ends alone is share * (1 - share)
    end_share: float  # of predicted ticks that had ended
    # calibration: mean probability and share right of the most probable materials, by tenths of the probability, with
    # the number of tiles, (10, 3)
    calibration: np.ndarray
    calibration_error: float  # mean distance between the two, weighted by tiles
    # behaviours: how often something happens in real and in simulated ticks at the same distance from the same starts
    behaviours: list[Row]
    # memory_distance: energy distance between real and simulated cell states at the last horizon, and between two
    # halves of the real ones, relative to the mean distance of two real states
    memory_distance: tuple[float, float]
    # other_dice: differences between real courses by measure and horizon; empty if none were played
    other_dice: list[OtherDice] = field(default_factory=list)


OTHER_DICE_FILE = "other_dice.tsv"
HORIZONS_SHOWN = (1, 4, 8, 16)
BATCH = 64
MOST_BATCHES = 20
_DRAWN = {
    "tiles": "share of tiles that are right", "entities": "entities, F1", "vitals": "error of vitals (points)",
    "memory": "cosine with the recorded memory", "policy": "KL of the policy (nats)",
}  # fmt: skip


_TICKS = "ticks"
_RIVAL_LINES = {"copy": ("last tick, shifted", "--"), "rules": ("the game's rules", ":")}


def measure_quality(held_out: HeldOut, horizon: int, seed: int, report: Callable[[float], None]) -> Quality:
    """Measure on the episodes whose maps the model was not trained on.

    Raises:
        UserError: no life on these maps lasts long enough.
    """
    parts, batches = [], list[Windows]()
    for batch in held_out.windows(horizon, seed, BATCH):
        parts += list(open_loop(held_out.model, batch, seed + len(batches)))
        batches.append(batch)
        report(len(batches) / (2 * MOST_BATCHES))
        if len(batches) == MOST_BATCHES:
            break
    if not parts:
        raise UserError(f"{held_out.dump} holds no life of more than {CONTEXT} ticks on the maps kept for testing")
    errors = joined(parts)
    behaviours, distance = _lives_compared(held_out.model, batches, horizon, seed)
    probability, ended = errors.ended.T
    counts, sums, right = errors.confidence.T
    filled = np.maximum(counts, 1)
    calibration = np.stack([sums / filled, right / filled, counts], axis=1)
    off = float((np.abs(calibration[:, 0] - calibration[:, 1]) * counts).sum() / counts.sum())
    return Quality(
        _rows(errors, seed), _auroc(probability, ended > 0), float(np.square(probability - ended).mean()),
        float(ended.mean()), calibration, off, behaviours, distance,
    )  # fmt: skip


def save_quality(folder: Path, quality: Quality) -> None:
    """Write the tables, everything as JSON, and the figure."""
    rows, other_dice = ([columns_of(vars(row)) for row in some] for some in (quality.rows, quality.other_dice))
    write_table(folder / "open_loop.tsv", rows)
    (folder / OTHER_DICE_FILE).unlink(missing_ok=True)  # of an earlier measurement, which had other lives
    if other_dice:
        write_table(folder / OTHER_DICE_FILE, other_dice)
    write_json(folder / "quality.json", {**vars(quality), "rows": rows, "other_dice": other_dice})
    draw_quality(quality, folder / "quality.png")


def draw_quality(quality: Quality, target: Path) -> None:
    """Draw the measures over horizons beside copying, and how well probabilities of tiles are calibrated."""
    with style():
        figure = new_figure(12, 6.5)
        panels = figure.subplots(2, 3).flatten()
        for panel, (name, label_of_values) in zip(panels, _DRAWN.items(), strict=False):
            for rival, (label, line) in _RIVAL_LINES.items():
                rows = [row for row in quality.rows if (row.measure, row.rival) == (name, rival)]
                ticks = [row.horizon for row in rows]
                panel.plot(ticks, [row.other for row in rows], color="0.4", linestyle=line, label=label)
            colour = cluster_colour(0)  # the model's numbers are the same beside each rival
            panel.plot(ticks, [row.model.value for row in rows], color=colour, label="world model")
            low, high = [row.model.low for row in rows], [row.model.high for row in rows]
            panel.fill_between(ticks, low, high, color=colour, alpha=0.2)
            _other_dice(panel, [row for row in quality.other_dice if row.measure == name])
            panel.set(xlabel="ticks after the last one seen", ylabel=label_of_values)
            panel.legend()
        calibration = panels[len(_DRAWN)]
        filled = quality.calibration[:, 2] > 0
        calibration.plot([0, 1], [0, 1], color="0.6", linewidth=0.8)
        calibration.plot(quality.calibration[filled, 0], quality.calibration[filled, 1], marker="o", markersize=4)
        calibration.set(xlabel="probability of the most probable material", ylabel="share of tiles that are right")
        write_figure(target, figure)


def _other_dice(panel: Axes, rows: list[OtherDice]) -> None:
    """Draw how far another real course is from the recorded one, and from there to what nothing exceeds."""
    if not rows:
        return
    ticks, colour = [row.horizon for row in rows], cluster_colour(1)
    other, bound = [row.other.value for row in rows], [row.bound for row in rows]
    panel.plot(ticks, other, color=colour, label="real, other dice")
    panel.fill_between(ticks, other, bound, color=colour, alpha=0.2, linewidth=0)


def headline(quality: Quality) -> str:
    """Say, at some horizons, how far the model goes from the rules to the best possible, and what it is better than.

    The former only where other dice were thrown.
    """
    lines = []
    for ceiling in quality.other_dice:
        if ceiling.horizon in HORIZONS_SHOWN and not np.isnan(ceiling.bound):
            closed = ceiling.closed
            lines.append(
                f"{ceiling.measure} after {ceiling.horizon} ticks: at least {closed.value:.0%} ({closed.low:.0%} to "
                f"{closed.high:.0%}) of the way from the rules to the best possible prediction"
            )
    by_share = quality.end_share * (1 - quality.end_share)
    lines.append(
        f"end of lives: squared error of its probability {quality.end_brier:.5f}, of their share alone {by_share:.5f}, "
        f"area under the ROC curve {quality.end_auroc:.2f}"
    )
    for row in quality.rows:
        if row.horizon in HORIZONS_SHOWN:
            numbers = f"{row.model.value:.3f}, {row.rival} {row.other:.3f}"
            lines.append(f"{row.measure} after {row.horizon} ticks: {numbers} {_verdict(row)}")
    for ceiling in quality.other_dice:
        if ceiling.horizon in HORIZONS_SHOWN:
            other, known = ceiling.other.value, not np.isnan(ceiling.bound)
            bound = f", best possible {other:.3f} to {ceiling.bound:.3f}" if known else ""
            lines.append(
                f"{ceiling.measure} after {ceiling.horizon} ticks with other dice: {other:.3f}{bound}; model "
                f"{ceiling.model:.3f} {_verdict(ceiling)}"
            )
    return "\n".join(lines)


def _verdict(row: QualityRow | OtherDice) -> str:
    better = row.better
    verdict = "better" if better.low > 0 else "worse" if better.high < 0 else "no clear difference"
    return f"({verdict}; difference {better.value:+.3f}, {better.low:+.3f} to {better.high:+.3f} over {row.unit}s)"


def _rows(errors: Errors, seed: int) -> list[QualityRow]:
    rows, own_errors = [], errors.model
    for horizon in np.unique(own_errors["horizon"]).tolist():
        chosen = own_errors["horizon"] == horizon
        units = Units.of(own_errors["life"][chosen], own_errors["episode"][chosen], seed)
        for name in HIGHER_IS_BETTER:
            for rival, side in errors.rivals.items():
                mine, theirs = (errors_of[name][chosen].astype(float) for errors_of in (own_errors, side))
                own, other, better = compared(units, name, mine, theirs)
                ticks = int(chosen.sum())
                rows.append(QualityRow(name, horizon, own, rival, other.value, better, ticks, units.name))
    return rows


@torch.no_grad()
def _lives_compared(
    model: WorldModel, batches: list[Windows], horizon: int, seed: int
) -> tuple[list[Row], tuple[float, float]]:
    """Compare what happens after the same starts in the recorded windows and in simulated lives."""
    generator = torch.Generator().manual_seed(seed)
    real, simulated, cells, imagined_cells = Counter[str](), Counter[str](), [], []
    for windows in batches:
        for tick in range(CONTEXT - 1, windows.ticks):
            there, scene = windows.at(tick)
            if len(there):
                _count(real, windows.action[there, tick], scene.own[:, model.network.vitals], scene.kinds)
        full = windows.lengths == windows.ticks
        cells.append(windows.cell[full, -1, -1])
        start = informed_start(model, windows, generator)
        ticks_after = imagine(model, start, min(horizon, windows.ticks - CONTEXT) + 1, generator)
        for imagined, alive, _ in lived(ticks_after, generator):
            shown = imagined.scene.take(alive.nonzero()[:, 0])
            _count(simulated, imagined.action[alive], shown.own[:, model.network.vitals], shown.kinds)
            last = imagined.memory.cell[-1][alive]
        imagined_cells.append(last)
    ticks, imagined_ticks = (max(1.0, counts.pop(_TICKS, 0)) for counts in (real, simulated))
    behaviours: list[Row] = [
        {"what": name, "real": real[name] / ticks, "simulated": simulated[name] / imagined_ticks} for name in real
    ]
    return behaviours, _distances(torch.cat(cells).numpy(), torch.cat(imagined_cells).numpy(), seed)


def _count(sums: Counter[str], action: torch.Tensor, vitals: torch.Tensor, kinds: torch.Tensor) -> None:
    """Add up what agents do, their vitals and whom they see.

    Args:
        action: codes, (B, size).
        vitals: (B, 3).
        kinds: probability that a tile holds another of each kind, (B, kinds, V).
    """
    names = ("moves north", "moves south", "moves east", "moves west", "stays")
    quantities = {name: action[:, place] for place, name in enumerate(names)}
    quantities["trades or gives"] = (action[:, -4:] > 0.5).any(dim=1).float()
    quantities["attacks"] = (action[:, -10:-6].sum(dim=1) > 0.5).float()
    quantities |= {f"{name}s in view": kinds[:, place].sum(dim=1) for place, name in enumerate(KINDS)}
    quantities |= {f"mean {name}": 100 * vitals[:, place] for place, name in enumerate(VITALS)}
    for name, values in quantities.items():
        sums[name] += float(values.sum())  # type: ignore[assignment]
    sums[_TICKS] += len(action)


def _distances(real: np.ndarray, simulated: np.ndarray, seed: int) -> tuple[float, float]:
    """Energy distances (Szekely and Rizzo 2013) of simulated from real states, and between halves of the real ones."""
    if min(len(real), len(simulated)) < 4:
        return float("nan"), float("nan")
    random = np.random.default_rng(seed)
    real, simulated = (sample[random.permutation(len(sample))[:_STATES_COMPARED]] for sample in (real, simulated))
    half = len(real) // 2
    spread = _mean_distance(real, real)
    return tuple(  # type: ignore[return-value]
        float((2 * _mean_distance(a, b) - _mean_distance(a, a) - _mean_distance(b, b)) / spread)
        for a, b in ((real, simulated), (real[:half], real[half:]))
    )


def _mean_distance(first: np.ndarray, second: np.ndarray) -> float:
    from scipy.spatial.distance import cdist

    distances = cdist(first, second)
    if first is second:  # a state has no distance from itself
        return float(distances.sum() / (len(first) * (len(first) - 1)))
    return float(distances.mean())


def _auroc(scores: np.ndarray, flags: np.ndarray) -> float:
    """Area under the receiver operating characteristic; NaN if only one kind is there."""
    if flags.all() or not flags.any():
        return float("nan")
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(flags, scores))
