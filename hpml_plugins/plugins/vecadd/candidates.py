"""The tuned kernel's configurations on this card: compiled, held against NumPy, and launched.

Imports numba.cuda and torch: imported inside `measure` only.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from numba import cuda

from hpml_plugins import Bench
from hpml_plugins.plugins.vecadd.configurations import CACHINGS, Configuration, resident_blocks
from hpml_plugins.plugins.vecadd.tuned_kernel import make_kernel
from hpml_plugins.plugins.vecadd.vectors import LENGTHS, is_sum, vectors
from hpml_plugins.plugins.vecadd.wide_access import make_add_wide

#: Blocks of a resident grid that is checked on short vectors: so few that it must stride.
FEW_BLOCKS = 3


class Candidates:
    """Configurations over three vectors on the GPU. Each is checked, for LENGTHS, before it is first launched.

    on_gpu: a, b and c as contiguous float32 torch tensors.
    """

    def __init__(self, bench: Bench, on_gpu: Sequence[torch.Tensor]) -> None:
        self._bench = bench
        self._elements = on_gpu[0].numel()
        self._vectors = [cuda.as_cuda_array(vector) for vector in on_gpu]
        self._kernels: dict[tuple[int, int, str], Any] = {}
        self._checked: set[Configuration] = set()
        self._short = [vectors(elements, bench.seed) for elements in LENGTHS]

    def cachings(self) -> Sequence[str]:
        """The CACHINGS that this card has."""
        return CACHINGS if cuda.get_current_device().compute_capability >= (7, 0) else CACHINGS[:-1]

    def step(self, configuration: Configuration) -> Callable[[], None]:
        """What adds the vectors once by this configuration; it does not wait."""
        kernel = self._kernel(configuration)
        if configuration not in self._checked:
            self._check(kernel, configuration)
            self._checked.add(configuration)
        launch = _configured(kernel, self.blocks(configuration), configuration.threads)
        return lambda: launch(*self._vectors)

    def blocks(self, configuration: Configuration) -> int:
        """Blocks of the grid."""
        return configuration.blocks(self._elements, self._most(self._kernel(configuration), configuration))

    def _kernel(self, configuration: Configuration) -> Any:
        compiled_in = (configuration.width, configuration.unroll, configuration.caching)
        if compiled_in not in self._kernels:
            width, unroll, _ = compiled_in
            self._kernels[compiled_in] = cuda.jit(make_kernel(width, unroll, make_add_wide(*compiled_in)))
        return self._kernels[compiled_in]

    def _check(self, kernel: Any, configuration: Configuration) -> None:
        right = True
        for a, b, c in self._short:
            on_gpu = [torch.from_numpy(vector).cuda() for vector in (a, b, c)]
            launch = _configured(kernel, configuration.blocks(a.size, FEW_BLOCKS), configuration.threads)
            launch(*(cuda.as_cuda_array(vector) for vector in on_gpu))
            right = right and is_sum(a, b, on_gpu[2].cpu().numpy())
        lengths = ", ".join(map(str, LENGTHS))
        self._bench.check(right, f"{configuration}: sums of {lengths} elements differ from NumPy's")

    def _most(self, kernel: Any, configuration: Configuration) -> int:
        """Blocks that the card holds at once. The kernel has run before, so its registers are known."""
        if not configuration.resident:
            return 0
        device = cuda.get_current_device()
        return resident_blocks(
            configuration.threads,
            max(kernel.get_regs_per_thread().values()),
            multiprocessors=device.MULTIPROCESSOR_COUNT,
            threads_each=device.MAX_THREADS_PER_MULTIPROCESSOR,
            registers_each=device.MAX_REGISTERS_PER_MULTIPROCESSOR,
            blocks_each=device.MAX_BLOCKS_PER_MULTIPROCESSOR,
        )


def _configured(kernel: Any, blocks: int, threads: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numba advises against few blocks; short vectors have no more
        return kernel[blocks, threads]


def add_with_torch(bench: Bench, on_gpu: Sequence[torch.Tensor]) -> Callable[[], object]:
    """torch.add into an existing tensor."""
    a, b, c = on_gpu
    return lambda: torch.add(a, b, out=c)


def add_with_cupy(bench: Bench, on_gpu: Sequence[torch.Tensor]) -> Callable[[], object]:
    """cupy.add into the same memory; skips the point where CuPy does not import."""
    cupy = bench.import_module("cupy")
    a, b, c = (cupy.asarray(vector) for vector in on_gpu)
    return lambda: cupy.add(a, b, out=c)


def spoil(vector: torch.Tensor) -> None:
    """Fill with NaN, so that an element nobody writes is seen."""
    vector.fill_(math.nan)
