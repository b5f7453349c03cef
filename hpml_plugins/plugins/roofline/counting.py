"""FLOP and bytes of one step: hardware counters and their sums, or an estimate if they cannot be
read.

Nsight Compute's counters of SASS instructions count instructions of threads whose predicate was on.
HADD, HMUL and HFMA work on a packed pair (ncu's own half-precision roofline takes
`…op_hfma_pred_on_x4`), as FADD2, FMUL2 and FFMA2 of Blackwell do in float32; code that uses one
lane of the pair is counted at up to twice its FLOP. The kernel `fma_float16` compares this with a
known number. They do not include tensor cores: `sm__ops_path_tensor_*` counts their operations, a
multiply-add as two; every matmul of `roofline_kernel` is compared with 2 n³. Source: ncu's
SpeedOfLight_Hierarchical{Half,Single,Double,Tensor}RooflineChart.section.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hpml_plugins import Bench, HpmlError, Samples, count_kernels
from hpml_plugins.plugins.roofline import formulas

NCU, ESTIMATE = "ncu", "estimate"
PROGRAM = "hpml_plugins.plugins.roofline.steps"
#: s; ncu replays each kernel several times, and a training step has hundreds.
NCU_TIMEOUT = 200.0

#: FLOP of one instruction.
_SCALAR = {
    "fadd": 1,
    "fmul": 1,
    "ffma": 2,
    "dadd": 1,
    "dmul": 1,
    "dfma": 2,
    "hadd": 2,
    "hmul": 2,
    "hfma": 4,
}
_PACKED_FLOAT32 = {"fadd2": 2, "fmul2": 2, "ffma2": 4}
_TENSOR = {
    "tensor_bf16": "sm__ops_path_tensor_src_bf16_dst_fp32.sum",
    "tensor_fp16": "sm__ops_path_tensor_src_fp16.sum",
    "tensor_fp16_to_fp32": "sm__ops_path_tensor_src_fp16_dst_fp32.sum",
    "tensor_fp16_to_fp16": "sm__ops_path_tensor_src_fp16_dst_fp16.sum",
    "tensor_tf32": "sm__ops_path_tensor_src_tf32_dst_fp32.sum",
    "tensor_fp64": "sm__ops_path_tensor_src_fp64.sum",
}
#: From Hopper on, half precision has one counter for all accumulators; before, one for each.
_FROM_HOPPER, _BEFORE_HOPPER = {"tensor_fp16"}, {"tensor_fp16_to_fp32", "tensor_fp16_to_fp16"}
#: Precision → the tensor-core counters that its operations can increment. Each further counter
#: costs another pass over all kernels.
_TENSOR_OF = {
    "float32": ("tensor_tf32",),  # expected to be 0: otherwise TF32 was used
    "tf32": ("tensor_tf32",),
    "bfloat16": ("tensor_bf16",),
    "float16": ("tensor_fp16", "tensor_fp16_to_fp32", "tensor_fp16_to_fp16"),
}
#: Short name → ncu's counter, and FLOP of one count.
_NAMES = {
    op: f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum"
    for op in (*_SCALAR, *_PACKED_FLOAT32)
} | _TENSOR
FLOP_OF = {**_SCALAR, **_PACKED_FLOAT32, **dict.fromkeys(_TENSOR, 1)}
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"


def counters(capability: str = "", dtype: str = "") -> list[str]:
    """ncu's names of the counters for a card of this compute capability.

    dtype: the precision of the step; only its tensor cores are counted. Default: all precisions.
    """
    left_out = {op for op in _TENSOR if dtype and op not in _TENSOR_OF[dtype]}
    if float(capability or 0) < 10:
        left_out |= _PACKED_FLOAT32.keys()
    left_out |= _FROM_HOPPER if float(capability or 0) < 9 else _BEFORE_HOPPER
    return [_NAMES[op] for op in FLOP_OF if op not in left_out] + [READ, WRITTEN]


@dataclass(frozen=True)
class Counts:
    """Sums over kernels.

    operations: short name → count, for the counters that the card has.  nbytes: read from and
    written to DRAM, None if the card does not report it.  flop_of_kernels, bytes_of_kernels: of
    each launch, in order.
    """

    operations: Mapping[str, float]
    nbytes: float | None
    flop_of_kernels: Sequence[float]
    bytes_of_kernels: Sequence[float]

    @property
    def flop(self) -> float:
        """FLOP of all operations."""
        return flop_of(self.operations)

    @property
    def flop_outside_tensor_cores(self) -> float:
        """FLOP by the counters of instructions."""
        return flop_of({op: count for op, count in self.operations.items() if op not in _TENSOR})

    @property
    def sees_tensor_cores(self) -> bool:
        """Whether the card has any known counter of tensor cores. Without one, `flop` may miss most
        operations."""
        return any(op in self.operations for op in _TENSOR)


def flop_of(operations: Mapping[str, float]) -> float:
    """FLOP of counted operations: {"ffma": 10, "fadd": 1} is 21."""
    return sum(FLOP_OF[op] * count for op, count in operations.items())


def add_up(kernels: Sequence[Mapping[str, float]]) -> Counts:
    """The sums over kernels.  kernels: for each launch, ncu's counter → value, without counters
    that the card lacks."""
    each = [
        {op: kernel[name] for op, name in _NAMES.items() if name in kernel} for kernel in kernels
    ]
    operations = {
        op: sum(counts.get(op, 0.0) for counts in each)
        for op in FLOP_OF
        if any(op in c for c in each)
    }
    known = [READ in kernel and WRITTEN in kernel for kernel in kernels]
    moved = [
        kernel[READ] + kernel[WRITTEN] if known else 0.0
        for kernel, known in zip(kernels, known, strict=True)
    ]
    return Counts(
        operations, sum(moved) if all(known) else None, [flop_of(counts) for counts in each], moved
    )


def count(
    bench: Bench, step: str, arguments: Sequence[str | int], dtype: str = ""
) -> Counts | None:
    """Count a step of `steps.main` with ncu. None, with a warning that gives the reason, if that is
    not possible.

    dtype: see `counters`. Caches are emptied before each kernel, so that it reads all its inputs
    from DRAM.
    """
    if bench.device != "cuda":
        bench.warn("FLOP and bytes are estimated, not counted: no GPU")
        return None
    wanted = counters(formulas.capability(bench), dtype)
    command = [sys.executable, "-m", PROGRAM, step, json.dumps(arguments)]
    try:
        return add_up(bench.once("counters", functools.partial(_read, command, wanted)))
    except HpmlError as error:
        bench.warn(f"FLOP and bytes are estimated, not counted: {error.what}")
        return None


def _read(command: Sequence[str], wanted: Sequence[str]) -> list[dict[str, float]]:
    return [
        kernel.counters for kernel in count_kernels(command, wanted, cold=True, timeout=NCU_TIMEOUT)
    ]


class Work(NamedTuple):
    """FLOP and bytes of one step, and whether each was counted ("ncu") or estimated
    ("estimate")."""

    flop: float
    nbytes: float
    flop_source: str
    bytes_source: str


def settle(
    bench: Bench, counts: Counts | None, estimate: Callable[[], tuple[float, float]]
) -> Work:
    """Combine the counts, which are attached to the Record, and the estimate of (FLOP, bytes) for
    missing ones."""
    if counts is None:
        return Work(*estimate(), ESTIMATE, ESTIMATE)
    bench.series("operations", {op: [number] for op, number in counts.operations.items()})
    of_kernels = {"flop": counts.flop_of_kernels, "bytes": counts.bytes_of_kernels}
    bench.series("kernels", of_kernels, {"flop": "FLOP", "bytes": "B"})
    outside = {
        "flop": [counts.flop],
        "flop_outside_tensor_cores": [counts.flop_outside_tensor_cores],
    }
    bench.series("flop_by_path", outside, dict.fromkeys(outside, "FLOP"))
    work = Work(counts.flop, counts.nbytes or 0.0, NCU, NCU)
    if not counts.sees_tensor_cores:
        bench.warn(
            "FLOP are estimated, not counted: ncu has no counter of this card's tensor cores that"
            " is known here"
        )
        work = work._replace(flop=estimate()[0], flop_source=ESTIMATE)
    if not counts.nbytes:
        bench.warn("bytes are estimated, not counted: ncu gave no DRAM traffic for this card")
        work = work._replace(nbytes=estimate()[1], bytes_source=ESTIMATE)
    return work


def metrics(work: Work, time: Samples) -> dict[str, Samples]:
    """The metrics that every counted and timed step has.  time: of one step, s."""
    flop, nbytes, flop_source, bytes_source = work
    source = flop_source if flop_source == bytes_source else "ncu and estimate"
    return {
        "flop": Samples((float(flop),), info={"source": flop_source}),
        "bytes": Samples((float(nbytes),), info={"source": bytes_source}),
        "time": time,
        "rate": (flop / time).note(source=flop_source),
        "bandwidth": (nbytes / time).note(source=bytes_source),
        "intensity": Samples((flop / nbytes,), info={"source": source}),
    }
