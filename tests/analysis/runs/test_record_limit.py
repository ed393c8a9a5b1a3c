"""An analysis keeps no more records than --max-records says, and tells when that is fewer than --subsample asks for."""

from dataclasses import replace
from pathlib import Path

import pytest

from activation_store.schema import DumpMetadata
from analysis.clusters.settings import AnalysisSettings
from analysis.runs.record_limit import check_fits, limited
from common.memory import free_memory
from tests.command import assert_refuses
from tests.planted import planted_metadata

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
