"""Probes of the future held to planted truths: a plan in a hidden unit, and the mere memory of the present action."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from activation_store.directions import read_directions
from activation_store.reader import read_dump, read_metadata
from activation_store.selection import Subsample
from analysis.probes.dataset import ProbeData, Wanted, read_probe_data
from analysis.probes.figures_curves import has_horizons, probe_horizon
from analysis.probes.inputs import inputs_named
from analysis.probes.probing import LINEAR, MLP, Probed, probe
from analysis.probes.report import (
    EVERY_BASELINE,
    DumpReport,
    Findings,
    chance,
    corrected_over_run,
    findings,
    report_dump,
)
from analysis.probes.scores import draw_worlds
from analysis.probes.targets import targets_named
from tests.analysis.figures.test_figures import texts as inside
from tests.command import assert_refused, run_here, run_well
from tests.hand_made_lives import HandMade, hand_made, write_hand_made

EPISODES, AGENTS, TICKS = 6, 6, 60
STEPS = np.array([[-1, 0], [1, 0], [0, 1], [0, -1], [0, 0]])
AHEAD = 10
PLAN, ACTION = "lstm_hidden", "lstm_cell"
INPUTS = inputs_named([PLAN, ACTION, "encoder_output", "observation", "history"], [2])
TARGETS = targets_named(["rows_in_2_ticks", "rows_in_10_ticks", "cols_in_2_ticks", "next_direction_is_north"])
SOON, LATER, COLS, _ = range(len(TARGETS))


@pytest.fixture(scope="module")
def dump(tmp_path_factory) -> Path:
    """Agents that walk at random, and a memory with a unit that knows the rows ten ticks ahead.

    Another memory holds the action chosen in the same tick, and nothing else. Neither is in any observation.
    """
    rng = np.random.default_rng(0)
    lives, plan, action = [], [], []
    for number in range(EPISODES * AGENTS):
        moves = rng.integers(0, 5, TICKS)
        place = 100 + np.concatenate([[[0, 0]], np.cumsum(STEPS[moves], axis=0)])  # (TICKS + 1, 2)
        lives.append(HandMade(place[:-1, 0], place[:-1, 1], moves, agent=number % AGENTS + 1, episode=number // AGENTS))
        rows = np.concatenate([place[:, 0], np.full(AHEAD, place[-1, 0])])
        plan.append(rows[AHEAD : AHEAD + TICKS] - rows[:TICKS])
        action.append(np.eye(5)[moves])
    hidden, cell, encoded = rng.normal(size=(3, EPISODES * AGENTS * TICKS, 6))
    hidden[:, 3] = np.concatenate(plan) + 0.3 * hidden[:, 3]
    cell = 0.1 * cell + np.concatenate([np.concatenate(action), np.zeros((len(cell), 1))], axis=1)
    records, metadata = hand_made(lives, {PLAN: hidden, ACTION: cell, "encoder_output": encoded})
    return write_hand_made(tmp_path_factory.mktemp("plans") / "planner", records, metadata)


@pytest.fixture(scope="module")
def data(dump: Path) -> ProbeData:
    return read_probe_data(dump, Wanted(INPUTS, TARGETS, targets_named(["action"]), Subsample()))


@pytest.fixture(scope="module")
def probed(data: ProbeData) -> Probed:
    return probe(data, TARGETS, INPUTS, [LINEAR], 0, lambda share: None)


@pytest.fixture(scope="module")
def measured(data: ProbeData, probed: Probed) -> Findings:
    return findings(probed, INPUTS, draw_worlds(data.worlds, 500, 0), chance(TARGETS))


def test_a_plan_is_found_beyond_every_baseline_and_the_present_action(measured: Findings) -> None:
    for increments in (measured.increments, measured.increments_given):
        added = increments[LINEAR, PLAN]
        assert set(added) == {"encoder_output", "observation", "history_2", EVERY_BASELINE}
        least = added[EVERY_BASELINE]
        assert least.value[LATER] > 0.5 and least.low[LATER] > 0.4 and least.q[LATER] < 0.01
        assert abs(least.value[COLS]) < 0.02 and least.p[COLS] > 0.05
    assert measured.advantages[LINEAR, PLAN].low[LATER] > 0.5


def test_the_mere_present_action_looks_like_a_plan_until_it_is_known(measured: Findings) -> None:
    without, known = (case[LINEAR, ACTION][EVERY_BASELINE] for case in (measured.increments, measured.increments_given))
    for target in (SOON, COLS):  # half of what moves the agent in two ticks is the action of the first
        assert without.low[target] > 0.3 and without.q[target] < 0.01
        assert abs(known.value[target]) < 0.01 and known.p[target] > 0.05


def test_networks_also_know_what_is_given(dump: Path) -> None:
    some = inputs_named([ACTION, "encoder_output"], [2])
    fewer = read_probe_data(dump, Wanted(some, TARGETS[:1], targets_named(["action"]), Subsample(3)))
    result = probe(fewer, TARGETS[:1], some, [MLP], 0, lambda share: None)
    alone, both = result.known[MLP, "encoder_output"], result.known_together[MLP, ACTION, "encoder_output"]
    assert alone.score[0] > 0.3 > result.losses[MLP, "encoder_output"].score[0] + 0.2
    assert both.score[0] - alone.score[0] < 0.03


def test_nothing_given_costs_nothing(data: ProbeData) -> None:
    bare = probe(replace(data, given=data.given[:, :0]), TARGETS, INPUTS[:3], [LINEAR], 0, lambda share: None)
    assert not bare.known and not bare.known_together
    none = findings(bare, INPUTS[:3], draw_worlds(data.worlds, 100, 0), chance(TARGETS))
    assert none.increments and not none.increments_given


@pytest.fixture(scope="module")
def report(dump: Path, data: ProbeData, probed: Probed, measured: Findings) -> DumpReport:
    one = report_dump("planner", read_metadata(dump), data, TARGETS, INPUTS, probed, measured, {}, {})
    return corrected_over_run([one])[0]


def test_the_report_counts_records_and_names_horizons(report: DumpReport, data: ProbeData) -> None:
    known = np.isfinite(data.targets).sum(axis=0)  # records without a known future are left out
    assert known.tolist() == [EPISODES * AGENTS * (TICKS - ahead) for ahead in (2, AHEAD, 2, 1)]
    output = {target["name"]: target for target in report.targets}
    later = output["rows_in_10_ticks"]
    assert later["records"] == EPISODES * AGENTS * (TICKS - 10)
    assert (later["curve"], later["ticks_ahead"]) == ("displacement in rows", 10)
    assert output["next_direction_is_north"]["curve"] is None
    assert {row.records for row in report.scores if row.target == "rows_in_2_ticks"} == {data.targets.shape[0] - 72}
    given = [row for row in report.increments_given if row.baseline == "every" and row.memory == PLAN]
    assert all(row.q_run is not None for row in given) and len(given) == len(TARGETS)


def curves(figure: Figure) -> list[list[list[float]]]:
    """Return the heights of all lines of every panel."""
    return [[list(line.get_ydata()) for line in axes.lines if len(line.get_xdata()) == 2] for axes in figure.axes]


def test_the_horizon_is_drawn_for_targets_at_several(report: DumpReport) -> None:
    assert has_horizons([report]) and not has_horizons([replace(report, targets=report.targets[3:])])
    figure = probe_horizon([report], PLAN, LINEAR)
    inside(figure)
    # Columns were probed at one horizon only.
    assert [axes.get_title() for axes in figure.axes] == ["displacement in rows", ""]
    assert [text.get_text() for text in figure.axes[1].get_xticklabels()] == ["2", "10"]
    scores = {(row.target, row.input): row.score for row in report.scores}
    names = ("rows_in_2_ticks", "rows_in_10_ticks")
    own, best = curves(figure)[0][:2]
    assert own == [scores[name, PLAN] for name in names]
    baselines = ("encoder_output", "observation", "history_2")
    assert best == [max(scores[name, baseline] or 0 for baseline in baselines) for name in names]
    for line, rows in zip(curves(figure)[1], (report.increments, report.increments_given), strict=False):
        output = {(row.target, row.baseline): row.increment for row in rows if row.memory == PLAN}
        strongest = [max(baselines, key=lambda baseline, name=name: scores[name, baseline]) for name in names]
        assert line == [output[name, baseline] for name, baseline in zip(names, strongest, strict=True)]


def test_a_run_leaves_the_future_like_any_other_target(dump: Path, tmp_path: Path) -> None:
    done = run_well(
        "train_probes.py", dump, "--targets", "rows_in_2_ticks,rows_in_10_ticks", "--given", "tick,action", "--probes",
        "linear", "--inputs", f"{PLAN},encoder_output", "--resamples", 100, "--name", "run", "--output-dir", tmp_path,
    )  # fmt: skip
    output = " ".join(done.stdout.split())
    assert "Once the given variables are known, it adds to every baseline for" in output
    assert "For 2 targets, 3.3% to 16.7% of the records are left out" in output
    folder = tmp_path / "run"
    assert (folder / "probe_horizon.png").stat().st_size > 10_000
    lines = (folder / "probe_increments_given.tsv").read_text().splitlines()
    assert len(lines) == 1 + 2 * 2 and "increment" in lines[0]
    directions = read_directions(folder / "directions.safetensors")
    plan = directions.named(f"planner/{PLAN}/rows_in_10_ticks")
    assert plan.unit == "tiles" and np.abs(plan.weight).argmax() == 3 and plan.records == EPISODES * AGENTS * 50
    read_out = plan.read_out(read_dump(dump).activations[PLAN])
    assert read_out.std() == pytest.approx(plan.spread, rel=0.2)


def test_the_future_cannot_be_given(dump: Path, tmp_path: Path) -> None:
    done = run_here("train_probes.py", dump, "--given", "rows_in_2_ticks", "--output-dir", tmp_path)
    assert_refused(done, "does not apply to every record")
