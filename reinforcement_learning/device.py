"""Where networks live."""

import os

import torch

from user_error import UserError


def pick_device(name: str) -> torch.device:
    """Return the device of that name; `auto` takes a GPU if there is one.

    Each process that `torchrun` starts on a machine gets a GPU of its own.

    Raises:
        UserError: a GPU was asked for and there is none, or there are fewer than processes.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("device cuda was asked for, but torch finds no GPU: use auto or cpu")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    number, gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if number >= gpus:
        raise UserError(f"process {number} of this machine finds {gpus} GPUs: pass torchrun --nproc-per-node {gpus}")
    return torch.device("cuda", number) if "LOCAL_RANK" in os.environ else torch.device("cuda")
