"""Settings of every process that runs tests, applied before any library is imported.

- One thread, also in the scripts that tests start: if several workers share the cores, threads that wait for each other
  can take ten times as long as the work. Sums are also rounded equally on every machine.
- Bytecode is kept even if PYTHONDONTWRITEBYTECODE is set: otherwise every process that a test starts compiles the
  project again. It lies where Python puts it, so that what the environment's installer has compiled is read.
"""

import os
import sys

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")

for name in _THREADS:
    os.environ.setdefault(name, "1")

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
