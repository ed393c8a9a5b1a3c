"""Study files run scripts of this project alone, name primary outcomes first, and are refused where they are wrong."""

import copy
import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

import evaluate
import extract_activations
import intervene
from analysis.findings.page import Named
from analysis.findings.page_template import LONGEST, Number, parse_template
from analysis.findings.running import PRIMARY_FILE, StudyRun
from analysis.findings.stage_commands import DEFAULT_SEEDS, SCRIPTS, check_command, seeds_of
from analysis.findings.study_file import Primary, Stage, Study, name_of, read_study
from analysis.interventions.edits.edit_options import RunOptions
from tests.command import ROOT, assert_refused, assert_refuses, run_here

STUDY = {
    "stages": [
        {"name": "clear_{each}", "run": "intervene.py -p {each} -o {here}", "minutes": 2, "each": ["a", "b"]},
        {"name": "page", "run": "explore.py {clear_a} --output {here}", "minutes": 0.5, "reads": ["policies/a"]},
    ],
    "claims": {
        "much": {
            "one": {"stage": "clear_a", "file": "effects.tsv", "where": {"outcome": "ticks"}},
            "all": {"stage": "clear_*", "file": "effects.tsv"},
        }
    },
    "tables": [{"title": "All", "stage": "clear_*", "file": "effects.tsv", "columns": ["value"]}],
    "forests": [{"title": "F", "axis": "ticks", "file": "effects.tsv", "where": {}, "groups": {"kit": "clear_*"}}],
    "figures": [{"stage": "page", "file": "effects.png", "caption": "Effects."}],
}  # fmt: skip
SAYS = """It takes {{ one.value|f("+.1f") }} of `100`
ticks, {{ all.value.mean|f(".2f") }} over {{ all.value.n }} trainings."""
CONTROL = 'random memories: {{ one.random|f(".1f") }}'


def template(*claims: tuple[str, str, str], parts: tuple[str, ...] = ("tables", "forests", "figures")) -> str:
    """A page's text with claims, a name, a sentence and a control each, and with parts."""
    form = "{{% claim {} %}}\n{}\n{{% control %}}\n{}\n{{% endclaim %}}\n"
    printed = "".join(form.format(*claim) for claim in claims)
    shown = "\n".join(f"\n{{{{ {part} }}}}" for part in parts)
    return (
        "# What the memory is for\n\nDoes `start_kit_3M`\nneed it?\n\n{{ primary }}\n\n## Findings\n\n"
        f"{printed}{shown}\n\n## What this does not show\n\n- One kind of agent.\n\n{{{{ made }}}}\n"
    )


TEXT = template(("much", SAYS, CONTROL))


def written(folder: Path, study: object, text: str = TEXT) -> Path:
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(study))
    (folder / "study.md.jinja").write_text(text)
    return path


