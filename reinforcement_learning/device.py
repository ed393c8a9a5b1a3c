"""Devices on which networks run."""

import torch

from agent_zoo.torchrun import number_on_this_machine
from common.user_error import UserError


def pick_device(name: str) -> torch.device:
    """Return the device of that name; `auto` uses a GPU if there is one.

    Each of several processes of a run on a machine gets its own GPU.

    Raises:
        UserError: a GPU was requested but there is none, or there are fewer GPUs than processes.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("device cuda was requested, but torch finds no GPU: use auto or cpu")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    number, gpus = number_on_this_machine(), torch.cuda.device_count()
    if number is not None and number >= gpus:
        raise UserError(f"process {number} of this machine finds {gpus} GPUs: start at most {gpus} processes")
    return torch.device("cuda") if number is None else torch.device("cuda", number)
