"""Published peaks of GPU types, found by the name that NVML gives a card."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from hpml_plugins.errors import DefinitionError

T = TypeVar("T")
Amount = Annotated[float, msgspec.Meta(gt=0, lt=1e30)]


class GpuType(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The published figures of one CUDA device of a GPU type; None where the card lacks it or nobody publishes it.

    patterns: regular expressions, one of which matches the whole of the card's name.  float64 … fp8: FLOP/s, dense;
    int8: OP/s.  float16, bfloat16, tf32, fp8, int8 are tensor cores' where the card has them (`note` says where not);
    float64_tensor stands beside the plain float64.  memory: B.  bandwidth: of the memory, B/s.  nvlink: both
    directions together, B/s.  power: W.  unconfirmed: fields for which no second source was found.
    """

    name: str
    patterns: tuple[str, ...]
    float64: Amount | None
    float64_tensor: Amount | None
    float32: Amount | None
    tf32: Amount | None
    float16: Amount | None
    bfloat16: Amount | None
    fp8: Amount | None
    int8: Amount | None
    memory: Amount
    bandwidth: Amount
    nvlink: Amount | None
    power: Amount
    unconfirmed: frozenset[str]
    note: str
    source: str

    def peak(self, dtype: object) -> float | None:
        """Peak rate in a precision, FLOP/s (int8: OP/s), or None: the card lacks it, or there is no such precision.

        dtype: a field's name, torch's name or a torch.dtype ("float16", "half", "torch.float8_e4m3fn"). "float32" is
        what plain float32 reaches; ask for "tf32" where tensor cores may round the inputs, for "float64_tensor" where
        they may compute float64 (cuBLAS does).
        """
        name = str(dtype).removeprefix("torch.")
        name = "fp8" if name.startswith("float8_") else SPELLINGS.get(name, name)
        return getattr(self, name) if name in PRECISIONS else None

    def matches(self, nvml_name: str) -> bool:
        """Whether a card of this name is of this type."""
        return any(re.fullmatch(pattern, nvml_name) for pattern in self.patterns)


#: The fields of GpuType that are peaks, as `peak` takes them.
PRECISIONS = ("float64", "float64_tensor", "float32", "tf32", "float16", "bfloat16", "fp8", "int8")

#: Other spellings of them.
SPELLINGS = {
    "bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "float": "float32", "fp64": "float64",
    "double": "float64", "uint8": "int8",
}  # fmt: skip


def gpu_types() -> list[GpuType]:
    """Every GPU type of `hpml_plugins/data/gpus.yaml`, oldest first."""
    return list(_read())


def find_gpu(nvml_name: str) -> GpuType | None:
    """The type of a card by the name that NVML or torch gives it, such as "NVIDIA H200".

    None for an unknown card; say so then: "unknown card NAME: no published peak".
    """
    return next((gpu for gpu in _read() if gpu.matches(nvml_name)), None)


@functools.cache
def _read() -> tuple[GpuType, ...]:
    return read_data("gpus.yaml", tuple[GpuType, ...])


def read_data(name: str, kind: type[T]) -> T:
    """The file `name` of `hpml_plugins/data` as a `kind`: a missing, unknown or mistyped key is an error.

    Raises DefinitionError naming the file and the place.
    """
    import yaml  # not at the top: discovery imports this module

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's takes a tenth of the time
    try:
        return msgspec.convert(yaml.load(Path(__file__).parent.joinpath("data", name).read_bytes(), loader), kind)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise DefinitionError(str(error), f"hpml_plugins/data/{name}") from None
