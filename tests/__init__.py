"""Settings of every process that runs tests, applied before any library is imported.

- One thread, also in the scripts that tests start: if several workers share the cores, threads that wait for each other
  can take ten times as long as the work. Sums are also rounded equally on every machine.
- Bytecode is cached even if PYTHONDONTWRITEBYTECODE is set: otherwise every process that a test starts recompiles torch
  and the game, which takes longer than most tests. The cache is in the environment's folder, outside the tree.
"""

import os
import sys
from pathlib import Path

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")

for name in _THREADS:
    os.environ.setdefault(name, "1")

if sys.dont_write_bytecode:
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(Path(sys.prefix) / "bytecode")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
