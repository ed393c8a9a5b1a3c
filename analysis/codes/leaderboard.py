"""Codes beside other ways to divide the same states: which last, which tell behaviour, which are found again."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from activation_store.directions import Direction, Source, direction_from
from activation_store.layers import SEMANTIC_CODE, UNTRAINED
from activation_store.lives import number_lives, places_of
from activation_store.reader import read_dump, read_metadata
from activation_store.recording import check_recorded
from activation_store.records import Records
from activation_store.schema import DumpMetadata
from analysis.codes.content import hidden_layer
from analysis.codes.partitions import (
    Fit,
    LifeResamples,
    Partition,
    codebook,
    estimate_cells,
    information_beyond_chance,
    partitions,
    perplexity,
    persistence,
    trajectories,
    weighted_adjusted_rand,
)
from analysis.features.choices import GOAL
from analysis.features.observed import Observed, own_truth_columns
from analysis.lives import Lives, lives_of, places_among
from analysis.position import positions
from analysis.runs.cluster_run import FinishedRun
from analysis.runs.codebook_rule import CodebookRule
from analysis.statistics.resampling import Estimate
from analysis.statistics.stability import gaussian_surrogate, whole_lives
from analysis.tables import tab_separated_lines
from common.argument_checks import SEEDS
from common.progress_view import Step
from common.user_error import UserError

AXES = 3
"""Axes of a partition, so that editing them edits as many dimensions whatever the partition is."""
UNIT = "activation units along the axis, from the mean state"


def group_axes(
    states: np.ndarray, label: np.ndarray, name: str, layer: str, lives: Lives, episodes: int, source: Source
) -> list[Direction]:
    """Return the principal axes of the groups' mean states, weighted by the groups' sizes.

    Args:
        states: of the policy's layer, (B, U).
        label: group of each state, (B,) int64 from 0.
        name: of the partition; directions are called NAME_1 and so on.

    Returns:
        At most `AXES` directions of length 1, the one with most variance between groups first.
    """
    count = np.bincount(label)  # (G,)
    mean = states.mean(axis=0, dtype=np.float64)
    total = np.zeros((len(count), states.shape[1]))
    np.add.at(total, label, states)
    between = np.sqrt(count)[:, None] * (total / np.maximum(count, 1)[:, None] - mean)  # (G, U)
    _, size, axes = np.linalg.svd(between, full_matrices=False)
    kept = size[:AXES] > 1e-6 * max(size[0], np.finfo(np.float64).tiny)
    return [
        direction_from(f"{name}_{number}", layer, axis, mean, UNIT, states, len(lives), episodes, source)
        for number, axis in enumerate(axes[:AXES][kept], 1)
    ]


MEASURES = {
    "perplexity": "clusters in use (perplexity)",
    "persistence": "same at the next kept record, beyond chance",
    "behaviour": "behaviour given tick and place, bits",
    "goal": "the way that the task is to go, given place and move, bits",
    "tick": "tick, bits",
    "place": "place, bits",
    "seeds": "agreement of two seeds (ARI)",
    "seeds_of_gaussian": "the same of a Gaussian of the same covariance and autocorrelation",
    "halves": "agreement of two halves of the lives (ARI)",
    "halves_of_gaussian": "the same of a Gaussian",
}
_TICK_BINS, _PLACE_BINS = 8, 4
_FEWEST = 200


@dataclass(frozen=True)
class BoardRow:
    """One way to divide the states."""

    name: str
    clusters: int
    measures: dict[str, Estimate]  # name of `MEASURES` -> estimate


def board_table(rows: Sequence[BoardRow]) -> str:
    """Return all measures as tab-separated text, one line for each way and measure."""
    lines = [
        (row.name, str(row.clusters), name, *estimate_cells(measure))
        for row in rows for name, measure in row.measures.items()
    ]  # fmt: skip
    return tab_separated_lines(("method", "clusters", "measure", "value", "low", "high"), lines)


def leaderboard(
    run: FinishedRun, rule: CodebookRule, most: int, resamples: int, step: Step
) -> tuple[list[BoardRow], list[Direction], Lives]:
    """Compare a semantic run with other ways to divide the same states.

    Args:
        most: states, of whole lives drawn at random.

    Returns:
        A row for each way; directions along which its groups differ most, none of an untrained network; and the lives
        of the states.

    Raises:
        UserError: there are too few states, or the hidden state was not recorded.
    """
    metadata = read_metadata(run.dump)
    hidden = hidden_layer(metadata) if run.clusters.layer == SEMANTIC_CODE else run.clusters.layer
    check_recorded(run.dump, metadata, hidden)
    untrained = f"{UNTRAINED}_{hidden}"
    wanted = dict.fromkeys([run.clusters.layer, hidden, *([untrained] if untrained in metadata.layers else [])])
    records, paths, about = _sample(run, metadata, list(wanted), hidden, most, step)
    lives, activations, codes = lives_of(records), records.activations, len(run.clusters.clusters)
    resampled = LifeResamples(lives.index, resamples, run.seed)
    own = Partition("codes of this run", "codes", codebook(codes))
    given = rule.labels_of(activations[run.clusters.layer])
    source = Source("cluster axis", run.name, run.dump.name, metadata.policy, metadata.checkpoint_sha256)
    episodes = len(np.unique(records.episode))
    rows, axes = [], []
    for way in (own, *partitions(codes)):
        with step(f"fitting and measuring: {way.name}"):
            states = paths if way.of_trajectories else activations[hidden]
            anew = way is not own or run.clusters.layer == hidden  # codes that a policy learnt cannot be fitted again
            label = _from_zero(given if way is own else way.fit(states, lives, run.seed)(states))
            rows.append(_row(way.name, way.fit if anew else None, states, label, lives, about, resampled, run.seed))
            axes += group_axes(activations[hidden], label, way.short, hidden, lives, episodes, source)
    if untrained in activations:
        name = "codes of an untrained network"
        with step(f"fitting and measuring: {name}"):
            states = activations[untrained]
            label = _from_zero(own.fit(states, lives, run.seed)(states))
            rows.append(_row(name, own.fit, states, label, lives, about, resampled, run.seed))
    return rows, axes, lives


def _sample(
    run: FinishedRun, metadata: DumpMetadata, layers: list[str], hidden: str, most: int, step: Step
) -> tuple[Records, np.ndarray, dict[str, np.ndarray]]:
    """Read states of whole lives, N records, and what their agents did, when and where.

    Returns:
        The records, with the activations of the layers; the hidden state's `trajectories`, (N, 4 U); and by name,
        (N,) int64 each: what the agent did, `act`, from 0; the direction that it chose, `move`, 0 where agents cannot
        move; bins of the `tick` and the `place`; and, where not all have the same, the `goal`, the side of the map that
        its task is to go to.
    """
    places = [name for name in ("row", "col") if name in metadata.columns]
    columns = list(dict.fromkeys([*places, *own_truth_columns(metadata)]))
    with step(f"reading {run.dump.name}") as report:
        records = read_dump(
            run.dump, subsample=run.clusters.subsample, layers=layers, columns=columns,
            leave_out=["tables", *(["tile"] if len(places) == 2 else [])], progress=report,
        )  # fmt: skip
    lives = lives_of(records)
    kept = whole_lives(lives, most, np.random.default_rng(run.seed))
    records = records.take(kept)
    if len(records) < _FEWEST or len(np.unique(lives.index[kept])) < 2:
        raise UserError(
            f"too few states: --states {most} leaves {len(records)} of whole lives, and {_FEWEST} are needed"
        )
    seen = Observed(records, metadata)
    heads = {head.name for head in metadata.action_heads}
    move = act = np.zeros(len(records), np.int64)
    if "Move.Direction" in heads:
        move = act = seen.option("Move.Direction")
    if "Attack.Target" in heads:
        act = 2 * act + seen.chose("Attack.Target")
    row, col = (_bins(coordinate, _PLACE_BINS) for coordinate in positions(records))
    wanted = places_of(records)
    with step("reading every tick of the lives drawn") as report:
        every = read_dump(
            run.dump, lives=number_lives(wanted)[0].tolist(), layers=[hidden], columns=[], progress=report,
            leave_out=["tile", "entity", "inventory", "tables", "reward", "value", "log_probability"],
        )  # fmt: skip
        paths = trajectories(every.activations[hidden], lives_of(every))[places_among(wanted, places_of(every))]
    about = {"act": act, "move": move, "tick": _bins(records.tick, _TICK_BINS), "place": _PLACE_BINS * row + col}
    goal = _from_zero(GOAL.compute(seen))
    return records, paths, about | ({"goal": goal} if goal.any() else {})


def _bins(values: np.ndarray, bins: int) -> np.ndarray:
    """Divide values at their quantiles, (B,) int64."""
    inner = np.quantile(values, np.arange(1, bins) / bins)
    return np.searchsorted(inner, values, side="right").astype(np.int64)


def _row(
    name: str, fit: Fit | None, states: np.ndarray, label: np.ndarray, lives: Lives, about: dict[str, np.ndarray],
    resampled: LifeResamples, seed: int,
) -> BoardRow:  # fmt: skip
    following = np.full(len(label), -1)
    same_life = lives.index_in_order[1:] == lives.index_in_order[:-1]
    following[lives.order[:-1][same_life]] = lives.order[1:][same_life]
    nowhere = np.zeros(len(label), np.int64)
    both = about["tick"] * (int(about["place"].max()) + 1) + about["place"]

    def information(of: np.ndarray, given: np.ndarray) -> Estimate:
        return resampled.estimate(lambda weight: information_beyond_chance(label, of, given, weight, seed))

    measures = {
        "perplexity": resampled.estimate(lambda weight: perplexity(label, weight)),
        "persistence": resampled.estimate(lambda weight: persistence(label, following, weight)),
        "behaviour": information(about["act"], both),
        "tick": information(about["tick"], nowhere),
        "place": information(about["place"], nowhere),
    } | dict.fromkeys(list(MEASURES)[-4:], Estimate(float("nan")))
    if "goal" in about:
        place_and_move = about["place"] * (int(about["move"].max()) + 1) + about["move"]
        measures["goal"] = information(about["goal"], place_and_move)
    if fit:
        drawn = gaussian_surrogate(states, lives, np.random.default_rng([seed, 4]))
        for ending, of in (("", states), ("_of_gaussian", drawn)):
            for measure, (first, second) in found_again(fit, of, lives, seed).items():
                measures[measure + ending] = resampled.estimate(partial(weighted_adjusted_rand, first, second))
    return BoardRow(name, len(np.unique(label)), measures)


def found_again(fit: Fit, states: np.ndarray, lives: Lives, seed: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Divide states twice, by fits with two seeds and by fits to two halves of the lives.

    Args:
        states: (N, U).

    Returns:
        "seeds" and "halves" -> two labels of every state, (N,) int64 each.
    """
    half = np.random.default_rng([seed, 3]).permutation(len(lives)) < len(lives) // 2
    inside = half[lives.index]
    one, two = (_from_zero(fit(states, lives, (seed + number) % SEEDS)(states)) for number in (1, 2))
    this, other = (_from_zero(fit(states[own], lives.of_records(own), seed)(states)) for own in (inside, ~inside))
    return {"seeds": (one, two), "halves": (this, other)}


def _from_zero(label: np.ndarray) -> np.ndarray:
    return np.unique(label, return_inverse=True)[1].astype(np.int64)
