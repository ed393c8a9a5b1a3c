"""An analysis keeps no more records than it was told to, nor than fit into memory; free is the least that is known."""

from dataclasses import replace
from pathlib import Path

import pytest

from activation_store.schema import DumpMetadata
from analysis.clusters.settings import AnalysisSettings
from analysis.runs.record_limit import check_fits, free_memory, limited
from tests.command import assert_refuses
from tests.planted import planted_metadata

MEMINFO = "MemTotal:       16000000 kB\nMemAvailable:    8000000 kB\n"


@pytest.fixture
def meminfo(tmp_path: Path) -> Path:
    path = tmp_path / "meminfo"
    path.write_text(MEMINFO)
    return path


@pytest.mark.parametrize(
    ("limit", "used", "free"),
    [
        ("max", "1000", 8_000_000 * 1024),
        ("5000", "2600", 3000),
        ("5000", "6000", 0),
        ("99000000000000", "0", 8_000_000 * 1024),
    ],
)
def test_the_least_of_machine_and_container_is_free(
    meminfo: Path, tmp_path: Path, limit: str, used: str, free: int
) -> None:
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    (tmp_path / "memory.current").write_text(f"{used}\n")
    (tmp_path / "memory.stat").write_text("anon 9\nactive_file 100\ninactive_file 200\nslab_reclaimable 300\n")
    assert free_memory(meminfo, tmp_path) == free


def test_without_a_container_the_machine_counts_and_without_either_nothing_is_known(
    meminfo: Path, tmp_path: Path
) -> None:
    assert free_memory(meminfo, tmp_path / "none") == 8_000_000 * 1024
    assert free_memory(tmp_path / "none", tmp_path) is None
    meminfo.write_text("MemTotal: 16000000 kB\n")
    assert free_memory(meminfo, tmp_path) is None


DUMP = Path("data/NAME")
SETTINGS = AnalysisSettings(DUMP, subsample=10, max_records=1000, skip_first=2)
LIVES = 50


def dump_of(records: int) -> DumpMetadata:
    return replace(planted_metadata(), records=records, lives=LIVES)


@pytest.mark.parametrize(("records", "every"), [(1, 10), (10_100, 10), (10_101, 11), (20_100, 20), (1_000_100, 1000)])
def test_fewer_records_of_a_large_dump_are_kept(records: int, every: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert limited(SETTINGS, DUMP, dump_of(records), 0) == replace(SETTINGS, subsample=every)
    note = capsys.readouterr().err
    assert ("note: " in note) == (every > 10)
    if note:
        assert f"holds {records:,} records: one record in {every} of each life is kept instead of one in 10" in note


def test_what_would_not_fit_is_refused_with_what_it_needs() -> None:
    check_fits(DUMP, 1000, 1)
    if free_memory() is not None:
        refusal = "an analysis of 1,000 records of data/NAME needs about 1000.0 GB of memory, .*lower --max-records"
        assert_refuses(refusal, limited, SETTINGS, DUMP, dump_of(20_100), 1e9)
