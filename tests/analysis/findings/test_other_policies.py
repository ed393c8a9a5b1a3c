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
STUDY = {
    "primary": [{**TICKS, "stage": "clear_*"}],
    "stages": [
        {
            "name": "clear_{each}", "each": ["a1", "a2"], "run": "intervene.py -p {each} --edit clear -o {here}",
            "reads": ["policies/{each}.safetensors"], "minutes": 2, "resume": "--resume",
        },
        {"name": "clear", "run": "intervene.py -p a2 --edit freeze -o {here}", "minutes": 1,
         "reads": ["policies/a2.safetensors"]},
        {
            "name": "dump", "run": "extract_activations.py pve -p a1 --seed 7 -o {here}", "minutes": 1,
            "reads": ["policies/a1.safetensors"],
        },
        {"name": "probes", "run": "train_probes.py {dump}/a1 --name probes --output-dir {parent}", "minutes": 1},
        {
            "name": "hold_{each}", "each": ["food", "water"], "minutes": 1, "reads": ["policies/a1.safetensors"],
            "run": "intervene.py -p a1 --directions {probes}/directions.safetensors --direction a1/{each} -o {here}",
        },
        {
            "name": "checkpoints", "run": "extract_activations.py pve -p a1 --checkpoint all -o {here}", "minutes": 1,
            "reads": ["policies/a1.safetensors", "policies/checkpoints"],
        },
        {"name": "ages", "run": "train_probes.py {checkpoints}/a1 --output-dir {parent}", "minutes": 1},
        {
            "name": "together", "run": "extract_activations.py pvp -p a1,a2 -o {here}", "minutes": 1,
            "reads": ["policies/a1.safetensors", "policies/a2.safetensors"],
        },
    ],
    "claims": {
        "lives": {"one": TICKS, "all": {**TICKS, "stage": "clear_*"}},
        "held": {"food": {"stage": "hold_food", "file": "effects.tsv", "where": {"direction": "a1/food"}}},
        "older": {"age": {"stage": "ages", "file": "probe_scores.tsv"}},
    },
    "tables": [{"title": "All", "stage": "clear_*", "file": "effects.tsv", "columns": ["value"]}],
    "figures": [{"stage": "hold_food", "file": "effects.png", "caption": "Food of `a1`."}],
}  # fmt: skip
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


def study_of(
    study: Path, policies: tuple[str, ...], policies_dir: Path, folder: Path, say: Callable[[str], None] = print
) -> Path:
    return write_study_of(study, policies, policies_dir, folder, say)


def written(folder: Path, study: dict, text: str = TEXT) -> Path:
    """Write the study without YAML's aliases for what it holds several times."""
    return test_study_file.written(folder, json.loads(json.dumps(study)), text)


def test_each_stage_row_and_picture_of_one_policy_is_there_for_each_of_the_others(tmp_path: Path) -> None:
    path = study_of(written(tmp_path, STUDY), ("b1", "b2"), Path("mine"), tmp_path / "new")
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


def test_where_policies_lie_is_said_only_if_it_is_elsewhere(tmp_path: Path) -> None:
    path = study_of(written(tmp_path, STUDY), ("b",), Path("policies"), tmp_path / "new")
    assert not any("--policies-dir" in stage.run for stage in read_study(path).stages)


def test_a_table_does_not_mix_stages_whose_names_begin_alike(tmp_path: Path) -> None:
    stages = [
        {"name": f"{name}_{{each}}", "each": ["a1", "a2"], "run": f"intervene.py -p {{each}} -n {episodes} -o {{here}}",
         "reads": ["policies/{each}.safetensors"], "minutes": 1}
        for name, episodes in (("clear", 1), ("clear_twice", 2))
    ]  # fmt: skip
    study = {**STUDY, "stages": stages, "claims": {"lives": STUDY["claims"]["lives"]}, "figures": []}
    study["tables"] = [{**STUDY["tables"][0], "stage": "clear_a?"}]
    text = TEXT.split("{% claim held %}")[0] + "{{ tables }}\n\n## What this does not show\n\n- A.\n\n{{ made }}\n"
    path = study_of(written(tmp_path, study, text), ("b", "c"), Path("policies"), tmp_path / "new")
    assert [table.stage for table in read_study(path).tables] == ["clear_b", "clear_c"]


def test_long_lists_of_policies_have_a_name_that_a_folder_can_have(tmp_path: Path) -> None:
    study = written(tmp_path, STUDY)
    names = tuple(f"a_long_name_of_a_policy_{place}" for place in range(5))
    paths = {study_of(study, some, Path("policies"), tmp_path / "new") for some in (names, names[::-1])}
    assert len(paths) == 2 and all(len(path.stem) <= 80 and read_study(path) for path in paths)


PLAYED = {"minutes": 1, "reads": ["policies/{each}.safetensors"], "each": ["a", "a-1"]}


def small(folder: Path, *stages: dict, **more: object) -> Path:
    """A study that claims one number of the stages `clear_*`, which empty the memory of `a` and `a-1`."""
    clear = {"name": "clear_{each}", "run": "intervene.py -p {each} --edit clear -o {here}", **PLAYED}
    study = {"stages": [clear, *stages], "claims": {"lives": {"one": {**TICKS, "stage": "clear_a"}}}, **more}
    return written(folder, study, test_study_file.template(("lives", "{{ one.value }}", "none"), parts=()))


