"""Directions of linear probes say of raw activations exactly what the probes say."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from activation_store.directions import Source, read_directions, write_directions
from analysis.probes.dataset import ProbeData
from analysis.probes.probe_run import _statements, directions_of
from analysis.probes.probing import LINEAR, Probed, probe
from analysis.probes.report import AdvantageRow
from tests.planted_probes import INPUTS, NAMES, TARGETS, UNITS, planted_lives

LAYER = "lstm_cell"
FLAT = 5
"""A unit of the layer that never changes, and that probes are therefore not given."""
SOURCE = Source("probe", "run", "dump", "counter", None)
NOT_EVERYWHERE = NAMES.index("shown")


@pytest.fixture(scope="module")
def raw() -> np.ndarray:
    """All units of the layer, far from 0 and on scales that differ by five orders, (B, UNITS + 1) float32."""
    lives, _ = planted_lives()
    scale = np.logspace(-3, 2, UNITS)
    values = (np.random.default_rng(0).normal(size=(len(lives.index), UNITS)) + 3) * scale
    return np.insert(values, FLAT, 0.7, axis=1).astype(np.float32)


@pytest.fixture(scope="module")
def data(raw: np.ndarray) -> ProbeData:
    """Numbers and yes-or-no targets that the units tell with some noise, one of them of some records only."""
    lives, world = planted_lives()
    varying = np.arange(UNITS + 1) != FLAT
    x, rng = raw[:, varying], np.random.default_rng(1)
    output = (x - x.mean(axis=0)) / x.std(axis=0) @ rng.normal(size=(UNITS, len(TARGETS)))
    output += rng.normal(size=output.shape)
    targets = np.where([target.yes_or_no for target in TARGETS], output > 0, output)
    targets[lives.index % 5 == 0, NOT_EVERYWHERE] = np.nan
    return ProbeData(
        inputs={LAYER: x}, varying={LAYER: varying}, targets=targets, given=np.empty((len(world), 0)), world=world,
        episode=world, lives=lives, by_map=True, networks={}, bands={},
    )  # fmt: skip


@pytest.fixture(scope="module")
def probed(data: ProbeData) -> Probed:
    inputs = [item for item in INPUTS if item.name == LAYER]
    return probe(data, TARGETS, inputs, [LINEAR], 0, lambda share: None)


def test_the_file_says_what_the_probes_say(data: ProbeData, probed: Probed, raw: np.ndarray, tmp_path) -> None:
    write_directions(tmp_path / "found", directions_of(data, TARGETS, probed.read_outs, SOURCE))
    result = read_directions(tmp_path / "found")
    assert [item.name for item in result] == [f"dump/{LAYER}/{name}" for name in NAMES]
    predicted = probed.read_outs[LAYER].predict(data.inputs[LAYER].astype(np.float64))  # (B, T)
    for column, (target, item) in enumerate(zip(TARGETS, result, strict=True)):
        value = item.read_out(raw)
        np.testing.assert_allclose(value, predicted[:, column], atol=1e-5, rtol=0)
        assert item.weight.shape == (UNITS + 1,) and item.weight[FLAT] == 0
        assert item.unit == ("log-odds" if target.yes_or_no else target.unit)
        applies = np.isfinite(data.targets[:, column])
        assert item.mean == pytest.approx(value[applies].mean()) and item.spread == pytest.approx(value[applies].std())
        counts = (applies.sum(), len(np.unique(data.lives.index[applies])), len(np.unique(data.episode[applies])))
        assert (item.records, item.lives, item.episodes) == counts
        assert applies.all() == (column != NOT_EVERYWHERE)


def test_what_was_not_probed_has_no_direction(data: ProbeData, probed: Probed) -> None:
    read_out = probed.read_outs[LAYER]
    bias, weight = read_out.bias.copy(), read_out.weight.copy()
    bias[1], weight[:, 2] = np.nan, 0
    result = directions_of(data, TARGETS, {LAYER: replace(read_out, bias=bias, weight=weight)}, SOURCE)
    assert [item.name.split("/")[-1] for item in result] == [name for i, name in enumerate(NAMES) if i not in (1, 2)]


def test_without_baselines_it_says_so_and_not_that_none_of_none_were_found() -> None:
    row = AdvantageRow("dump", "food", "R2", LINEAR, "lstm_hidden", 0.5, *[None] * 15)
    nothing: Any = SimpleNamespace(advantages=[row], increments=[], increments_given=[])
    (line,) = _statements(nothing, "lstm_hidden")
    assert line.startswith("The inputs hold no baseline") and "--inputs" in line
