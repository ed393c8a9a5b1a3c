"""The figures of compared runs draw in every case, warn of nothing, and keep all their text inside the picture."""

import itertools
from collections.abc import Iterable
from pathlib import Path

import pytest

from analysis.training_runs.comparison import compare
from analysis.training_runs.learning_curves import generalisation, learning_curves
from analysis.training_runs.run import TITLES, chosen_metrics, group_runs, read_run
from tests.analysis.figures.test_figures import texts
from tests.planted_training_runs import plant_evaluation, plant_run

LONG = "a_policy_with_a_rather_long_name_and_$dollars$_200M_and_more_of_it"


def planted(folder: Path, names: Iterable[str], seeds: Iterable[int], metrics: dict, updates: int = 10) -> list[Path]:
    runs = itertools.product(names, seeds)
    return [plant_run(folder, f"{name}_{seed}", seed, metrics, updates=updates) for name, seed in runs]


@pytest.mark.parametrize(
    ("groups", "seeds", "updates"), [(1, 3, 12), (2, 1, 1), pytest.param(9, 2, 12, marks=pytest.mark.slow)]
)
def test_curves_of_groups(tmp_path: Path, groups: int, seeds: int, updates: int) -> None:
    names = [LONG, *(f"group {number}x" for number in range(1, groups))]
    drawn = [*TITLES, "events/EAT_FOOD"]
    metrics = {name: (lambda steps, place=place: place + steps / 1000) for place, name in enumerate(drawn)}
    paths = planted(tmp_path, names, range(1, seeds + 1), metrics, updates)
    for path in paths:
        plant_evaluation(path, 0, 0.2)
    runs = [read_run(path) for path in paths]
    compared = compare(group_runs(runs, "name"), [*chosen_metrics(runs, ()), "events/EAT_FOOD"], 50, 0.1, 0.9, None)
    figures = learning_curves(compared), generalisation(compared)
    curves, scores = ([text.replace("\n", " ") for text in texts(figure)] for figure in figures)
    assert any("90% Student's t intervals" in text for text in curves)
    assert any("events/EAT_FOOD" in text for text in curves) and any("Ticks lived" in text for text in curves)
    output = "1 seed, no interval" if seeds == 1 else f"{seeds} seeds"
    assert sum(output in text for text in curves) == groups
    assert "evaluated on held-out maps" in scores and "evaluated on the training's maps" not in scores


def test_a_single_checkpoint_has_its_interval(tmp_path: Path) -> None:
    paths = planted(tmp_path, "AB", (1, 2, 3), {"lives/ticks": lambda steps: steps / 100})
    for place, path in enumerate(paths):
        plant_evaluation(path, 10_000, 0.3 + place / 30)
    compared = compare(group_runs([read_run(path) for path in paths], "name"), ["lives/ticks"], 50, 0.1, 0.95, None)
    ticks = next(axes for axes in generalisation(compared).axes if axes.get_title() == "Mean ticks lived")
    (first, *_), (second, *_) = (bars.lines[2] for bars in ticks.containers)
    drawn = [segment for bars in (first, second) for segment in bars.get_segments()]
    expected = [(item.low[0], item.high[0]) for item in compared.evaluations if item.measure == "ticks"]
    assert [tuple(segment[:, 1]) for segment in drawn] == [pytest.approx(ends) for ends in expected]
    assert 0 < drawn[1][0, 0] - drawn[0][0, 0] < 0.02 * 10_000
