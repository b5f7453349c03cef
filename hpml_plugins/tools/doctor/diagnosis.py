"""The checks behind `hpml doctor`. Libraries are imported in other processes: one that crashes is only a finding."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from hpml_plugins.errors import HpmlError
from hpml_plugins.host import make_host
from hpml_plugins.model import Finding, Node
from hpml_plugins.node import detect_node, machine_name, read_health, read_users
from hpml_plugins.registry import read_registry
from hpml_plugins.tools.doctor.traps import TorchFacts, traps

#: library → (how to check it, how to fix it). The code sets `what`, and `facts` of torch; default: import it.
_LIBRARIES = {
    "torch": (
        "import torch; flags, cuda = torch._C._cuda_getArchFlags() or '', torch.version.cuda\n"
        "what = f'{torch.__version__} CUDA {cuda}'\n"
        "facts = dict(version=torch.__version__.split('+')[0], cuda=cuda or '', archs=flags.split())",
        "pip install torch",
    ),
    # its compiled operators load into this torch; importing all of it takes 4 s of CPU time more
    "torchvision": (
        "import importlib.metadata, importlib.util, pathlib, torch; what = importlib.metadata.version('torchvision')\n"
        "for file in pathlib.Path(importlib.util.find_spec('torchvision').origin).parent.glob('_C*.so'):\n"
        "    torch.ops.load_library(str(file))\n"
        "torch.ops.torchvision.nms.default",
        "pip install torchvision (of torch's release)",
    ),
    "torch on GPU": (
        "import itertools, torch; torch.ones(1, device='cuda').item(); what = torch.cuda.get_device_name()\n"
        "pairs = list(itertools.permutations(range(torch.cuda.device_count()), 2))\n"
        "facts = dict(peers=all(torch.cuda.can_device_access_peer(*pair) for pair in pairs) if pairs else None)",
        "install a torch built for this driver's CUDA or an older one",
    ),
    "numba.cuda": (
        "import numba_cuda; from numba import cuda; cuda.jit; what = numba_cuda.__version__",
        "pip install numba-cuda 'numpy<2.5' (numba-cuda 0.30 uses a function that NumPy 2.5 dropped)",
    ),
}
#: The libraries of one group are checked by one process, in this order; the groups run at once.
_GROUPS = (("torch", "torchvision"), ("numba", "numba.cuda", "asv", "fvcore", "matplotlib"))
#: Checks libraries, [[name, code], …], and reports each as a line of JSON: [name, what, facts], [name, null, reason].
_WORKER = """
import contextlib, json, sys
out = sys.stdout
for name, code in json.loads(sys.argv[1]):
    found = {"facts": {}}
    try:
        with contextlib.redirect_stdout(sys.stderr):
            exec(code, found)
        line = [name, str(found["what"]), found["facts"]]
    except BaseException as error:
        line = [name, None, (f"{type(error).__name__}: {error}".splitlines() or [""])[0]]
    print(json.dumps(line), file=out, flush=True)
"""
#: Measuring does not need it, and a bundle does not carry it.
_ONLY_TO_PUBLISH = "matplotlib"
_TIMEOUT = 120.0


def diagnose(registry: Path) -> Iterator[Finding]:
    """Every check of this node, as its findings come."""
    yield Finding("python", "ok", f"{sys.version.split()[0]} at {sys.executable}")
    with ThreadPoolExecutor() as pool:
        node = detect_node()  # no process has used CUDA before: it forks
        groups = [list(group) for group in _GROUPS]
        if node.gpus:
            groups[0].append("torch on GPU")
        running = [pool.submit(check_libraries, group) for group in groups]
        yield from _gpu(node)
        yield from _registry(registry)
        torch = TorchFacts()
        for group in running:
            for finding, facts in group.result():
                yield finding
                torch = replace(torch, **facts)
    if node.gpus:
        system = shared_memory(), counters_need_root(), os.geteuid() == 0
        yield from traps(node, torch, read_users(node.gpus), *system, read_health(node.gpus))
    yield _tool("git", "asv checks commits out with it", needed=True)
    if node.gpus:
        yield _tool("ncu", "Nsight Compute counts a kernel's operations and bytes")
        yield _tool("nvcc", "CUDA's compiler")
    yield _tool("mpirun", "benchmarks over MPI")
    yield _machine_file(node)


def check_libraries(names: Sequence[str]) -> list[tuple[Finding, dict[str, Any]]]:
    """A finding for each library, and facts of it. One that crashes or hangs costs only itself."""
    left, found = list(names), []
    while left:
        codes = [(name, _LIBRARIES.get(name, (f"import {name}; what = {name}.__version__",))[0]) for name in left]
        command = [sys.executable, "-c", _WORKER, json.dumps(codes)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
            output, problem = done.stdout, (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        except subprocess.TimeoutExpired as stuck:
            output, problem = (stuck.stdout or b"").decode(), f"still importing after {_TIMEOUT:g} s"
        for line in output.splitlines():
            name, what, facts = json.loads(line)
            left.remove(name)
            found.append((Finding(name, "ok", what), facts) if what else (failed_library(name, facts), {}))
        if left:
            found.append((failed_library(left.pop(0), problem), {}))
    return found


def failed_library(name: str, reason: str) -> Finding:
    """The finding for a library that does not import."""
    fix = _LIBRARIES[name][1] if name in _LIBRARIES else f"pip install {name}"
    if name == _ONLY_TO_PUBLISH and "No module named" in reason:
        return Finding(name, "missing", "not installed (only publishing needs it)", fix)
    return Finding(name, "broken", reason, fix)


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
        yield Finding("GPU", "broken", node.gpu_problem, "see nvidia-smi; the driver and its library must match")
    elif not node.gpus:
        yield Finding("GPU", "missing", "none found; CPU benchmarks run, the others are skipped with the reason")
    else:
        yield Finding("GPU", "ok", f"{node.num_gpu} × {node.gpu}, driver {node.driver} (CUDA {node.cuda})")


def _tool(name: str, purpose: str, *, needed: bool = False) -> Finding:
    path = shutil.which(name)
    if path:
        return Finding(name, "ok", path)
    return Finding(name, "broken" if needed else "missing", f"not on the PATH ({purpose})")


def _machine_file(node: Node) -> Finding:
    home = Path("~/.asv-machine.json").expanduser().parent
    if not os.access(home, os.W_OK):
        return Finding("machine", "broken", f"{home} is not writable, and asv keeps its machines there", "set HOME")
    what = f"results of this node are filed under {machine_name(node)!r} (asv run --machine NAME overrides this)"
    return Finding("machine", "ok", what)


def shared_memory() -> float:
    """Size of /dev/shm, B; infinite where there is none to be too small."""
    return float(shutil.disk_usage("/dev/shm").total) if Path("/dev/shm").is_dir() else float("inf")


def counters_need_root() -> bool:
    """Whether the driver gives performance counters to root only, as it says itself."""
    try:
        text = Path("/proc/driver/nvidia/params").read_text()
    except OSError:
        return False
    return bool(re.search(r"^RmProfilingAdminOnly:\s*1", text, re.MULTILINE))
