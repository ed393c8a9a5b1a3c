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


def test_its_quality_is_what_the_documentation_says() -> None:
    assert all(verdicts(measure, "copy") == [1] * 16 for measure in ("tiles", "vitals", "memory", "policy"))
    assert verdicts("tiles", "rules") == [0] * 6 + [1] * 10
    assert verdicts("vitals", "rules") == verdicts("memory", "rules") == [1] * 16
    assert verdicts("policy", "rules") == [-1] * 3 + [0] * 6 + [1, 1, 0, 1] + [0] * 3
    assert verdicts("entities", "rules") == [1, -1, 1, -1, 1, -1, 1, 0] + [1, 0] * 4


def test_its_edits_are_those_of_the_game_as_often_as_the_documentation_says() -> None:
    rows = rows_of(MODEL / "validation" / "sign_agreement.tsv")
    simulated = [row for row in rows if row["side"] == "simulated"]
    assert [(row["quantities"], int(row["changes"]), round(float(row["agree"]), 2)) for row in simulated] == [
        ("value", 13, 0.85), ("moves", 63, 0.79), ("attack style", 36, 0.75)
    ]  # fmt: skip
