"""What only drifts with the time, as clusters do too, does not survive once tick and age are held constant."""

import numpy as np

from analysis.statistics.circular_shift import circular_shift_test
from analysis.statistics.given_time import age_of, shift_test_given_time, time_course
from analysis.statistics.inference import LEVEL, Inference
from tests.planted_lives import drifting_together, make_lives

RUNS = 40


def test_what_drifts_with_the_tick_survives_without_it_only() -> None:
    plain, given_time = 0, 0
    for run in range(RUNS):
        features, labels, lives, tick = drifting_together(np.random.default_rng([21, run]))
        settings, episode = Inference(permutations=99, seed=run), np.zeros(len(tick), np.int64)
        found = circular_shift_test(features, labels, lives, 99, run, episode)
        again = shift_test_given_time(features, labels, lives, tick, episode, found, found.q <= LEVEL, settings)
        plain += bool((found.q <= LEVEL).any())
        given_time += bool((again.q <= LEVEL).any())
    assert plain > 0.2 * RUNS and given_time <= LEVEL * RUNS


def test_behaviour_beyond_the_tick_survives_both() -> None:
    features, labels, lives, tick = drifting_together(np.random.default_rng([21, 0]), lift=1.5)
    episode = np.zeros(len(tick), np.int64)
    found = circular_shift_test(features, labels, lives, 199, 0, episode)
    again = shift_test_given_time(features, labels, lives, tick, episode, found, found.q <= LEVEL, Inference(199))
    assert found.q[0, 0] <= LEVEL and again.q[0, 0] <= LEVEL and again.direction[0, 0] == 1


def test_courses_over_tick_and_age_are_told_apart_and_followed() -> None:
    """Lives begin at different ticks; each begins with a jump that lasts one record."""
    lengths, births = [60] * 30, np.arange(30) * 7
    lives, age = make_lives(lengths), np.tile(np.arange(60), 30)
    tick = np.repeat(births, 60) + age
    truth = np.sin(tick / 40) + 0.02 * age + 5 * (age == 0)
    course = time_course(np.column_stack([truth, tick]), tick, age_of(tick, lives))
    rest = np.column_stack([truth, tick]) - course.explained(tick, age)
    assert np.abs(rest[:, 0]).max() < 0.02 and np.abs(rest[:, 1]).max() < 1e-6


def test_what_tick_and_age_explain_whole_cannot_be_tested() -> None:
    _, labels, lives, tick = drifting_together(np.random.default_rng([21, 1]))
    features, episode = tick[:, None].astype(float), np.zeros(len(tick), np.int64)
    found = circular_shift_test(features, labels, lives, 99, 0, episode)
    again = shift_test_given_time(features, labels, lives, tick, episode, found, np.full((1, 1), True), Inference(99))
    assert np.isfinite(found.p).all() and np.isnan(again.p).all() and np.isnan(again.q).all()