def test_stage_is_run_for_each_value(tmp_path: Path) -> None:
    study = read_study(written(tmp_path, STUDY))
    assert [stage.name for stage in study.stages] == ["clear_a", "clear_b", "page"]
    runs = {name: stage.run for name, stage in zip("ab", study.stages, strict=False)}
    seeds = [run.removeprefix(f"intervene.py -p {name} -o {{here}} --seed ") for name, run in runs.items()]
    assert all(seed.isdecimal() for seed in seeds) and seeds[0] != seeds[1]  # each training has worlds of its own
    assert "--seed" not in study.stages[2].run
    assert study.stages[2].needs({"clear_a", "clear_b"}) == {"clear_a"}
    tables = [(f"clear_{name}", file) for name in "ab" for file in ("effects.tsv", "effects_by_episode.tsv")]
    assert study.shown_files == [*tables, ("page", "effects.png")]


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (["claims", "much", "one", "minus"], "clear_*", "no mean"),
        (["claims", "much", "all", "minus"], "freeze_*", "no stage"),
        (["claims", "more"], {}, "the page does not say it"),
        (["claims"], {}, "its rows are missing"),
        (["tables", 0, "columns"], ["value:>40"], "format"),
        (["tables", 0, "digits"], 12, "digits"),
        (["tables", 0], {**STUDY["tables"][0], "across": "a", "largest_first": "value"}, "cannot be ordered"),
        (["tables", 0, "title"], "3 tables", "3"),
        (["tables"], [], "{{ tables }}"),
        (["forests", 0, "groups"], {"kit": "clear_a"}, "patterns of several"),
        (["forests", 0, "groups"], {"kit": "freeze_*"}, "no stage"),
        (["forests", 0, "title"], "3 kinds", "3"),
        (["claims", "much", "one", "stage"], "nothing", "no stage"),
        (["tables", 0, "stage"], "*", "clear_b and page, whose scripts differ"),
        (["claims", "much", "one", "file"], "../effects.tsv", "name of a file"),
        (["stages", 0, "name"], "clear", "{each}"),
        (["stages", 1, "name"], "a/b", "names have letters"),
        (["stages", 1, "name"], "clear_a", "two stages"),
        (["stages", 1, "run"], "explore.py {later} {here}", "{later}"),
        (["stages", 1, "run"], "explore.py '{here}", "No closing quotation"),
        (["stages", 1, "resume"], '--resume "', "must be one option"),
        (["stages", 1, "name"], "clear_a.log", "has the name of a file of the study"),
        (["stages", 1, "reads"], ["policies/\ud800"], "is no character of a text"),
        (["stages", 1, "run"], "explore.py {here", "expected '}'"),
        (["stages", 1, "run"], "explore.py {here!r}", "a name alone"),
        (["stages", 1, "run"], "explore.py", "{here}"),
        (["stages", 1, "minutes"], 0, "above 0"),
        (["stages", 1, "minute"], 1, "minute"),
        (["stages"], None, "stages"),
        (["stages", 1, "run"], "-c pass {here}", "'-c' is not a script"),
        (["stages", 1, "name"], "study.json", "has the name of a file of the study"),
        (["primary"], [{"stage": "clear_*", "file": "effects.tsv", "where": {"outcome": "meals"}}], "is in no claim"),
    ],
)
def test_bad_study_is_refused_in_one_line(tmp_path: Path, place: list, value: object, says: str) -> None:
    study = copy.deepcopy(STUDY)
    part = study
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = value
    assert "\n" not in assert_refuses([says, "study.yaml"], read_study, written(tmp_path, study))


def test_sentences_about_nothing_and_what_is_no_study_are_refused(tmp_path: Path) -> None:
    for sentence, says in (
        ("It takes {{ two.value }}.", "two.value is of no row"), ("It takes {{ all.value }}.", "over several stages"),
        ("It takes {{ all.value.median }}.", "over several stages"), ("It takes {{ one.value.mean }}.", "of one stage"),
        ("{{ all.value.q_primary }}", "no primary outcome"), ("{{ one.q_primary }}", "no primary outcome"),
    ):  # fmt: skip
        path = written(tmp_path, STUDY, template(("much", sentence, CONTROL)))
        assert "\n" not in assert_refuses([says, "study.yaml"], read_study, path)
    for content in ([], "text", {"claims": {}}):
        assert_refuses("is no study", read_study, written(tmp_path, content))
    path = written(tmp_path, STUDY)
    (tmp_path / "study.md.jinja").unlink()
    assert_refuses(r"study\.md\.jinja does not exist", read_study, path)


def test_worlds_that_trainings_share_are_refused_where_a_table_does_not_tell_them_apart(tmp_path: Path) -> None:
    """Probes of two dumps of one seed; the numbers of interventions are stored world by world."""
    study = copy.deepcopy(STUDY)
    playing = "extract_activations.py pve -p {each} -o {here}"
    runs = {"dump_{each}": f"{playing} -s 3", "probes_{each}": "train_probes.py {dump_{each}} {here}"}
    dumps = [{"name": name, "run": run, "minutes": 1, "each": ["a", "b"]} for name, run in runs.items()]
    row = {"stage": "probes_*", "file": "probe_scores.tsv"}
    study["stages"] += dumps
    study["claims"] = {"much": {"all": row}}
    text = template(("much", '{{ all.score.mean|f(".2f") }}', "none"))
    assert_refuses(r"probes_a and probes_b play the same worlds \(seed 3\)", read_study, written(tmp_path, study, text))
    dumps[0]["run"] = playing
    read = read_study(written(tmp_path, study, text))
    assert len(frozenset().union(*(read.seeds({})[f"probes_{name}"] for name in "ab"))) == 2
    learn = "intervene.py --edit interchange --learn {dump_{each}}/{each} --donor self_goal -o {here}"
    for seed, says in (("", r"learn_a and learn_b play the same worlds \(seed 3\)"), (" --seed 5", "")):
        dumps[0]["run"] = f"{playing} -s 3" if says else playing  # worlds are those of the dump, not of the own seed
        dumps[1] |= {"name": "learn_{each}", "run": learn + seed}
        study["claims"] = {"much": {"all": {"stage": "learn_*", "file": "accuracies.tsv"}}}
        path = written(tmp_path, study, text)
        if says:
            assert_refuses(says, read_study, path)
        else:
            assert read_study(path).seeds({})["learn_a"] == read_study(path).seeds({})["dump_a"]


