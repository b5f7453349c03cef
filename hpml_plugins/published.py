"""Published peaks of GPU types, found by NVML's name of a card, and figures reported by others."""

from __future__ import annotations

import datetime
import functools
import re
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from hpml_plugins.errors import DefinitionError

T = TypeVar("T")
Amount = Annotated[float, msgspec.Meta(gt=0, lt=1e30)]


class GpuType(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The published figures of one CUDA device of a GPU type; None if the card lacks it or it is
    not published.

    patterns: regular expressions, one of which matches the whole of the card's name.  float64 …
    fp8: FLOP/s, dense; int8: OP/s.  float16, bfloat16, tf32, fp8, int8 are for tensor cores if the
    card has them (`note` says if not); float64_tensor is separate from plain float64.  memory: B.
    bandwidth: of the memory, B/s.  nvlink: both directions together, B/s.  power: W.  unconfirmed:
    fields for which no second source was found.
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
        """Peak rate in a precision, FLOP/s (int8: OP/s); None if the card lacks it, or for an
        unknown precision.

        dtype: a field's name, torch's name or a torch.dtype ("float16", "half",
        "torch.float8_e4m3fn"). "float32" is the rate of plain float32; use "tf32" if tensor cores
        may round the inputs, and "float64_tensor" if they may compute float64 (as cuBLAS does).
        """
        name = str(dtype).removeprefix("torch.")
        name = "fp8" if name.startswith("float8_") else PRECISION_SYNONYMS.get(name, name)
        return getattr(self, name) if name in PRECISIONS else None

    def matches(self, nvml_name: str) -> bool:
        """Whether a card of this name is of this type."""
        return any(re.fullmatch(pattern, nvml_name) for pattern in self.patterns)


#: The fields of GpuType that are peaks, as accepted by `peak`.
PRECISIONS = (
    "float64",
    "float64_tensor",
    "float32",
    "tf32",
    "float16",
    "bfloat16",
    "fp8",
    "int8",
)

#: Alternative names of precisions.
PRECISION_SYNONYMS = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "fp32": "float32",
    "float": "float32",
    "fp64": "float64",
    "double": "float64",
    "uint8": "int8",
}


def gpu_types() -> list[GpuType]:
    """Every GPU type of `hpml_plugins/data/gpus.yaml`, oldest first."""
    return list(_read())


def find_gpu(nvml_name: str, memory: float = 0) -> GpuType | None:
    """The type of a card by the name that NVML or torch gives it, such as "NVIDIA H200".

    memory: of the card, B: needed if cards of one name have different memory. A MIG device ("NVIDIA
    H200 MIG 1g.18gb") is a type with its share of the card's peaks.

    None for an unknown card; report this as "unknown card NAME: no published peak".
    """
    name = full_name(nvml_name, memory)
    if profile := _PROFILE.fullmatch(name):
        card = find_gpu(profile["card"])
        return card and _slice_of(card, profile)
    return next((gpu for gpu in _read() if gpu.matches(name)), None)


def full_name(nvml_name: str, memory: float) -> str:
    """A card's name, with its memory if NVIDIA sells cards of that name with several sizes.

    "NVIDIA GeForce RTX 3060" with 12 GiB is "NVIDIA GeForce RTX 3060 12GB". All other names, and
    these if the memory is unknown, remain as NVML gives them.  memory: B.
    """
    for each in _read_variants().memories:
        if memory and re.fullmatch(each.name, nvml_name):
            size = min(each.sizes, key=lambda gib: abs(gib * 2**30 - memory))
            return f"{nvml_name} {size}GB"
    return nvml_name


#: Rows of the standard set for which others report rates → the row in words.
ROWS = {
    "copy": "Memory bandwidth of a copy",
    "bf16_product": "Matrix product in bf16",
    "fp8_product": "Matrix product in fp8",
    "attention": "Attention, forward",
    "all_reduce": "All-reduce",
}


