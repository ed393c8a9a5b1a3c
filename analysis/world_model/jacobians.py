"""How components of the memory move each other in simulated lives, with and without passing through the world.

Components, behaviours and lagged correlations are those of a finished run of analyze_dynamics.py on the same dump.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from activation_store.layers import LSTM_CELL, LSTM_HIDDEN
from activation_store.schema import METADATA_FILE
from analysis.dynamics.jacobians import Agreement, Probes, mean_jacobians, sign_agreement
from analysis.runs.finished_files import FinishedFiles, open_finished
from analysis.statistics.inference import LEVEL
from analysis.world_model.held_out import LIVES_IN_EPISODE, HeldOut
from analysis.world_model.imagination import Start, imagine, informed_start
from analysis.world_model.model import Origin, WorldModel
from analysis.world_model.outcomes import Row
from analysis.world_model.saliency import Taps
from analysis.world_model.windows import CONTEXT, as_windows, chosen_sequences
from common.array_files import arrays_of
from common.user_error import UserError

Side = Literal["whole", "memory alone", "recorded inputs"]
"""Through everything; with the world cut; and of the run of analyze_dynamics.py, where inputs are held as recorded."""
_STRIDE = 4
_ALIGNED = 1e-2
_ARRAYS = ("agent_id", "episode", "tick", "behaviour", "r", "q", "jacobian_records", "jacobians")


@dataclass(frozen=True, eq=False)
class Dynamics:
    """What a run of analyze_dynamics.py found. K components, L lags from 0."""

    probes: Probes
    r: np.ndarray  # lagged correlations and their q, as `lagged_correlations` returns them, (behaviours, L, K, K) each
    q: np.ndarray
    # label: behaviour of each recorded tick, by episode, agent and tick; only of those in a behaviour
    label: dict[tuple[int, int, int], int]
    jacobians: np.ndarray  # of the policy alone, (n, L, K, K)
    jacobian_label: np.ndarray  # behaviour of each of these states, (n,)


def read_dynamics(folder: Path, origin: Origin) -> Dynamics:
    """Read a finished run of analyze_dynamics.py on the dump that simulations start from.

    Raises:
        UserError: the run is unfinished, damaged, or of another dump or layer.
    """
    finished = open_finished(folder, "analyze_dynamics.py")
    run = finished.description()
    if run.input.get(METADATA_FILE) != origin.dump_sha256:
        raise UserError(
            f"{folder} is of another dump than {origin.dump}, which simulations start from: run analyze_dynamics.py on "
            "that dump, or give its own with --dump"
        )
    layer = str(run.arguments.get("layer"))
    if layer not in (LSTM_HIDDEN, LSTM_CELL):
        raise UserError(f"{folder} is of {layer}: give a run on {LSTM_HIDDEN} or {LSTM_CELL}")
    motion = _arrays(finished, "motion.npz", _ARRAYS)
    probes = _probes(finished, layer)
    places = zip(*(motion[name].tolist() for name in ("episode", "agent_id", "tick")), strict=True)
    label = {key: int(behaviour) for key, behaviour in zip(places, motion["behaviour"], strict=True) if behaviour >= 0}
    return Dynamics(
        probes, motion["r"], motion["q"], label, motion["jacobians"],
        motion["behaviour"][motion["jacobian_records"]],
    )  # fmt: skip


def _arrays(finished: FinishedFiles, name: str, wanted: Sequence[str]) -> dict[str, np.ndarray]:
    try:
        return arrays_of(finished.read(name), wanted)
    except ValueError as error:
        raise UserError(f"{finished.path / name} is damaged ({error}): run analyze_dynamics.py again") from None


def _probes(finished: FinishedFiles, layer: str) -> Probes:
    """Read-outs are those of the directions `ic_N`."""
    states = _arrays(finished, "states.npz", ("ica_patterns", "spread"))
    patterns = states["ica_patterns"] * states["spread"]
    directions = finished.directions()
    weights = np.stack([directions.named(f"ic_{number + 1}").weight for number in range(len(patterns))])
    if np.abs(weights @ patterns.T - np.eye(len(patterns))).max() > _ALIGNED:
        raise UserError(
            f"{finished.path} holds components that do not fit its directions: run analyze_dynamics.py again"
        )
    return Probes(layer, weights, patterns)


def lags_up_to(largest: int) -> tuple[int, ...]:
    """Return 1, 2, 4, 8 and so on, up to a lag."""
    return tuple(2**power for power in range(largest.bit_length()) if 2**power <= largest)


def world_jacobians(
    model: WorldModel, start: Start, probes: Probes, lags: Sequence[int], seed: int, through_world: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return how components change some ticks after a component was moved in the first tick of simulations.

    Args:
        lags: ascending, from 1.
        seed: of the dice, which do not depend on `through_world`.
        through_world: whether gradients pass from what the world model decodes to what the policy sees.

    Returns:
        d component i after the tick / d component j after the first one, (S, 1 + lags, K i, K j) float32, for lag 0 and
        the others; and which lives are not over by the last lag, (S,) bool.
    """
    weight = torch.from_numpy(probes.read_outs).float()
    generator = torch.Generator().manual_seed(seed)
    taps = Taps({probes.layer: torch.from_numpy(probes.patterns).float()}, start, lags[-1] + 1, through_world)
    alive, jacobians = torch.ones(len(start), dtype=torch.bool), []
    with torch.enable_grad():
        for place, tick in enumerate(imagine(model, start, lags[-1] + 1, generator, (), taps, taps.shown)):
            if place in (0, *lags):
                state = tick.memory.cell if probes.layer == LSTM_CELL else tick.memory.hidden
                sums = (state[-1] @ weight.T).sum(dim=0)  # (K,)
                rows = [torch.autograd.grad(output, taps.strengths[0], retain_graph=True)[0] for output in sums]
                jacobians.append(torch.stack(rows, dim=1).numpy())
            if place < lags[-1]:
                alive &= torch.rand(len(start), generator=generator) >= tick.end.detach()
    return np.stack(jacobians, axis=1), alive.numpy()


