"""Free memory is the machine's or the container's, whichever is less; work that needs more is refused with numbers."""

from pathlib import Path

import pytest

from analysis.runs.record_limit import check_memory, free_memory
from tests.command import assert_refuses

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


def test_what_would_not_fit_is_refused() -> None:
    check_memory(1, "a byte", "use less")
    if free_memory() is not None:
        message = r"a table needs about 1000000000\.0 GB of memory, and .* GB are free: use less"
        assert_refuses(message, check_memory, 1e18, "a table", "use less")
