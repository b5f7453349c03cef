"""torch's snapshot of its allocator, read block by block: what each block is for, and what is nobody's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Occupied:
    """One device's memory by torch's allocator, B.

    parts: part → bytes asked for; "other" are those of blocks that nobody claimed.  requested, allocated: the same sum
    as asked for, and as rounded up by the allocator.  reserved: all segments.  lost: storages claimed for a part that
    lie in no active block.
    """

    parts: dict[str, int] = field(default_factory=dict)
    requested: int = 0
    allocated: int = 0
    reserved: int = 0
    lost: int = 0


def occupied(segments: Iterable[Mapping[str, Any]], claimed: Mapping[int, tuple[str, int]]) -> Occupied:
    """Sum up a snapshot of one device.

    segments: as `torch.cuda.memory_snapshot()` gives them, those of one device.  claimed: address → (part, bytes). The
    allocator hands out each storage as a block that starts at its address.
    """
    found = Occupied()
    met = set()
    for segment in segments:
        found.reserved += segment["total_size"]
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                asked = block.get("requested_size", block["size"])
                part, _ = claimed.get(address, ("other", 0))
                found.parts[part] = found.parts.get(part, 0) + asked
                found.requested += asked
                found.allocated += block["size"]
                met.add(address)
            address += block["size"]
    found.lost = sum(1 for address in claimed if address not in met)
    return found
