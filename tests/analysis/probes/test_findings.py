"""Probes held to planted truths: a memory that counts, what the input shows, and what nobody can know."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from activation_store.directions import Source, read_directions, write_directions
from analysis.probes.dataset import ProbeData
from analysis.probes.probe_run import _cells, _statements, directions_of, headline
from analysis.probes.probing import LINEAR, MLP, PROBES, Probed, probe
from analysis.probes.report import (
    EVERY_BASELINE,
    AdvantageRow,
    Findings,
    IncrementRow,
    chance,
    commonality,
    findings,
)
from analysis.probes.scores import Losses, draw_worlds
from tests.planted_probes import INPUTS as ALL_INPUTS
from tests.planted_probes import NAMES, TARGETS, UNITS, counting_memory, planted_lives

INPUTS = [source for source in ALL_INPUTS if source.name != "lstm_cell"]
ALIKE = ("lstm_hidden", "observation")
SINCE, LONG_AGO, SHOWN, CUE, NOISE, COIN = range(len(TARGETS))


@pytest.fixture(scope="module")
def data() -> ProbeData:
    assert NAMES[SINCE] == "ticks_since_cue" and NAMES[COIN] == "coin"
    return counting_memory()


@pytest.fixture(scope="module")
def resamples(data: ProbeData) -> np.ndarray:
    return draw_worlds(data.worlds, 1000, seed=0)


@pytest.fixture(scope="module")
def probed(data: ProbeData) -> Probed:
    return probe(data, TARGETS, INPUTS, PROBES, 0, lambda share: None)


@pytest.fixture(scope="module")
def measured(probed: Probed, resamples: np.ndarray) -> Findings:
    return findings(probed, INPUTS, resamples, chance(TARGETS))


def test_a_memory_that_counts_has_a_large_advantage_and_adds_to_every_baseline(measured: Findings) -> None:
    for probe_kind in PROBES:
        advantage = measured.advantages[probe_kind, "lstm_hidden"]
        assert advantage.value[SINCE] > 0.3 and advantage.low[SINCE] > 0.2
        assert advantage.q[SINCE] < 0.001
        assert advantage.low[LONG_AGO] > 0 and advantage.q[LONG_AGO] < 0.05
    assert measured.scores[LINEAR, "lstm_hidden"].value[SINCE] > 0.9
    assert measured.selectivities[LINEAR, "lstm_hidden"].low[SINCE] > 0.5
    for probe_kind in PROBES:
        added = measured.increments[probe_kind, "lstm_hidden"]
        assert set(added) == {"observation", "history_3", "untrained", EVERY_BASELINE}
        assert added[EVERY_BASELINE].low[SINCE] > 0.2 and added[EVERY_BASELINE].q[SINCE] < 0.001, probe_kind
        for target in (SHOWN, CUE, NOISE, COIN):
            assert added[EVERY_BASELINE].p[target] > 0.05, (probe_kind, target)
            assert added[EVERY_BASELINE].value[target] < 0.02, (probe_kind, target)
        assert added[EVERY_BASELINE].over[SINCE][1] in added


def test_what_is_shown_gives_no_advantage_and_noise_is_not_known(measured: Findings, data: ProbeData) -> None:
    for key, advantage in measured.advantages.items():
        assert advantage.low[SHOWN] <= 0 and advantage.q[SHOWN] > 0.5, key
        # Every probe but the networks ranks the cue without a fault: no difference, and nothing to test.
        assert advantage.value[CUE] <= 0 and not advantage.q[CUE] < 0.5, key
    assert measured.scores[LINEAR, "observation"].value[SHOWN] > 0.999
    for key, selectivity in measured.selectivities.items():
        assert (selectivity.low[[NOISE, COIN]] < 0).all(), key
        assert selectivity.q[[NOISE, COIN]].min() > 0.05, key
    for key, score in measured.scores.items():
        assert score.value[NOISE] < 0.05 and abs(score.value[COIN] - 0.5) < 0.05, key
    precise = measured.precision[LINEAR, "observation"]
    assert precise.value[CUE] > 0.999 and np.isnan(precise.value[[SINCE, SHOWN, NOISE]]).all()
    share = data.targets[:, COIN].mean()
    assert abs(precise.value[COIN] - share) < 0.05 and precise.low[COIN] < share < precise.high[COIN] + 0.03


def test_an_increment_to_some_baselines_only_is_none_to_every_one() -> None:
    """Planted losses: the memory adds to one of two baselines, in many targets; few are found, as the level says."""
    rng = np.random.default_rng(0)
    stake = np.full((8, 400), 100.0)
    noise = lambda: 2 * rng.normal(size=stake.shape)  # noqa: E731
    baselines = {(LINEAR, name): Losses(60 + noise(), stake) for name in ("observation", "history_3")}
    lost = {"observation": 40, "history_3": 60}
    together = {(LINEAR, "lstm_hidden", name): Losses(mean + noise(), stake) for name, mean in lost.items()}
    memory = {(LINEAR, "lstm_hidden"): Losses(50 + noise(), stake)}
    planted = Probed((None,) * 400, baselines | memory, controls=memory, together=together)
    inputs = [item for item in INPUTS if item.name in ("lstm_hidden", "observation", "history_3")]
    added = findings(planted, inputs, draw_worlds(8, 400, 0), np.zeros(400)).increments[LINEAR, "lstm_hidden"]
    assert 0.01 < (added[EVERY_BASELINE].p < 0.05).mean() < 0.08
    assert added["observation"].low.min() > 0 and set(added[EVERY_BASELINE].over) == {(LINEAR, "history_3")}
    np.testing.assert_array_equal(added[EVERY_BASELINE].value, added["history_3"].value)


def test_a_network_finds_what_no_line_can(data: ProbeData, resamples: np.ndarray) -> None:
    """The square of what is shown is no linear function of it."""
    square = replace(data, targets=data.targets[:, [SHOWN]] ** 2, inputs={"observation": data.inputs["observation"]})
    inputs = [item for item in INPUTS if item.name == "observation"]
    result = probe(square, TARGETS[SHOWN : SHOWN + 1], inputs, PROBES, 0, lambda share: None).losses
    assert result[LINEAR, "observation"].score[0] < 0.3 < 0.6 < result[MLP, "observation"].score[0]


def test_what_is_given_is_taken_off_the_memory(data: ProbeData, resamples: np.ndarray) -> None:
    """Given the cue's count itself nothing remains; given noise everything does."""
    usable = np.ones(len(TARGETS), bool)
    for column, low, high in ((SINCE, -0.02, 0.05), (NOISE, 0.95, 1.05)):
        split = commonality(replace(data, given=data.targets[:, [column]]), "lstm_hidden", usable, resamples)
        assert low < split["remaining"].value[SINCE] < high
        whole = split["only_memory"].value + split["only_given"].value + split["common"].value
        np.testing.assert_allclose(whole, split["both"].value, atol=1e-12)
        assert np.isnan(split["remaining"].value[NOISE])


