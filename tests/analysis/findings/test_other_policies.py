"""A study of other policies has the stages and rows of the first for each of them, and leaves out what cannot be."""

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from analysis.codes.options import AgreementArguments
from analysis.findings.other_policies import TAKE_A_FOLDER, write_study_of
from analysis.findings.study_file import read_study
from analysis.sparse.settings import SparseSettings
from analysis.world_model.options import QualityOptions, WorldSettings
from tests.analysis.findings import test_study_file
from tests.command import ROOT, assert_refuses

TICKS = {"stage": "clear_a1", "file": "effects.tsv", "where": {"outcome": "ticks"}}
A1, A2, EACH = (f"policies/{name}.safetensors" for name in ("a1", "a2", "{each}"))


def stage(name: str, run: str, *reads: str, **more: object) -> dict:
    return {"name": name, "run": run, "minutes": 1, "reads": list(reads), **more}


HOLD = "intervene.py -p a1 --directions {probes}/directions.safetensors --direction a1/{each} -o {here}"
STUDY = {
    "primary": [{**TICKS, "stage": "clear_*"}],
    "stages": [
        stage(
            "clear_{each}", "intervene.py -p {each} --edit clear -o {here}", EACH, each=["a1", "a2"], resume="--resume"
        ),
        stage("clear", "intervene.py -p a2 --edit freeze -o {here}", A2),
        stage("dump", "extract_activations.py pve -p a1 --seed 7 -o {here}", A1),
        stage("probes", "train_probes.py {dump}/a1 --name probes --output-dir {parent}"),
        stage("hold_{each}", HOLD, A1, each=["food", "water"]),
        stage("checkpoints", "extract_activations.py pve -p a1 --checkpoint all -o {here}", A1, "policies/checkpoints"),
        stage("ages", "train_probes.py {checkpoints}/a1 --output-dir {parent}"),
        stage("together", "extract_activations.py pvp -p a1,a2 -o {here}", A1, A2),
    ],
    "claims": {
        "lives": {"one": TICKS, "all": {**TICKS, "stage": "clear_*"}},
        "held": {"food": {"stage": "hold_food", "file": "effects.tsv", "where": {"direction": "a1/food"}}},
        "older": {"age": {"stage": "ages", "file": "probe_scores.tsv"}},
    },
    "tables": [{"title": "All", "stage": "clear_*", "file": "effects.tsv", "columns": ["value"]}],
    "figures": [{"stage": "hold_food", "file": "effects.png", "caption": "Food of `a1`."}],
}
TEXT = test_study_file.template(
    (
        "lives",
        '`a1`: {{ one.value|f("+.1f") }}, all {{ all.value.mean|f("+.2f") }}, p {{ all.value.q_primary|f(".3f") }}.',
        'random {{ one.random|f("+.1f") }} in {{ all.value.n }}',
    ),
    ("held", "{{ food.verdict }}", "none"),
    ("older", "{{ age.score }}", "none"),
    parts=("tables", "figures"),
)


def study_of(study: Path, *policies: str, where: str = "policies", say: Callable[[str], None] = print) -> Path:
    """Write the study of other policies, which lie in `where`, beside it."""
    return write_study_of(study, policies, Path(where), study.parent / "new", say)


def written(folder: Path, study: dict, text: str = TEXT) -> Path:
    """Write the study without YAML's aliases for what it holds several times."""
    return test_study_file.written(folder, json.loads(json.dumps(study)), text)


