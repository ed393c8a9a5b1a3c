"""Figures of world models."""

from pathlib import Path

import orjson

from activation_store.files import atomic_path
from analysis.figures.style import cluster_colour, new_figure, style
from representation.world_model.statistics import HEADS


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


def _line(panel, lines, name, label, number) -> None:  # type: ignore[no-untyped-def]
    found = [(line["records"], line[name]) for line in lines if name in line]
    if found:
        panel.plot(*zip(*found, strict=True), label=label, color=cluster_colour(number), linewidth=1)