def test_targets_that_cannot_be_probed_say_why(data: ProbeData, probed: Probed) -> None:
    targets = data.targets.copy()
    targets[:, SINCE] = 3
    targets[:, LONG_AGO] = np.arange(len(targets)) < 7
    targets[:, SHOWN] = np.nan
    targets[data.world != 0, NOISE] = 0
    few = probe(replace(data, targets=targets), TARGETS, INPUTS[:1], PROBES, 0, lambda share: None)
    assert few.reasons[SINCE] == "is 3 in every record"
    assert few.reasons[LONG_AGO] == "only 7 records say yes, in 1 parts of the split"
    assert few.reasons[SHOWN] == "applies to no record"
    assert few.reasons[NOISE] == "varies in only 1 parts of the split"
    assert few.reasons[CUE] is None and few.reasons[COIN] is None
    for losses in few.losses.values():
        assert np.isnan(losses.score[[SINCE, LONG_AGO, SHOWN, NOISE]]).all() and np.isfinite(losses.score[CUE])
    targets = data.targets.copy()
    targets[::3, SINCE] = np.nan
    part = probe(replace(data, targets=targets), TARGETS, INPUTS[:1], PROBES, 0, lambda share: None)
    for key, losses in part.losses.items():
        assert abs(losses.score[SINCE] - probed.losses[key].score[SINCE]) < 0.05
    one, other = (item.losses[LINEAR, "lstm_hidden"].lost[:, CUE] for item in (part, probed))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("worlds", [4, 8, 16])
