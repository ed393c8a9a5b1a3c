"""What probes read is copied in parts, and kept on disk."""

import errno
import io
import tempfile
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
from rich.console import Console

from analysis.probes import inputs, probe_run
from analysis.probes.dataset import Wanted
from analysis.probes.inputs import Columns, StoredInputs
from analysis.probes.logistic import fit_logistic
from analysis.probes.mlp import fit_mlp
from analysis.probes.ridge import Fitted, fit_ridge, fit_ridge_beside
from analysis.probes.settings import ProbeSettings
from common.user_error import UserError
from tests.command import assert_refuses
from tests.planted import planted_metadata

RNG = np.random.default_rng(0)
LEFT, RIGHT = (RNG.standard_normal((300, width)).astype(np.float32) for width in (130, 9))
ROWS = np.sort(RNG.permutation(300)[:240])
SOME = Columns((LEFT, RIGHT), ROWS)
PLAIN = np.concatenate([LEFT, RIGHT], axis=1)[ROWS]
FOLD = np.arange(240) % 4
NUMBERS = PLAIN[:, [0, 135]] + RNG.standard_normal((240, 2))
ANSWERS = (NUMBERS > 0).astype(float)


@pytest.fixture(autouse=True)
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "CHUNK", 32)


def test_parts_make_up_the_whole() -> None:
    records = np.array([5, 0, 17, *range(60, 130)])
    assert (len(SOME), SOME.width) == PLAIN.shape
    np.testing.assert_array_equal(SOME.take(records), PLAIN[records])
    for which, values in SOME.chunks(records):
        assert len(values) <= inputs.CHUNK
        np.testing.assert_array_equal(values, PLAIN[records[which]])
    assert sum(len(values) for _, values in SOME.chunks(records)) == len(records)
    whole = np.full((len(records), SOME.width), np.nan)
    for which, values in SOME.by_column(records):
        whole[:, which] = values
    np.testing.assert_array_equal(whole, PLAIN[records])


def same(one: Fitted, other: Fitted) -> None:
    np.testing.assert_allclose(one.predicted, other.predicted, rtol=0, atol=1e-5)
    np.testing.assert_allclose(one.read_outs.weight, other.read_outs.weight, rtol=0, atol=1e-5)


def test_probes_of_parts_are_those_of_an_array() -> None:
    linear = fit_ridge(PLAIN, NUMBERS, FOLD)
    same(fit_ridge(SOME, NUMBERS, FOLD), linear)
    beside = fit_ridge_beside(PLAIN[:, :130], {"right": PLAIN[:, 130:]}, NUMBERS, FOLD)["right"]
    same(fit_ridge_beside(Columns((LEFT,), ROWS), {"right": RIGHT}, NUMBERS, FOLD)["right"], beside)
    same(fit_logistic(SOME, ANSWERS, FOLD, linear.choices), fit_logistic(PLAIN, ANSWERS, FOLD, linear.choices))
    ranked = np.ones(2, bool)
    networks = (fit_mlp(x, ANSWERS, FOLD, ranked, 0) for x in (SOME, PLAIN))
    np.testing.assert_array_equal(*networks)


def test_inputs_come_back_from_disk_unless_it_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = StoredInputs(tmp_path)
    first, second = np.split(np.concatenate([np.ones((300, 1), np.float32), LEFT], axis=1), [100])
    second[:, -1] = 0
    for part in (first, first[:0], second):
        stored.append("left", part)
        stored.append("ones", np.ones((len(part), 2), np.float32))
        stored.append("nothing", np.ones((len(part), 0), np.float32))
    assert set(stored) == {"left", "ones", "nothing"} and "left" in stored and "right" not in stored
    whole = np.concatenate([first, second])
    assert stored.varying("left").tolist() == [False] + [True] * 130
    for _ in range(2):
        np.testing.assert_array_equal(stored["left"], whole[:, 1:])
    assert stored["ones"].shape == stored["nothing"].shape == (300, 0)
    assert not list(tmp_path.iterdir())  # the files have no names

    class Full(io.FileIO):
        def write(self, content: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: Full(tmp_path / "file", "w+"))
    assert_refuses("No space left on device: free some space", StoredInputs(tmp_path).append, "left", LEFT)


def test_the_files_are_closed_when_a_run_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems keep the name of an open file: its folder could not be removed."""
    kept: list[StoredInputs] = []

    def fail(folder: Path, wanted: Wanted, progress: object, inputs: StoredInputs) -> NoReturn:
        inputs.append("left", LEFT)
        kept.append(inputs)
        raise UserError("no such dump")

    monkeypatch.setattr(probe_run, "read_probe_data", fail)
    (tmp_path / "run").mkdir()
    settings = ProbeSettings((tmp_path,), name="run", output_dir=tmp_path)
    wanted = Wanted((), (), (), settings.thinning)
    assert_refuses(
        "no such dump",
        probe_run.probe_dump,
        settings,
        tmp_path,
        "dump",
        planted_metadata(),
        wanted,
        Console(quiet=True),
    )
    with pytest.raises(ValueError, match="closed"):
        kept[0]["left"]