def labelled_starts(
    held_out: HeldOut, label: dict[tuple[int, int, int], int], count: int, seed: int
) -> Iterator[tuple[Start, np.ndarray]]:
    """Yield recorded starts on test maps whose tick is in a behaviour, and their behaviours."""
    model, left = held_out.model, count
    for batch in held_out.sequences(_STRIDE, seed, LIVES_IN_EPISODE * 8):
        first = np.cumsum(batch.lengths) - batch.lengths + CONTEXT - 1
        keys = zip(
            *(getattr(batch.records, name)[first].tolist() for name in ("episode", "agent_id", "tick")), strict=True
        )
        labels = np.array([label.get(key, -1) for key in keys])
        (kept,) = (labels >= 0).nonzero()
        kept = kept[: min(left, LIVES_IN_EPISODE)]
        if len(kept):
            chosen = np.isin(np.arange(len(labels)), kept)
            windows = as_windows(chosen_sequences(batch, chosen), model.policy, model.info)
            with torch.no_grad():
                yield informed_start(model, windows, torch.Generator().manual_seed(seed + left)), labels[kept]
        left -= len(kept)
        if left <= 0:
            return


def compare_jacobians(
    held_out: HeldOut, dynamics: Dynamics, states: int, largest_lag: int, seed: int,
    report: Callable[[float], None] = lambda _: None,
) -> tuple[list[Row], list[Row]]:  # fmt: skip
    """Compute Jacobians in simulated lives, and compare their signs with lagged correlations in each behaviour.

    Args:
        largest_lag: in ticks; lags are 1, 2, 4, 8 and so on, up to it.

    Returns:
        `Agreement` by side, behaviour and lag; and at each lag, over all behaviours, see `_at_lag`.

    Raises:
        UserError: the run has no lag of 1, or no start is in a behaviour.
    """
    lags = lags_up_to(min(largest_lag, dynamics.r.shape[1] - 1))
    if not lags:
        raise UserError("the run of analyze_dynamics.py has no correlations at lag 1: run it with --lags")
    parts: dict[Side, list[np.ndarray]] = {"whole": [], "memory alone": []}
    labels: list[np.ndarray] = []
    for number, (start, label) in enumerate(labelled_starts(held_out, dynamics.label, states, seed)):
        for side, blocks in parts.items():
            jacobians, alive = world_jacobians(
                held_out.model, start, dynamics.probes, lags, seed + number, side == "whole"
            )
            blocks.append(jacobians[alive])
        labels.append(label[alive])
        report(min(1.0, sum(map(len, labels)) / states))
    if not sum(map(len, labels)):
        raise UserError(
            f"no tick of {held_out.dump} on test maps is in a behaviour of the run: run it with more --lives"
        )
    places = [0, *lags]
    sides: dict[Side, tuple[np.ndarray, np.ndarray]] = {
        side: (np.concatenate(blocks), np.concatenate(labels)) for side, blocks in parts.items()
    }
    sides["recorded inputs"] = dynamics.jacobians[:, places], dynamics.jacobian_label
    r, q = dynamics.r[:, places], dynamics.q[:, places]
    rows, by_lag = list[Row](), list[Row]()
    for side, (jacobians, label) in sides.items():
        agreements = sign_agreement(r, q, jacobians, label, seed)
        rows += [{**vars(row), "lag": places[row.lag], "side": side} for row in agreements]
        for place, lag in enumerate(lags, start=1):
            at_lag = _at_lag([row for row in agreements if row.lag == place], sides, side, place)
            by_lag.append({"side": side, "lag": lag, **at_lag})
    return rows, by_lag


def _at_lag(rows: Sequence[Agreement], sides: dict[Side, tuple[np.ndarray, np.ndarray]], side: Side, place: int) -> Row:
    """Sum up one lag of one side over all behaviours.

    Returns:
        Means over behaviours of the shares of `Agreement`; `above_chance`: behaviours whose share exceeds that of
        renamed components with p < 0.05; `states`: at which Jacobians were computed; `through_world`: mean over states
        of the size (Frobenius norm) of what passes through the world, divided by that and the size with the world cut,
        NaN for other sides than `whole`; `like_recorded`: correlation of the mean Jacobian with the one for recorded
        inputs, over all pairs.
    """
    mine = [row for row in rows if np.isfinite(row.share)]
    jacobians, label = sides[side]
    through = float("nan")
    if side == "whole":
        cut = sides["memory alone"][0][:, place]
        apart, alone = (np.linalg.norm(matrices, axis=(1, 2)) for matrices in (jacobians[:, place] - cut, cut))
        through = float((apart / np.maximum(apart + alone, np.finfo(np.float32).tiny)).mean())
    means = [
        mean_jacobians(matrices[:, [place]], np.zeros(len(matrices), np.int64), 1)[0, 0].ravel()
        for matrices in (jacobians, sides["recorded inputs"][0])
    ]
    share, dealt, renamed = (
        float(np.mean([getattr(row, name) for row in mine])) if mine else float("nan")
        for name in ("share", "shuffled_behaviours", "shuffled_components")
    )
    return {
        "share": share, "shuffled_behaviours": dealt, "shuffled_components": renamed,
        "above_chance": sum(row.p < LEVEL for row in mine), "behaviours": len(mine), "states": len(label),
        "through_world": through, "like_recorded": float(np.corrcoef(*means)[0, 1]),
    }  # fmt: skip
