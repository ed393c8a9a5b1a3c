"""The processor that a run was made on, and the code that it ran there: what decides how sums are rounded."""

import os
import platform
from pathlib import Path

_INSTRUCTIONS = ("avx2", "fma", "avx512f", "neon", "sve")
"""Sets of instructions by which compiled code differs between processors of one kind, as LLVM names them."""


def processor() -> dict[str, str]:
    """Return the processor, the target that numba compiles for, and the kernels of numpy's linear algebra.

    UMAP is compiled by numba for the processor at hand; other instructions round differently, and an embedding grows
    such differences into other clusters.
    """
    from llvmlite.binding import get_host_cpu_features, get_host_cpu_name
    from threadpoolctl import threadpool_info

    has = get_host_cpu_features()
    kernels = {
        f"{library['internal_api']} {library.get('architecture') or ''}".strip()
        for library in threadpool_info()
        if library["user_api"] == "blas" and "numpy" in library["filepath"]  # others depend on what is loaded so far
    }
    return {
        "name": _name() or "unknown",
        "architecture": f"{platform.machine()}, {platform.system()}",
        "instructions": ", ".join(name for name in _INSTRUCTIONS if has.get(name)) or "none of those recorded",
        "numba target": os.environ.get("NUMBA_CPU_NAME") or get_host_cpu_name(),
        "BLAS kernels": ", ".join(sorted(kernels)) or "unknown",
    }


def _name() -> str:
    """Return the processor's name: Python knows it on other systems than Linux."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
