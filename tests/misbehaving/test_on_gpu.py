"""The same on a real card, where there is one; `try_on_gpu.py` needs no pytest."""

from __future__ import annotations

import on_gpu
import pytest
import try_on_gpu


def test_every_way_has_an_expectation_and_a_look_after_it() -> None:
    assert set(try_on_gpu.EXPECTED) == set(on_gpu.WAYS)
    assert on_gpu.ORDER[1::2] == list(on_gpu.WAYS)


def test_a_broken_promise_is_named() -> None:
    good = [
        {"params": {"way": way}, "status": "ok", "reason": ""}
        for way in ("hold_memory", "look 1")
    ]
    assert try_on_gpu.broken(good) == []
    bad = [
        {"params": {"way": "run_out_of_memory"}, "status": "ok", "reason": ""},
        {**good[1], "status": "failed"},
    ]
    assert len(try_on_gpu.broken(bad)) == 2


@pytest.mark.slow
def test_after_each_way_the_card_is_as_before() -> None:
    status = try_on_gpu.main()
    if status == 77:
        pytest.skip("NO GPU HERE: THE POINTS THAT MISBEHAVE ON A GPU DID NOT RUN")
    assert status == 0
