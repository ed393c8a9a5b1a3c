"""Tables of lives are read as they were written; anything else is refused in one line."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from activation_store.interventions import (
    EDITED_REPLAY,
    UNEDITED_REPLAY,
    Arm,
    LivesTable,
    read_lives,
    replayed_arms,
    write_lives,
)
from tests.command import assert_refuses

ROWS = [
    {"arm": "edit", "episode": 1, "agent": 7, "edited": True, "ticks": 12, "kl_total/Move": 0.5},
    {"arm": "edit", "episode": 0, "agent": 9, "edited": False, "ticks": 30},
    {"arm": "twin", "episode": 0, "agent": 9, "edited": False, "ticks": 31},
]


def test_what_is_read_is_what_was_written_and_changes_of_earlier_versions_are_named_as_what_they_are(
    tmp_path: Path,
) -> None:
    write_lives(tmp_path / "lives.parquet", LivesTable.of_rows(ROWS))
    table = read_lives(tmp_path / "lives.parquet")
    assert table.arm.tolist() == ["edit", "edit", "twin"]
    assert table.edited.tolist() == [True, False, False]
    np.testing.assert_array_equal(table.outcomes["kl_total/Move"], [0.5, np.nan, np.nan])
    edit = LivesTable.of_rows(ROWS).of_arm("edit")
    assert edit.episode.tolist() == [0, 1]
    assert edit.outcomes["ticks"].tolist() == [30, 12]
    # They compared with the memory that earlier edits had left: in play.
    old = dict.fromkeys(("kl", "kl/Move", "value_change", "gain/Move/North", "moved/tick", "planned/x"), 1.0)
    row = {"arm": "edit", "episode": 0, "agent": 1, "edited": True, "ticks": 12, "off_manifold": 1.0}
    write_lives(tmp_path / "lives.parquet", LivesTable.of_rows([{**row, **old}]))
    assert set(read_lives(tmp_path / "lives.parquet").outcomes) == {
        "ticks", "off_manifold", "kl_in_play", "kl_in_play/Move", "value_change_in_play", "gain_in_play/Move/North",
        "moved_in_play/tick", "planned_in_play/x",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("doses", "replayed"),
    [
        ([None], [None]),
        ([2.0, -1.0, 4.0], [4, -1, 2]),
        ([-2.0, 0.0], [-2, 0]),
        ([0.5 * number for number in range(-5, 6)], [2.5, -2.5, -1.5, -0.5, 1, 2]),
    ],
)
def test_replays_are_of_the_largest_dose_and_of_some_others(
    doses: list[float | None], replayed: list[float | None]
) -> None:
    """Of the first of several directions, and not of edits of the untrained policy."""
    unedited = Arm("unedited", "unedited", "trained", None, "unedited")
    edits = [
        Arm(f"{policy}, {dose}, {direction}", "edit", policy, dose, "unedited", direction)
        for policy in ("untrained", "trained") for dose in doses for direction in ("ic_1", "ic_2")
    ]  # fmt: skip
    arms = replayed_arms([unedited, *edits])
    assert list(arms)[:2] == [UNEDITED_REPLAY, EDITED_REPLAY] and arms[UNEDITED_REPLAY] == unedited
    assert [arm.dose for arm in list(arms.values())[1:]] == replayed
    assert all(arm.policy == "trained" and arm.direction in (None, "ic_1") for arm in arms.values())


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (Path.touch, "cannot be read"),
        (lambda path: path.write_bytes(b"PAR1 but no more"), "cannot be read"),
        (lambda path: pq.write_table(pa.table({"arm": ["edit"]}), path), "lacks the column episode"),
    ],
    ids=["empty", "damaged", "a table of something else"],
)
def test_a_file_that_holds_no_lives_is_refused(tmp_path: Path, write: Callable[[Path], object], message: str) -> None:
    write(tmp_path / "lives.parquet")
    assert_refuses(message, read_lives, tmp_path / "lives.parquet")


def test_tables_that_stand_for_far_more_than_their_file_are_refused_before_they_are_made(tmp_path: Path) -> None:
    path = tmp_path / "lives.parquet"
    rows = 5_000_000
    constant = np.zeros(rows, dtype=np.int64)
    columns = {"arm": pa.repeat("edit", rows), **dict.fromkeys(("episode", "agent"), constant), "edited": constant > 0}
    with pq.ParquetWriter(path, pa.table(columns).schema) as writer:
        for _ in range(4):
            writer.write_table(pa.table(columns))
    assert path.stat().st_size < 1 << 20
    assert_refuses("claims 20,000,000 rows of 4 columns", read_lives, path)
    path = tmp_path / "lives.parquet"
    rows = 10_000
    names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, dtype=np.int32)), pa.array(["x" * 100_000]))
    numbers = np.zeros(rows, dtype=np.int64)
    pq.write_table(pa.table({"arm": names, "episode": numbers, "agent": numbers, "edited": numbers > 0}), path)
    assert_refuses("names of its arms are too long", read_lives, path)
