"""A finished run is read only if every file of it is what was written, and holds only what it should; so are names."""

import json
import shutil
from pathlib import Path

import pytest

from analysis.runs.cluster_run import read_run
from analysis.runs.codebook_rule import NAMES_FILE, keep_names, read_names
from tests.analysed import Analysed
from tests.command import assert_refused, assert_refuses, run_here
from tests.fuzz import flip
from tests.planted_run import rewrite

AGAIN = "analyse the dump again"


def refusal(run: Path, name: str, dump: Path) -> str:
    return assert_refuses([str(run / name)], read_run, run, dump)


def test_every_file_of_the_run_is_proved_by_its_hash(analysed: Analysed, tmp_path: Path) -> None:
    for name in ("run.json", "summary.json", "embedding.npy", "cluster_labels.npz"):
        damaged = Path(shutil.copytree(analysed.run, tmp_path / name))
        flip(damaged / name, (damaged / name).stat().st_size // 2)
        assert "does not match its SHA-256" in refusal(damaged, name, analysed.dump)
        (damaged / name).unlink()
        refusal(damaged, name, analysed.dump)
    edited = Path(shutil.copytree(analysed.run, tmp_path / "edited"))
    (edited / "summary.json").write_text((edited / "summary.json").read_text().replace('"noise_records"', '"noise"'))
    assert_refused(run_here("explore.py", edited), str(edited / "summary.json"), "SHA-256")


@pytest.mark.parametrize(
    ("name", "change", "part"),
    [
        ("summary.json", {"clusters": None}, "'clusters'"),
        ("summary.json", {"clusters": [3]}, "'clusters.0'"),
        ("summary.json", {"clusters": []}, "do not match"),
        ("summary.json", {"features": None}, "'features'"),
        ("summary.json", {"method": {"permutations": 0}}, "'method.permutations'"),
        ("summary.json", {"noise_records": "many"}, "'noise_records'"),
        ("run.json", {"seed": -1}, "'seed'"),
        ("run.json", {"input": {}}, "does not name the run's dump"),
        ("run.json", {"arguments": []}, "'arguments'"),
        *[(name, b"nothing", AGAIN) for name in ("embedding.npy", "cluster_labels.npz")],
        *[("summary.json", content, AGAIN) for content in (b"[]", b"\xff{", b"[" * 100_000)],
        ("run.json", b"3", AGAIN),
    ],
)
def test_malformed_content_with_a_hash_that_fits_is_refused(
    analysed: Analysed, tmp_path: Path, name: str, change: dict[str, object] | bytes, part: str
) -> None:
    damaged = Path(shutil.copytree(analysed.run, tmp_path / "damaged"))
    content = change if isinstance(change, bytes) else json.dumps(json.loads((damaged / name).read_text()) | change)
    rewrite(damaged, name, content if isinstance(content, bytes) else content.encode())
    assert part in refusal(damaged, name, analysed.dump)


def test_a_damaged_list_of_hashes_is_refused(analysed: Analysed, tmp_path: Path) -> None:
    damaged = Path(shutil.copytree(analysed.run, tmp_path / "damaged"))
    for content in ("{}", "[]", "nothing", '{"files": {"embedding.npy": 3}}'):
        (damaged / "DONE.json").write_text(content)
        refusal(damaged, "DONE.json", analysed.dump)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("0: {<<: {a: b}}", "nothing is merged"),
        ("2001-01-01: a", "neither text nor a number"),
        ("0: 2001-01-01", "NUMBER: name"),
        ("[" * 2000, "nested deeper"),
    ],
)
def test_what_is_no_name_is_refused(tmp_path: Path, text: str, part: str) -> None:
    """More of what is no YAML is in tests/common/test_yaml_file.py."""
    (tmp_path / NAMES_FILE).write_text(text)
    assert_refuses([NAMES_FILE, part, "NUMBER: name"], read_names, tmp_path)


def test_names_are_kept(tmp_path: Path) -> None:
    (tmp_path / NAMES_FILE).write_text("0: eats\n2: 'isst <<'\n")
    keep_names(tmp_path, [0, 1, 2])
    assert read_names(tmp_path) == {0: "eats", 2: "isst <<"}
