"""Are findings the same in simulated lives? Probes and clusters are fitted on recorded lives, and read in both.

Half of the recorded lives, drawn at random, is what probes and clusters are fitted on. The other half says how well
they fit recorded lives, and gives the starts of the simulated lives that they are compared with. Compared, too, is what
the policy's value depends on in a tick: each part of what it sees, and its memory.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from activation_store.layers import LSTM_CELL, LSTM_HIDDEN
from agent_zoo.memory import MemoryState
from agent_zoo.soft_path import soft_tick
from analysis.sparse.scores import CONFIDENCE, RESAMPLES
from analysis.statistics.inference import student_stretch
from analysis.statistics.resampling import Estimate
from analysis.world_model.held_out import HeldOut, life_numbers
from analysis.world_model.imagination import imagine, informed_start, lived
from analysis.world_model.model import WorldModel
from analysis.world_model.outcomes import Row, concatenated
from analysis.world_model.policy_interface import Surroundings, imagined_view
from analysis.world_model.scene import VITALS, SoftScene
from analysis.world_model.windows import CONTEXT, Windows
from common.user_error import UserError

PARTS = {
    "tiles": ("material",), "entities": ("kinds", "health", "target"), "own row": ("own",),
    "inventory": ("item_type", "items"), "memory": ("hidden", "cell"),
}  # fmt: skip
"""Parts of what a tick's value is computed from, with the tensors that they are made of."""
_POINTS = 100


def value_saliency(
    model: WorldModel, scene: SoftScene, around: Surroundings, before: MemoryState
) -> dict[str, np.ndarray]:
    """Differentiate the policy's value in a tick by everything that it reads.

    The saliency of a part is the sum of the absolute values of gradient times input over its numbers.

    Args:
        before: memory with which they begin the tick.

    Returns:
        Shares of the saliency by part, and the mean derivative of the value by each vital, per point, as
        in `LifeTicks`.
    """
    names = [name for tensors in PARTS.values() for name in tensors]
    given = {**vars(scene), "hidden": before.hidden.transpose(0, 1), "cell": before.cell.transpose(0, 1)}
    read = {name: given[name].detach().clone().requires_grad_() for name in names}
    seen = {name: tensor for name, tensor in read.items() if name not in ("hidden", "cell")}
    with torch.enable_grad():
        view = imagined_view(replace(scene, **seen), model.stats.kind_means, around, model.layout)
        memory = MemoryState(read["hidden"].transpose(0, 1), read["cell"].transpose(0, 1))
        choices, _ = soft_tick(model.policy, view.observation, memory)
        gradients = torch.autograd.grad(choices.value.sum(), list(read.values()), allow_unused=True)
    by_tensor = dict(zip(read, gradients, strict=True))
    sums = {part: _sum([(read[name], by_tensor[name]) for name in tensors]) for part, tensors in PARTS.items()}
    total = np.sum(list(sums.values()), axis=0)
    ratios = {
        f"share of the value's saliency: {part}": np.stack([above, total], axis=1) for part, above in sums.items()
    }
    by_own = by_tensor["own"]
    assert by_own is not None  # every policy with a soft path reads its own row
    for name, place in zip(VITALS, model.network.vitals, strict=True):
        slope = by_own[:, place].double().numpy() / _POINTS
        ratios[f"change of the value per point of {name}"] = np.stack([slope, np.ones(len(slope))], axis=1)
    return ratios


def _sum(tensors: list[tuple[torch.Tensor, torch.Tensor | None]]) -> np.ndarray:
    """Add up |gradient times input| over some tensors, (B,); those that the value does not depend on add nothing."""
    total = np.zeros(len(tensors[0][0]))
    for tensor, gradient in tensors:
        if gradient is not None:
            total += (tensor * gradient).detach().abs().double().flatten(1).sum(dim=1).numpy()
    return total


CLUSTERS = 12
FEWEST_LIVES = 8
_PENALTIES = np.logspace(-2, 4, 7)
_FITTED_AT_MOST = 20_000

Measure = Callable[[np.ndarray], np.ndarray]
"""Takes sums over records, (..., numbers), and returns a measure of each, (...)."""


LifeTicks = dict[str, np.ndarray]
"""Ticks of lives, B in all: `life`, number of the recorded life that each belongs to or goes on from, (B,) int64;
`vitals`, health, food and water in points, (B, 3); states of layers by name, (B, units); and further measures by name,
each the ratio of the sums of two numbers over ticks, (B, 2)."""


def taken(side: LifeTicks, chosen: np.ndarray) -> LifeTicks:
    """Return some ticks."""
    return {name: array[chosen] for name, array in side.items()}


