"""The checks behind `hpml doctor`. Libraries are imported in other processes, so a crash is only a
finding.

`traps` judges plain facts, so that each trap of GPU nodes is tested without such a node.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from hpml_plugins.errors import HpmlError, UsageError
from hpml_plugins.git import why_git_refuses
from hpml_plugins.host import make_host
from hpml_plugins.model import Finding, GpuHealth, GpuUser, Node, counted
from hpml_plugins.node import (
    GLANCE,
    CpuWatch,
    describe_load,
    detect_node,
    filed_under,
    read_state,
)
from hpml_plugins.registry import DEFAULT_PATH, read_registry
from hpml_plugins.store import read_object, results_folder

#: How libraries are checked in another process: the code sets `what`, and `facts` of torch.
_TORCH = """\
import torch
flags = torch._C._cuda_getArchFlags() or ''
cuda = torch.version.cuda
what = f'{torch.__version__} CUDA {cuda}'
facts = dict(version=torch.__version__.split('+')[0], cuda=cuda or '', archs=flags.split())
"""
#: Its compiled operators load into this torch; importing all of it takes 4 s more of CPU time.
_TORCHVISION = """\
import importlib.metadata, importlib.util, pathlib, torch
what = importlib.metadata.version('torchvision')
folder = pathlib.Path(importlib.util.find_spec('torchvision').origin).parent
for file in folder.glob('_C*.so'):
    torch.ops.load_library(str(file))