def _played(path: Path) -> list[RunOptions]:
    runs = [stage.run for stage in read_study(path).stages if "intervene" in stage.run and "--learn" not in stage.run]
    return [intervene.parse(run.split()[1:]) for run in runs]


def test_studies_play_more_than_one_control_of_a_kind() -> None:
    """One draw is no control: every verdict would be `no controls`. Where none is played, another stage has them.

    That stage may be of another study. A mean over at least eight trainings, each with a draw of its own, is one over
    draws, too.
    """
    studies = [_played(path) for path in sorted((ROOT / "studies").glob("*.yaml"))]
    for runs in studies:
        alike = Counter(run.edit for run in runs if run.controls)
        assert all(run.controls >= 3 or not run.controls or alike[run.edit] >= 8 for run in runs)
    every = [run for runs in studies for run in runs]
    assert {run.policy for run in every} == {run.policy for run in every if run.controls}


PARTS = {"primary": "None.", "made": "```bash\npython a.py\npython b.py\n```", "tables": "| a |\n| --- |\n| b |"}


def test_claims_are_texts_and_numbers_and_results_no_template() -> None:
    wording = '{{ a.value|f("+.1f") }} of\n  `100`, {{ a.value.mean }}\n({{ b.low }})'
    two = ("two", "Nothing.", '{{ a.value.q|f(".3f") }}')
    text = parse_template(template(("one", wording, "  none\n at all.  "), two, parts=()))
    says, control = text.claims["one"]
    assert says == (
        Number("a", "value", "", "+.1f"), " of `100`, ", Number("a", "value", "mean"), " (", Number("b", "low"), ")",
    )  # fmt: skip
    assert control == ("none at all.",) and list(text.claims) == ["one", "two"]
    assert text.claims["two"] == (("Nothing.",), (Number("a", "value", "q", ".3f"),))
    text = parse_template(template(("one", "{{ a.value }}", "none"), parts=()))
    assert "{{ made }} {% raw %} <b>" in text.render({"one": "{{ made }} {% raw %} <b>\n"}, PARTS)
    wrapped = "- One kind\n  of agent.\n- Another, `x`\n  (y).\n\n> q"
    source = template(("one", "A.", "B."), parts=("tables",)).replace("- One kind of agent.", wrapped)
    page = parse_template(source).render({"one": "- A. *Control:* B.\n"}, PARTS)
    assert page == (
        "# What the memory is for\n\nDoes `start_kit_3M` need it?\n\nNone.\n\n## Findings\n\n- A. *Control:* B.\n\n"
        f"{PARTS['tables']}\n\n## What this does not show\n\n- One kind of agent.\n- Another, `x` (y).\n\n> q\n\n"
        f"{PARTS['made']}\n"
    )


