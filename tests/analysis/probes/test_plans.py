"""Probes of the future held to planted truths, and figures of probes, also those of little or nothing."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from activation_store.reader import read_metadata
from activation_store.selection import Subsample
from analysis.probes.dataset import ProbeData, Wanted, read_probe_data
from analysis.probes.figures_curves import (
    has_history_curve,
    has_horizons,
    probe_emergence,
    probe_history,
    probe_horizon,
)
from analysis.probes.figures_targets import probe_advantage, probe_increment, probe_summary
from analysis.probes.inputs import inputs_named
from analysis.probes.probing import LINEAR, MLP, Probed, probe
from analysis.probes.report import (
    EVERY_BASELINE,
    AdvantageRow,
    CKARow,
    DumpReport,
    Findings,
    IncrementRow,
    ScoreRow,
    chance,
    corrected_over_run,
    findings,
    report_dump,
)  # fmt: skip
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


def test_a_plan_is_found_beyond_every_baseline_and_a_mere_action_is_not(
    measured: Findings,
) -> None:
    for increments in (measured.increments, measured.increments_given):
        added = increments[LINEAR, PLAN]
        assert set(added) == {"encoder_output", "observation", "history_2", EVERY_BASELINE}
        least = added[EVERY_BASELINE]
        assert least.value[LATER] > 0.5 and least.low[LATER] > 0.4 and least.q[LATER] < 0.01
        assert abs(least.value[COLS]) < 0.02 and least.p[COLS] > 0.05
    assert measured.advantages[LINEAR, PLAN].low[LATER] > 0.5
    without, known = (case[LINEAR, ACTION][EVERY_BASELINE] for case in (measured.increments, measured.increments_given))
    for target in (SOON, COLS):  # half of what moves the agent in two ticks is the action of the first
        assert without.low[target] > 0.3 and without.q[target] < 0.01
        assert abs(known.value[target]) < 0.01 and known.p[target] > 0.05


def test_networks_know_what_is_given_which_is_never_the_future(dump: Path, data: ProbeData, tmp_path: Path) -> None:
    some = inputs_named([ACTION, "encoder_output"], [2])
    fewer = read_probe_data(dump, Wanted(some, TARGETS[:1], targets_named(["action"]), Subsample(3)))
    result = probe(fewer, TARGETS[:1], some, [MLP], 0, lambda share: None)
    alone, both = result.known[MLP, "encoder_output"], result.known_together[MLP, ACTION, "encoder_output"]
    assert alone.score[0] > 0.3 > result.losses[MLP, "encoder_output"].score[0] + 0.2
    assert both.score[0] - alone.score[0] < 0.03
    bare = probe(replace(data, given=data.given[:, :0]), TARGETS, INPUTS[:3], [LINEAR], 0, lambda share: None)
    assert not bare.known and not bare.known_together
    none = findings(bare, INPUTS[:3], draw_worlds(data.worlds, 100, 0), chance(TARGETS))
    assert none.increments and not none.increments_given
    done = run_here("train_probes.py", dump, "--given", "rows_in_2_ticks", "--output-dir", tmp_path)
    assert_refused(done, "does not apply to every record")


def test_the_report_names_horizons_which_are_drawn_for_targets_at_several(
    dump: Path, data: ProbeData, probed: Probed, measured: Findings
) -> None:
    one = report_dump("planner", read_metadata(dump), data, TARGETS, INPUTS, probed, measured, {}, {})
    (report,) = corrected_over_run([one])
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


def curves(figure: Figure) -> list[list[list[float]]]:
    """Return the heights of all lines of every panel."""
    return [[list(line.get_ydata()) for line in axes.lines if len(line.get_xdata()) == 2] for axes in figure.axes]


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


DRAWN = ("lstm_hidden", "observation")


def report(steps: int = 0, targets: int = 3, known: bool = True, name: str = "a$b") -> DumpReport:
    rng = np.random.default_rng(steps)
    described = [
        {"name": f"target_{i}", "unit": "0 or 1" if i % 2 else "ticks", "definition": "Planted.",
         "measure": "AUC" if i % 2 else "R2", "chance": 0.0, "reason": None if known else "is constant",
         "records": 90, "curve": None, "ticks_ahead": None}
        for i in range(targets)
    ]  # fmt: skip
    scores, advantages, increments = [], [], []
    for target in described:
        about = (f"{name}_{steps:010d}", target["name"], target["measure"], "linear")
        value, gain = (float(case) for case in (rng.uniform(0.5, 1), rng.normal(0, 0.2)))
        numbers = (value, value - 0.1, value + 0.1) if known else (None,) * 3
        scores += [ScoreRow(*about, case, "memory", 90, *numbers, *numbers) for case in DRAWN]
        beyond = (gain, gain - 0.1, gain + 0.1, 0.01, 0.02, 0.03, -0.01) if known else (None,) * 7
        rest = ("observation", "mlp", *beyond, *(0.1,) * 6)
        advantages.append(AdvantageRow(*about, "lstm_hidden", numbers[0], *rest))  # type: ignore[arg-type]
        increments.append(IncrementRow(*about, "lstm_hidden", EVERY_BASELINE, "observation", *beyond[:6]))
    cka = (CKARow("x", "encoder_output", "lstm_hidden", 0.8, 0.7, 0.9),) if known else ()
    return DumpReport(
        f"{name}_{steps:010d}", f"{name}_{steps:010d}", "agent", steps, 100, 10, 4, "episodes", DRAWN, (),
        tuple(described), tuple(scores), tuple(advantages), tuple(increments), (), cka,
    )  # fmt: skip


def texts(figure: Figure) -> str:
    figure.draw_without_rendering()
    result = [text.get_text() for axes in figure.axes for text in (*axes.texts, axes.title, *axes.get_yticklabels())]
    return " ".join([figure.get_suptitle(), *result])


@pytest.mark.parametrize(
    "reports",
    [[report()], [report(targets=1)], [report(known=False)], [report(0), report(5), report(9)],
     [report(n, 30) for n in range(9)], [report(3, name="seeing"), report(3, name="masked", known=False)]],
    ids=["one", "one target", "nothing known", "checkpoints", "many", "one of two known"],
)  # fmt: skip
def test_every_figure_can_be_drawn(reports: Sequence[DumpReport]) -> None:
    shown = texts(probe_summary(reports)), texts(probe_advantage(reports, "lstm_hidden", "linear"))
    assert "target_0" in shown[0] and "R2 (chance 0)" in shown[0]
    known = any(row.advantage is not None for item in reports for row in item.advantages)
    assert ("target_0" in shown[1]) == known
    assert known or shown[1].count("could be probed") == 2
    assert ("none could be probed" in texts(probe_emergence(reports, "lstm_hidden", "linear"))) == (not known)


def test_advantages_are_sorted_those_above_0_have_filled_marks_and_the_title_counts_them() -> None:
    one = report(1, 8)
    figure = probe_advantage([one], "lstm_hidden", "linear")
    marks = [line for axes in figure.axes for line in axes.lines if line.get_marker() == "o"]
    filled = [line.get_xdata()[0] for line in marks if line.get_markerfacecolor() != "white"]
    gains = [row.advantage for row in one.advantages if row.advantage is not None and row.advantage > 0]
    assert sorted(filled) == sorted(gains)
    texts(figure)
    gain = {row.target: row.advantage or 0 for row in one.advantages}
    for axes in figure.axes:
        shown = [gain[text.get_text()] for text in axes.get_yticklabels()]
        assert shown == sorted(shown, reverse=True) and len(shown) == 4
    better = sum(item > 0 for item in gain.values())
    assert f"predicts {better} of 8 targets better than every baseline\n" in figure.get_suptitle()
    (legend,) = figure.legends
    assert legend.get_texts()[0].get_text().endswith(f"({better} of 8 targets above 0)")


def test_increments_are_counted_by_their_q_over_the_run_which_is_of_all_dumps() -> None:
    one = report(1, 8)
    figure = probe_increment([one], "lstm_hidden", "linear")
    assert "hidden state adds to every baseline for" in figure.get_suptitle()
    better = sum((row.increment or 0) > 0 for row in one.increments)
    assert 0 < better < 8 and f"for {better} of 8 targets\n" in figure.get_suptitle()
    alone = replace(one, increments=tuple(replace(row, q_run=0.2) for row in one.increments))
    assert "for 0 of 8 targets\n" in probe_increment([alone], "lstm_hidden", "linear").get_suptitle()
    corrected = corrected_over_run([report(1, 2), report(2, 30)])
    assert [len(item.advantages) for item in corrected] == [2, 30]
    assert {row.q_run for item in corrected for row in item.advantages} == {0.01}  # all p-values are alike
    rows = [replace(row, p=p) for row, p in zip(report(1, 4).advantages, (0.001, 0.02, 0.5, None), strict=True)]
    (first,) = corrected_over_run([replace(report(1, 4), advantages=tuple(rows))])
    assert [row.q_run for row in first.advantages] == pytest.approx([0.003, 0.03, 0.5, None])


def test_the_look_back_is_drawn_from_one_observation_on_and_long_names_fit() -> None:
    one = report(0, 3)
    inputs = ("lstm_hidden", "observation", "history_4", "history_16", "traces")
    rows = [replace(row, input=name) for row in one.scores if row.input == "observation" for name in inputs]
    both = [report(0), replace(one, inputs=inputs, scores=tuple(rows))]
    assert has_history_curve(both) and not has_history_curve([report(0)])
    figure = probe_history(both, "lstm_hidden", "linear")
    assert "target_0 (R2)" in texts(figure)
    panel = figure.axes[0]
    ticks = [line.get_xdata() for line in panel.lines if line.get_marker() == "o"]
    assert [list(tick) for tick in ticks] == [[1, 4, 16]]
    assert [text.get_text() for text in panel.get_xticklabels()] == ["1", "4", "16"]
    inside(figure)
    poor = tuple(replace(row, score=-3.0) if row.input == "history_4" else row for row in rows)
    panel = probe_history([replace(both[1], scores=poor)], "lstm_hidden", "linear").axes[0]
    (line,) = [line for line in panel.lines if line.get_marker() == "o"]
    assert line.get_ydata()[1] == -3 and panel.get_ylim()[0] == -0.25  # out of the panel, not at its end
    long = [report(n, name="a_run_with_a_long_name_" * 6) for n in (0, 5)]
    hidden = ("lstm_hidden", "linear")
    drawn = (probe_advantage, probe_increment, probe_emergence)
    for figure in (probe_summary(long), *(draw(long, *hidden) for draw in drawn)):
        inside(figure)


def test_emergence_draws_the_largest_advantages_says_so_and_names_only_lines_that_are_drawn() -> None:
    reports = [report(n, 30) for n in (0, 7)]
    figure = probe_emergence(reports, "lstm_hidden", "linear")
    assert "the 11 of 30 targets" in texts(figure)
    largest = {t: max(r.advantages[t].advantage or 0 for r in reports) for t in range(30)}
    best = {f"target_{t}" for t in sorted(largest, key=lambda t: -largest[t])[:11]}
    titles = {axes.get_title() for axes in figure.axes} - {"", "similarity of layers (CKA)"}
    assert {text.split(" (")[0] for text in titles} == best and all(text.endswith(("(R2)", "(AUC)")) for text in titles)
    (legend,) = probe_emergence([report(n) for n in (0, 7)], "lstm_hidden", "linear").legends
    output = [text.get_text() for text in legend.get_texts()]
    assert [text for text in output if text.startswith("CKA")] == ["CKA of hidden state and encoder output"]