torch.ops.torchvision.nms.default
"""
_TORCH_ON_GPU = """\
import itertools, torch
torch.ones(1, device='cuda').item()
what = torch.cuda.get_device_name()
pairs = list(itertools.permutations(range(torch.cuda.device_count()), 2))
peers = all(torch.cuda.can_device_access_peer(*pair) for pair in pairs) if pairs else None
facts = dict(peers=peers)
"""
_NUMBA_CUDA = """\
import numba_cuda
from numba import cuda
cuda.jit
what = numba_cuda.__version__
"""
#: Library → how to check it, and how to fix it; others are imported, and installed by pip.
_LIBRARIES = {
    "torch": (_TORCH, "pip install torch"),
    "torchvision": (_TORCHVISION, "pip install torchvision (of torch's release)"),
    "torch on GPU": (
        _TORCH_ON_GPU,
        "install a torch built for this driver's CUDA or an older one",
    ),
    "numba.cuda": (
        _NUMBA_CUDA,
        "pip install numba-cuda 'numpy<2.5' (numba-cuda 0.30 uses a function that NumPy 2.5"
        " dropped)",
    ),
}
#: The libraries of one group are checked by one process, in this order; the groups run in parallel.
_GROUPS = (("torch", "torchvision"), ("numba", "asv", "fvcore", "matplotlib"))
#: Checks libraries, [[name, code], …], and reports each as a line of JSON: [name, what, facts],
#: [name, null, reason].
_WORKER = """
import contextlib, json, os, sys
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
os._exit(0)  # skips the libraries' exit handlers, which take time
"""
#: Optional libraries → the extra of pyproject.toml that installs them.
OPTIONAL = {
    "torch": "benchmarks",
    "torchvision": "benchmarks",
    "numba": "benchmarks",
    "numba.cuda": "benchmarks",
    "fvcore": "benchmarks",
    "matplotlib": "publish",
}
_NEEDED_BY = {
    "benchmarks": "benchmarks that use it are skipped",
    "publish": "only asv publish and hpml plot need it",
}
_TIMEOUT = 120.0
#: The oldest compute capability that CUDA 13 builds for. PyTorch's RELEASE.md, CUDA support matrix,
#: and pytorch/pytorch issues 172352 and 190385 list the builds of torch with older ones.
OLDEST_OF_CUDA_13 = 7.5
OLDER_TORCH = (
    "a CUDA 12.6 build of torch (cu126), which exists up to torch 2.14 and has Maxwell, Pascal and"
    " Volta"
)
OLDEST_TORCH = "a CUDA 11 build of torch, 2.0 or older, the last with Kepler"
#: DataLoader workers and NCCL share memory through it; containers often give 64 MiB.
SMALLEST_SHM = 2**30


class _TorchFacts(msgspec.Struct, frozen=True):
    """What torch reports. cuda: "" for a build without CUDA.  archs: `sm_90`, …, for which it has
    code.

    peers: whether every GPU reaches every other without the host; None for fewer than two GPUs.
    """

    version: str = ""
    cuda: str = ""
    archs: list[str] = []
    peers: bool | None = None


def diagnose(registry: Path) -> Iterator[Finding]:
    """Run every check of this node; yield findings as they come."""
    yield Finding("python", "ok", f"{sys.version.split()[0]} at {sys.executable}")
    watch = CpuWatch()
    time.sleep(GLANCE)
    if load := describe_load(watch):
        what = (
            f"{load} ({', '.join(watch.largest(3)) or 'short-lived ones'}): times on the CPU are"
            " not comparable"
        )
        yield Finding(
            "CPU", "warning", what, "wait for these processes, or end those that are yours"
        )
    else:
        yield Finding(
            "CPU",
            "ok",
            f"load {os.getloadavg()[0]:.2g} on {len(os.sched_getaffinity(0))} CPUs",
        )
    node = detect_node()
    groups = [list(group) for group in _GROUPS]
    if node.gpus:
        if _is_installed("torch"):
            groups[0].append("torch on GPU")
        groups[1].insert(1, "numba.cuda")
    yield from _gpu(node)
    yield from _registry(registry)
    yield _git(registry.resolve().parent)
    if node.gpus:
        yield _tool("ncu", "Nsight Compute counts a kernel's operations and bytes")
        yield _tool("nvcc", "CUDA's compiler")
    yield _tool("mpirun", "benchmarks over MPI")
    try:
        yield machine_file(node, results_folder(registry.resolve().parent))
    except UsageError as error:
        yield Finding("asv.conf.json", "broken", str(error))
    torch = _TorchFacts()
    first, *others = groups
    with ThreadPoolExecutor() as pool:
        running = [pool.submit(list, check_libraries(group)) for group in others]
        for finding, facts in itertools.chain(
            check_libraries(first), *(each.result() for each in running)
        ):
            yield finding
            torch = replace(torch, **facts)
    if node.gpus:
        users, health = read_state(node.gpus)
        yield from traps(node, torch, users, shared_memory(), counters_refused(), health)


def check_libraries(names: Sequence[str]) -> Iterator[tuple[Finding, dict[str, Any]]]:
    """A finding for each library, as it comes, and its facts. A crash or hang affects only that
    library."""
    missing = [name for name in names if name in OPTIONAL and not _is_installed(name)]
    for name in missing:
        yield _not_installed(name), {}
    left = [name for name in names if name not in missing]
    while left:
        codes = [
            (name, _LIBRARIES.get(name, (f"import {name}; what = {name}.__version__",))[0])
            for name in left
        ]
        command = [sys.executable, "-c", _WORKER, json.dumps(codes)]
        started = time.monotonic()
        with (
            tempfile.TemporaryFile("w+", errors="replace") as errors,
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True
            ) as process,
        ):
            ending = threading.Timer(_TIMEOUT, process.kill)
            ending.start()
            for line in process.stdout or ():
                name, what, facts = json.loads(line)
                left.remove(name)
                yield (
                    (Finding(name, "ok", what), facts)
                    if what
                    else (failed_library(name, facts), {})
                )
            status = process.wait()
            ending.cancel()
            errors.seek(0)
            problem = (errors.read().strip().splitlines() or [f"exit status {status}"])[-1]
        if left:
            late = time.monotonic() - started >= _TIMEOUT
            yield (
                failed_library(
                    left.pop(0),
                    f"still importing after {_TIMEOUT:g} s" if late else problem,
                ),
                {},
            )


def failed_library(name: str, reason: str) -> Finding:
    """The finding for a library that does not import."""
    fix = _LIBRARIES[name][1] if name in _LIBRARIES else f"pip install {name}"
    return Finding(name, "broken", reason, fix)


def _is_installed(name: str) -> bool:
    return importlib.util.find_spec(name.replace(".", "_")) is not None


def _not_installed(name: str) -> Finding:
    extra = OPTIONAL[name]
    what = f"not installed, optional: {_NEEDED_BY[extra]}"
    return Finding(name, "missing", what, f"pip install 'hpml-plugins[{extra}]'")


def _registry(path: Path) -> Iterator[Finding]:
    if path == DEFAULT_PATH and not path.exists():
        what = f"no {path}: this folder is not a project of hpml-plugins"
        yield Finding(
            "registry", "missing", what, "hpml init makes one in a git repository"
        )
        return
    try:
        host = make_host(read_registry(path))
    except HpmlError as error:
        yield Finding("registry", "broken", str(error))
        return
    plugins = counted(len(host.plugins), "plugin")
    benchmarks = counted(sum(1 for _ in host.benchmarks()), "benchmark")
    yield Finding("registry", "ok", f"{path}: {plugins}, {benchmarks}")
    for plugin in host.broken:
        yield Finding(f"plugin {plugin.entry.name}", "broken", str(plugin.error))
    for problem in host.offers.problems:
        yield Finding("plugins", "warning", problem)


def _gpu(node: Node) -> Iterator[Finding]:
    if node.gpu_problem:
        yield Finding(
            "GPU",
            "broken",
            node.gpu_problem,
            "see nvidia-smi; the driver and its library must match",
        )
    elif not node.gpus:
        yield Finding(
            "GPU",
            "missing",
            "none found; CPU benchmarks run, the others are skipped with the reason",
        )
    else:
        yield Finding(
            "GPU",
            "ok",
            f"{node.num_gpu} × {node.gpu}, driver {node.driver} (CUDA {node.cuda})",
        )


def _tool(name: str, purpose: str, *, needed: bool = False) -> Finding:
    path = shutil.which(name)
    if path:
        return Finding(name, "ok", path)
    return Finding(name, "broken" if needed else "missing", f"not on the PATH ({purpose})")


def _git(folder: Path) -> Finding:
    found = _tool("git", "asv checks commits out with it", needed=True)
    if found.state == "ok" and (refusal := why_git_refuses(folder)):
        return Finding("git", "broken", refusal)
    return found


def machine_file(node: Node, results: Path) -> Finding:
    """Whether asv can read and write its file of machines, and the name of this one."""
    path = Path("~/.asv-machine.json").expanduser()
    if not os.access(path.parent, os.W_OK):
        return Finding(
            "machine",
            "broken",
            f"{path.parent} is not writable, and asv keeps its machines there",
            "set HOME",
        )
    if path.exists():
        try:
            read_object(path)
        except HpmlError as error:
            return Finding("machine", "broken", str(error), "correct it, or move it away")
    what = (
        f"results of this node are filed under {filed_under(node, results)!r}"
        " (asv run --machine NAME overrides this)"
    )
    return Finding("machine", "ok", what)


def shared_memory() -> float:
    """Size of /dev/shm, B; infinite if there is none."""
    if Path("/dev/shm").is_dir():
        return float(shutil.disk_usage("/dev/shm").total)
    return float("inf")


def counters_refused() -> bool:
    """Whether the driver reports that it gives performance counters to root only, and this process
    is not root's."""
    try:
        text = Path("/proc/driver/nvidia/params").read_text()
    except OSError:
        return False
    return os.geteuid() != 0 and bool(
        re.search(r"^RmProfilingAdminOnly:\s*1", text, re.MULTILINE)
    )


