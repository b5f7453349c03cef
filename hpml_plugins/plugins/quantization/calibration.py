"""What a calibration set shows of each layer's results, and what is to be said of it. Imports torch: on use only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hpml_plugins.plugins.quantization.affine import Profile
from hpml_plugins.plugins.quantization.blocks import Block

INPUT = "input"


@dataclass(frozen=True)
class Calibration:
    """profiles: "input" and each block that computes → what was seen.  values: the same → the values themselves."""

    profiles: dict[str, Profile]
    values: dict[str, Any]


def calibrate(blocks: Sequence[Block], images: Any) -> Calibration:
    """Run the images through in floating point; look at the input and at every result that gets a grid of its own."""
    values = {INPUT: images}
    for block in blocks:
        images = block.run(images)
        if block.kind != "shape":
            values[block.name] = images
    return Calibration({name: Profile.of(seen) for name, seen in values.items()}, values)


def remarks(calibration: Calibration, labels: Any, classes: Sequence[str]) -> list[str]:
    """What a reader should know: classes that the calibration set lacks, and results that were all the same."""
    present = set(labels.tolist())
    said = []
    if missing := [name for number, name in enumerate(classes) if number not in present]:
        said.append(
            f"the {len(labels)} calibration images show no {', '.join(missing)}: what only these would reach is clamped"
        )
    for name, profile in calibration.profiles.items():
        if profile.constant:
            said.append(
                f"{name}: all activations of the calibration set are {profile.low:g}, a range of zero; it was widened "
                "to hold 0" + ("" if profile.low else ", and its scale set to 1")
            )
    return said