def compare_findings(
    held_out: HeldOut, lives: int, ticks: int, seed: int, report: Callable[[float], None]
) -> list[Row]:
    """Compare recorded and simulated lives from the same starts on maps that the model was not trained on.

    Args:
        lives: to simulate, at most; as many starts as there are if those are fewer.

    Returns:
        See `compared`.

    Raises:
        UserError: too few lives last long enough.
    """
    real, simulated, done = list[LifeTicks](), list[LifeTicks](), 0
    model = held_out.model
    for number, windows in enumerate(held_out.windows(ticks - 1, seed)):
        windows = windows.part(0, min(len(windows), lives - done))
        real.append(recorded_ticks(model, windows))
        simulated.append(simulated_ticks(model, windows, ticks, torch.Generator().manual_seed(seed + number)))
        done += len(windows)
        report(done / lives)
        if done >= lives:
            break
    if not real:
        raise UserError(f"{held_out.dump} holds no life of more than {CONTEXT} ticks on the maps kept for testing")
    return compared(concatenated(real), concatenated(simulated), seed)


def recorded_ticks(model: WorldModel, windows: Windows) -> LifeTicks:
    """Return the ticks after the given ones."""
    parts = []
    for tick in range(CONTEXT, windows.ticks):
        there, scene = windows.at(tick)
        soft, before = scene.soft(model.network.shape.materials), windows.memory(tick - 1, there)
        ratios = value_saliency(model, soft, windows.around.take(there), before)
        own, memory = scene.own[:, model.network.vitals], windows.memory(tick, there)
        parts.append({**_shown(life_numbers(windows, there), own, memory), **ratios})
    return concatenated(parts)


def _shown(life: np.ndarray, vitals: torch.Tensor, memory: MemoryState) -> LifeTicks:
    states = {LSTM_HIDDEN: memory.hidden[-1].numpy(), LSTM_CELL: memory.cell[-1].numpy()}
    return {"life": life, "vitals": 100 * vitals.numpy(), **states}


@torch.no_grad()
def simulated_ticks(model: WorldModel, windows: Windows, ticks: int, generator: torch.Generator) -> LifeTicks:
    """Return as many ticks of lives simulated from the same starts, until these end."""
    start, life, parts = informed_start(model, windows, generator), life_numbers(windows), []
    before = start.memory
    for number, (tick, alive, _) in enumerate(lived(imagine(model, start, ticks, generator), generator)):
        if number:  # the first tick is the recorded one
            ratios = value_saliency(model, tick.scene, start.around, before)
            shown = {**_shown(life, tick.scene.own[:, model.network.vitals], tick.memory), **ratios}
            parts.append(taken(shown, np.flatnonzero(alive.numpy())))
        before = tick.memory
    return concatenated(parts)


