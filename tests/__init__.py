"""What holds in every process that tests run in, set before any library is imported.

- One thread, also in the scripts that tests start: where several workers share the cores, threads that wait for each
  other take longer than the work, up to ten times. And sums round alike on every machine.
- Bytecode is kept even where PYTHONDONTWRITEBYTECODE is set: without it every process that a test starts compiles torch
  and the game anew, which takes longer than most tests. It is kept out of the tree, in the environment's own folder.
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
