"""Products of matrices by the faster of torch's two libraries, at the same precision."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_SIDE = 256  # of the matrix that tells whether products keep the precision of float32


@contextmanager
def fast_products() -> Iterator[bool]:
    """Multiply float32 matrices by oneDNN within the block where that is faster; yields whether it does.

    By default torch calls MKL, whose kernels use 256-bit vectors on AMD's processors, even on those with AVX-512.
    There, oneDNN is more than twice as fast, and sums as precisely, though in another order, so that last bits differ.
    It makes a kernel for each new shape, which takes a fifth of a millisecond. So this is for products of a few shapes:
    agents learn from minibatches whose sizes keep changing, and learn faster without it (docs/benchmarks.md). Graphics
    processors are not affected. Within the block, `torch.get_float32_matmul_precision` raises an error.
    """
    setting = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = setting.fp32_precision
    # Torch uses oneDNN for these products only where it may round to bfloat16, as it does on processors with AMX.
    if _mkl_is_slow():
        setting.fp32_precision = "bf16"
    try:
        if not _exact():
            setting.fp32_precision = before
        yield setting.fp32_precision == "bf16"
    finally:
        setting.fp32_precision = before


def _mkl_is_slow() -> bool:
    capabilities = torch.cpu.get_capabilities()
    amd = "AMD" in str(capabilities.get("cpu_name", ""))
    return amd and torch.backends.mkldnn.is_available() and torch.backends.cpu.get_cpu_capability() == "AVX512"


def _exact() -> bool:
    """Whether products keep all 24 bits of a number."""
    values = torch.full((_SIDE, _SIDE), 1 + torch.finfo(torch.float32).eps)
    return torch.equal(values @ torch.eye(_SIDE), values)