def test_stages_of_two_policies_are_left_out_though_one_is_named_by_a_stage_alone(tmp_path: Path) -> None:
    probes = {"name": "probes_{each}", "run": "train_probes.py {clear_{each}}/x --output-dir {here}", **PLAYED}
    transfer = {
        "name": "transfer",
        "run": "intervene.py -p a --directions {probes_a-1}/x.safetensors -o {here}",
        "minutes": 1,
    }
    own = {**transfer, "name": "own", "run": transfer["run"].replace("{probes_a-1}", "{probes_a}")}
    study = read_study(study_of(small(tmp_path, probes, transfer, own), ("b",), Path("policies"), tmp_path / "new"))
    assert [stage.name for stage in study.stages] == ["clear_b", "probes_b", "own_b"]
    assert "{probes_b}" in study.stages[-1].run and "`transfer`" in study.text.source


def test_stages_read_what_became_of_theirs_whatever_their_names(tmp_path: Path) -> None:
    stages = [
        {"name": f"dump-{policy}", "run": f"extract_activations.py pve -p {policy} -n {count} -o {{here}}",
         "minutes": 1, "reads": [f"policies/{policy}.safetensors"]}
        for policy, count in (("a", 4), ("a-1", 8))
    ]  # fmt: skip
    probes = {"name": "probes", "run": "train_probes.py {dump-a-1}/a-1 --output-dir {here}", "minutes": 1}
    study = read_study(study_of(small(tmp_path, *stages, probes), ("b",), Path("policies"), tmp_path / "new"))
    assert [(stage.name, stage.run.split(" --seed")[0]) for stage in study.stages[1:]] == [
        ("dump-b", "extract_activations.py pve -p b -n 4 -o {here}"),
        ("other_dump-b", "extract_activations.py pve -p b -n 8 -o {here}"),
        ("probes_b", "train_probes.py {other_dump-b}/b --output-dir {here}"),
    ]


def test_all_stages_get_the_folder_of_the_policies(tmp_path: Path) -> None:
    dump = {"name": "dump", "run": "extract_activations.py pve -p a -o {here}", "minutes": 1,
            "reads": ["policies/a.safetensors"]}  # fmt: skip
    dynamics = {"name": "dynamics", "run": "analyze_dynamics.py {dump}/a -o {here}", "minutes": 1}
    codes = {"name": "codes", "run": "saliency.py {dump}/a --policy policies/a.safetensors -o {here}", "minutes": 1,
             "reads": ["policies/a.safetensors"]}  # fmt: skip
    study = read_study(study_of(small(tmp_path, dump, dynamics, codes), ("b",), Path("mine"), tmp_path / "new"))
    commands = {stage.name: stage.run for stage in study.stages}
    assert commands["dynamics_b"].endswith("--policies-dir mine") and "--policy mine/b" in commands["codes_b"]


def test_differences_between_policies_are_left_out(tmp_path: Path) -> None:
    every = {**TICKS, "stage": "clear_*"}
    primary = [{**every, "minus": "clear_a"}, {**TICKS, "stage": "clear_a"}]
    claims = {"lives": {"one": {**TICKS, "stage": "clear_a"}, "two": {**every, "minus": "clear_a"}}}
    says = ("lives", "{{ one.value }} and {{ two.value.mean }}", "none")
    study = {**yaml.safe_load(small(tmp_path).read_text()), "primary": primary, "claims": claims}
    path = written(tmp_path, study, test_study_file.template(says, parts=()))
    study = read_study(study_of(path, ("b", "c"), Path("policies"), tmp_path / "new"))
    assert [row.stage for row in study.primary] == ["clear_b", "clear_c"]


def test_a_study_that_was_edited_is_kept(tmp_path: Path) -> None:
    message: list[str] = []
    path = study_of(small(tmp_path), ("b",), Path("policies"), tmp_path / "new", message.append)
    study_of(small(tmp_path), ("b",), Path("policies"), tmp_path / "new", message.append)
    path.write_text(edited := path.read_text().replace("--edit clear", "--edit freeze"))
    study_of(small(tmp_path), ("b",), Path("policies"), tmp_path / "new", message.append)
    assert path.read_text() == edited and message[:2] == [f"the study of these policies: {path}"] * 2
    assert message[2].startswith(f"{path} has been edited")


def test_study_without_a_claim_about_one_policy_is_refused(tmp_path: Path) -> None:
    stages = [{**stage, "reads": []} for stage in STUDY["stages"]]
    study = written(tmp_path, {**STUDY, "stages": [{**stage, "reads": ["config.yaml"]} for stage in stages]})
    assert_refuses("makes no claim about a stage that reads one", study_of, study, ("b",), Path("x"), tmp_path)


@pytest.mark.parametrize("path", sorted((ROOT / "studies").glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_studies_can_be_run_with_other_policies(path: Path, tmp_path: Path) -> None:
    study = read_study(study_of(path, ("b1", "b2"), Path("mine"), tmp_path))
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
