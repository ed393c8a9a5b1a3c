"""A study file runs scripts of this project and nothing else, and writes into its own results alone."""

from dataclasses import fields
from pathlib import Path

import pytest

import evaluate
import extract_activations
from analysis.findings.stage_commands import DEFAULT_SEEDS, SCRIPTS, check_command, seeds_of
from analysis.findings.study_file import name_of, read_study
from analysis.interventions.play.request import RunOptions
from tests.analysis.findings.test_study_file import STUDY, written
from tests.command import ROOT, assert_refused, assert_refuses, run_here


def test_scripts_are_those_of_the_project() -> None:
    files = [*ROOT.glob("*.py"), *(ROOT / "analysis").glob("*.py")]
    scripts = {str(file.relative_to(ROOT)) for file in files if "\n    command_line.run(main)" in file.read_text()}
    assert scripts - {"study.py", "share.py"} == SCRIPTS  # no stage shares anything


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ('-c \'open("x", "w")\' {here}', "'-c' is no script of this project"),
        ("-m http.server {here}", "'-m' is no script of this project"),
        ("-- x.py {here}", "no script"),
        ("study.py other.yaml --results-dir {here}", "no script"),
        ("./intervene.py -o {here}", "no script"),
        ("analysis/../intervene.py -o {here}", "no script"),
        ("/tmp/intervene.py -o {here}", "no script"),
        ("{here}/intervene.py -o {here}", "no script"),
        ("benchmarks/power.py -o {here}", "no script"),
        ("", "empty"),
        ("intervene.py -o '{here}", "No closing quotation"),
        ("intervene.py -o {here}/../../x", "'..' is not allowed"),
        ("intervene.py -o {here}/..", "'..' is not allowed"),
        ("intervene.py {here} --directions ../x", "'..' is not allowed"),
        ("intervene.py -o {parent}x", "must begin a path"),
        ("intervene.py -o x{here}", "must begin a path"),
        ("intervene.py -o {here} --output docs", "--output 'docs' is outside"),
        ("intervene.py -o{parent}/x -odocs", "-o 'docs' is outside"),
        ("intervene.py -o=docs {here}", "-o 'docs' is outside"),
        ("train_probes.py {here} --output_dir=/tmp/x", "--output-dir '/tmp/x' is outside"),
        ("semantic_clusters.py cards /tmp/x -o {here}", "'/tmp/x' is outside"),
        ("intervene.py -o {here} -p 'a\0b'", "characters"),
        ("train.py -n a --policies-dir {here}", "must have --runs-dir"),
        ("train.py -n a -p policies --runs-dir {here}", "must have --policies-dir"),
        ("train.py -m sweep -p {here}/a --runs-dir {here}/b", "leave out --mode"),
        ("evaluate.py policies pve --save-file-prefix {here}", "must come first"),
    ],
)
def test_other_commands_are_refused(command: str, says: str) -> None:
    assert_refuses([says], check_command, command, None)


@pytest.mark.parametrize("resume", ["-c x", "--resume --output docs", "--resume=docs", "docs"])
def test_resume_is_one_option(resume: str) -> None:
    assert_refuses("must be one option", check_command, "intervene.py -o {here}", resume)


@pytest.mark.parametrize(
    "command",
    [
        "intervene.py -p a --directions {probes}/directions.safetensors --direction a/lstm_cell/b -o {here}",
        "intervene.py -p a --policies-dir /tmp/policies -o {here}",
        "analyze_dynamics.py {dump}/a --name analysis --output-dir {parent}",
        "analysis/score_ways.py {a}/x {b}/y -o {here}/scores.tsv",
        "train.py -n a -p {here}/policies --runs-dir {here}/runs",
        "evaluate.py {trained}/policies pve",
    ],
)
def test_commands_that_stay_inside_are_taken(command: str) -> None:
    check_command(command, "--resume")


def test_a_study_file_is_checked_when_it_is_read(tmp_path: Path) -> None:
    study = {**STUDY, "stages": [STUDY["stages"][0], {**STUDY["stages"][1], "run": "-c pass {here}"}]}
    assert_refuses("the stage page: '-c' is no script", read_study, written(tmp_path, study))
    for name in ("a.log", "study.json"):
        study["stages"][1] = {**STUDY["stages"][1], "name": name}
        assert_refuses("has the name of a file of the study", read_study, written(tmp_path, study))


@pytest.mark.parametrize("name", ["..yaml", "...yaml", ".yaml", "a b.yaml"])
def test_a_study_has_a_name_of_its_own(tmp_path: Path, name: str) -> None:
    """`..yaml` would be the folder of the pages."""
    assert_refuses("is no name of a study", name_of, tmp_path / name)
    written(tmp_path, STUDY).rename(tmp_path / name)
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "mine.md").touch()
    assert_refused(run_here("study.py", tmp_path / name, "--pages-dir", tmp_path / "pages"), "is no name of a study")
    assert (tmp_path / "pages" / "mine.md").exists()


def played(command: str) -> set[str]:
    return set(seeds_of({"stage": command}, {})["stage"])


def test_every_repeat_plays_a_seed_of_its_own_and_the_default_is_a_number_like_any_other() -> None:
    assert played("evaluate.py x pvp --seed 3 -r 4") == {"3", "4", "5", "6"}
    assert played("evaluate.py x pvp --repeats=2") == {"1", "2"}
    assert played("extract_activations.py pve -p a -s 3") == {"3"}
    others = {"extract_activations.py": extract_activations.Arguments, "evaluate.py": evaluate.Arguments}
    for script, of in {"intervene.py": RunOptions, **others}.items():
        (default,) = (field.default for field in fields(of) if field.name == "seed")
        assert DEFAULT_SEEDS[script] == default
        assert played(f"{script} x") == played(f"{script} x --seed {default}") == {str(default)}