def test_anything_else_is_refused_in_one_line() -> None:
    source = template(("one", "A.", "B."), parts=())
    parse_template(source)
    for bad, says in (
        ("{{ primary }}", "each once"),
        ("{{ results }}", "only primary, made, tables, forests, figures"),
        ("{{ primary.__class__ }}", "only primary"),
        ("{{ ''.__class__.__mro__ }}", "only primary"),
        ("{{ 9 ** 9 ** 9 }}", "only primary"),
        ("{% for a in primary %}a{% endfor %}", "only text, claims"),
        ("{% include 'x' %}", "only text, claims"),
        ("{% call claim('x') %}{% endcall %}", "write {% claim NAME %}"),
        ("{% call claim() %}{% endcall %}", "write {% claim NAME %}"),
        ("{% call claim('x') %}{% autoescape true %}{% endautoescape %}{% endcall %}", "write {% claim NAME %}"),
        ("{% claim one %}A.{% control %}B.{% endclaim %}", "there twice"),
        ("{% claim 'x' %}A.{% control %}B.{% endclaim %}", "expected token 'name'"),
        ("{% claim x %}A.{% endclaim %}", "endclaim"),
        ("{% claim x %}A.", "Unexpected end"),
        ("{% claim x %}{% claim y %}A.{% control %}B.{% endclaim %}{% control %}B.{% endclaim %}", "a number is"),
        ("{% claim x %}{% if a %}A.{% endif %}{% control %}B.{% endclaim %}", "only text, claims"),
        ("{% claim x %}It takes 58 ticks.{% control %}B.{% endclaim %}", "the number 58"),
        ("{% claim x %}A.{% control %}random: 12.3{% endclaim %}", "the number 12"),
        ("{% claim x %}{{ a }}{% control %}B.{% endclaim %}", "a number is {{ ROW.COLUMN }}"),
        ("{% claim x %}{{ a.b.c.d }}{% control %}B.{% endclaim %}", "a number is {{ ROW.COLUMN }}"),
        ("{% claim x %}{{ a.b() }}{% control %}B.{% endclaim %}", "a number is {{ ROW.COLUMN }}"),
        ("{% claim x %}{{ a.b|upper }}{% control %}B.{% endclaim %}", "a number is {{ ROW.COLUMN }}"),
        ("{% claim x %}{{ 'a'.b }}{% control %}B.{% endclaim %}", "a number is {{ ROW.COLUMN }}"),
        ('{% claim x %}{{ a.b|f(".1d") }}{% control %}B.{% endclaim %}', "is no format"),
        ('{% claim x %}{{ a.b|f(">40") }}{% control %}B.{% endclaim %}', "is no format"),
        ("{% claim x %}{{ a.b|f(primary) }}{% control %}B.{% endclaim %}", "is no format"),
        ("3 trainings", "the number 3"),
        ("{{ a.b", "expected"),
        ("{{ " + "(" * 5000 + " }}", ""),
        ("{{ " + "9" * 5000 + " }}", ""),
        ("x" * LONGEST, "at most"),
    ):
        message = assert_refuses([says], parse_template, source.replace("- One kind of agent.", bad))
        assert "\n" not in message and len(message) < 500


def test_a_page_without_what_all_have_is_refused() -> None:
    source = template(("one", "A.", "B."), parts=())
    for part in ("{{ primary }}", "{{ made }}", "## Findings", "## What this does not show"):
        assert_refuses(r"does not show|has no heading", parse_template, source.replace(part, "x"))


def test_scripts_are_those_of_the_project() -> None:
    files = [*ROOT.glob("*.py"), *(ROOT / "analysis").glob("*.py")]
    scripts = {str(file.relative_to(ROOT)) for file in files if "\n    command_line.run(main)" in file.read_text()}
    assert scripts - {"study.py", "share.py"} == SCRIPTS  # no stage shares anything


def test_other_commands_are_refused() -> None:
    for command, says in (
        ('-c \'open("x", "w")\' {here}', "'-c' is not a script of this project"),
        ("study.py other.yaml --results-dir {here}", "not a script"),
        ("analysis/../intervene.py -o {here}", "not a script"),
        ("{here}/intervene.py -o {here}", "not a script"),
        ("benchmarks/power.py -o {here}", "not a script"),
        ("", "empty"),
        ("intervene.py -o '{here}", "No closing quotation"),
        ("intervene.py -o {here}/../../x", "'..' is not allowed"),
        ("intervene.py {here} --directions ../x", "'..' is not allowed"),
        ("intervene.py -o {parent}x", "must begin a path"),
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
    ):
        assert_refuses([says], check_command, command, None)


