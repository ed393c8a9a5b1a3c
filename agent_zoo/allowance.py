"""Keeps what a file's header says from deciding how much memory building a network takes."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_MAKERS: set[Callable[..., Any]] = {
    torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.randint, torch.eye, torch.arange,
    torch.linspace,
}  # fmt: skip


class Allowance(TorchFunctionMode):
    """Within the block, tensors of so many numbers may be made in all; more is a ValueError before memory is taken.

    The tensors come out as they would without it, random numbers included.
    """

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self._left = numbers

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Count what is about to be made, then make it."""
        if func in _MAKERS:
            self._left -= math.prod(max(1, each) for each in _whole_numbers(args))
            if self._left < 0:
                raise ValueError("it would be larger than the weights in the file")
        return func(*args, **(kwargs or {}))


def _whole_numbers(values: Iterable[Any]) -> Iterable[int]:
    """Yield the whole numbers among arguments, which are sizes, also those in tuples and lists."""
    for value in values:
        if isinstance(value, tuple | list):
            yield from _whole_numbers(value)
        elif isinstance(value, int):
            yield value
