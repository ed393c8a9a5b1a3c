"""Study files, their templates, pages and states of studies with damage of every kind: what they tell, or one line."""

import functools
import shutil
from pathlib import Path

from hypothesis import assume
from hypothesis import strategies as st

from analysis.findings.page import History, Played, verify_page, write_page
from analysis.findings.page_template import PageText, read_template
from analysis.findings.running import STATE_FILE, StageState, StudyRun
from analysis.findings.study_file import Study, read_study
from tests.analysis.findings.test_study_file import CONTROL, SAYS, STUDY, TEXT, template, written
from tests.fuzz import Bench, damaged_json, junk, junk_or_json, read_or_refuse, reader

LONGEST_YAML = 1 << 16
"""What is longer takes seconds to refuse; tests/common/test_yaml_file.py tries it."""
BESIDE = (
    "study.md", "study/study.yaml", "study/study.md.jinja", "study/stages.json", "study/clear_a/effects.tsv",
)  # fmt: skip
TABLE = "outcome\tvalue\trandom\nticks\t-58.3\t12.27\n"


@functools.cache
def page(bench: Bench) -> Path:
    folder = bench.folder()
    for place, stage in enumerate(("clear_a", "clear_b", "page")):
        (folder / "results" / stage).mkdir(parents=True)
        (folder / "results" / stage / "effects.tsv").write_text(TABLE.replace("-58.3", f"-{58 - place}.3"))
        (folder / "results" / stage / "effects.png").write_bytes(b"")
    commands = {
        "clear_a": "intervene.py -p a --seed 1 -o x/clear_a",
        "clear_b": "intervene.py -p b --seed 2 -o x/clear_b",
    }
    played = [Played(name, command, 60.0, {"policies/a": "0" * 64}) for name, command in commands.items()]
    shown = {name: part for name, part in STUDY.items() if name != "forests"}  # a drawing cannot be verified
    text = template(("much", SAYS, CONTROL), parts=("tables", "figures"))
    write_page(written(folder, shown, text), folder / "results", History(played), folder / "study.md")
    return folder / "study.md"


@reader("analysis.findings.study_file:read_study_file", cases=150)
def study_files(bench: Bench, folder: Path, data: st.DataObject) -> None:
    path = written(folder, STUDY)
    text = junk_or_json(data, STUDY)
    assume(len(text) < LONGEST_YAML)
    path.write_bytes(text)
    study = read_or_refuse(lambda: read_study(path), path)
    assert study is None or isinstance(study, Study)


@reader("analysis.findings.page_template:read_template", cases=150)
def templates(bench: Bench, folder: Path, data: st.DataObject) -> None:
    path = folder / "study.md.jinja"
    path.write_bytes(junk(data, TEXT.encode()))
    text = read_or_refuse(lambda: read_template(path), path)
    assert text is None or isinstance(text, PageText)
    if text is not None:
        text.render(dict.fromkeys(text.claims, ""), dict.fromkeys(text.parts, ""))


@reader(
    "analysis.findings.page:verify_page",
    "analysis.findings.page:_read_history",
    "analysis.findings.results:_read",
    cases=60,
)
def what_lies_beside_a_page(bench: Bench, folder: Path, data: st.DataObject) -> None:
    shutil.copytree(page(bench).parent, folder / "x")
    damaged = folder / "x" / data.draw(st.sampled_from(BESIDE), label="file")
    before = damaged.read_bytes()
    damaged.write_bytes(junk(data, before))
    count = read_or_refuse(lambda: verify_page(folder / "x" / "study.md"), folder)
    if count is not None and damaged.name == "effects.tsv":
        assert damaged.read_text().split() == before.decode().split()  # only what is between the cells changed


@reader("analysis.findings.running:__post_init__", cases=60)
def states_of_studies(bench: Bench, folder: Path, data: st.DataObject) -> None:
    state = {"key": "0" * 64, "command": "x", "read": {"a": "b"}, "seconds": 1.5, "files": {"c": 1}}
    (folder / STATE_FILE).write_bytes(damaged_json(data, {"clear_a": state}))
    study = Study(())
    run = read_or_refuse(lambda: StudyRun(study, folder, folder), folder)
    assert run is None or all(isinstance(item, StageState) for item in run.states.values())
