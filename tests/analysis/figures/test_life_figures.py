"""Figures of lives and phases are drawn in all cases without warnings, with all text inside the picture."""

from dataclasses import replace

import numpy as np
import pytest

from activation_store.reader import read_dump, read_metadata
from activation_store.schema import Records
from analysis.figures.style import NOISE_COLOUR, cluster_colour, label_colour
from analysis.labels import NOISE
from analysis.life.life_figure import MOST_COLUMNS, life_figure
from analysis.life.phases.figure import life_phase_figure, transitions_figure
from analysis.life.phases.transitions import association, dwelling, shares, transitions
from analysis.life.phases.visits import phase_edges, visits
from analysis.life.timeline import FEATURES_SHOWN, TickClusters, Timeline, timeline_of
from analysis.statistics.resampling import Bootstrap
from tests.analysis.figures.test_figures import texts
from tests.analysis.life.phases.test_phases import bouts
from tests.planted import planted_dump
from tests.planted_labels import sequences_of
from tests.recorded import Recording

HEADING = "a_policy_with_a_rather_long_name_and_$dollars$_200M_seed_7: agent 123, episode 45"
BOOTSTRAP = Bootstrap(resamples=100)


@pytest.fixture(scope="module")
def records(recording: Recording) -> Records:
    return read_dump(recording.dump, layers=[])


@pytest.fixture(scope="module")
def timeline(records: Records, recording: Recording) -> Timeline:
    return timeline_of(records, read_metadata(recording.dump))


def longest(timeline: Timeline) -> Timeline:
    return timeline.life(int(np.argmax(timeline.lives.lengths)))


def strip_of(life: Timeline, states: int) -> TickClusters:
    label = np.arange(len(life)) % (states + 1) - 1
    return label, np.arange(len(life)) % 10 == 0


def test_the_timeline_has_every_column_at_every_tick(timeline: Timeline, records: Records) -> None:
    assert len(timeline) == len(records) and set(timeline.columns) == {*FEATURES_SHOWN, "reward", "value"}
    assert all(np.isfinite(column).all() for column in timeline.columns.values())
    order = np.lexsort((records.tick, records.episode, records.agent_id, records.env_id))
    np.testing.assert_array_equal(timeline.columns["value"], records.value[order])
    life = timeline.life(5)
    number = timeline.number_of((life.records.env_id[0], life.records.agent_id[0], life.records.episode[0]))
    assert number == 5 and (np.diff(life.records.tick) == 1).all() and life.events.record.max() < len(life)
    with pytest.raises(ValueError, match="no life"):
        timeline.number_of((0, 1, 999))


@pytest.mark.parametrize("states", [0, 3, 30])
def test_a_life_shows_all_panels(timeline: Timeline, states: int) -> None:
    life = longest(timeline)
    written = texts(life_figure(life, HEADING, "64 ticks", strip_of(life, states)))
    for word in ("health", "food", "water", "level", "items", "gold", "value", "moving", "drank", "labels of the run"):
        assert word in written
    assert ("and 19 rarer" in written) == (states == 30) and any(text.startswith("noise (") for text in written)
    assert label_colour(3) == cluster_colour(3) and label_colour(NOISE) == NOISE_COLOUR, "those of the analysis"


def test_a_life_of_one_tick_and_a_life_that_lacks_ticks(timeline: Timeline, recording: Recording) -> None:
    life, metadata = longest(timeline), read_metadata(recording.dump)
    for ticks in ([3], [3, 4, 5, 20, 21, 40]):
        some = timeline_of(life.records.take(np.isin(life.records.tick, ticks)), metadata).life(0)
        assert "health" in texts(life_figure(some, HEADING, "short", strip_of(some, 2)))


def test_what_is_not_recorded_is_left_out_and_said(records: Records, recording: Recording) -> None:
    """Like a dump of the original tools: no reward, no value, and no labels from the engine."""
    nothing = np.full(len(records), np.nan, np.float32)
    original = replace(records, reward=nothing, value=nothing, columns={})
    life = longest(timeline_of(original, read_metadata(recording.dump)))
    written = texts(life_figure(life, HEADING, "64 ticks"))
    assert "reward" not in written and any("does not record reward and value" in text for text in written)
    half = replace(records, value=nothing)
    written = texts(life_figure(longest(timeline_of(half, read_metadata(recording.dump))), HEADING, "64 ticks"))
    assert "reward" in written and "value" not in written


def test_in_very_long_lives_columns_stand_for_several_ticks() -> None:
    planted = planted_dump(agents=1, episodes=1, ticks=MOST_COLUMNS + 900, layers={"action_decoder": 2})
    life = timeline_of(planted.records, planted.metadata).life(0)
    assert "moving" in texts(life_figure(life, HEADING, f"{len(life)} ticks", strip_of(life, 3)))


def in_bouts(lives: int, ticks: int, **given: int) -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [bouts(rng, ticks, **given) for _ in range(lives)]


LIVES = {
    "normal": in_bouts(12, 50), "one life": in_bouts(1, 50), "one label": [[0] * 20, [0] * 30],
    "all noise": [[NOISE] * 20, [NOISE] * 30], "40 clusters": in_bouts(6, 400, states=40, longest=5),
    "lives of one tick": [[0], [1], [0]],
}  # fmt: skip


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow if case == "40 clusters" else ()) for case in LIVES]
)
def test_phases_and_transitions_draw(case: str) -> None:
    output = sequences_of(LIVES[case], list(range(len(LIVES[case]))))
    edges = phase_edges(output, 5)
    result = shares(output, edges, np.linspace(0, 1, 6), BOOTSTRAP)
    tested = association(output, edges, 19, seed=0)
    written = texts(life_phase_figure(result, tested, output.labels, "share of the life elapsed", HEADING, "lives"))
    assert ("29 rarer" in written or "28 rarer" in written) == (case == "40 clusters")
    seen = visits(output)
    moves, dwell = transitions(output, seen, 19, seed=0), dwelling(output, seen, BOOTSTRAP)
    texts(transitions_figure(moves, dwell, output.labels, HEADING, "from one tick to the next"))
