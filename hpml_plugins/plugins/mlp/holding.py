"""Holding the GPU back while the host launches, so that events show what it does and not how it is asked.

Imports torch: imported on use only.
"""

from __future__ import annotations

import torch

#: At most so long, s.
LONGEST = 0.02
#: The sleeping kernel's clock: cycles a second that no card exceeds, so that it sleeps at least as long as asked for.
CYCLES = 2.2e9


def hold_back(seconds: float) -> None:
    """Have the current stream do nothing for so long."""
    torch.cuda._sleep(int(min(LONGEST, seconds) * CYCLES))
