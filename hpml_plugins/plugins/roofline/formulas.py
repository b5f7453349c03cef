"""The roofline model's formulas, the precisions, and the names of kernels. Pure.

Source: Williams, Waterman, Patterson, "Roofline: An Insightful Visual Performance Model for
Multicore Architectures", CACM 52(4), 2009, pp. 65-76.
"""

from __future__ import annotations

from hpml_plugins import Bench, HpmlError

#: Precision, as gpus.yaml names its peak → the least compute capability that computes it in
#: hardware.
LEAST_CAPABILITY = {"float32": 0.0, "tf32": 8.0, "bfloat16": 8.0, "float16": 5.0}
#: Relative error (2-norm) up to which a result counts as correct: a few times the unit roundoff.
TOLERANCE = {"float32": 1e-4, "tf32": 5e-3, "float16": 5e-3, "bfloat16": 4e-2}
STREAMING = ("scale", "triad", "relu", "softmax")


def attainable(intensity: float, peak: float, bandwidth: float) -> float:
    """The roof over an intensity, FLOP/s: min(peak, intensity · bandwidth).  bandwidth: of the
    memory, B/s.

    A100 (19.5 TFLOP/s, 1555 GB/s) at 4 FLOP/B: 4 · 1555e9 = 6.22 TFLOP/s.
    """
    return min(peak, intensity * bandwidth)


def ridge_point(peak: float, bandwidth: float) -> float:
    """The least intensity at which the peak can be reached, FLOP/B. V100: 15.7e12 / 900e9 = 17.44
    FLOP/B."""
    return peak / bandwidth


def share_of_roof(rate: float, intensity: float, peak: float, bandwidth: float) -> float | None:
    """Achieved rate over the attainable rate at its intensity; None without FLOP, because the roof
    is then 0."""
    roof = attainable(intensity, peak, bandwidth)
    return rate / roof if roof > 0 else None


def matmul_flop(n: int) -> int:
    """FLOP of the product of two n × n matrices: 2 n³."""
    return 2 * n**3


#: Blocks of each stage of torchvision's ResNets, and whether they are bottlenecks.
RESNETS = {
    "resnet18": ((2, 2, 2, 2), False),
    "resnet34": ((3, 4, 6, 3), False),
    "resnet50": ((3, 4, 6, 3), True),
    "resnet101": ((3, 4, 23, 3), True),
    "resnet152": ((3, 8, 36, 3), True),
}


def resnet_flop(model: str, step: str, batch: int) -> float | None:
    """FLOP of the convolutions and the linear layer of a torchvision ResNet on 3 × 224 × 224
    images, 2 a multiply-add.

    step: "forward", or "train": each layer's gradients of inputs and of weights take the same
    number again each, except that the first layer has no gradient of its input. None for another
    model. The same as torch's flop_counter, which a test compares. Source: He et al., "Deep
    Residual Learning for Image Recognition", CVPR 2016, table 1.
    """
    if model not in RESNETS:
        return None
    stages, bottleneck = RESNETS[model]
    first = 112**2 * 3 * 64 * 7**2
    multiply_adds, inputs, before = first, 64, 56
    for stage, blocks in enumerate(stages):
        width, size = 64 * 2**stage, 56 // 2**stage
        outputs = 4 * width if bottleneck else width
        for block in range(blocks):
            if bottleneck:  # 1 × 1 at the size of the input, 3 × 3, 1 × 1
                multiply_adds += before**2 * inputs * width + size**2 * (
                    9 * width**2 + width * outputs
                )
            else:  # twice 3 × 3
                multiply_adds += size**2 * 9 * (inputs * width + width**2)
            if not block and inputs != outputs:  # the shortcut is a 1 × 1 convolution
                multiply_adds += size**2 * inputs * outputs
            inputs, before = outputs, size
    multiply_adds += inputs * 1000
    return 2.0 * batch * (multiply_adds if step == "forward" else 3 * multiply_adds - first)


def parse(name: str) -> tuple[str, str, int]:
    """(kind, precision, size) of a kernel's name: "matmul_tf32_8192" is ("matmul", "tf32", 8192),
    "relu" is ("relu", "float32", 0), "fma_float16" is ("fma", "float16", 0). Raises HpmlError for
    another name.
    """
    kind, _, rest = name.partition("_")
    if name in STREAMING:
        return name, "float32", 0
    dtype, _, size = rest.rpartition("_")
    if kind == "matmul" and size.isdigit() and dtype in LEAST_CAPABILITY:
        return kind, dtype, int(size)
    if name == "fma_float16":
        return kind, rest, 0
    raise HpmlError(
        f"no kernel {name!r}; use {', '.join(STREAMING)}, matmul_PRECISION_N with a precision of "
        f"{', '.join(LEAST_CAPABILITY)}, or fma_float16"
    )


def capability(bench: Bench) -> str:
    """The compute capability of the first GPU; empty on a CPU and if unknown."""
    return bench.node.gpus[0].capability if bench.gpus and bench.node.gpus else ""


def require_precision(bench: Bench, dtype: str) -> None:
    """Skip the point, with the reason, if this node lacks the precision. Raises HpmlError for an
    unknown one."""
    if dtype not in LEAST_CAPABILITY:
        raise HpmlError(f"no precision {dtype!r}; use one of {', '.join(LEAST_CAPABILITY)}")
    if bench.device == "cpu" and dtype != "float32":
        bench.skip(f"{dtype} is measured on GPUs only")
    if (has := capability(bench)) and float(has) < (least := LEAST_CAPABILITY[dtype]):
        bench.skip(f"{dtype} needs compute capability {least}, this card has {has}")
