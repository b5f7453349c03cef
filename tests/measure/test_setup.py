"""Steps that change their input: prepared before each call, and warned of where they are not."""

from __future__ import annotations

import functools
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hpml_plugins.measure import Bench, SamplingPlan
from hpml_plugins.measure.gpu_timer import GpuTimer
from hpml_plugins.measure.regimes import Regulator
from hpml_plugins.measure.sampling import remarks
from hpml_plugins.model import Node, Samples

PLAN = SamplingPlan(budget=0.2, warm_up=0.05)
NODE = Node(os="Linux", arch="x86_64", cpu="c", num_cpu=2, ram=1.0, python="3")
Step = Callable[[], object]


def shuffled(count: int) -> list[int]:
    return random.Random(1).sample(range(count), count)


def warnings_of(step: Step, setup: Step | None = None) -> list[str]:
    bench = Bench(NODE, {}, plan=PLAN)
    bench.time(step, setup=setup)
    return [text for text in bench.collected.warnings if "the first call took" in text]


def test_a_setup_comes_before_each_call() -> None:
    order: list[str] = []
    samples = Bench(NODE, {}, plan=PLAN).time(
        lambda: order.append("step"), setup=lambda: order.append("setup")
    )
    assert order[::2] == ["setup"] * (len(order) // 2)
    assert order[1::2] == ["step"] * (len(order) // 2)
    assert (samples.info["batch"], samples.info["setup"]) == (1, "every call")


def test_a_setup_is_not_timed() -> None:
    samples = Bench(NODE, {}, plan=PLAN).time(lambda: None, setup=lambda: time.sleep(0.005))
    assert samples.median < 0.001


def test_each_call_sorts_what_the_setup_has_shuffled() -> None:
    original = shuffled(20_000)
    data = original.copy()
    bench = Bench(NODE, {}, plan=PLAN)
    prepared = bench.time(data.sort, setup=lambda: data.__setitem__(slice(None), original))
    assert data == sorted(original)
    assert prepared.median > 4 * bench.time(data.sort).median


def sorts_a_list() -> Step:
    return shuffled(100_000).sort


def sorts_an_array() -> Step:
    array = np.array(shuffled(300_000))
    return lambda: array.sort(kind="stable")


def uses_up_an_iterator() -> Step:
    numbers = iter(range(500_000))
    return lambda: sum(numbers)


def empties_a_set() -> Step:
    names = {f"name {number}" for number in range(200_000)}
    return names.clear


def remembers_its_result() -> Step:
    @functools.cache
    def total(count: int) -> int:
        return sum(range(count))

    return lambda: total(500_000)


def reads_to_the_end() -> Step:
    file = Path(__file__).open()  # noqa: SIM115
    text = file.read() * 200
    lines = iter(text.splitlines())
    return lambda: max(map(len, lines), default=0)


@pytest.mark.parametrize(
    "make",
    [
        sorts_a_list,
        sorts_an_array,
        uses_up_an_iterator,
        empties_a_set,
        remembers_its_result,
        reads_to_the_end,
    ],
)
def test_a_step_whose_later_calls_do_less_is_warned_of(make: Callable[[], Step]) -> None:
    (warning,) = warnings_of(make())
    assert warning.startswith("time: the first call took ")
    assert "bench.time(step, setup=…)" in warning


def imports_a_module(folder: Path) -> Step:
    (folder / "imported_late.py").write_text("total = sum(range(500_000))\n")
    sys.path.insert(0, str(folder))

    def step() -> object:
        import imported_late  # type: ignore[import-not-found]

        return imported_late.total

    return step


def touches_new_memory(folder: Path) -> Step:
    array = np.empty(128 << 20, np.uint8)
    return lambda: array[:: 1 << 12].fill(1)


def compiles_a_kernel(folder: Path) -> Step:
    numba = pytest.importorskip("numba")
    function = numba.njit(lambda count: count + 1)
    return lambda: function(1)


def waits_first(folder: Path) -> Step:
    waits = iter([0.05])
    return lambda: time.sleep(next(waits, 0.0))


def does_the_same_each_time(folder: Path) -> Step:
    return lambda: sum(range(20_000))


@pytest.mark.parametrize(
    "make",
    [
        imports_a_module,
        touches_new_memory,
        compiles_a_kernel,
        waits_first,
        does_the_same_each_time,
    ],
)
def test_a_first_call_that_loads_or_waits_is_not_warned_of(
    make: Callable[[Path], Step], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert warnings_of(make(tmp_path)) == []


def test_a_prepared_step_is_not_warned_of() -> None:
    data, original = shuffled(100_000), shuffled(100_000)
    assert warnings_of(data.sort, lambda: data.__setitem__(slice(None), original)) == []


def test_a_prepared_call_near_the_cost_of_the_clock_is_warned_of() -> None:
    short = Samples.of([1e-6] * 20, "s", setup="every call")
    assert remarks(short, "time") == [
        "time: a call that has a setup cannot be batched, and 1 µs is close to the cost of reading"
        " the clock; do more work in a step"
    ]
    assert remarks(Samples.of([1e-4] * 20, "s", setup="every call"), "time") == []
    assert remarks(Samples.of([1e-6] * 20, "s"), "time") == []


def test_on_a_gpu_the_setup_comes_before_the_first_event_of_each_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The order in which the timer enqueues; the card itself is not needed for it."""
    order: list[str] = []

    class Event:
        def record(self) -> None:
            order.append("event")

        def query(self) -> bool:
            return False

        def synchronize(self) -> None:
            pass

        def elapsed_time(self, end: Event) -> float:
            return 1e-3

    cuda = SimpleNamespace(Event=lambda enable_timing: Event(), _sleep=lambda cycles: None)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    timer = GpuTimer(
        lambda: order.append("step"),
        "hot",
        "hidden",
        Regulator(None),
        lambda: order.append("setup"),
    )
    timer.choose_batch()
    assert timer.batch == 1
    order.clear()
    assert len(timer.enqueue(3)) == 3
    assert order == ["setup", "event", "step", "event"] * 3
