import numpy as np
import pytest

from analysis.interventions.effects.persistence import half_life
from analysis.interventions.effects.study import EffectsStudy, study_effects
from analysis.interventions.effects.text import summary_lines
from analysis.interventions.figures.curves import persistence_figure
from analysis.statistics.inference import Inference
from tests.planted_interventions import FOLLOWED_TICKS, Planted, plant, with_followed

TICKS = FOLLOWED_TICKS


def study_with(rate: float) -> EffectsStudy:
    return study_effects(*with_followed(*plant(Planted()), rate), Inference(permutations=199, bootstraps=199))


def test_the_planted_half_life_is_within_its_interval() -> None:
    study = study_with(0.5**0.5)  # half is left after two ticks
    (result,) = study.persistences
    assert result.what == "cell" and result.episodes == 8 and len(result.left) == TICKS + 1
    assert result.half_life.low <= 2 <= result.half_life.high
    assert result.half_life.high - result.half_life.low < 0.5
    assert not any("lasting" in case.outcome for case in (*study.effects, *study.at_once, *study.spillovers))
    assert any("cell state: 2.0 ticks" in line or "cell state: 1.9 ticks" in line for line in summary_lines(study))


def test_an_edit_that_stays_has_no_half_life() -> None:
    study = study_with(1.0)
    assert study.persistences[0].half_life.value == np.inf
    assert any(f"more than {TICKS} ticks" in line for line in summary_lines(study))


def test_the_figure_has_a_panel_for_what_was_followed_and_is_none_without() -> None:
    figure = persistence_figure(study_with(0.5))
    assert figure is not None and [axes.get_title() for axes in figure.axes] == ["cell state"]
    table, arms = plant(Planted())
    assert persistence_figure(study_effects(table, arms, Inference(permutations=99, bootstraps=99))) is None


@pytest.mark.parametrize(
    ("left", "ticks"),
    [([1, 0.75, 0.5, 0.1], 2), ([4, 3, 1, 0], 1.5), ([1, 0], 0.5), ([1, 0.9, 0.8], np.inf), ([1, 0.6, 0.4, 0.6], 1.5)],
)
def test_half_lives_by_hand(left: list[float], ticks: float) -> None:
    np.testing.assert_allclose(half_life(np.array([left], dtype=float)), [ticks])


def test_actions_that_an_edit_moves_by_no_more_than_rounding_are_left_out() -> None:
    table, arms = with_followed(*plant(Planted()), 0.5)
    for lag in range(TICKS + 1):
        table.outcomes[f"lasting/actions/{lag}"] = table.outcomes[f"lasting/cell/{lag}"] * 1e-7  # type: ignore[index]
    study = study_effects(table, arms, Inference(permutations=99, bootstraps=99))
    assert [persistence.what for persistence in study.persistences] == ["cell"]
