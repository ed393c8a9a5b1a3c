"""Training curves in Weights & Biases, without an account."""

import time
from pathlib import Path

from common.weights_and_biases import Mirror, Wandb


def test_offline_curves_are_kept_in_their_folder(tmp_path: Path) -> None:
    with Mirror(Wandb(mode="offline"), "run", {"k": "32"}, tmp_path) as mirror:
        mirror.log({"topk_8x_k32/unexplained": 0.4})
    (run,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    patience = time.monotonic() + 60  # the service's own process writes the file, on a busy machine a little later
    while b"topk_8x_k32/unexplained" not in run.read_bytes() and time.monotonic() < patience:
        time.sleep(0.1)
    assert b"topk_8x_k32/unexplained" in run.read_bytes()


def test_nothing_is_kept_without_tracking(tmp_path: Path) -> None:
    with Mirror(None, "run", {}, tmp_path) as mirror:
        mirror.log({"topk_8x_k32/unexplained": 0.4})
    assert not list(tmp_path.iterdir())
