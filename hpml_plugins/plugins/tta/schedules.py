"""Learning rates over steps, as shares of the peak: pure, for they become a table on the device."""

from __future__ import annotations

import math

from hpml_plugins.plugins.tta.recipes import Schedule


def share_of_peak(schedule: Schedule, step: int, steps: int) -> float:
    """What the rate of this step is of its peak.  step: from 0.  steps: of the whole training.

    constant: 1.  linear: 1 − t.  cosine: ½ (1 + cos π t).  one_cycle: straight from `start` to 1 at `rise`, then
    straight to `end` (Smith, Super-Convergence, arXiv 1708.07120). t = step / steps.
    """
    t = step / steps
    if schedule.shape == "constant":
        return 1.0
    if schedule.shape == "linear":
        return 1.0 - t
    if schedule.shape == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * t))
    if t < schedule.rise:
        return schedule.start + (1.0 - schedule.start) * t / schedule.rise
    return 1.0 + (schedule.end - 1.0) * (t - schedule.rise) / (1.0 - schedule.rise)


def falling_share(step: int, steps: float) -> float:
    """1 − step / steps, not below 0: of the whitening's bias, which is trained for so many steps."""
    return max(0.0, 1.0 - step / steps) if steps else 1.0