def test_false_discoveries_stay_as_rare_as_promised(worlds: int) -> None:
    """Two inputs that are equally good, and many targets: an advantage is hardly ever found, and p is not too small."""
    rng = np.random.default_rng(0)
    targets, results, tested = 40, [], []
    for seed in range(60):
        stake = rng.uniform(50, 150, (worlds, targets))
        lost = [stake * np.clip(0.5 + 0.1 * rng.normal(size=stake.shape), 0, 1) for _ in range(2)]
        scored = {(LINEAR, name): Losses(item, stake) for name, item in zip(ALIKE, lost, strict=True)}
        same = Probed((None,) * targets, scored, controls={(LINEAR, "lstm_hidden"): Losses(lost[1], stake)})
        inputs = [item for item in INPUTS if item.name in ALIKE]
        result = findings(same, inputs, draw_worlds(worlds, 400, seed), np.zeros(targets))
        advantage = result.advantages[LINEAR, "lstm_hidden"]
        tested.append(advantage.p)
        results.append((advantage.q < 0.05).any())
    assert 0.02 < (np.concatenate(tested) < 0.05).mean() < 0.075
    assert np.mean(results) < 0.15


def test_the_best_of_many_baselines_errs_towards_no_advantage() -> None:
    rng = np.random.default_rng(1)
    stake = np.full((8, 300), 100.0)
    names = ("lstm_hidden", "observation", "history_3", "untrained")
    lost = {(LINEAR, name): Losses(50 + 10 * rng.normal(size=stake.shape), stake) for name in names}
    same = Probed((None,) * 300, lost, controls={(LINEAR, "lstm_hidden"): lost[LINEAR, "observation"]})
    inputs = [item for item in INPUTS if item.name in names]
    advantage = findings(same, inputs, draw_worlds(8, 400, 0), np.zeros(300)).advantages[LINEAR, "lstm_hidden"]
    assert (advantage.p < 0.05).mean() < 0.03
    assert advantage.bias.mean() < 0


LAYER = "lstm_cell"
FLAT = 5
"""A unit of the layer that never changes, and that probes are therefore not given."""
SOURCE = Source("probe", "run", "dump", "counter", None)
NOT_EVERYWHERE = NAMES.index("shown")


def raw_data() -> tuple[np.ndarray, ProbeData]:
    """All units of the layer, (B, UNITS + 1) float32, and targets that they tell with some noise.

    The units are far from 0 and on scales that differ by five orders; one target is of some records only.
    """
    lives, world = planted_lives()
    values = np.random.default_rng(0).normal(size=(len(lives.index), UNITS)) + 3
    raw = np.insert(values * np.logspace(-3, 2, UNITS), FLAT, 0.7, axis=1).astype(np.float32)
    varying = np.arange(UNITS + 1) != FLAT
    x, rng = raw[:, varying], np.random.default_rng(1)
    output = (x - x.mean(axis=0)) / x.std(axis=0) @ rng.normal(size=(UNITS, len(TARGETS)))
    output += rng.normal(size=output.shape)
    targets = np.where([target.yes_or_no for target in TARGETS], output > 0, output)
    targets[lives.index % 5 == 0, NOT_EVERYWHERE] = np.nan
    return raw, ProbeData(
        inputs={LAYER: x}, varying={LAYER: varying}, targets=targets, given=np.empty((len(world), 0)), world=world,
        episode=world, lives=lives, by_map=True, networks={}, bands={},
    )  # fmt: skip


