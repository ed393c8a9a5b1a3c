"""Study files: what they hold, and what is refused in one line."""

import copy
from pathlib import Path

import pytest
import yaml

import intervene
from analysis.findings.study_file import read_study
from tests.command import assert_refuses

STUDY = {
    "title": "What the memory is for",
    "question": "Does `start_kit_3M` need it?",
    "stages": [
        {"name": "clear_{each}", "run": "intervene.py -p {each} -o {here}", "minutes": 2, "each": ["a", "b"]},
        {"name": "page", "run": "explore.py {clear_a} --output {here}", "minutes": 0.5, "reads": ["policies/a"]},
    ],
    "claims": [
        {
            "says": "It takes {one.value:+.1f} of `100` ticks, {all.value.mean:.2f} over {all.value.n} trainings.",
            "control": "random memories: {one.random:.1f}",
            "rows": {
                "one": {"stage": "clear_a", "file": "effects.tsv", "where": {"outcome": "ticks"}},
                "all": {"stage": "clear_*", "file": "effects.tsv"},
            },
        }
    ],
    "limits": ["One kind of agent."],
    "tables": [{"title": "All", "stage": "clear_*", "file": "effects.tsv", "columns": ["value"]}],
    "forests": [{"title": "F", "axis": "ticks", "file": "effects.tsv", "where": {}, "groups": {"kit": "clear_*"}}],
    "figures": [{"stage": "page", "file": "effects.png", "caption": "Effects."}],
}  # fmt: skip


def written(folder: Path, study: object) -> Path:
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(study))
    return path


def test_stage_is_run_for_each_value(tmp_path: Path) -> None:
    study = read_study(written(tmp_path, STUDY))
    assert [stage.name for stage in study.stages] == ["clear_a", "clear_b", "page"]
    seeds = [
        stage.run.removeprefix(f"intervene.py -p {name} -o {{here}} --seed ")
        for stage, name in zip(study.stages, "ab", strict=False)
    ]
    assert all(seed.isdecimal() for seed in seeds) and seeds[0] != seeds[1]  # each training has worlds of its own
    assert "--seed" not in study.stages[2].run
    assert study.stages[2].needs({"clear_a", "clear_b"}) == {"clear_a"}
    tables = [(f"clear_{name}", file) for name in "ab" for file in ("effects.tsv", "effects_by_episode.tsv")]
    assert study.shown_files == [*tables, ("page", "effects.png")]


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (["claims", 0, "says"], "It takes 58 ticks.", "58"),
        (["claims", 0, "control"], "random: 12.3", "12"),
        (["limits", 0], "3 trainings", "3"),
        (["claims", 0, "says"], "It takes {one.value:>40}.", "format"),
        (["claims", 0, "says"], "It takes {two.value}.", "two.value"),
        (["claims", 0, "says"], "It takes {one.value", "expected '}'"),
        (["claims", 0, "says"], "It takes {one.value!r}.", "no '!'"),
        (["claims", 0, "says"], "It takes {all.value}.", "over several stages"),
        (["claims", 0, "says"], "It takes {all.value.median}.", "over several stages"),
        (["claims", 0, "rows", "one", "minus"], "clear_*", "no mean"),
        (["claims", 0, "rows", "all", "minus"], "freeze_*", "no stage"),
        (["tables", 0, "columns"], ["value:>40"], "format"),
        (["tables", 0, "digits"], 12, "digits"),
        (["tables", 0], {**STUDY["tables"][0], "across": "a", "largest_first": "value"}, "cannot be ordered"),
        (["forests", 0, "groups"], {"kit": "clear_a"}, "patterns of several"),
        (["forests", 0, "groups"], {"kit": "freeze_*"}, "no stage"),
        (["forests", 0, "title"], "3 kinds", "3"),
        (["claims", 0, "rows", "one", "stage"], "nothing", "no stage"),
        (["claims", 0, "rows", "one", "file"], "../effects.tsv", "name of a file"),
        (["stages", 0, "name"], "clear", "{each}"),
        (["stages", 1, "name"], "a/b", "names have letters"),
        (["stages", 1, "name"], "clear_a", "two stages"),
        (["stages", 1, "run"], "explore.py {later} {here}", "{later}"),
        (["stages", 1, "run"], "explore.py", "{here}"),
        (["stages", 1, "minutes"], 0, "above 0"),
        (["stages", 1, "minute"], 1, "minute"),
        (["title"], None, "title"),
        (["claims", 0, "says"], "{all.value.q_primary:.2f}", "no primary outcome"),
        (["claims", 0, "says"], "{one.q_primary:.2f}", "no primary outcome"),
        (["primary"], [{"stage": "clear_*", "file": "effects.tsv", "where": {"outcome": "meals"}}], "is in no claim"),
        (["withdrawn"], ["It takes 58."], "58"),
    ],
)
def test_bad_study_is_refused_in_one_line(tmp_path: Path, place: list, value: object, says: str) -> None:
    study = copy.deepcopy(STUDY)
    part = study
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = value
    assert_refuses([says, "study.yaml"], read_study, written(tmp_path, study))


def test_worlds_that_trainings_share_are_refused_where_a_table_does_not_tell_them_apart(tmp_path: Path) -> None:
    """Probes of two dumps of one seed; the numbers of interventions are stored world by world."""
    study = copy.deepcopy(STUDY)
    playing = "extract_activations.py pve -p {each} -o {here}"
    dumps = [
        {"name": "dump_{each}", "run": f"{playing} -s 3", "minutes": 1, "each": ["a", "b"]},
        {"name": "probes_{each}", "run": "train_probes.py {dump_{each}} {here}", "minutes": 1, "each": ["a", "b"]},
    ]
    row = {"stage": "probes_*", "file": "probe_scores.tsv"}
    study["stages"] += dumps
    study["claims"][0] |= {"says": "{all.score.mean:.2f}", "control": "none", "rows": {"all": row}}
    assert_refuses(r"probes_a and probes_b play the same worlds \(seed 3\)", read_study, written(tmp_path, study))
    dumps[0]["run"] = playing
    read = read_study(written(tmp_path, study))
    assert len(frozenset().union(*(read.seeds({})[f"probes_{name}"] for name in "ab"))) == 2


@pytest.mark.parametrize("path", sorted(Path("studies").glob("*.yaml")), ids=lambda path: path.stem)
def test_studies_play_more_than_one_control_of_a_kind(path: Path) -> None:
    """One draw is no control: every verdict would be `no controls`."""
    runs = [intervene.parse(stage.run.split()[1:]) for stage in read_study(path).stages if "intervene" in stage.run]
    assert all(run.controls >= 3 for run in runs)


def test_file_that_is_no_study_is_refused(tmp_path: Path) -> None:
    for content in ([], "text", {"title": "x"}):
        assert_refuses("is no study", read_study, written(tmp_path, content))
