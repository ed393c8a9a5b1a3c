"""What moves what: how components of the memory follow and move each other, in the behaviours of a run."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.runs.dynamics_run import Dynamics

HUNDRED, UNKNOWN = 100, -128
"""Correlations are stored in hundredths; what stands for an unknown one."""


@dataclass(frozen=True, eq=False)
class Motion:
    """A run of analyze_dynamics.py whose first K components are in a page.

    Attributes:
        tracks: numbers of these components among the page's tracks.
        labels: number of the track of its behaviours; None where they are the page's own groups.
    """

    dynamics: Dynamics
    tracks: tuple[int, ...]
    labels: int | None

    @property
    def tables(self) -> dict[str, np.ndarray]:
        """Correlations, whether their q is below 0.05, and Jacobians, by behaviour and lag, (B, L, K i, K j)."""
        shown, dynamics = (..., slice(len(self.tracks)), slice(len(self.tracks))), self.dynamics
        r = dynamics.r[shown]
        return {
            "r": np.where(np.isfinite(r), np.round(np.nan_to_num(r) * HUNDRED), UNKNOWN).astype(np.int8),
            "significant": dynamics.significant[shown],
            "jacobian": dynamics.jacobian[shown].astype(np.float32),
        }

    @property
    def facts(self) -> dict[str, Any]:
        """What the page says of it."""
        dynamics, shown = self.dynamics, self.dynamics.components[: len(self.tracks)]
        components = [
            {"name": one.component, "track": number, **vars(one)}
            for one, number in zip(shown, self.tracks, strict=True)
        ]
        return {
            "run": dynamics.path.resolve().name, "layer": dynamics.layer, "lags": dynamics.r.shape[1] - 1,
            "components": components, "labels": self.labels, "states": dynamics.states.tolist(),
            "agreement": dynamics.agreement,
        }  # fmt: skip