def test_each_stage_row_and_picture_of_one_policy_is_there_for_each_of_the_others(tmp_path: Path) -> None:
    path = study_of(written(tmp_path, STUDY), "b1", "b2", where="mine")
    assert path == tmp_path / "new" / "study_b1_b2.yaml"
    study = read_study(path)
    commands = {stage.name: stage.run.split(" --seed")[0] for stage in study.stages}
    directions = (
        "intervene.py -p {0} --directions {{probes_{0}}}/directions.safetensors --direction {0}/{1} -o {{here}}"
    )
    expected = {}
    for policy in ("b1", "b2"):
        expected |= {
            f"clear_{policy}": f"intervene.py -p {policy} --edit clear -o {{here}} --policies-dir mine",
            f"other_clear_{policy}": f"intervene.py -p {policy} --edit freeze -o {{here}} --policies-dir mine",
            f"dump_{policy}": f"extract_activations.py pve -p {policy}",
            f"probes_{policy}": f"train_probes.py {{dump_{policy}}}/{policy} --name probes --output-dir {{parent}}",
            f"hold_food_{policy}": directions.format(policy, "food") + " --policies-dir mine",
            f"hold_water_{policy}": directions.format(policy, "water") + " --policies-dir mine",
        }
    assert commands == expected
    reads = {stage.name: stage.reads for stage in study.stages}
    assert reads["clear_b2"] == ("mine/b2.safetensors",) and reads["probes_b1"] == ()
    assert [(row.stage, row.column) for row in study.primary] == [("clear_b1", "value"), ("clear_b2", "value")]
    lives, held = study.claims
    assert [row.stage for row in lives.rows.values()] == ["clear_b1", "clear_b2"]
    assert [str(number) for number in lives.numbers] == [
        "row_1.value", "row_1.q_primary", "row_2.value", "row_2.q_primary", "row_1.random", "row_2.random",
    ]  # fmt: skip
    assert [row.where for row in held.rows.values()] == [{"direction": "b1/food"}, {"direction": "b2/food"}]
    assert [table.stage for table in study.tables] == ["clear_*"]
    assert [(figure.stage, figure.caption) for figure in study.figures] == [
        ("hold_food_b1", "Food of `b1`."), ("hold_food_b2", "Food of `b2`."),
    ]  # fmt: skip
    assert "`checkpoints`, `ages` and `together`." in study.text.source
    usual = read_study(study_of(written(tmp_path, STUDY), "b"))
    assert not any("--policies-dir" in stage.run for stage in usual.stages), "said only if they are elsewhere"


def test_tables_do_not_mix_stages_and_long_lists_have_a_short_name(tmp_path: Path) -> None:
    command = "intervene.py -p {{each}} -n {} -o {{here}}"
    stages = [
        stage(f"{name}_{{each}}", command.format(episodes), EACH, each=["a1", "a2"])
        for name, episodes in (("clear", 1), ("clear_twice", 2))
    ]
    study = {**STUDY, "stages": stages, "claims": {"lives": STUDY["claims"]["lives"]}, "figures": []}
    study["tables"] = [{**STUDY["tables"][0], "stage": "clear_a?"}]
    text = TEXT.split("{% claim held %}")[0] + "{{ tables }}\n\n## What this does not show\n\n- A.\n\n{{ made }}\n"
    path = study_of(written(tmp_path, study, text), "b", "c")
    assert [table.stage for table in read_study(path).tables] == ["clear_b", "clear_c"]
    long = written(tmp_path, STUDY)
    names = tuple(f"a_long_name_of_a_policy_{place}" for place in range(5))
    paths = {study_of(long, *some) for some in (names, names[::-1])}
    assert len(paths) == 2 and all(len(path.stem) <= 80 and read_study(path) for path in paths)


def small(folder: Path, *stages: dict, **more: object) -> Path:
    """A study that claims one number of the stages `clear_*`, which empty the memory of `a` and `a-1`."""
    clear = stage("clear_{each}", "intervene.py -p {each} --edit clear -o {here}", EACH, each=["a", "a-1"])
    study = {"stages": [clear, *stages], "claims": {"lives": {"one": {**TICKS, "stage": "clear_a"}}}, **more}
    return written(folder, study, test_study_file.template(("lives", "{{ one.value }}", "none"), parts=()))


def test_stages_of_two_policies_are_left_out_though_one_is_named_by_a_stage_alone(tmp_path: Path) -> None:
    command = "train_probes.py {clear_{each}}/x --output-dir {here}"
    probes = stage("probes_{each}", command, EACH, each=["a", "a-1"])
    transfer, own = (
        stage(name, f"intervene.py -p a --directions {{{probed}}}/x.safetensors -o {{here}}")
        for name, probed in (("transfer", "probes_a-1"), ("own", "probes_a"))
    )
    study = read_study(study_of(small(tmp_path, probes, transfer, own), "b"))
    assert [stage.name for stage in study.stages] == ["clear_b", "probes_b", "own_b"]
    assert "{probes_b}" in study.stages[-1].run and "`transfer`" in study.text.source