def test_the_file_says_what_the_probes_say(tmp_path: Path) -> None:
    raw, data = raw_data()
    inputs = [item for item in ALL_INPUTS if item.name == LAYER]
    linear = probe(data, TARGETS, inputs, [LINEAR], 0, lambda share: None)
    write_directions(tmp_path / "measured", directions_of(data, TARGETS, linear.read_outs, SOURCE))
    result = read_directions(tmp_path / "measured")
    assert [item.name for item in result] == [f"dump/{LAYER}/{name}" for name in NAMES]
    predicted = linear.read_outs[LAYER].predict(data.inputs[LAYER].astype(np.float64))  # (B, T)
    for column, (target, item) in enumerate(zip(TARGETS, result, strict=True)):
        value = item.read_out(raw)
        np.testing.assert_allclose(value, predicted[:, column], atol=1e-5, rtol=0)
        assert item.weight.shape == (UNITS + 1,) and item.weight[FLAT] == 0
        assert item.unit == ("log-odds" if target.yes_or_no else target.unit)
        applies = np.isfinite(data.targets[:, column])
        assert item.mean == pytest.approx(value[applies].mean()) and item.spread == pytest.approx(value[applies].std())
        counts = (applies.sum(), *(len(np.unique(of[applies])) for of in (data.lives.index, data.episode)))
        assert (item.records, item.lives, item.episodes) == counts
        assert applies.all() == (column != NOT_EVERYWHERE)
    read_out = linear.read_outs[LAYER]
    bias, weight = read_out.bias.copy(), read_out.weight.copy()
    bias[1], weight[:, 2] = np.nan, 0
    fewer = directions_of(data, TARGETS, {LAYER: replace(read_out, bias=bias, weight=weight)}, SOURCE)
    assert [item.name.split("/")[-1] for item in fewer] == [name for i, name in enumerate(NAMES) if i not in (1, 2)]


def test_without_baselines_it_says_so_and_not_that_none_of_none_were_found() -> None:
    row = AdvantageRow("dump", "food", "R2", LINEAR, "lstm_hidden", 0.5, *[None] * 15)
    nothing: Any = SimpleNamespace(advantages=[row], increments=[], increments_given=[])
    (line,) = _statements(nothing, "lstm_hidden")
    assert line.startswith("No baseline is among the inputs") and "--inputs" in line


def test_the_terminal_calls_no_q_0() -> None:
    row = AdvantageRow("dump", "food", "R2", LINEAR, "lstm_hidden", 0.5, *[None] * 15)
    added = IncrementRow(
        "dump", "food", "R2", LINEAR, "lstm_hidden", EVERY_BASELINE, "observation", 0.1, 0.0, 0.2, *[4e-5] * 3
    )
    assert [_cells(row, one)[-1] for one in (added, replace(added, q_run=0.03), None)] == ["<0.001", "0.030", "n/a"]


def test_the_terminal_shows_first_to_what_the_memory_adds_most() -> None:
    """To nothing at all it adds more than less than nothing."""
    adds = {"less": -0.2, "nothing": 0.0, "unknown": None, "more": 0.1}
    key = ("R2", LINEAR, "lstm_hidden")
    report: Any = SimpleNamespace(
        name="dump", inputs=("lstm_hidden", "observation"), scores=[SimpleNamespace(probe=LINEAR)], targets=(),
        advantages=[AdvantageRow("dump", name, *key, 0.5, "observation", LINEAR, 0.0, *[None] * 12) for name in adds],
        increments=[
            IncrementRow("dump", name, *key, EVERY_BASELINE, "observation", value, *[None] * 5)
            for name, value in adds.items()
        ],
        increments_given=[], missing=(), records=9, worlds=3, worlds_are="maps",
    )  # fmt: skip
    assert list(headline(report).columns[0].cells) == ["more", "nothing", "less", "unknown"]
