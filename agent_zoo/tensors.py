"""Convert tensors on any device to arrays for files, and back."""

from collections.abc import Mapping

import numpy as np
import torch


def as_arrays(tensors: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """Return the same numbers as arrays in main memory."""
    return {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}


def as_tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Return the same numbers as tensors on the CPU that share no memory with the arrays."""
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
