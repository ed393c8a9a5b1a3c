"""Training curves in Weights & Biases, without an account."""

from pathlib import Path

from representation.tracking import Mirror, Wandb


def test_offline_curves_are_kept_in_their_folder(tmp_path: Path) -> None:
    with Mirror(Wandb(mode="offline"), "run", {"k": "32"}, tmp_path) as mirror:
        mirror.log({"topk_8x_k32/unexplained": 0.4})
    (run,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    assert b"topk_8x_k32/unexplained" in run.read_bytes()


def test_nothing_is_kept_without_tracking(tmp_path: Path) -> None:
    with Mirror(None, "run", {}, tmp_path) as mirror:
        mirror.log({"topk_8x_k32/unexplained": 0.4})
    assert not list(tmp_path.iterdir())
