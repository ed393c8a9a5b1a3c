"""How well planes keep the neighbourhoods of states: the semantic plane beside t-SNE, UMAP and principal components."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from activation_store.layers import SEMANTIC_CODE, SEMANTIC_PLANE
from activation_store.reader import read_dump, read_metadata
from activation_store.recording import check_recorded
from activation_store.records import Records
from activation_store.selection import OBSERVATIONS
from analysis.clusters.components import principal_components
from analysis.clusters.embeddings import tsne_embedding, umap_embedding
from analysis.codes.content import hidden_layer
from analysis.figures.points import PointsPanel, add_cluster_legend, draw_clusters, legend_width
from analysis.figures.style import new_figure, style, title
from analysis.lives import lives_of
from analysis.runs.cluster_run import FinishedRun
from analysis.runs.codebook_rule import CodebookRule
from analysis.statistics.resampling import draws_of
from analysis.statistics.stability import whole_lives
from common.progress_view import Step
from common.user_error import UserError

NEIGHBOURS = 15
PERPLEXITY = 30.0
FEWEST_STATES = 4 * NEIGHBOURS


def states_of(run: FinishedRun, on: Path | None, most: int, step: Step) -> tuple[Records, str]:
    """Draw states of whole lives of the run's dump, or of another dump of the same policy.

    Args:
        on: another dump, such as one of other maps; None for the run's own.

    Returns:
        The records, and the layer whose neighbourhoods are measured.

    Raises:
        UserError: the other dump is of another policy or lacks the layer, or there are too few states.
    """
    dump = on or run.dump
    own, given = read_metadata(run.dump), read_metadata(dump)
    if own.checkpoint_sha256 != given.checkpoint_sha256:
        raise UserError(f"--on {dump} was recorded with another policy ({given.policy}) than the run ({own.policy})")
    layers = [run.clusters.layer]
    if layers == [SEMANTIC_CODE]:
        layers += [SEMANTIC_PLANE, hidden_layer(given)]
        check_recorded(dump, given, layers[-1])
    with step(f"reading {dump.name}") as report:
        records = read_dump(
            dump, subsample=run.clusters.subsample, layers=layers, columns=[], leave_out=[*OBSERVATIONS, "tables"],
            progress=report,
        )  # fmt: skip
    kept = whole_lives(lives_of(records), most, np.random.default_rng(run.seed))
    if len(kept) < FEWEST_STATES:
        raise UserError(
            f"too few states: --states {most} leaves {len(kept)} of whole lives, and {FEWEST_STATES} are needed"
        )
    return records.take(kept), layers[-1]


def semantic_plane(records: Records, layer: str, rule: CodebookRule) -> np.ndarray:
    """Return where records of a run on a layer are in its semantic plane, (N, 2) float32: the first two dimensions."""
    states = records.activations
    return (states[SEMANTIC_PLANE] if layer == SEMANTIC_CODE else rule.plane(states[layer]))[:, :2]


def planes_of(states: np.ndarray, semantic: np.ndarray, seed: int, step: Step) -> dict[str, np.ndarray]:
    """Return planes of states, (N, units), by name, (N, 2) each: the semantic one, and others."""
    planes = {"semantic plane": semantic}
    with step(f"embedding {len(states):,} states with t-SNE"):
        planes["t-SNE"] = tsne_embedding(states, min(PERPLEXITY, len(states) / 4), seed)
    with step(f"embedding {len(states):,} states with UMAP"):
        planes["UMAP"] = umap_embedding(states, NEIGHBOURS, 0.1, seed)
    planes["two principal components"] = principal_components(states).scores(states, 2).astype(np.float32)
    return planes


def kept_by(
    states: np.ndarray, life: np.ndarray, planes: dict[str, np.ndarray], resamples: int, seed: int
) -> list[dict[str, Any]]:
    """Measure how well each plane keeps neighbourhoods.

    Args:
        states: (N, units).
        life: of each state, (N,) int64 from 0 without gaps.
        planes: name -> (N, 2).

    Returns:
        A row for each plane: its `name`; its `trustworthiness`, 1 if all neighbours in the plane are neighbours among
        states (Venna and Kaski 2001), 0.5 by chance; and `neighbours`, the share of a state's 15 nearest states that
        are among its 15 nearest in the plane; with the ends of their 95% intervals over lives, `_low` and `_high`.
    """
    rank, count, number, k = _ranks(states), np.bincount(life), len(states), NEIGHBOURS
    weights = draws_of(len(count), resamples, seed)
    kept = []
    for name, plane in planes.items():
        near = _ranks(plane)
        row: dict[str, Any] = {"name": name}
        excess = np.where((near <= k) & (near > 0), np.maximum(rank - k, 0), 0).sum(axis=1)
        scores = {  # of each state, whose mean is that of the plane, (N,)
            "trustworthiness": 1 - excess * 2 / (k * (2 * number - 3 * k - 1)),
            "neighbours": (((rank <= k) & (near <= k)).sum(axis=1) - 1) / k,
        }
        for measure, score in scores.items():
            total = np.bincount(life, weights=score)
            resampled = (weights @ total) / np.maximum(weights @ count, 1)
            low, high = np.quantile(resampled, [0.025, 0.975]) if len(count) > 1 else (np.nan, np.nan)
            row |= {measure: float(score.mean()), f"{measure}_low": float(low), f"{measure}_high": float(high)}
        kept.append(row)
    return kept


def _ranks(points: np.ndarray) -> np.ndarray:
    """Rank of each state among each state's neighbours, nearest first, itself 0: (N, N) int32."""
    exact = points.astype(np.float64) - points.mean(axis=0, dtype=np.float64)
    squares = np.square(exact).sum(axis=1)
    squared = squares[:, None] + squares - 2 * exact @ exact.T
    np.fill_diagonal(squared, -np.inf)
    order = np.argsort(squared, axis=1, kind="stable")
    rank = np.empty(order.shape, np.int32)
    np.put_along_axis(rank, order, np.arange(len(points), dtype=np.int32)[None], axis=1)
    return rank


_SIDE = 4.6


def code_planes(
    planes: Mapping[str, np.ndarray], captions: Mapping[str, str], label: np.ndarray, heading: str
) -> Figure:
    """Draw planes side by side.

    Args:
        planes: name -> (N, 2).
        captions: name -> what is said of it below its name.
        label: code of each state, (N,).
    """
    with style():
        figure = new_figure((_SIDE + 0.3) * len(planes) + legend_width(label), _SIDE + 1.3)
        panels = figure.subplots(1, len(planes), squeeze=False).ravel()
        for (name, points), axes in zip(planes.items(), panels, strict=True):
            panel = PointsPanel(axes, _SIDE, _SIDE)
            draw_clusters(panel, points, label)
            axes.set(xticks=[], yticks=[], title=f"{name}\n{captions[name]}")
        figure.suptitle(title(heading, f"{len(label):,} states, coloured by code", 120))
        add_cluster_legend(figure, label, crowded=panel.crowded(len(label)))
    return figure
