"""The shipped world model is that of the shipped policy."""

from analysis.world_model.model import load_model
from common.files import sha256
from tests.command import ROOT, rows_of

MODEL = ROOT / "world_models" / "start_kit_10M"
TICKS = range(1, 17)


def test_it_holds_the_shipped_policy() -> None:
    model, origin = load_model(MODEL / "model.safetensors")
    assert origin.policy_sha256 == sha256(ROOT / "policies" / "start_kit_10M.safetensors")
    assert model.info.agent == "neurips23_start_kit" and not model.network.training
    assert origin.train_maps and not set(origin.train) & set(origin.test)
    assert (MODEL / "model.safetensors").stat().st_size <= 15_000_000


def verdicts(measure: str, rival: str) -> list[int]:
    """At each horizon, 1 where the model is better than a rival by its interval, -1 where it is worse, otherwise 0."""
    rows = rows_of(MODEL / "quality" / "open_loop.tsv")
    chosen = [row for row in rows if (row["measure"], row["rival"]) == (measure, rival)]
    assert [int(row["horizon"]) for row in chosen] == list(TICKS)
    return [(float(row["better_low"]) > 0) - (float(row["better_high"]) < 0) for row in chosen]


def test_its_quality_and_its_edits_are_what_the_documentation_says() -> None:
    better = [1] * 16
    assert all(verdicts(measure, "copy") == better for measure in ("tiles", "vitals", "memory", "policy", "entities"))
    assert all(verdicts(measure, "rules") == better for measure in ("vitals", "memory", "entities", "reward"))
    assert verdicts("Attack.Style", "rules") == better
    for measure in ("policy", "Move.Direction"):
        assert verdicts(measure, "rules") == [0] * 3 + [1] * 2 + [0] * 3 + [1] * 8
    assert verdicts("inventory", "rules") == [0] * 16
    assert verdicts("tiles", "rules") == [0] * 7 + [1] * 9
    rows = rows_of(MODEL / "validation" / "sign_agreement.tsv")
    simulated = [row for row in rows if row["side"] == "simulated"]
    assert [(row["quantities"], int(row["changes"]), round(float(row["agree"]), 2)) for row in simulated] == [
        ("value", 9, 0.67), ("moves", 39, 0.87), ("attack style", 31, 0.74)
    ]  # fmt: skip
