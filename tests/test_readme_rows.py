"""README's commands as they stand there, one after the other, on one recording; and the tour from its first cell on."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.command import ROOT, python

POLICY = "start_kit_10M"
TOUR = ROOT / "notebooks" / "tour.ipynb"
LESS = {
    "train.py": "--debug --env.num-agents 16 --env.num-npcs 16 --env.num-maps 2 --env.horizon 32 "
    "--train.batch-size 1024 --train.minibatch-rows 32 --train.total-agent-steps 1024",
    "evaluate.py": "-r 1 -n 2 --env.horizon 16",
    "extract_activations.py": "-n 4 --max-steps 40",
    "analyze_activations.py": "--subsample 40 --projection pca --permutations 99 --bootstraps 99",
    "explore.py": "",
    "train_probes.py": "--targets self_food --probes linear --inputs lstm_hidden,encoder_output,observation,untrained "
    "--subsample 48 --resamples 100",
    "analyze_dynamics.py": "--reach 8 --states 20 --spectrum-states 10 --followed-states 10 --tsne-records 200 "
    "--permutations 99 --bootstraps 2 --components 2 --clusters 4 --behaviours 2 --lives 24 --lags 4 --subsample 80",
    "saliency.py": "--samples 4 --ticks 4 --lags 2 --check-states 8",
    "train_sparse_autoencoder.py": "--width 64 --k 4 --epochs 1 --kind topk",
    "intervene.py": "-n 2 --max-steps 16 --controls 1",
    "simulate.py": "-n 4 --ticks 4",
    "study.py": "--plan",
}
"""What makes each script quick; options that README names are given again, and the last one counts."""
NEEDS_A_FILE = {"import_policy.py"}
"""Reads a file that is not shipped."""


def readme_rows() -> list[list[str]]:
    """Return the commands of README's table of the pipeline, as words."""
    text = (ROOT / "README.md").read_text()
    table = text.split("## The pipeline")[1].split("\n## ")[0]
    return [shlex.split(command) for command in re.findall(r"\| `python ([^`]+)` \|", table)]


def test_every_row_is_tried() -> None:
    scripts = [row[0] for row in readme_rows()]
    assert set(scripts) == LESS.keys() | NEEDS_A_FILE and len(scripts) == len(set(scripts))


@pytest.mark.slow
def test_the_rows_run_one_after_the_other_on_one_recording(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    for name in (POLICY, "start_kit_s1"):
        (tmp_path / "policies" / f"{name}.safetensors").symlink_to(ROOT / "policies" / f"{name}.safetensors")
    (ROOT / "maps").mkdir(exist_ok=True)  # a link to a folder that is not there could not be filled
    for name in ("world_models", "studies", "maps"):
        (tmp_path / name).symlink_to(ROOT / name)
    for row in readme_rows():
        script, *words = row
        if script in NEEDS_A_FILE:
            continue
        if "analysis_results/RUN" in words:
            (run,) = (tmp_path / "analysis_results").glob(f"{POLICY}-sub*")
            words = [str(run) if word == "analysis_results/RUN" else word for word in words]
        python(ROOT / script, *words, *LESS[script].split(), folder=tmp_path, timeout=3600)


@pytest.mark.slow
def test_the_tour_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib.pyplot as plt

    monkeypatch.chdir(TOUR.parent)
    monkeypatch.syspath_prepend(ROOT)
    there: dict[str, Any] = {}
    cells = [cell for cell in json.loads(TOUR.read_text())["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        exec(compile("".join(cell["source"]), f"tour.ipynb, code cell {number}", "exec"), there)
    assert set(there["layers"]) == {"encoder_output", "lstm_hidden", "lstm_cell", "action_decoder"}
    assert set(there["predicted"]) == {"encoder_output", "lstm_cell"}
    assert len(there["records"]) == len(there["target"]) == len(there["components"])
    assert there["metadata"].records > len(there["records"]) > 0
    drawn = there["figure"].axes
    assert len(drawn) == 3 and len(drawn[1].collections[0].get_offsets()) == len(there["records"])
    plt.close(there["figure"])
