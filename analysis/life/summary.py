"""Summarise a life in words and numbers, for titles and JSON."""

from typing import Any

import numpy as np

from analysis.labels import NOISE
from analysis.life.cluster_strip import ClusterStrip
from analysis.life.events import DIED, EVENT_KINDS
from analysis.life.timeline import Timeline


def ending(life: Timeline) -> str:
    """Return how a single life ended."""
    causes = [detail for kind, detail in zip(life.events.kind, life.events.detail, strict=True) if kind == DIED]
    return f"died in tick {life.records.tick[-1]}: {causes[0]}" if causes else "alive when the recording ends"


def life_summary(life: Timeline, clusters: ClusterStrip | None) -> dict[str, Any]:
    """Return a single life's identity, ending, events and clusters as plain values for JSON."""
    records, events = life.records, life.events
    summary: dict[str, Any] = {
        "env_id": int(records.env_id[0]),
        "agent_id": int(records.agent_id[0]),
        "episode": int(records.episode[0]),
        "first_tick": int(records.tick[0]),
        "last_tick": int(records.tick[-1]),
        "records": len(life),
        "ending": ending(life),
        "events": [
            {"tick": int(tick), "kind": EVENT_KINDS[kind], "detail": detail}
            for tick, kind, detail in zip(records.tick[events.record], events.kind, events.detail, strict=True)
        ],
    }
    if clusters is not None:
        labels, counts = np.unique(clusters.label, return_counts=True)
        summary["cluster_shares"] = {
            "noise" if label == NOISE else str(label): float(count / len(life))
            for label, count in zip(labels, counts, strict=True)
        }
        summary["labelled_by_the_run"] = int(clusters.exact.sum())
    return summary