def traps(
    node: Node,
    torch: _TorchFacts,
    users: Sequence[GpuUser] | None,
    shm: float,
    counters_refused: bool,
    health: Sequence[GpuHealth],
) -> Iterator[Finding]:
    """Every known problem that these facts show. users: None if unknown.  shm: size of /dev/shm,
    B."""
    if not node.gpus:
        return
    yield from _torch_build(node, torch)
    if counters_refused:
        fix = "modprobe nvidia NVreg_RestrictProfilingToAdminUsers=0, or run as root"
        yield Finding(
            "ncu permission",
            "missing",
            "the driver gives performance counters to root only",
            fix,
        )
    if torch.peers is False:
        what = "the GPUs do not reach each other directly: NCCL goes through host memory"
        yield Finding(
            "peer access",
            "warning",
            what,
            "see nvidia-smi topo -m; in a virtual machine, ACS and the IOMMU",
        )
    if shm < SMALLEST_SHM:
        what = (
            f"{shm / 2**20:.0f} MiB; data loaders' workers and NCCL share through it and die when"
            " it is full"
        )
        fix = "docker run --shm-size=8g, or mount -o remount,size=8G /dev/shm"
        yield Finding("/dev/shm", "warning", what, fix)
    for number, gpu in enumerate(node.gpus):
        if gpu.mig:
            what = f"MIG is on: the MIG device {gpu.name} is measured, not the whole card"
            yield Finding(
                f"GPU {number}",
                "warning",
                what,
                "nvidia-smi -mig 0, if no other user needs the card",
            )
    for card in health:
        yield from _memory(card)
    if users is None:
        yield Finding(
            "busy GPU", "not judged", "NVML does not tell which processes use the GPUs"
        )
    for user in users or ():
        what = (
            f"process {user.pid} holds {user.memory / 2**20:.0f} MiB of {user.gpu},"
            f" {user.utilization:.0%} utilised: timings taken now are worthless"
        )
        yield Finding(
            "busy GPU", "warning", what, f"wait for it, or kill {user.pid} if it is yours"
        )


