"""What a GPU costs and draws: prices that the user gives, and published powers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from hpml_plugins.errors import RegistryError
from hpml_plugins.published import find_gpu
from hpml_plugins.registry import Lines
from hpml_plugins.report.site.errors import SiteError
from hpml_plugins.report.site.gpu_type import GpuType

#: Beside the registry. No file, no prices.
FILE = "gpu-prices.yaml"
#: An hour of one GPU; in any currency.
_DEAREST = 1e12


class _File(msgspec.Struct, forbid_unknown_fields=True):
    prices: dict[str, float]
    currency: str = ""


@dataclass(frozen=True)
class Costs:
    """prices: GPU type, as asv's `gpu` names it → price of one GPU for one hour, in `currency`."""

    prices: dict[str, float] = field(default_factory=dict)
    currency: str = ""

    def price(self, kind: GpuType) -> float | None:
        """Of all GPUs of this type's machine for an hour; None where no price is given."""
        return _together(self.prices.get(kind.gpu), kind)

    def watts(self, kind: GpuType) -> float | None:
        """The published power of all its GPUs, W; None for an unknown card."""
        card = find_gpu(kind.gpu) if kind.kind == 0 else None
        return _together(card.power, kind) if card else None


def read_costs(folder: Path) -> Costs:
    """The prices in `gpu-prices.yaml` of a folder. Raises SiteError naming what is wrong with it."""
    path = folder / FILE
    if not path.is_file():
        return Costs()
    try:
        read = msgspec.convert(Lines(path.read_text(encoding="utf-8"), str(path)).document, _File)
    except (OSError, RegistryError, msgspec.ValidationError, UnicodeDecodeError) as error:
        said = error.what if isinstance(error, RegistryError) else error
        raise SiteError(
            f"{said}; it should say `prices: {{NVIDIA H200: 3.5}}` and `currency: USD`", str(path)
        ) from None
    for name, price in read.prices.items():
        if not 0 < price <= _DEAREST:
            raise SiteError(f"the price of {name!r} is {price}, not above 0 and at most {_DEAREST:.0e}", str(path))
    return Costs(read.prices, read.currency)


def _together(one: float | None, kind: GpuType) -> float | None:
    if one is None or not kind.num_gpu.isdecimal() or kind.num_gpu == "0":
        return None
    return one * int(kind.num_gpu)
