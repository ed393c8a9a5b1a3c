"""The picture of training curves, from metrics files as written by runs."""

import json
import struct
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes

from reinforcement_learning.game.life import CAUSES_OF_DEATH, life_statistics
from reinforcement_learning.training import curves as curves_module
from reinforcement_learning.training.curves import MOST_POINTS, draw_curves, figure_of, read_curves, rolling_mean
from reinforcement_learning.training.ppo import OWN_LOSSES
from tests.command import assert_refuses
from tests.reinforcement_learning.game.test_life import LIFE


def an_update(number: int, lives: bool = True) -> dict[str, float]:
    """The metrics of one update, under training's names."""
    return {
        "agent_steps": 1000 * number, "update": number, "learning_rate": 1e-4 / number, "agent_steps_per_second": 500.0,
        **{f"loss/{name}": 0.1 * number for name in (*OWN_LOSSES, "explained_variance")},
        **{f"time/{phase}": 0.2 for phase in ("environment", "inference", "copying", "learning")},
        **(life_statistics([LIFE]) if lives else {}),
    }  # fmt: skip


def write(folder: Path, updates: list[dict[str, float]]) -> Path:
    path = folder / "metrics.jsonl"
    path.write_text("".join(json.dumps(update) + "\n" for update in updates))
    return path


def panels(metrics: Path) -> dict[str, Axes]:
    figure = figure_of(read_curves(metrics), "run")
    figure.draw_without_rendering()  # settles the layout
    return {axes.get_title("left"): axes for axes in figure.axes}


def test_every_panel_shows_what_training_reports_and_none_overlaps_another(tmp_path: Path) -> None:
    drawn = panels(write(tmp_path, [an_update(number) for number in range(1, 6)]))
    assert len(drawn) == 15
    for title, axes in drawn.items():
        assert axes.has_data() and axes.get_ylabel() and axes.get_xlabel() == "agent-steps", title
    np.testing.assert_allclose(drawn["Entropy"].lines[0].get_xydata(), [(1000 * n, 0.1 * n) for n in range(1, 6)])
    assert [text.get_text() for text in drawn["Events"].get_legend().get_texts()] == ["eat food"]
    assert curves_module._CAUSES == CAUSES_OF_DEATH
    boxes = [(title, axes.get_tightbbox()) for title, axes in drawn.items()]
    for (one, box), (other, its_box) in combinations(boxes, 2):
        assert not box.overlaps(its_box), f"{one} reaches into {other}"


def test_runs_without_lives_or_changes_are_drawn_and_long_ones_as_means_over_updates(tmp_path: Path) -> None:
    drawn = panels(write(tmp_path, [an_update(1, lives=False)]))
    assert [text.get_text() for text in drawn["Causes of death"].texts] == ["nothing reported yet"]
    assert drawn["Speed"].has_data()
    still = {**an_update(1), "loss/approximate_kl": 0.0, "loss/clip_fraction": 0.0}
    assert panels(write(tmp_path, [still]))["Change of the policy"].get_yscale() == "linear"
    updates = [an_update(number, lives=number % 2 == 0) for number in range(1, 2 * MOST_POINTS + 2)]
    curves = read_curves(write(tmp_path, updates))
    assert curves.updates_a_point == 3 and len(curves.steps) == 201
    assert curves.steps[:2].tolist() == [3000, 6000] and curves.steps[-1] == 1000 * len(updates)
    np.testing.assert_allclose(curves.values["loss/entropy"][:2], [0.2, 0.5])
    ticks = curves.values["lives/ticks"]
    assert set(ticks[:-1]) == {10.0} and np.isnan(ticks[-1]), "the last point's only update reported no life"


def test_deaths_in_the_fog_are_drawn_and_are_none_where_earlier_runs_do_not_report_them(tmp_path: Path) -> None:
    in_fog = {**an_update(2), "death/starved": 0.25, "death/fog": 0.75}
    axes = panels(write(tmp_path, [an_update(1), in_fog]))["Causes of death"]
    assert "fog" in [text.get_text() for text in axes.get_legend().get_texts()]
    top = axes.collections[-1].get_paths()[0].vertices  # of the uppermost share, which is that of the fog
    assert set(top[:, 1].round(6)) == {0.25, 1.0} and top[:, 0].max() == 2000


def test_writes_a_picture_and_passes_over_a_line_cut_short(tmp_path: Path) -> None:
    metrics = write(tmp_path, [an_update(1), an_update(2)])
    with metrics.open("a") as file:
        file.write('{"agent_steps": 30')
    draw_curves(metrics, tmp_path / "curves.png")
    content = (tmp_path / "curves.png").read_bytes()
    assert content.startswith(b"\x89PNG") and struct.unpack(">II", content[16:24]) == (2000, 1100)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["curves.png", "metrics.jsonl"]


@pytest.mark.parametrize(("content", "message"), [(None, "does not exist"), ("", "no update"), ("{]\n", "damaged")])
def test_refuses_what_holds_no_metrics(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "metrics.jsonl").write_text(content)
    assert_refuses(message, draw_curves, tmp_path / "metrics.jsonl", tmp_path / "curves.png")


def test_long_runs_are_smoothed_and_the_legend_says_over_what(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    updates = [{**an_update(n), "loss/entropy": 5 + float(rng.normal())} for n in range(1, 901)]
    figure = figure_of(read_curves(write(tmp_path, updates)), "a run with a long name " * 12 + "$1$")
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["mean of 3 updates", "rolling mean of 51 updates"]
    thin, thick = next(axes for axes in figure.axes if axes.get_title("left") == "Entropy").lines
    assert thin.get_linewidth() < thick.get_linewidth() and thin.get_alpha() < 1
    points, smooth = np.asarray(thin.get_ydata()), np.asarray(thick.get_ydata())
    assert len(points) == len(smooth) == 300 and smooth.std() < 0.5 * points.std()
    assert smooth[100] == pytest.approx(points[92:109].mean()) and smooth[0] == pytest.approx(points[:9].mean())
    box = figure.get_tightbbox()
    assert box.x0 >= 0 and box.x1 <= figure.get_figwidth()
    assert rolling_mean(np.array([1.0, 2, 6]), 3).tolist() == [1.5, 3, 4]
    assert rolling_mean(np.array([4.0]), 17).tolist() == [4]
    assert rolling_mean(np.array([1.0, 3]), 17).tolist() == [2, 2]
