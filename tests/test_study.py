"""study.py on tiny policies and the real game: run, skip, continue, verify."""

import copy
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
import yaml

from analysis.findings.page import claims_of, claims_table, verify_page
from analysis.findings.page_template import template_of
from analysis.findings.study_file import read_study
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from tests.command import ROOT, assert_refused, assert_refuses, python, run_here, run_well, start
from tests.tiny_policies import save_policies

ARMS = "--episodes 2 --max-steps 40 --controls 1 --share 0.25 --workers 1"
AGENTS = {"kit": ("neurips23_start_kit", 1), "second": ("neurips23_start_kit", 1)}

TEXT = """# What tiny memories are for

Do they do anything?

{{ primary }}

## Findings

{% claim longer %}
Without its memory `kit` lives {{ one.value|f("+.1f") }} ticks longer ({{ one.verdict }}).
{% control %}
random {{ one.random_directions_value|f("+.1f") }}; {{ all.value.mean|f("+.2f") }} over {{ all.value.n }}.
{% endclaim %}

{{ tables }}

{{ figures }}

## What this does not show

- Anything about trained policies.

{{ made }}
"""


@pytest.fixture(scope="module")
def folder(small_world: EnvironmentSettings, task: TaskSettings, maps: Path, tmp_path_factory) -> Path:
    """Two policies, and a study of them that has been run."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "policies").mkdir()
    save_policies(folder / "policies", small_world, task, maps, AGENTS)
    options = f"{ARMS} --policies-dir {folder / 'policies'} --maps-dir {small_world.maps_dir}"
    row = {"stage": "clear_kit", "file": "effects.tsv", "where": {"measure": "effect", "outcome": "ticks"}}
    study = {
        "stages": [
            {
                "name": "clear_{each}", "run": f"intervene.py -p {{each}} --edit clear {options} -o {{here}}",
                "minutes": 0.3, "resume": "--resume", "each": ["kit", "second"],
                "reads": [str(folder / "policies" / "{each}.safetensors")],
            }
        ],
        "claims": {"longer": {"one": row, "all": {**copy.deepcopy(row), "stage": "clear_*"}}},
        "tables": [
            {
                "title": "Effects", "stage": "clear_*", "file": "effects.tsv", "columns": ["outcome", "value"],
                "where": {"measure": "effect"},
            }
        ],
        "figures": [{"stage": "clear_kit", "file": "effects.png", "caption": "Effects of clearing."}],
    }  # fmt: skip
    (folder / "tiny.yaml").write_text(yaml.safe_dump(study))
    (folder / "tiny.md.jinja").write_text(TEXT)
    done = python("study.py", *arguments(folder, folder))
    (folder / "said.txt").write_text(done.stdout)
    return folder


def arguments(study: Path, output: Path) -> list[object]:
    """A study in one folder, whose results and pages go to another."""
    return [study / "tiny.yaml", "--results-dir", output / "results", "--pages-dir", output / "pages"]


@pytest.mark.slow
def test_the_estimate_comes_first_and_the_page_says_what_the_results_say(folder: Path) -> None:
    lines = (folder / "said.txt").read_text().splitlines()
    assert lines[:3] == [
        "clear_kit: will run, about 18 seconds", "clear_second: will run, about 18 seconds",
        "2 stages, about 36 seconds left on two cores",
    ]  # fmt: skip
    assert any(line.startswith("clear_kit: done, ") for line in lines)
    assert lines[-1].startswith("1 claim with ") and lines[-1].endswith(str(folder / "pages" / "tiny.md"))
    page = (folder / "pages" / "tiny.md").read_text()
    rows = [line.split("\t") for line in (folder / "results/tiny/clear_kit/effects.tsv").read_text().splitlines()]
    ticks = next(dict(zip(rows[0], row, strict=True)) for row in rows if row[0] == "effect" and row[3] == "ticks")
    assert f"`kit` lives {float(ticks['value']):+.1f} ticks longer ({ticks['verdict']})" in page
    assert "intervene.py -p kit" in page and len(set(re.findall(r"--seed \d+", page))) == 2  # worlds of their own
    assert "over 2." in page and "](tiny/clear_kit/effects.png)" in page
    assert "python intervene.py -p second --edit clear" in page and "kit.safetensors` | `" in page
    checked = run_here("study.py", "verify", folder / "pages" / "tiny.md")
    assert checked.returncode == 0 and "numbers are those of the results" in checked.stdout


@pytest.mark.slow
def test_changed_page_or_result_is_found(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "pages", tmp_path / "pages")
    page, table = tmp_path / "pages" / "tiny.md", tmp_path / "pages/tiny/clear_kit/effects.tsv"
    text, results = page.read_text(), table.read_text()
    page.write_text(text.replace("over 2.", "over 3."))
    assert_refuses(r"line 9 says .*over 3\.", verify_page, page)
    page.write_text(text)
    lines = results.splitlines()
    place = next(place for place, line in enumerate(lines) if line.startswith("effect\tedit\t\tticks\t"))
    cells = lines[place].split("\t")
    table.write_text("\n".join([*lines[:place], "\t".join([*cells[:4], "-99.5", *cells[5:]]), *lines[place + 1 :]]))
    assert_refuses(r"-99\.5", verify_page, page)
    table.write_text(results)
    verify_page(page)


@pytest.mark.slow
def test_what_is_finished_and_unchanged_is_skipped(folder: Path) -> None:
    again = run_here("study.py", *arguments(folder, folder), "--plan")
    assert again.stdout.splitlines() == ["clear_kit: is finished", "clear_second: is finished", "nothing to run"]
    policy = folder / "policies" / "second.safetensors"
    whole = policy.read_bytes()
    try:
        shutil.copyfile(folder / "policies" / "kit.safetensors", policy)
        changed = run_here("study.py", *arguments(folder, folder), "--plan").stdout.splitlines()
        assert changed[:2] == ["clear_kit: is finished", "clear_second: will run, about 18 seconds"]
    finally:
        policy.write_bytes(whole)
    lost = folder / "results/tiny/clear_second/effects.tsv"
    content = lost.read_bytes()
    lost.unlink()
    try:
        assert "clear_second: will run" in run_here("study.py", *arguments(folder, folder), "--plan").stdout
    finally:
        lost.write_bytes(content)


@pytest.mark.slow
def test_interrupted_study_goes_on(folder: Path, tmp_path: Path) -> None:
    own = arguments(folder, tmp_path)
    for number in (signal.SIGTERM, signal.SIGINT):
        log = tmp_path / "results/tiny/clear_kit.log"
        end = time.monotonic() + 120
        with start("study.py", *own) as child:
            while not (log.exists() and "to play" in log.read_text()) and time.monotonic() < end:
                time.sleep(0.1)
            assert_refused(run_here("study.py", *own), "is still running, of another call or of one that was killed")
            child.send_signal(number)
            child.communicate(timeout=120)
        assert child.returncode == 128 + number and not (tmp_path / "pages").exists()
        log.unlink()
    planned = run_here("study.py", *own, "--plan").stdout
    assert "clear_kit: will continue" in planned and "clear_second: will run" in planned
    run_well("study.py", *own)
    assert (tmp_path / "pages/tiny/clear_kit/effects.tsv").read_bytes() == (
        folder / "pages/tiny/clear_kit/effects.tsv"
    ).read_bytes()


@pytest.mark.slow
def test_other_policies_on_ray_give_the_same_rows_as_in_the_study_itself(folder: Path, tmp_path: Path) -> None:
    """Their stage has the same name, and so the same worlds; tests/analysis/findings/test_crews.py has more stages."""
    pytest.importorskip("ray")
    own = [folder / "tiny.yaml", "--results-dir", tmp_path, "--policies", "second", "--policies-dir"]
    done = python("study.py", *own, folder / "policies", "--ray-address", "local", "--stage-cores", 1)
    page = tmp_path / "findings" / "tiny_second.md"
    assert done.stdout.splitlines()[0] == f"the study of these policies: {tmp_path / 'tiny_second.yaml'}"
    assert done.stdout.splitlines()[-1].endswith(str(page)) and verify_page(page) > 0
    there, here = (
        parent / "clear_second/effects.tsv" for parent in (tmp_path / "tiny_second", folder / "results/tiny")
    )
    assert there.read_bytes() == here.read_bytes()
    assert "`second`: `value` " in page.read_text() and "Effects (`clear_*`)" in page.read_text()
    assert "nothing to run" in run_here("study.py", *own, folder / "policies", "--plan").stdout
    for refused, words in (
        ((*own, tmp_path), "second.safetensors does not exist: --policies names files in --policies-dir"),
        ((folder / "tiny.yaml", "--results-dir", tmp_path, "--policies", "a/b"), "--policies 'a/b' cannot name a file"),
        ((folder / "tiny.yaml", "--policies", ","), "--policies"),
        ((*arguments(folder, tmp_path), "--ray-address", "there"), "is there: must be local, auto or HOST:PORT"),
    ):
        assert_refused(run_here("study.py", *refused), words)


@pytest.mark.slow
def test_failing_stage_is_named_with_its_reason(folder: Path, tmp_path: Path) -> None:
    study = yaml.safe_load((folder / "tiny.yaml").read_text())
    study["stages"][0]["run"] = study["stages"][0]["run"].replace("--share 0.25", "--share 2")
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(study))
    (tmp_path / "tiny.md.jinja").write_text(TEXT)
    own = arguments(tmp_path, tmp_path)
    assert_refused(run_here("study.py", *own), "clear_kit failed: error: --share is 2")
    assert_refused(run_here("study.py", "verify", "README.md"), "has no folder README of results beside it")
    assert_refused(run_here("study.py", tmp_path / "none.yaml"), "none.yaml does not exist")


@pytest.mark.parametrize("path", sorted((ROOT / "studies").glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_studies_can_be_read(path: Path) -> None:
    study = read_study(path)
    texts = [item.read_text().splitlines() for item in (path, template_of(path))]
    assert study.claims and all(len(lines) <= 100 and max(map(len, lines)) < 130 for lines in texts)
    for stage in study.stages:
        assert (ROOT / stage.run.split()[0]).exists()
        assert all((ROOT / item).exists() for item in stage.reads)
    assert sum(stage.minutes for stage in study.stages) <= 240  # an estimate, with eight random controls of each kind


def test_docs_and_makefile_say_how_long_the_studies_take() -> None:
    docs, pages = (ROOT / "docs" / "findings.md").read_text(), sorted((ROOT / "docs" / "findings").glob("*.md"))
    minutes = {}
    for path in (ROOT / "studies").glob("*.yaml"):
        minutes[path.stem] = round(sum(stage.minutes for stage in read_study(path).stages))
        row = next(line for line in docs.splitlines() if line.startswith(f"| [`studies/{path.name}`]"))
        assert row.endswith(f"| {minutes[path.stem]} |")
    hours = f"about {sum(minutes.values()) / 60:.0f} hours"
    assert hours in docs and hours in (ROOT / "Makefile").read_text()
    took = [int(re.search(r"How it was made, in (\d+) minutes", page.read_text())[1]) for page in pages]
    assert f"{sum(minutes.values())} together" in docs and f"{sum(took)} minutes\ntogether" in docs


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "findings").glob("*.md")), ids=lambda path: path.stem)
def test_shipped_pages_say_what_their_results_say(page: Path) -> None:
    assert verify_page(page) > 0


def test_table_of_all_claims_is_up_to_date() -> None:
    """`study.py claims` writes it."""
    claims = claims_of(sorted((ROOT / "docs" / "findings").glob("*.md")))
    assert len(claims) > 10 and claims_table(claims, "findings") in (ROOT / "docs" / "findings.md").read_text()


def test_the_papers_numbers_are_those_of_the_pages_that_it_links() -> None:
    compared = 0
    for paragraph in re.split(r"\n\s*\n|\n(?=- )", (ROOT / "docs" / "paper.md").read_text()):
        pages = [ROOT / "docs" / "findings" / page for page in re.findall(r"\(findings/(\w+\.md)\)", paragraph)]
        there = set(re.findall(r"\d*\.\d+", "".join(page.read_text() for page in pages)))
        numbers = set(re.findall(r"\d*\.\d+", paragraph))
        assert numbers <= there, f"{numbers - there} in: {paragraph}"
        compared += len(numbers)
    assert compared > 20
