"""Sums of rows of a table, as an embedding bag computes them, with a fast gradient on the CPU."""

from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional


def sums_of_rows(table: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Add up K rows of a table for each of N sums, on the CPU.

    Args:
        table: (R, units).
        rows: which rows of the table, (N, K) int32.

    Returns:
        (N, units).
    """
    return _SumsOfRows.apply(table, rows)


class _SumsOfRows(torch.autograd.Function):
    """torch's own gradient of an embedding bag sorts all rows first; a sparse product needs no sorting."""

    @staticmethod
    def forward(context: Any, table: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(rows)
        context.table_rows = len(table)
        return functional.embedding_bag(rows, table, mode="sum")

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        from scipy.sparse import csc_array  # imported here: a policy that only plays needs no scipy

        (rows,) = context.saved_tensors
        sums, terms = rows.shape
        numbers = gradient.contiguous().numpy()  # (N, units)
        ends = np.arange(0, sums * terms + 1, terms, dtype=np.int32)
        ones = np.ones(sums * terms, dtype=numbers.dtype)
        uses = csc_array((ones, rows.numpy().ravel(), ends), shape=(context.table_rows, sums))
        return torch.from_numpy(uses @ numbers), None
