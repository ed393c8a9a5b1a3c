"""What run.json says of the processor."""

import os
import platform
import subprocess
import sys

import pytest

from analysis.runs.run_folder import processor


def test_it_names_the_machine_and_the_code_that_runs_on_it() -> None:
    found = processor()
    assert set(found) == {"name", "architecture", "instructions", "numba target", "BLAS kernels"}
    assert platform.machine() in found["architecture"] and all(found.values())
    assert found["BLAS kernels"] != "unknown"  # numpy has loaded one


@pytest.mark.parametrize("target", ["generic", "znver3"])
def test_the_numba_target_is_the_one_that_numba_compiles_for(target: str) -> None:
    """A user who sets it changes the clusters of the same dump, so the run must say it."""
    ours = "from analysis.runs.run_folder import processor; print(processor()['numba target'], end=' ')"
    code = f"{ours}; import numba; print(numba.config.CPU_NAME)"
    environment = {**os.environ, "NUMBA_CPU_NAME": target}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [target, target]
