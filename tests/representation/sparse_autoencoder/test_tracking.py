"""Training curves in Weights & Biases, without an account."""

from pathlib import Path

from representation.sparse_autoencoder.settings import SparseSettings, Wandb
from representation.sparse_autoencoder.tracking import Curves
from representation.sparse_autoencoder.training import Epoch


def test_offline_curves_are_kept_beside_the_run(tmp_path: Path) -> None:
    settings = SparseSettings(tmp_path / "dump", output_dir=tmp_path, wandb=Wandb(mode="offline"))
    with Curves(settings, {"k": "32"}) as curves:
        curves.log("topk_8x_k32", Epoch(1, 1000, 0.5, 0.4, 32.0, 0))
    (run,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    assert b"topk_8x_k32/unexplained" in run.read_bytes()


def test_nothing_is_kept_without_tracking(tmp_path: Path) -> None:
    with Curves(SparseSettings(tmp_path / "dump", output_dir=tmp_path, track=False), {}) as curves:
        curves.log("topk_8x_k32", Epoch(1, 1000, 0.5, 0.4, 32.0, 0))
    assert not list(tmp_path.iterdir())
