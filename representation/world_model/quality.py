"""How good a world model is on maps and lives that it was not trained on, and whether its lives are like real ones."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from activation_store.files import write_json
from representation.sparse_autoencoder.scores import Units
from representation.world_model.imagination import imagine, informed_start
from representation.world_model.model import Origin, WorldModel
from representation.world_model.open_loop import Errors, joined, open_loop
from representation.world_model.quality_results import Behaviour, OtherDice, Quality, Row
from representation.world_model.tables import write_table
from representation.world_model.tick_errors import HIGHER_IS_BETTER, compared
from representation.world_model.windows import CONTEXT, Windows, read_windows
from user_error import UserError

QUALITY_FOLDER = "quality"
OTHER_DICE_FILE = "other_dice.tsv"
TOLD_AT = (1, 4, 8, 16)
BATCH = 64
MOST_BATCHES = 20


def measure_quality(
    model: WorldModel, origin: Origin, recorded: Path, horizon: int, seed: int,
    report: Callable[[float], None] = lambda _: None,
) -> Quality:  # fmt: skip
    """Measure on the episodes whose maps the model was not trained on.

    Args:
        model: to measure.
        origin: of the model.
        recorded: its dump.
        horizon: ticks to predict.
        seed: of resamples, of which windows are taken, and of simulated actions.
        report: called with the share done.

    Raises:
        UserError: no life on these maps lasts long enough.
    """
    parts, batches = [], list[Windows]()
    for batch in read_windows(recorded, origin.test, horizon, BATCH, model.policy, model.info, seed):
        parts += list(open_loop(model, batch, seed + len(batches)))
        batches.append(batch)
        report(len(batches) / (2 * MOST_BATCHES))
        if len(batches) == MOST_BATCHES:
            break
    if not parts:
        raise UserError(f"{recorded} holds no life of more than {CONTEXT} ticks on the maps kept for testing")
    errors = joined(parts)
    behaviours, distance = _lives_compared(model, batches, horizon, seed)
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
    from representation.world_model.figures import draw_quality

    write_table(folder / "open_loop.tsv", quality.rows)
    (folder / OTHER_DICE_FILE).unlink(missing_ok=True)  # of an earlier measurement, which had other lives
    if quality.other_dice:
        write_table(folder / OTHER_DICE_FILE, quality.other_dice)
    write_json(folder / "quality.json", asdict(quality))
    draw_quality(quality, folder / "quality.png")


def headline(quality: Quality) -> str:
    """Say in which measures the model is better than copying, and than another real course, at some horizons."""
    lines = []
    for row in quality.rows:
        if row.horizon in TOLD_AT:
            lines.append(
                f"{row.measure} after {row.horizon} ticks: {row.model:.3f}, copying {row.copied:.3f} {_verdict(row)}"
            )
    for told in quality.other_dice:
        if told.horizon in TOLD_AT:
            bound = "" if np.isnan(told.bound) else f", best possible {told.other:.3f} to {told.bound:.3f}"
            lines.append(
                f"{told.measure} after {told.horizon} ticks with other dice: {told.other:.3f}{bound}; model "
                f"{told.model:.3f} {_verdict(told)}"
            )
    return "\n".join(lines)


def _verdict(row: Row | OtherDice) -> str:
    verdict = "better" if row.better_low > 0 else "worse" if row.better_high < 0 else "not told apart"
    return (
        f"({verdict}; difference {row.better:+.3f}, {row.better_low:+.3f} to {row.better_high:+.3f} over {row.unit}s)"
    )


def _rows(errors: Errors, seed: int) -> list[Row]:
    rows = []
    for horizon in np.unique(errors.horizon).tolist():
        chosen = errors.horizon == horizon
        units = Units.of(errors.life[chosen], errors.episode[chosen], seed)
        for name, higher in HIGHER_IS_BETTER.items():
            mine, copied = errors.model[name][chosen].astype(float), errors.copied[name][chosen].astype(float)
            own, other, better = compared(units, mine, copied)
            sign = 1 if higher else -1
            low, high = sorted((sign * better.low, sign * better.high))
            rows.append(
                Row(name, horizon, own.value, own.low, own.high, other.value, sign * better.value, low, high,
                    int(chosen.sum()), units.name)
            )  # fmt: skip
    return rows


@torch.no_grad()
def _lives_compared(
    model: WorldModel, batches: list[Windows], horizon: int, seed: int
) -> tuple[list[Behaviour], tuple[float, float]]:
    """Compare what happens after the same starts in the recorded windows and in simulated lives."""
    generator = torch.Generator().manual_seed(seed)
    real, simulated, cells, imagined_cells = _Frequencies(), _Frequencies(), [], []
    for windows in batches:
        moves = model.layout.heads[[head.name for head in model.layout.heads].index("Move.Direction")].size
        for tick in range(CONTEXT - 1, windows.ticks):
            there, scene = windows.at(tick)
            if len(there):
                real.add(windows.action[there, tick], moves, scene.own[:, model.network.vitals])
        full = windows.lengths == windows.ticks
        cells.append(windows.cell[full, -1, -1])
        start = informed_start(model, windows, generator)
        alive = torch.ones(len(start), dtype=torch.bool)
        for imagined in imagine(model, start, min(horizon, windows.ticks - CONTEXT) + 1, generator):
            simulated.add(imagined.action[alive], moves, imagined.scene.own[alive][:, model.network.vitals])
            last = imagined.memory.cell[-1][alive]
            alive &= torch.rand(len(start), generator=generator) >= imagined.end
        imagined_cells.append(last)
    pairs = zip(real.shares().items(), simulated.shares().values(), strict=True)
    behaviours = [Behaviour(name, one, other) for (name, one), other in pairs]
    return behaviours, _distances(torch.cat(cells).numpy(), torch.cat(imagined_cells).numpy(), seed)


class _Frequencies:
    """Counts how often agents do things, and adds up their vitals."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        self.ticks = 0

    def add(self, action: torch.Tensor, moves: int, vitals: torch.Tensor) -> None:
        """Add ticks: codes of actions, (B, size), and vitals, (B, 3)."""
        names = ("north", "south", "east", "west", "stays")
        found = {f"moves {name}" if name != "stays" else name: action[:, place] for place, name in enumerate(names)}
        found["trades or gives"] = (action[:, -4:] > 0.5).any(dim=1).float()
        found["attacks"] = (action[:, -10:-6].sum(dim=1) > 0.5).float()
        found |= {f"mean {name}": 100 * vitals[:, place] for place, name in enumerate(("health", "food", "water"))}
        for name, values in found.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(values.sum())
        self.ticks += len(action)

    def shares(self) -> dict[str, float]:
        """Return means over ticks by name."""
        return {name: total / max(1, self.ticks) for name, total in self.sums.items()}


def _distances(real: np.ndarray, simulated: np.ndarray, seed: int, most: int = 1000) -> tuple[float, float]:
    """Energy distances (Szekely and Rizzo 2013) of simulated from real states, and between halves of the real ones."""
    if min(len(real), len(simulated)) < 4:
        return float("nan"), float("nan")
    random = np.random.default_rng(seed)
    real, simulated = (each[random.permutation(len(each))[:most]] for each in (real, simulated))
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
    from scipy.stats import rankdata

    ranks, positive = rankdata(scores), int(flags.sum())
    return float((ranks[flags].sum() - positive * (positive + 1) / 2) / (positive * (len(flags) - positive)))