def compared(real: LifeTicks, simulated: LifeTicks, seed: int) -> list[Row]:
    """Fit probes and clusters on half of the recorded lives, and read them in the other half and in simulated lives.

    Scores are the share of the variance that a probe explains, errors are mean absolute ones in points, and spreads
    standard deviations in points: a score is low where vitals hardly vary. The distance of cluster shares is the total
    variation from those of the other half.

    Returns:
        A row for each finding about a layer of the policy, or no layer: in the half of the recorded lives that nothing
        was fitted on, in lives simulated from the same starts, and the difference; with 95% intervals over recorded
        lives.

    Raises:
        UserError: there are too few lives.
    """
    random = np.random.default_rng(seed)
    lives = random.permutation(np.unique(real["life"]))
    if len(lives) < 2 * FEWEST_LIVES:
        raise UserError(
            f"a comparison needs {2 * FEWEST_LIVES} recorded lives on test maps, and there are {len(lives)}: record "
            "more episodes"
        )
    fitted, read = lives[: len(lives) // 2], lives[len(lives) // 2 :]
    train = taken(real, np.isin(real["life"], fitted))
    if len(train["life"]) > _FITTED_AT_MOST:
        train = taken(train, random.permutation(len(train["life"]))[:_FITTED_AT_MOST])
    sides = [taken(side, np.isin(side["life"], read)) for side in (real, simulated)]
    draws = random.multinomial(len(read), np.full(len(read), 1 / len(read)), RESAMPLES).astype(np.float64)
    findings = list[Row]()

    def add(name: str, layer: str, numbers: list[np.ndarray], measure: Measure) -> None:
        """Measure the numbers of both sides' records, (B, K) each."""
        sums = [_by_life(side, read, own) for side, own in zip(sides, numbers, strict=True)]
        findings.append(_finding(name, layer, sums, draws, measure))

    for place, name in enumerate(VITALS):
        values = [side["vitals"][:, place] for side in sides]
        add(f"spread of {name}", "", [np.stack([np.ones(len(v)), v, v**2], axis=1) for v in values], _spread)
    layers = [layer for layer in (LSTM_HIDDEN, LSTM_CELL) if layer in real]
    for layer in layers:
        errors = _probe_errors(train, sides, layer)
        for place, name in enumerate(VITALS):
            pairs = [(error[:, place], side["vitals"][:, place]) for error, side in zip(errors, sides, strict=True)]
            squares = [np.stack([e**2, np.ones(len(e)), v, v**2], axis=1) for e, v in pairs]
            add(f"score of a probe of {name}", layer, squares, _score)
            sizes = [np.stack([np.abs(e), np.ones(len(e))], axis=1) for e, _ in pairs]
            add(f"error of a probe of {name}", layer, sizes, _mean)
        shares, counts = _cluster_counts(train, sides, layer, seed)
        add("distance of cluster shares", layer, counts, _distance_from(shares))
    for name in (name for name in real if name not in ("life", "vitals", *layers)):
        add(name, "", [side[name] for side in sides], _mean)
    return findings


def _probe_errors(train: LifeTicks, sides: list[LifeTicks], layer: str) -> list[np.ndarray]:
    """Fit linear probes of the vitals, and return their errors in points, (B, 3) for each side."""
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    probe = make_pipeline(StandardScaler(), RidgeCV(_PENALTIES))
    probe.fit(train[layer], train["vitals"])
    return [probe.predict(side[layer]) - side["vitals"] for side in sides]


def _cluster_counts(
    train: LifeTicks, sides: list[LifeTicks], layer: str, seed: int
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Fit k-means on standardised states; return the shares of its clusters, (K,), and each side's, (B, K) one-hot."""
    from sklearn.cluster import KMeans
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    count = min(CLUSTERS, len(train["life"]))
    clusters = make_pipeline(StandardScaler(), KMeans(count, n_init=4, random_state=seed))
    shares = np.bincount(clusters.fit_predict(train[layer]), minlength=count) / len(train["life"])
    return shares, [np.eye(count)[clusters.predict(side[layer])] for side in sides]


def _by_life(side: LifeTicks, lives: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Add up numbers of records, (B, K), by life: (lives, K)."""
    order = np.argsort(lives)
    index = order[np.searchsorted(lives[order], side["life"])]
    return np.stack([np.bincount(index, column, len(lives)) for column in numbers.T], axis=1)


def _finding(name: str, layer: str, sums: list[np.ndarray], draws: np.ndarray, measure: Measure) -> Row:
    """Measure both sides, given their sums by life, (lives, K), and resample lives.

    Intervals are centred on the measure: resampling lives adds to distances.
    """
    values = [float(measure(side_sums.sum(axis=0))) for side_sums in sums]
    drawn = [measure(draws @ side_sums) for side_sums in sums]
    values.append(values[1] - values[0])
    drawn.append(drawn[1] - drawn[0])
    stretch, tail = student_stretch(draws.shape[1], CONFIDENCE), (1 - CONFIDENCE) / 2
    ends = [stretch * (np.nanquantile(sample, [tail, 1 - tail]) - np.nanmean(sample)) for sample in drawn]
    estimates = [Estimate(value, *map(float, value + end)) for value, end in zip(values, ends, strict=True)]
    row: Row = {"finding": name, "layer": layer, "lives": draws.shape[1]}
    return row | dict(zip(("recorded", "simulated", "difference"), estimates, strict=True))


def _score(sums: np.ndarray) -> np.ndarray:
    """Share of the variance that is explained, given sums of squared errors, records, values and their squares."""
    error, count, value, square = np.moveaxis(sums, -1, 0)
    spread = square - value**2 / count
    return np.where(spread > 1e-9 * square, 1 - error / np.where(spread > 0, spread, 1), np.nan)


def _spread(sums: np.ndarray) -> np.ndarray:
    """Standard deviation, given sums of records, values and their squares."""
    count, value, square = np.moveaxis(sums, -1, 0)
    return np.sqrt(np.maximum(square / count - (value / count) ** 2, 0))


def _mean(sums: np.ndarray) -> np.ndarray:
    total, count = np.moveaxis(sums, -1, 0)
    return np.asarray(total / count)


def _distance_from(shares: np.ndarray) -> Measure:
    """Return the total variation distance of cluster shares from given ones, half the sum of absolute differences."""

    def distance(counts: np.ndarray) -> np.ndarray:
        return np.asarray(np.abs(counts / counts.sum(axis=-1, keepdims=True) - shares).sum(axis=-1) / 2)

    return distance