def test_stages_read_what_became_of_theirs_whatever_their_names(tmp_path: Path) -> None:
    command = "extract_activations.py pve -p {0} -n {1} -o {{here}}"
    played = (("a", 4), ("a-1", 8))
    stages = [stage(f"dump-{of[0]}", command.format(*of), f"policies/{of[0]}.safetensors") for of in played]
    probes = stage("probes", "train_probes.py {dump-a-1}/a-1 --output-dir {here}")
    study = read_study(study_of(small(tmp_path, *stages, probes), "b"))
    assert [(stage.name, stage.run.split(" --seed")[0]) for stage in study.stages[1:]] == [
        ("dump-b", "extract_activations.py pve -p b -n 4 -o {here}"),
        ("other_dump-b", "extract_activations.py pve -p b -n 8 -o {here}"),
        ("probes_b", "train_probes.py {other_dump-b}/b --output-dir {here}"),
    ]


def test_all_stages_get_the_folder_of_the_policies(tmp_path: Path) -> None:
    a = "policies/a.safetensors"
    dump = stage("dump", "extract_activations.py pve -p a -o {here}", a)
    dynamics = stage("dynamics", "analyze_dynamics.py {dump}/a -o {here}")
    codes = stage("codes", f"saliency.py {{dump}}/a --policy {a} -o {{here}}", a)
    study = read_study(study_of(small(tmp_path, dump, dynamics, codes), "b", where="mine"))
    commands = {stage.name: stage.run for stage in study.stages}
    assert commands["dynamics_b"].endswith("--policies-dir mine") and "--policy mine/b" in commands["codes_b"]


def test_differences_between_policies_are_left_out(tmp_path: Path) -> None:
    every = {**TICKS, "stage": "clear_*"}
    primary = [{**every, "minus": "clear_a"}, {**TICKS, "stage": "clear_a"}]
    claims = {"lives": {"one": {**TICKS, "stage": "clear_a"}, "two": {**every, "minus": "clear_a"}}}
    says = ("lives", "{{ one.value }} and {{ two.value.mean }}", "none")
    study = {**yaml.safe_load(small(tmp_path).read_text()), "primary": primary, "claims": claims}
    path = written(tmp_path, study, test_study_file.template(says, parts=()))
    study = read_study(study_of(path, "b", "c"))
    assert [row.stage for row in study.primary] == ["clear_b", "clear_c"]


def test_an_edited_study_is_kept_and_one_without_a_claim_is_refused(tmp_path: Path) -> None:
    message: list[str] = []
    path = study_of(small(tmp_path), "b", say=message.append)
    study_of(small(tmp_path), "b", say=message.append)
    path.write_text(edited := path.read_text().replace("--edit clear", "--edit freeze"))
    study_of(small(tmp_path), "b", say=message.append)
    assert path.read_text() == edited and message[:2] == [f"the study of these policies: {path}"] * 2
    assert message[2].startswith(f"{path} has been edited")
    study = written(tmp_path, {**STUDY, "stages": [{**own, "reads": ["config.yaml"]} for own in STUDY["stages"]]})
    assert_refuses("makes no claim about a stage that reads one", study_of, study, "b")


@pytest.mark.parametrize("path", sorted((ROOT / "studies").glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_studies_can_be_run_with_other_policies(path: Path, tmp_path: Path) -> None:
    study = read_study(write_study_of(path, ("b1", "b2"), Path("mine"), tmp_path, print))
    own = read_study(path)
    played = {stage.run.split()[0] for stage in study.stages}
    assert played <= {stage.run.split()[0] for stage in own.stages} and study.claims
    text = " ".join(stage.run for stage in study.stages)
    assert not any(Path(read).stem in text.split() for stage in own.stages for read in stage.reads)


def test_scripts_that_are_given_a_folder_of_policies_have_that_option() -> None:
    import analyze_dynamics
    import extract_activations
    import intervene
    import saliency

    for script in (analyze_dynamics, extract_activations, intervene, saliency):
        assert f"{script.__name__}.py" in TAKE_A_FOLDER and "policies_dir" in Path(script.__file__).read_text()
    assert "train_sparse_autoencoder.py" in TAKE_A_FOLDER
    for command in (AgreementArguments, QualityOptions, WorldSettings, SparseSettings):
        assert "policies_dir" in {item.name for item in fields(command)}
