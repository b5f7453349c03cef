"""The correction of p-values, against SciPy's, whose import costs a third of the gate's start."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import false_discovery_control

from hpml_plugins.analysis.verdicts import correct


@pytest.mark.parametrize("count", [1, 2, 7, 300])
def test_corrected_as_scipy_does(count: int) -> None:
    found = np.random.default_rng(count).beta(0.3, 1.0, count)
    found[: count // 3] = found[-1]  # ties
    assert correct(found.tolist()) == pytest.approx(
        false_discovery_control(found).tolist(), rel=1e-14
    )


def test_the_worked_example_of_the_paper() -> None:
    """Section 3.2: of 15 p-values the four smallest are below 0.05, corrected."""
    given = [
        0.0001,
        0.0004,
        0.0019,
        0.0095,
        0.0201,
        0.0278,
        0.0298,
        0.0344,
        0.0459,
        0.3240,
        0.4262,
        0.5719,
        0.6528,
        0.7590,
        1.0000,
    ]
    assert sum(each <= 0.05 for each in correct(given)) == 4


def test_of_none_there_are_none() -> None:
    assert correct([]) == []