def test_commands_that_stay_inside_are_taken_and_resume_is_one_option() -> None:
    for command in (
        "intervene.py -p a --directions {probes}/directions.safetensors --direction a/lstm_cell/b -o {here}",
        "intervene.py -p a --policies-dir /tmp/policies -o {here}",
        "analyze_dynamics.py {dump}/a --name analysis --output-dir {parent}",
        "analysis/score_ways.py {a}/x {b}/y -o {here}/scores.tsv",
        "train.py -n a -p {here}/policies --runs-dir {here}/runs", "evaluate.py {trained}/policies pve",
    ):  # fmt: skip
        check_command(command, "--resume")
    for resume in ("-c x", "--resume --output docs", "--resume=docs", "docs"):
        assert_refuses("must be one option", check_command, "intervene.py -o {here}", resume)


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
    assert played("evaluate.py x pvp --repeats=2") == played("evaluate.py x pvp --repeat 2") == {"1", "2"}
    assert played("extract_activations.py pve -p a -s 3") == {"3"}
    others = {"extract_activations.py": extract_activations.Arguments, "evaluate.py": evaluate.Arguments}
    for script, of in {"intervene.py": RunOptions, **others}.items():
        (default,) = (field.default for field in fields(of) if field.name == "seed")
        assert DEFAULT_SEEDS[script] == default
        assert played(f"{script} x") == played(f"{script} x --seed {default}") == {str(default)}


PRIMARY = Primary("a", "effects.tsv", {"outcome": "ticks"})
TWO_STAGES = Study(tuple(Stage(name, "write.py {here}", 1.0) for name in "ab"), primary=(PRIMARY,))


def run_of(study: Study, folder: Path) -> Named | None:
    run = StudyRun(study, folder / "results", folder)
    return run.run(run.plan(), lambda plan, state, seconds: None).primary


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a script that writes something."""
    script = "import pathlib, sys\npath = pathlib.Path(sys.argv[1])\npath.mkdir()\n(path / 'x').write_text('x')\n"
    (tmp_path / "write.py").write_text(script)
    return tmp_path


def named(begun: int, outcomes: Sequence[Primary]) -> Named:
    return Named(datetime.now(UTC).date().isoformat(), begun, [str(outcome) for outcome in outcomes])


def test_primary_outcomes_are_written_down_before_anything_is_played(
    folder: Path,
) -> None:
    """Those that are named later say how much had been begun, and the first ones keep their day."""
    assert run_of(TWO_STAGES, folder) == named(0, [PRIMARY])
    kept = folder / "results" / PRIMARY_FILE
    kept.write_text(kept.read_text().replace(named(0, []).since, "2020-01-01"))
    again = run_of(TWO_STAGES, folder)
    assert again is not None and again.since == "2020-01-01"
    other = replace(PRIMARY, where={"outcome": "meals"})
    assert run_of(replace(TWO_STAGES, primary=(other,)), folder) == named(2, [other])
    assert run_of(replace(TWO_STAGES, primary=()), folder) is None
    assert run_of(TWO_STAGES, folder) == named(2, [PRIMARY])  # dropped for a while, so named anew
    kept.write_text(json.dumps({"since": 3}))
    assert_refuses(r"primary\.json is damaged: .*delete it", run_of, TWO_STAGES, folder)


@pytest.mark.parametrize("name", ["a", "b.log"])
def test_what_the_study_did_not_write_is_not_removed(folder: Path, name: str) -> None:
    mine = folder / "results" / name
    (mine if "." in name else mine / "mine").mkdir(parents=True)
    assert_refuses("is not of this study: move it away", run_of, TWO_STAGES, folder)
    assert [path.name for path in mine.iterdir()] == ([] if "." in name else ["mine"])
    assert not (folder / "results" / "study.json").exists()


def test_folders_with_spaces_are_one_argument_and_a_pipe_for_a_log_is_refused(folder: Path) -> None:
    run = StudyRun(TWO_STAGES, folder / "it's mine", folder)
    run.run(run.plan(), lambda plan, state, seconds: None)
    assert (folder / "it's mine" / "a" / "x").exists()
    study = Study((Stage("a", "fail.py {here}", 1.0, resume="--resume"),))
    (folder / "fail.py").write_text("raise SystemExit('no')\n")
    assert_refuses("the stage a failed: no", run_of, study, folder)
    log = folder / "results" / "a.log"
    log.unlink()
    os.mkfifo(log)
    assert_refuses(r"a\.log cannot be written: it is not a plain file", run_of, study, folder)


def test_hidden_files_do_not_make_a_finished_stage_run_again(folder: Path) -> None:
    (folder / "read").mkdir()
    (folder / "read" / "x").write_text("x")
    study = Study((Stage("a", "write.py {here}", 1.0, reads=("read",)),))
    assert run_of(study, folder) is None
    (folder / "results" / "a" / ".DS_Store").touch()
    (folder / "read" / "._x").touch()
    assert [plan.action for plan in StudyRun(study, folder / "results", folder).plan()] == ["skip"]
