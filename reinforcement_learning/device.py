"""Where networks live."""

import torch

from user_error import UserError


def pick_device(name: str) -> torch.device:
    """Return the device of that name; `auto` takes a GPU if there is one.

    Raises:
        UserError: a GPU was asked for and there is none.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("device cuda was asked for, but torch finds no GPU: use auto or cpu")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")
