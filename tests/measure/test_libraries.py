from __future__ import annotations

import subprocess
import sys

from support import PATIENCE

CODE = """
import numba.cuda
from numba.cuda.cudadrv import driver

def refuse(self):
    raise SystemExit("CUDA was initialised before the fork")

type(driver.driver).ensure_initialized = refuse
driver.driver.is_initialized = False
from hpml_plugins.measure import import_before_fork
import_before_fork(["numba", "numba.cuda", "no_such_module", "torch"])
import sys, torch
from numba.cuda.descriptor import cuda_target
assert "no_such_module" not in sys.modules
assert not torch.cuda.is_initialized()
from numba.core.registry import cpu_target
print(*("filled" if target.target_context._defns else "empty" for target in (cpu_target, cuda_target)))
"""  # noqa: E501


def test_what_is_loaded_before_the_fork_touches_no_cuda_and_a_missing_module_is_left_for_its_point() -> (  # noqa: E501
    None
):
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert (done.stdout.strip(), done.returncode) == ("filled filled", 0), done.stderr
