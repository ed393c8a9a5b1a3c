"""Linear probes as directions that other stages read: every unit of a layer, in raw activation units."""

from collections.abc import Sequence

import numpy as np

from activation_store.directions import Direction, Source
from representation.probes.dataset import ProbeData
from representation.probes.ridge import ReadOuts
from representation.probes.target import Target

LOG_ODDS = "log-odds"


def directions_of(
    data: ProbeData, targets: Sequence[Target], read_outs: dict[str, ReadOuts], source: Source
) -> list[Direction]:
    """Return a direction `DUMP/LAYER/TARGET` of every linear probe that was fitted.

    Its read-out is the probe's prediction: of the target in its own unit, or of the log-odds of a yes. A probe whose
    weights are all zero is left out: it predicts the same of every record.

    Args:
        data: that the probes were fitted to.
        targets: in the order of its columns.
        read_outs: of each memory, of all targets in their order, fitted to all records; NaN where a target was not.
        source: of all of them.
    """
    found = []
    for layer, each in read_outs.items():
        x = data.inputs[layer]  # (B, C)
        centre = x.mean(axis=0, dtype=np.float64)
        for column, target in enumerate(targets):
            weight = each.weight[:, column].astype(np.float32)  # (C,)
            if not np.isfinite(each.bias[column]) or not weight.any():
                continue
            # What rounding the weights took from the mean record's read-out goes into the bias.
            bias = each.bias[column] + centre @ (each.weight[:, column] - weight)
            found.append(_direction(data, layer, target, weight, float(bias), column, source))
    return found


def _direction(
    data: ProbeData, layer: str, target: Target, weight: np.ndarray, bias: float, column: int, source: Source
) -> Direction:
    applies = np.isfinite(data.targets[:, column])  # (B,)
    value = np.einsum("bc,c->b", data.inputs[layer], weight, dtype=np.float64)[applies] + bias
    varying = data.varying[layer]
    every_unit = np.zeros(len(varying), np.float32)
    every_unit[varying] = weight
    return Direction(
        name=f"{source.dump}/{layer}/{target.name}",
        layer=layer,
        weight=every_unit,
        bias=bias,
        unit=LOG_ODDS if target.yes_or_no else target.unit,
        mean=float(value.mean()),
        spread=float(value.std()),
        records=int(applies.sum()),
        lives=len(np.unique(data.lives.index[applies])),
        episodes=len(np.unique(data.episode[applies])),
        source=source,
    )
