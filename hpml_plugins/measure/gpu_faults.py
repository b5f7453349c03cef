"""What goes wrong with a card while it is measured: it falls off the bus, or its memory fails. As NVML tells it."""

from __future__ import annotations

from collections.abc import Sequence

from hpml_plugins.errors import HpmlError
from hpml_plugins.model.node import Gpu

#: NVML's return codes (nvml.h) of a card that is gone until it, or the machine, is started again.
LOST = {15: "GPU is lost", 16: "GPU requires restart"}
#: And of one that was there when the node was asked, and is not any more.
NOT_FOUND = 6


class GpuLost(HpmlError):
    """A card fell away while it was measured; nothing that was measured meanwhile counts."""


def lost(error: Exception, number: int, gpu: Gpu) -> str:
    """Why nothing more can be measured on this card, in words; nothing where the error means less than that."""
    code = getattr(error, "value", None)
    if code in LOST:
        said = LOST[code]
    elif code == NOT_FOUND and gpu.uuid:
        said = "Not Found, though it was there when the run began"
    else:
        return ""
    return (
        f"GPU {number} ({gpu.name}) is lost: NVML says {said!r}; dmesg has an Xid that says why, and "
        "nvidia-smi --gpu-reset or a reboot may bring it back"
    )


def memory_errors(
    gpus: Sequence[Gpu], before: Sequence[tuple[int | None, int | None]], after: Sequence[tuple[int | None, int | None]]
) -> tuple[str, list[str]]:
    """What ECC counted since: the fault of a point whose numbers cannot be believed, and warnings.

    before, after: for each card its corrected and its uncorrected errors since the driver was loaded (NVML's volatile
    counters); None where it does not tell. A corrected error costs nothing but trust in the card; an uncorrected one
    has changed or ended what was computed.
    """
    fault, warnings = "", []
    for number, (gpu, old, new) in enumerate(zip(gpus, before, after, strict=True)):
        corrected, uncorrected = (
            max(0, now - then) if now is not None and then is not None else 0
            for then, now in zip(old, new, strict=True)
        )
        if corrected:
            warnings.append(f"GPU {number} ({gpu.name}) corrected {corrected} memory errors while this was measured")
        if uncorrected and not fault:
            fault = (
                f"GPU {number} ({gpu.name}) had {uncorrected} memory errors that ECC could not correct while this was "
                "measured; hpml doctor and nvidia-smi -q -d ECC,ROW_REMAPPER tell more"
            )
    return fault, warnings
