"""Figures of probes, above all those of little or nothing: they must say so, not fail."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

from analysis.probes.figures_curves import has_history_curve, probe_emergence, probe_history
from analysis.probes.figures_targets import probe_advantage, probe_increment, probe_summary
from analysis.probes.report import (
    EVERY_BASELINE,
    AdvantageRow,
    CKARow,
    DumpReport,
    IncrementRow,
    ScoreRow,
    corrected_over_run,
)  # fmt: skip
from tests.analysis.figures.test_figures import texts as inside

INPUTS = ("lstm_hidden", "observation")


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
        scores += [ScoreRow(*about, case, "memory", 90, *numbers, *numbers) for case in INPUTS]
        beyond = (gain, gain - 0.1, gain + 0.1, 0.01, 0.02, 0.03, -0.01) if known else (None,) * 7
        rest = ("observation", "mlp", *beyond, *(0.1,) * 6)
        advantages.append(AdvantageRow(*about, "lstm_hidden", numbers[0], *rest))  # type: ignore[arg-type]
        increments.append(IncrementRow(*about, "lstm_hidden", EVERY_BASELINE, "observation", *beyond[:6]))
    cka = (CKARow("x", "encoder_output", "lstm_hidden", 0.8, 0.7, 0.9),) if known else ()
    return DumpReport(
        f"{name}_{steps:010d}", f"{name}_{steps:010d}", "agent", steps, 100, 10, 4, "episodes", INPUTS, (),
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


def test_increments_are_counted_by_their_q_over_the_run() -> None:
    one = report(1, 8)
    figure = probe_increment([one], "lstm_hidden", "linear")
    assert "hidden state adds to every baseline for" in figure.get_suptitle()
    better = sum((row.increment or 0) > 0 for row in one.increments)
    assert 0 < better < 8 and f"for {better} of 8 targets\n" in figure.get_suptitle()
    alone = replace(one, increments=tuple(replace(row, q_run=0.2) for row in one.increments))
    assert "for 0 of 8 targets\n" in probe_increment([alone], "lstm_hidden", "linear").get_suptitle()


def test_q_of_a_run_is_over_all_of_its_dumps() -> None:
    corrected = corrected_over_run([report(1, 2), report(2, 30)])
    assert [len(item.advantages) for item in corrected] == [2, 30]
    assert {row.q_run for item in corrected for row in item.advantages} == {0.01}  # all p-values are alike
    rows = [replace(row, p=p) for row, p in zip(report(1, 4).advantages, (0.001, 0.02, 0.5, None), strict=True)]
    (first,) = corrected_over_run([replace(report(1, 4), advantages=tuple(rows))])
    assert [row.q_run for row in first.advantages] == pytest.approx([0.003, 0.03, 0.5, None])


def curve() -> DumpReport:
    one = report(0, 3)
    inputs = ("lstm_hidden", "observation", "history_4", "history_16", "traces")
    rows = [replace(row, input=name) for row in one.scores if row.input == "observation" for name in inputs]
    return replace(one, inputs=inputs, scores=tuple(rows))


def test_the_look_back_is_drawn_from_one_observation_on() -> None:
    assert has_history_curve([report(0), curve()]) and not has_history_curve([report(0)])
    figure = probe_history([report(0), curve()], "lstm_hidden", "linear")
    assert "target_0 (R2)" in texts(figure)
    panel = figure.axes[0]
    ticks = [line.get_xdata() for line in panel.lines if line.get_marker() == "o"]
    assert [list(tick) for tick in ticks] == [[1, 4, 16]]
    assert [text.get_text() for text in panel.get_xticklabels()] == ["1", "4", "16"]
    inside(figure)


def test_long_names_stay_inside_the_pictures() -> None:
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
