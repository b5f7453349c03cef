"""The checks behind `hpml doctor`. Libraries are tried in a process each: one that crashes is then only a finding."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from hpml_plugins.errors import HpmlError
from hpml_plugins.host import make_host
from hpml_plugins.model.node import Node
from hpml_plugins.node import detect_node, machine_name, read_health, read_users
from hpml_plugins.registry import read_registry
from hpml_plugins.tools.doctor import facts
from hpml_plugins.tools.doctor.finding import Finding
from hpml_plugins.tools.doctor.traps import traps

#: library → what to run to see that it works, printing what it is → the mend
_LIBRARIES = {
    "torch": ("import torch; print(torch.__version__, 'CUDA', torch.version.cuda)", "pip install torch"),
    "torchvision": (
        "import torchvision; print(torchvision.__version__)",
        "pip install torchvision (of torch's release)",
    ),
    "numba": ("import numba; print(numba.__version__)", "pip install numba"),
    "numba.cuda": (
        "import numba_cuda; from numba import cuda; cuda.jit; print(numba_cuda.__version__)",
        "pip install numba-cuda 'numpy<2.5' (numba-cuda 0.30 uses a function that NumPy 2.5 dropped)",
    ),
    "fvcore": ("import fvcore; print(fvcore.__version__)", "pip install fvcore"),
    "asv": ("import asv; print(asv.__version__)", "pip install asv"),
    "matplotlib": ("import matplotlib; print(matplotlib.__version__)", "pip install matplotlib"),
}
#: Measuring does without it, and a bundle does not carry it.
_ONLY_TO_PUBLISH = "matplotlib"


def diagnose(registry: Path) -> Iterator[Finding]:
    """Every check of this node, one finding each."""
    node = detect_node()
    yield Finding("python", "ok", f"{node.python} at {sys.executable}")
    yield from _registry(registry)
    yield from _gpu(node)
    for name, (code, mend) in _LIBRARIES.items():
        yield _library(name, code, mend)
    yield from _cuda(node)
    if node.gpus:
        torch, users = facts.ask_torch(), read_users(node.gpus)
        yield from traps(
            node,
            torch,
            users,
            facts.shared_memory(),
            facts.counters_need_root(),
            facts.is_root(),
            read_health(node.gpus),
        )
    yield _tool("git", "asv checks commits out with it", needed=True)
    if node.gpus:
        yield _tool("ncu", "Nsight Compute counts a kernel's operations and bytes")
        yield _tool("nvcc", "CUDA's compiler")
    yield _tool("mpirun", "benchmarks over MPI")
    yield _machine_file(node)


def _registry(path: Path) -> Iterator[Finding]:
    try:
        host = make_host(read_registry(path))
    except HpmlError as error:
        yield Finding("registry", "broken", str(error))
        return
    count = sum(1 for _ in host.benchmarks())
    yield Finding("registry", "ok", f"{path}: {len(host.plugins)} plugins, {count} benchmarks")
    for plugin in host.broken:
        yield Finding(f"plugin {plugin.entry.name}", "broken", str(plugin.error))
    for problem in host.offers.problems:
        yield Finding("plugins", "warning", problem)


def _gpu(node: Node) -> Iterator[Finding]:
    if node.gpu_problem:
        yield Finding("GPU", "broken", node.gpu_problem, "nvidia-smi tells more; the driver and its library must match")
    elif not node.gpus:
        yield Finding("GPU", "missing", "none found; CPU benchmarks run, the others are skipped with the reason")
    else:
        yield Finding("GPU", "ok", f"{node.num_gpu} × {node.gpu}, driver {node.driver} (CUDA {node.cuda})")


def _library(name: str, code: str, mend: str) -> Finding:
    try:
        done = _python(code)
    except subprocess.TimeoutExpired:
        return Finding(name, "broken", "still importing after 120 s", mend)
    if done.returncode == 0:
        return Finding(name, "ok", done.stdout.strip())
    last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    if name == _ONLY_TO_PUBLISH and "No module named" in last:
        return Finding(name, "missing", "not installed (measuring does without it)", mend)
    return Finding(name, "broken", last, mend)


def _cuda(node: Node) -> Iterator[Finding]:
    if not node.gpus:
        return
    done = _python("import torch; x = torch.ones(1, device='cuda'); print(torch.cuda.get_device_name(), int(x.item()))")
    if done.returncode == 0:
        yield Finding("torch on GPU", "ok", done.stdout.strip().rpartition(" ")[0])
    else:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        yield Finding("torch on GPU", "broken", last, "install a torch built for this driver's CUDA or an older one")


def _tool(name: str, purpose: str, *, needed: bool = False) -> Finding:
    path = shutil.which(name)
    if path:
        return Finding(name, "ok", path)
    return Finding(name, "broken" if needed else "missing", f"not on the PATH ({purpose})")


def _machine_file(node: Node) -> Finding:
    path = Path("~/.asv-machine.json").expanduser()
    name = machine_name(node)
    if not os.access(path.parent, os.W_OK):
        return Finding(
            "machine",
            "broken",
            f"{path.parent} is not writable, and asv keeps its machines there",
            "set HOME",
        )
    return Finding("machine", "ok", f"results of this node are filed under {name!r} (asv run --machine NAME wins)")


def _python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