class ReportedFigure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A measurement reported by others. It is shown separately from our results, and not used in
    any verdict or ratio.

    row: of ROWS.  gpu: a name in `gpus.yaml`.  value: in `unit`, SI base units.  how: what was run.
    source: where it was published.  date: of the source; without one, the day on which it was read.
    gpus: the number of GPUs.
    """

    row: str
    gpu: str
    value: Amount
    unit: str
    how: Annotated[str, msgspec.Meta(min_length=1)]
    source: Annotated[str, msgspec.Meta(pattern="^https://[^ ]+$")]
    date: datetime.date
    gpus: Annotated[int, msgspec.Meta(ge=1)] = 1


class _Reported(msgspec.Struct, frozen=True):
    reported: tuple[ReportedFigure, ...]


@functools.cache
def reported_figures() -> tuple[ReportedFigure, ...]:
    """The reported figures in `hpml_plugins/data/published.yaml`."""
    return read_data("published.yaml", _Reported).reported


#: "1g.5gb", "1c.3g.20gb" (one compute slice of three), "1g.10gb+me" (with media engines).
#: Source: NVIDIA Multi-Instance GPU User Guide, MIG Device Names.
_PROFILE = re.compile(
    r"(?P<card>.+) MIG"
    r" (?P<profile>((?P<part>\d+)c\.)?(?P<compute>\d+)g\.(?P<memory>\d+)gb)(?P<engines>[+-].+)?"
)


class _Memories(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    sizes: tuple[int, ...]
    source: str


class _Slices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    types: tuple[str, ...]
    compute: int
    memory: int
    multiprocessors: int
    profiles: dict[str, int]
    source: str


class _Variants(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    memories: tuple[_Memories, ...]
    slices: tuple[_Slices, ...]


def _slice_of(card: GpuType, profile: re.Match[str]) -> GpuType | None:
    """The MIG device of that profile; None if the card is not known to support MIG.

    A rate of the multiprocessors is the card's times the share of the multiprocessors, or times
    compute slices / 7 if their number is unknown. Memory and its bandwidth are the card's times
    memory slices / 8; compute instances of one GPU instance share both. MIG devices cannot use
    NVLink. Source: NVIDIA Multi-Instance GPU User Guide: Concepts; Supported MIG Profiles;
    Application Considerations.
    """
    cut = next((each for each in _read_variants().slices if card.name in each.types), None)
    if cut is None:
        return None
    multiprocessors = cut.profiles.get(profile["profile"])
    if multiprocessors:
        compute = multiprocessors / cut.multiprocessors
        how = f"{multiprocessors} of {cut.multiprocessors} multiprocessors"
    else:
        slices = int(profile["part"] or profile["compute"])
        compute = slices / cut.compute
        how = f"{slices} of {cut.compute} compute slices"
    memory_slices = max(1, round(int(profile["memory"]) * 1e9 / card.memory * cut.memory))
    peaks = {name: getattr(card, name) for name in PRECISIONS}
    note = f"{how}, {memory_slices} of {cut.memory} memory slices. The power is the whole card's."
    return msgspec.structs.replace(
        card,
        name=f"{card.name} MIG {profile['profile']}{profile['engines'] or ''}",
        patterns=(re.escape(profile.string),),
        memory=card.memory * memory_slices / cut.memory,
        bandwidth=card.bandwidth * memory_slices / cut.memory,
        nvlink=None,
        note=f"{note} {card.note}".strip(),
        source=f"{card.source}; {cut.source}",
        unconfirmed=card.unconfirmed - {"nvlink"},
        **{name: peak and peak * compute for name, peak in peaks.items()},
    )


@functools.cache
def _read() -> tuple[GpuType, ...]:
    return read_data("gpus.yaml", tuple[GpuType, ...])


@functools.cache
def _read_variants() -> _Variants:
    return read_data("gpu_variants.yaml", _Variants)


def read_data(name: str, kind: type[T]) -> T:
    """Read the file `name` of `hpml_plugins/data` as a `kind`: a missing, unknown or mistyped key
    is an error.

    Raises DefinitionError naming the file and the place.
    """
    import yaml  # not at the top: discovery imports this module

    # libyaml takes a tenth of the time
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return msgspec.convert(
            yaml.load(Path(__file__).parent.joinpath("data", name).read_bytes(), loader),
            kind,
        )
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise DefinitionError(str(error), f"hpml_plugins/data/{name}") from None
