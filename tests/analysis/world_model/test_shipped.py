"""The shipped world model is that of the shipped policy."""

from analysis.world_model.model import load_model
from common.files import sha256
from tests.command import ROOT, rows_of

MODEL = ROOT / "world_models" / "start_kit_3M"
CLAIMED = ("tiles", "vitals", "memory")
"""What the documentation says is foreseen better than by the copy, at every horizon."""


def test_it_holds_the_shipped_policy() -> None:
    model, origin = load_model(MODEL / "model.safetensors")
    assert origin.policy_sha256 == sha256(ROOT / "policies" / "start_kit_3M.safetensors")
    assert model.info.agent == "neurips23_start_kit" and not model.network.training
    assert origin.train_maps and not set(origin.train) & set(origin.test)
    assert (MODEL / "model.safetensors").stat().st_size <= 15_000_000


def test_its_quality_is_what_the_documentation_says() -> None:
    rows = [row for row in rows_of(MODEL / "quality" / "open_loop.tsv") if row["measure"] in CLAIMED]
    assert len(rows) == 16 * len(CLAIMED)
    assert all(float(row["better_low"]) > 0 for row in rows)
