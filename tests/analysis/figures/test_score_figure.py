"""The figure of scores is drawn in all cases without warnings, with all text inside the picture."""

from pathlib import Path

import numpy as np
import pytest

from analysis.evaluation.held_out_tasks import CATEGORIES
from analysis.evaluation.results import read_results
from analysis.evaluation.score_summary import score_summary
from analysis.evaluation.scores import PolicyScores, gather, score
from analysis.figures.style import category_colour
from analysis.statistics.resampling import Bootstrap, KeptDraws
from tests.analysis.figures.test_figures import texts
from tests.planted_results import as_original, play, write

LONG = "a_policy_with_a_rather_long_name_and_$dollars$_200M_seed_7"


def planted(folder: Path, policies: int, modes: tuple[str, ...], original: bool = False) -> list[PolicyScores]:
    rng = np.random.default_rng(0)
    names = [LONG, *(f"policy {number}" for number in range(1, policies))]
    skills = {name: 0.0 if number else 0.9 for number, name in enumerate(names)}
    bootstrap = Bootstrap(resamples=100)
    runs = []
    for mode in modes:
        played = play(skills, 4, 63, rng, tasks_in_turn=True)
        file = write(folder, f"eval_{mode}_1.json", as_original(played) if original else played)
        runs += read_results(file)
    return [score(results, bootstrap, KeptDraws(bootstrap)) for results in gather(runs)]


@pytest.mark.parametrize("policies", [1, 2, 30])
@pytest.mark.parametrize("modes", [("pvp",), ("pvp", "pve")], ids=["one mode", "both modes"])
def test_score_summary(policies: int, modes: tuple[str, ...], tmp_path: Path) -> None:
    scores = planted(tmp_path, policies, modes)
    written = texts(score_summary(scores, 0.9))
    assert set(CATEGORIES) | {"mean", "median"} <= set(written)
    assert any("90% intervals" in text for text in written)
    assert [text.split(":")[0] for text in written if text[:4] in ("pvp:", "pve:")] == list(modes)
    values = [f"{item.weighted_score.value:.1f}" for item in scores]
    assert all(written.count(value) >= values.count(value) for value in values)
    assert written.count(LONG.replace("$", r"\$")) == len(modes)


def test_missing_intervals_are_told(tmp_path: Path) -> None:
    alone = planted(tmp_path, 2, ("pvp",), original=True)
    assert any("no intervals" in text for text in texts(score_summary(alone, 0.95)))
    mixed = alone + planted(tmp_path, 2, ("pve",))
    assert any("where one is missing" in text for text in texts(score_summary(mixed, 0.95)))


def test_categories_look_different() -> None:
    assert len({category_colour(place) for place in range(len(CATEGORIES))}) == len(CATEGORIES)
