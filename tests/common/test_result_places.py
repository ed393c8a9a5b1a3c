"""Where results go: the same options in every script."""

from pathlib import Path

import pytest

from common.result_places import result_file, result_folder
from common.user_error import UserError
from tests.command import assert_refused, run_here

USUAL = Path("interventions/policy-clear")
PAGE = Path("RUN/explorer.html")
STAGES = [
    "agent_life_visualization.py", "analyze_activations.py", "analyze_dynamics.py", "cluster_life_phase.py",
    "compare_runs.py", "explore.py", "extract_activations.py", "intervene.py", "panel.py", "render_replay.py",
    "saliency.py", "simulate.py lives", "train_probes.py", "train_sparse_autoencoder.py", "train_world_model.py",
]  # fmt: skip


@pytest.mark.parametrize("script", STAGES)
def test_every_stage_takes_a_folder_and_a_name(script: str) -> None:
    shown = " ".join(run_here(*script.split(), "--help").stdout.split())
    assert "--name STR" in shown and "-o PATH, --output PATH, --output-dir PATH" in shown


@pytest.mark.parametrize(
    ("output", "name", "folder"),
    [
        (None, None, "interventions/policy-clear"),
        (None, "mine", "interventions/mine"),
        ("there", "mine", "there/mine"),
        ("there/run", None, "there/run"),
    ],
)
def test_the_folder_of_a_run(output: str | None, name: str | None, folder: str) -> None:
    assert result_folder(output and Path(output), name, USUAL) == Path(folder)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("output", "name", "file"),
    [
        (None, None, "RUN/explorer.html"),
        (None, "mine", "RUN/mine.html"),
        ("there", None, "there/explorer.html"),
        ("there", "mine.html", "there/mine.html"),
        ("there/v1.2", "v1.2", "there/v1.2/v1.2.html"),
        ("there/page.html", None, "there/page.html"),
        ("page.txt", None, "page.txt"),  # which scripts refuse
    ],
)
def test_the_file_of_a_page(
    output: str | None, name: str | None, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there/v1.2").mkdir(parents=True)
    assert result_file(None if output is None else Path(output), name, PAGE) == Path(file)


def test_a_file_and_a_name_contradict_each_other() -> None:
    with pytest.raises(UserError, match=r"-o there/page.html is a file: give the folder that --name mine goes into"):
        result_file(Path("there/page.html"), "mine", PAGE)


@pytest.mark.parametrize("name", ["/tmp/elsewhere", "../up", "a/b", ""])
def test_a_name_is_no_path(name: str) -> None:
    refused = run_here("train_probes.py", "activation_data/NAME", "--name", name)
    assert_refused(refused, f"--name is {name}", "the folder that it lies in is -o")
