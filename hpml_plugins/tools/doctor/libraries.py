"""Run in a process of its own, by path: import libraries and report on each as a line of JSON, [name, what, facts].

What raises is reported as [name, null, reason]; what crashes ends this process, and the caller sees who is missing.
"""

import contextlib
import importlib.metadata
import importlib.util
import json
import sys
from pathlib import Path


def _torch():
    import torch

    flags = torch._C._cuda_getArchFlags() if hasattr(torch._C, "_cuda_getArchFlags") else ""
    cuda = torch.version.cuda
    facts = {"version": torch.__version__.split("+")[0], "cuda": cuda or "", "archs": (flags or "").split()}
    return f"{torch.__version__} CUDA {cuda}", facts


def _torch_on_gpu():
    import torch

    torch.ones(1, device="cuda").item()
    count = torch.cuda.device_count()
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
    peers = all(torch.cuda.can_device_access_peer(a, b) for a, b in pairs) if pairs else None
    return torch.cuda.get_device_name(), {"peers": peers}


def _torchvision():
    """Whether its compiled operators load into this torch. Importing all of it takes 4 s of CPU time more."""
    import torch

    version = importlib.metadata.version("torchvision")
    for file in Path(importlib.util.find_spec("torchvision").origin).parent.glob("_C*.so"):
        torch.ops.load_library(str(file))
    _ = torch.ops.torchvision.nms.default
    return version, {}


def _numba_cuda():
    import numba_cuda
    from numba import cuda

    _ = cuda.jit
    return numba_cuda.__version__, {}


_CHECKS = {"torch": _torch, "torch on GPU": _torch_on_gpu, "torchvision": _torchvision, "numba.cuda": _numba_cuda}


def _check(name):
    if name in _CHECKS:
        return _CHECKS[name]()
    return importlib.import_module(name).__version__, {}


def main():
    """Check the libraries that the command line names."""
    out = sys.stdout
    for name in sys.argv[1:]:
        try:
            with contextlib.redirect_stdout(sys.stderr):
                line = [name, *_check(name)]
        except BaseException as error:
            line = [name, None, (f"{type(error).__name__}: {error}".strip().splitlines() or [""])[0]]
        print(json.dumps(line), file=out, flush=True)


if __name__ == "__main__":
    main()