def _torch_build(node: Node, torch: _TorchFacts) -> Iterator[Finding]:
    """Whether torch was built for CUDA, for a version that the driver supports, and for these
    cards."""
    if torch.version and not torch.cuda:
        what = f"torch {torch.version} is built without CUDA, and this node has {node.gpu}"
        yield Finding(
            "torch build",
            "broken",
            what,
            f"install a torch built for CUDA {node.cuda} or older",
        )
    # Within one major version of CUDA an older driver runs a newer runtime (minor version
    # compatibility).
    supported, needed = (
        int(version.partition(".")[0] or 0) for version in (node.cuda, torch.cuda)
    )
    if node.cuda and needed > supported:
        what = (
            f"driver {node.driver} knows CUDA {node.cuda}, torch {torch.version} is built for CUDA"
            f" {torch.cuda}"
        )
        yield Finding(
            "driver",
            "broken",
            what,
            f"a newer driver, or a torch built for CUDA {supported}",
        )
    digits = [
        "".join(filter(str.isdigit, arch)) for arch in torch.archs if arch.startswith("sm_")
    ]
    oldest = min((float(f"{each[:-1]}.{each[-1]}") for each in digits), default=0.0)
    for gpu in {gpu.name: gpu for gpu in node.gpus}.values():
        own = float(gpu.capability or 0)
        if torch.cuda and 0 < own < oldest:
            what = (
                f"compute capability {gpu.capability}, and torch {torch.version} (CUDA"
                f" {torch.cuda}) has code for {oldest} and newer only"
            )
            newer = "a torch whose build names this card's capability"
            fix = (
                OLDEST_TORCH
                if own < 5
                else OLDER_TORCH
                if own < OLDEST_OF_CUDA_13
                else newer
            )
            yield Finding(gpu.name, "broken", what, fix)


def _memory(card: GpuHealth) -> Iterator[Finding]:
    if card.remap_failed:
        what = f"the {card.gpu} has a failing row of memory and none left to replace it"
        yield Finding(
            "GPU memory",
            "broken",
            what,
            "take the card out of service: nvidia-smi -q -d ROW_REMAPPER",
        )
    elif card.uncorrected or card.remap_pending:
        what = (
            f"the {card.gpu} had {card.uncorrected} errors that ECC could not correct since the"
            " driver was loaded"
        )
        what += ", and rows wait to be replaced" * card.remap_pending
        fix = "nvidia-smi --gpu-reset on an idle GPU; see nvidia-smi -q -d ECC,ROW_REMAPPER"
        yield Finding("GPU memory", "warning", what, fix)
