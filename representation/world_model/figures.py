"""Figures of world models."""

from pathlib import Path

import orjson
from matplotlib.axes import Axes

from activation_store.files import atomic_path
from analysis.figures.style import cluster_colour, new_figure, style
from representation.world_model.quality_results import OtherDice, Quality
from representation.world_model.statistics import HEADS
from representation.world_model.tick_errors import HIGHER_IS_BETTER

_LABELS = {
    "tiles": "share of tiles that are right", "entities": "entities, F1", "vitals": "error of vitals (points)",
    "memory": "cosine with the recorded memory", "policy": "KL of the policy (nats)",
}  # fmt: skip


def draw_curves(metrics: Path, target: Path) -> None:
    """Draw the costs of training and test windows against records, and the divergence of the latent states.

    Args:
        metrics: file with one JSON object a line.
        target: image to write.
    """
    lines = [orjson.loads(line) for line in metrics.read_bytes().splitlines()]
    side = "test" if any("test/loss" in line for line in lines) else "train"
    with style():
        figure = new_figure(10, 6.5)
        (loss, divergence), (first, second) = figure.subplots(2, 2)
        for number, name in enumerate(("train", "test")):
            _line(loss, lines, f"{name}/loss", name, number)
            _line(divergence, lines, f"{name}/divergence", name, number)
        loss.set(title="Loss", xlabel="records", ylabel="sum of balanced costs", yscale="symlog")
        divergence.set(title="Posterior from prior", xlabel="records", ylabel="divergence (nats a tick)")
        halves = HEADS[: len(HEADS) // 2], HEADS[len(HEADS) // 2 :]
        for panel, heads in zip((first, second), halves, strict=True):
            for number, head in enumerate(heads):
                _line(panel, lines, f"{side}/share/{head}", head, number)
            panel.axhline(1, color="0.6", linewidth=0.8, linestyle=":")
            panel.set(xlabel="records", ylabel="cost, share of frequencies alone", yscale="log")
            panel.set_title(f"Predictions on {'maps not trained on' if side == 'test' else 'training maps'}")
        for panel in (loss, divergence, first, second):
            panel.legend(fontsize=7, ncols=2)
        with atomic_path(target) as temporary:
            figure.savefig(temporary, format="png")


def draw_quality(quality: Quality, target: Path) -> None:
    """Draw the measures over horizons beside copying, and how well probabilities of tiles are calibrated."""
    with style():
        figure = new_figure(12, 6.5)
        panels = figure.subplots(2, 3).flatten()
        for panel, name in zip(panels, HIGHER_IS_BETTER, strict=False):
            rows = [row for row in quality.rows if row.measure == name]
            ticks = [row.horizon for row in rows]
            colour = cluster_colour(0)
            panel.plot(ticks, [row.model for row in rows], color=colour, label="world model")
            panel.fill_between(
                ticks, [row.model_low for row in rows], [row.model_high for row in rows], color=colour, alpha=0.2
            )
            panel.plot(ticks, [row.copied for row in rows], color="0.4", linestyle="--", label="last tick, shifted")
            _other_dice(panel, [each for each in quality.other_dice if each.measure == name])
            panel.set(xlabel="ticks after the last one seen", ylabel=_LABELS[name])
            panel.legend()
        calibration = panels[len(HIGHER_IS_BETTER)]
        filled = quality.calibration[:, 2] > 0
        calibration.plot([0, 1], [0, 1], color="0.6", linewidth=0.8)
        calibration.plot(quality.calibration[filled, 0], quality.calibration[filled, 1], marker="o", markersize=4)
        calibration.set(xlabel="probability of the most probable material", ylabel="share of tiles that are right")
        with atomic_path(target) as temporary:
            figure.savefig(temporary, format="png")


def _other_dice(panel: Axes, rows: list[OtherDice]) -> None:
    """Draw how far another real course is from the recorded one, and from there to what nothing exceeds."""
    if not rows:
        return
    ticks, colour = [row.horizon for row in rows], cluster_colour(1)
    other, bound = [row.other for row in rows], [row.bound for row in rows]
    panel.plot(ticks, other, color=colour, label="real, other dice")
    panel.fill_between(ticks, other, bound, color=colour, alpha=0.2, linewidth=0)


def _line(panel: Axes, lines: list[dict[str, float]], name: str, label: str, number: int) -> None:
    found = [(line["records"], line[name]) for line in lines if name in line]
    if found:
        panel.plot(*zip(*found, strict=True), label=label, color=cluster_colour(number), linewidth=1)
