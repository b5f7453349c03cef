"""Which hardware counters are FLOP and which are bytes, and their sums. Pure.

Nsight Compute's counters of SASS instructions count *instructions of threads* whose predicate was on. FLOP of each:

- FADD, FMUL, DADD, DMUL: 1; FFMA, DFMA: 2.
- HADD, HMUL: 2 and HFMA: 4. The hardware's half-precision instructions (HADD2, HMUL2, HFMA2) work on a packed pair,
  and the counter counts the instruction, not its lanes: ncu's own half-precision roofline takes
  `…op_hfma_pred_on_x4`. Code that uses one lane of the pair is so counted at up to twice its FLOP. The kernel
  `fma_float16` holds this against a known number.
- FADD2, FMUL2, FFMA2 (Blackwell's packed float32): 2, 2, 4, for the same reason.

None of them sees tensor cores. `sm__ops_path_tensor_*` counts their operations, a multiply-add as two, so FLOP as they
are; every matmul of `roofline_kernel` is held against 2 n³.
Source: ncu's SpeedOfLight_Hierarchical{Half,Single,Double,Tensor}RooflineChart.section.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_SCALAR = {"fadd": 1, "fmul": 1, "ffma": 2, "dadd": 1, "dmul": 1, "dfma": 2, "hadd": 2, "hmul": 2, "hfma": 4}
_PACKED_FLOAT32 = {"fadd2": 2, "fmul2": 2, "ffma2": 4}
_TENSOR = {
    "tensor_bf16": "sm__ops_path_tensor_src_bf16_dst_fp32.sum",
    "tensor_fp16": "sm__ops_path_tensor_src_fp16.sum",
    "tensor_fp16_to_fp32": "sm__ops_path_tensor_src_fp16_dst_fp32.sum",
    "tensor_fp16_to_fp16": "sm__ops_path_tensor_src_fp16_dst_fp16.sum",
    "tensor_tf32": "sm__ops_path_tensor_src_tf32_dst_fp32.sum",
    "tensor_fp64": "sm__ops_path_tensor_src_fp64.sum",
}
#: From Hopper on half precision has one counter, whatever its products are added up in; before, one for each.
_FROM_HOPPER, _BEFORE_HOPPER = {"tensor_fp16"}, {"tensor_fp16_to_fp32", "tensor_fp16_to_fp16"}
#: Precision → the tensor-core counters that its operations can move. Each more is another pass over every kernel.
_TENSOR_OF = {
    "float32": ("tensor_tf32",),  # none is expected: it would show that TF32 was used after all
    "tf32": ("tensor_tf32",),
    "bfloat16": ("tensor_bf16",),
    "float16": ("tensor_fp16", "tensor_fp16_to_fp32", "tensor_fp16_to_fp16"),
}
#: Short name → ncu's counter.
_NAMES = {
    **{op: f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum" for op in (*_SCALAR, *_PACKED_FLOAT32)},
    **_TENSOR,
}
#: Short name → FLOP of one count.
FLOP_OF = {**_SCALAR, **_PACKED_FLOAT32, **dict.fromkeys(_TENSOR, 1)}
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"


def counters(capability: str = "", dtype: str = "") -> list[str]:
    """ncu's names of what is counted on a card.

    capability: "9.0"; packed float32 is asked for from 10.0.  dtype: the precision of the step; its tensor cores alone
    are asked for, those of all where it is left out.
    """
    left_out = {op for op in _TENSOR if dtype and op not in _TENSOR_OF[dtype]}
    if major(capability) < 10:
        left_out |= _PACKED_FLOAT32.keys()
    left_out |= _FROM_HOPPER if major(capability) < 9 else _BEFORE_HOPPER
    return [_NAMES[op] for op in FLOP_OF if op not in left_out] + [READ, WRITTEN]


def major(capability: str) -> int:
    """The first number of a compute capability, "9.0" → 9; 0 where it is not known."""
    first = capability.partition(".")[0]
    return int(first) if first.isdigit() else 0


@dataclass(frozen=True)
class Counts:
    """Sums over kernels.

    operations: short name → how often counted, of those that the card has.  nbytes: read from and written to DRAM,
    None where the card does not tell.  flop_of_kernels, bytes_of_kernels: of each launch, in order.
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
        """FLOP that the counters of instructions see: all that FADD, FMUL, FFMA and their kin tell."""
        return flop_of({op: count for op, count in self.operations.items() if op not in _TENSOR})

    @property
    def sees_tensor_cores(self) -> bool:
        """Whether the card answered to any counter of tensor cores. Where it did not, `flop` may lack most."""
        return any(op in self.operations for op in _TENSOR)


def flop_of(operations: Mapping[str, float]) -> float:
    """FLOP of counted operations: {"ffma": 10, "fadd": 1} is 21."""
    return sum(FLOP_OF[op] * count for op, count in operations.items())


def add_up(kernels: Sequence[Mapping[str, float]]) -> Counts:
    """The sums over kernels.  kernels: of each launch, ncu's counter → value; what the card lacks is left out."""
    each = [{op: kernel[name] for op, name in _NAMES.items() if name in kernel} for kernel in kernels]
    operations = {op: sum(counts.get(op, 0.0) for counts in each) for op in FLOP_OF if any(op in c for c in each)}
    moved = [kernel[READ] + kernel[WRITTEN] if READ in kernel and WRITTEN in kernel else None for kernel in kernels]
    known = [nbytes for nbytes in moved if nbytes is not None]
    return Counts(
        operations,
        sum(known) if len(known) == len(kernels) else None,
        [flop_of(counts) for counts in each],
        [nbytes or 0.0 for nbytes in moved],
    )
