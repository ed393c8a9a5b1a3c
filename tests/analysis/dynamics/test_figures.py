"""Figures of dynamics: what is on their axes has names, and no text is cut off."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from analysis.dynamics.figures import correlations_and_jacobians, flow
from tests.analysis.figures.test_figures import HEADING, texts

BEHAVIOURS, LAGS = 4, 5


def motion(components: int) -> Any:
    rng = np.random.default_rng(1)
    r = rng.uniform(-1, 1, (BEHAVIOURS, LAGS, components, components))
    behaviours = SimpleNamespace(label=np.arange(40) % BEHAVIOURS, count=BEHAVIOURS)
    return SimpleNamespace(behaviours=behaviours, correlations=SimpleNamespace(r=r, q=np.abs(r)))


@pytest.mark.parametrize(("components", "with_effects"), [(2, False), (16, True), (64, True), (64, False)])
def test_components_are_named_and_the_heading_is_whole(components: int, with_effects: bool) -> None:
    names = [f"ic_{number + 1}" for number in range(components)]
    jacobians = np.random.default_rng(2).normal(size=(40, LAGS, components, components))
    effects: Any = SimpleNamespace(jacobian_records=np.arange(40), jacobians=jacobians) if with_effects else None
    shown = texts(correlations_and_jacobians(motion(components), effects, names, HEADING))
    assert names[0] in shown and names[1 if components < 20 else 4] in shown
    assert sum(name in names for name in set(shown)) <= 20 and "earlier" in shown and "later" in shown


def test_every_panel_of_fixed_points_has_numbers_on_both_axes() -> None:
    rng = np.random.default_rng(3)

    def held(name: str) -> Any:
        known = {"fixed": np.array([True, False]), "unstable": np.zeros(2, int)}
        points = SimpleNamespace(state=rng.normal(size=(2, 2)), **known)
        return SimpleNamespace(name=name, starts=rng.normal(size=(9, 2)), after=rng.normal(size=(9, 2)), points=points)

    axes_of = SimpleNamespace(read_outs=np.eye(2))
    states: Any = SimpleNamespace(
        decompositions={"pca": axes_of}, data=SimpleNamespace(layer="lstm_cell", heading=HEADING),
        scale=SimpleNamespace(z=lambda state: state),
    )  # fmt: skip
    tracks: Any = type("Tracks", (), {"state": rng.normal(size=(50, 2)), "__len__": lambda self: 50})()
    persisting: Any = SimpleNamespace(held=[held(f"mean of behaviour {number}") for number in range(5)])
    update: Any = SimpleNamespace(place=lambda layer: slice(None))
    figure = flow(persisting, SimpleNamespace(tracks=tracks), states, update)
    texts(figure)
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert len(panels) == 5
    for axes in panels:
        for ticks in (axes.xaxis.get_major_ticks(), axes.yaxis.get_major_ticks()):
            assert any(tick.label1.get_visible() and tick.label1.get_text() for tick in ticks)
