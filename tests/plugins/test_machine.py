"""The plugin `machine`: its kernels in numba's simulator, its formulas by hand, and what a CPU can
measure of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from records import a_record

from hpml_plugins import Bench, Benchmark, HpmlError, Node
from hpml_plugins.measure import Context, SamplingPlan, measure_point
from hpml_plugins.model.node import Gpu
from hpml_plugins.model.record import Record
from hpml_plugins.node import unmet
from hpml_plugins.plugins import machine
from hpml_plugins.plugins.machine import (
    collectives,
    copies,
    host,
    latencies,
    launches,
    memory,
    storage,
    units,
)

SHORT = SamplingPlan(budget=0.02, warm_up=0.02, fewest=3)
H200 = Gpu("NVIDIA H200", memory=150e9, numa=1)


def node(*gpus: Gpu, ram: float = 2.0**36) -> Node:
    return Node(
        os="Linux 6", arch="x86_64", cpu="C", num_cpu=2, ram=ram, python="3.11", gpus=gpus
    )


def measured(benchmark: Benchmark, **params: str | int) -> Record:
    return measure_point(benchmark, params, Context(node(), plan=SHORT, rounds=1))


def run(code: str, **env: str) -> str:
    """What Python prints for this code, in a process of its own."""
    environment = {**os.environ, **env}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_plugin_imports_nothing_heavy() -> None:
    code = (
        "import sys, hpml_plugins.plugins.machine; print(*{'torch', 'numpy', 'numba'} &"
        " set(sys.modules))"
    )
    assert run(code) == "\n"


# The mailbox's kernel waits for the host: in the simulator, where a launch returns when the kernel
# has ended, it runs in a thread of its own. Cyclic reading is checked over fewer, as many, and more
# words than the array has.
IN_THE_SIMULATOR = """
import threading
import numpy as np
from numba import cuda
from hpml_plugins.plugins.machine import kernels, latencies, memory

values = np.arange(4096, dtype=np.int32) % 1021
for blocks, steps in ((1, 1), (2, 1), (3, 1)):
    sums = np.zeros(blocks * 256, np.int32)
    kernels.read_cyclic[blocks, 256](values, np.uint64(4095), np.uint64(steps), sums)
    words = blocks * 2048 * steps
    wanted = memory.expected_sum(int(values.sum()), 4096, lambda first: int(values[:first].sum()), words)
    print("cyclic", words, int(sums.sum()) == wanted, int(sums.sum()) == int(np.resize(values, words).sum()))

following = np.array([3, 0, 1, 2], np.uint32)  # 0 -> 3 -> 2 -> 1 -> 0
place = np.zeros(1, np.uint32)
kernels.chase[1, 1](following, np.uint32(6), place)
print("chase", place[0])

counters, seen = np.zeros(2, np.int32), np.zeros(8, np.int32)
kernels.count_up[2, 4](counters, np.uint32(1), np.uint32(3), seen)
print("atomics", *counters, seen.sum() == 2 * sum(range(12)))

kernels.do_nothing[1, 1]()
counter = np.zeros(1, np.int32)
for _ in range(3):
    kernels.count_launch[1, 1](counter)
print("launches", counter[0])

kernels.PATIENCE = 100_000
post, reply = (cuda.mapped_array(1, dtype=np.int32) for _ in range(2))
post[0] = reply[0] = 0
thread = threading.Thread(target=lambda: kernels.answer[1, 1](post, reply, np.int32(20)))
thread.start()
print("mailbox", latencies.exchange(post, reply, 20) > 0, end=" ")
thread.join()
print(reply[0])
"""  # noqa: E501


def test_the_kernels_in_the_simulator() -> None:
    assert run(IN_THE_SIMULATOR, NUMBA_ENABLE_CUDASIM="1").splitlines() == [
        "cyclic 2048 True True",
        "cyclic 4096 True True",
        "cyclic 6144 True True",
        "chase 2",
        "atomics 12 12 True",
        "launches 3",
        "mailbox True 20",
    ]


# One block of the 1024 threads that the kernel is made for, with half of its passes: the simulator
# takes a second.
SHARED_IN_THE_SIMULATOR = """
import numpy as np
from hpml_plugins.plugins.machine import kernels

sums = np.zeros(1024, np.int32)
kernels.read_shared[1, 1024](np.uint32(2), sums)
cells = np.arange(8192).reshape(8, 1024)
wanted = [sum(cells[:, (thread + done) % 1024].sum() for done in range(2)) for thread in range(1024)]
print(list(sums) == wanted)
"""  # noqa: E501


def test_each_thread_reads_other_words_of_shared_memory_in_each_pass() -> None:
    assert run(SHARED_IN_THE_SIMULATOR, NUMBA_ENABLE_CUDASIM="1") == "True\n"


def test_the_sum_over_shared_memory_by_hand() -> None:
    code = (
        "from hpml_plugins.plugins.machine.memory import shared_sum; print(shared_sum(1024),"
        " shared_sum(4096))"
    )
    # 0 + 1 + … + 8191 = 8191 · 4096; four times that is 134,201,344
    assert run(code, NUMBA_ENABLE_CUDASIM="1").split() == [str(8191 * 4096), "134201344"]


def test_sums_wrap_around_as_int32_does() -> None:
    assert memory.wrap(2**31 - 1) == 2**31 - 1
    assert memory.wrap(2**31) == -(2**31)
    assert memory.wrap(-(2**31) - 1) == 2**31 - 1
    values = [5, 7, 11]  # 23 in all; 8 words are twice all of them and 5 + 7
    assert memory.expected_sum(23, 3, lambda first: sum(values[:first]), 8) == 2 * 23 + 12


def test_the_blocks_of_the_staircase_read_the_whole_working_set() -> None:
    # 1056 blocks, tiles of 2048 words: 4 GiB are 2^30 words, 496.5 tiles for each block, so 497
    assert memory.steps_of(2**30, 1056, 2048, 2**29) == 497
    # a set of 64 KiB is read until 2 GiB have been: 2^29 / (1056 · 2048) = 248.2, so 249
    assert memory.steps_of(2**14, 1056, 2048, 2**29) == 249
    assert memory.WORKING_SETS[0] == 64 << 10
    assert memory.WORKING_SETS[-1] == 4 << 30
    assert memory.WORKING_SETS[-1] == memory.IN_MEMORY
    assert (memory.in_l2(60 << 20), memory.in_l2(6 << 20)) == (16 << 20, 2 << 20)


def test_the_bytes_of_an_operation_are_stream_s() -> None:
    assert memory.ARRAYS == {"read": 1, "write": 1, "copy": 2, "triad": 3}
    assert host.triad_bytes(10) == 240  # two float64 read and one written, 8 B each


def test_a_chase_visits_every_line_once() -> None:
    following, order = latencies.make_cycle(64, 7, "cpu")
    place, visited = int(order[0]) * latencies.STRIDE, []
    for _ in range(64):
        visited.append(place // latencies.STRIDE)
        place = int(following[place])
    assert visited == order.tolist()
    assert sorted(visited) == list(range(64))
    assert place == int(order[0]) * latencies.STRIDE
    assert latencies.STRIDE * 4 == 128
    # one line is followed by line 0; between lines there is nothing
    assert int((following != 0).sum()) == 63


@pytest.mark.parametrize(
    ("size", "nbytes"), [("8B", 8), ("4KiB", 4096), ("16MiB", 2**24), ("4GiB", 2**32)]
)
def test_a_size_in_words(size: str, nbytes: int) -> None:
    assert units.size_in_bytes(size) == nbytes


@pytest.mark.parametrize("size", ["", "4", "4 KiB", "0KiB", "4KB", "-1B"])
def test_what_is_no_size_is_refused(size: str) -> None:
    with pytest.raises(HpmlError, match="such as '16MiB'"):
        units.size_in_bytes(size)


def test_the_cpus_of_a_numa_node(tmp_path: Path) -> None:
    assert units.parse_cpus("0-2,8\n") == {0, 1, 2, 8}
    assert units.parse_cpus("\n") == set()
    own = os.sched_getaffinity(0)
    assert (
        units.run_near(node(Gpu("G")), 0, tmp_path)
        == "any CPU: the system does not tell the GPU's NUMA node"
    )
    assert "does not tell the CPUs of NUMA node 1" in units.run_near(
        node(H200), 0, tmp_path
    )
    (tmp_path / "node1").mkdir()
    (tmp_path / "node1" / "cpulist").write_text("4000-4001\n")
    assert "may use no CPU of NUMA node 1" in units.run_near(node(H200), 0, tmp_path)
    first = min(own)
    (tmp_path / "node1" / "cpulist").write_text(f"{first}\n")
    try:
        assert (
            units.run_near(node(H200), 0, tmp_path)
            == "1 CPUs of NUMA node 1, where the GPU is"
        )
        assert os.sched_getaffinity(0) == {first}
    finally:
        os.sched_setaffinity(0, own)


@pytest.mark.parametrize(
    ("gpu", "size", "gpus", "ram", "reason"),
    [
        (0, "4GiB", [H200], 2.0**36, ""),
        (3, "4KiB", [H200], 2.0**36, "needs GPU 3, this node has 1 GPU"),
        (3, "4KiB", [H200, H200], 2.0**36, "needs GPU 3, this node has 2 GPUs"),
        (
            0,
            "4GiB",
            [H200],
            2.0**33,
            "two host buffers of 4GiB are more than half of this node's memory",
        ),
        (
            0,
            "4GiB",
            [Gpu("G", memory=8e9)],
            2.0**36,
            "two GPU buffers of 4GiB are more than half of the GPU's memory",
        ),
    ],
)
def test_a_copy_is_skipped_where_its_gpu_or_memory_lacks(
    gpu: int, size: str, gpus: list[Gpu], ram: float, reason: str
) -> None:
    point = {"memory": "pinned", "size": size, "gpu": gpu}
    reasons = unmet(copies.HOST_COPY, point, node(*gpus, ram=ram))
    assert reasons == ([reason] if reason else [])


def test_every_gpu_benchmark_is_skipped_without_a_gpu_and_pairs_with_one() -> None:
    needs: dict[str, int] = {}
    for benchmark in machine.hpml_benchmarks():
        for point in benchmark.points():
            for count in (0, 1, 2, 4):
                if not unmet(benchmark, point, node(*[H200] * count), ask=False):
                    needs[benchmark.name] = min(count, needs.get(benchmark.name, 9))
    on_cpu = (
        "machine_collective_gloo",
        "machine_triad",
        "machine_core",
        "machine_checkpoint",
        "machine_compile",
    )
    assert {name for name, count in needs.items() if count == 0} == set(on_cpu)
    assert {name for name, count in needs.items() if count == 2} == {
        "machine_peer_copy",
        "machine_peer_latency",
        "machine_collective",
    }


@pytest.mark.parametrize(
    ("collective", "wanted"),
    [
        # of two ranks: rank 0 sends 0, 1, 2, 3 and rank 1 sends 1, 4, 7, 10
        ("all_reduce", [1, 5, 9, 13]),
        ("all_gather", [0, 1, 2, 3, 1, 4, 7, 10]),
        ("all_to_all", [2, 3, 7, 10]),
        ("send_receive", [0, 1, 2, 3]),
    ],
)
def test_what_rank_1_receives_by_hand(collective: str, wanted: list[int]) -> None:
    assert collectives.expected(collective, 1, 2, 4).tolist() == wanted


def test_an_all_to_all_sends_something_to_every_rank() -> None:
    assert collectives.elements_of(8, "all_reduce", 4) == 2
    assert collectives.elements_of(8, "all_to_all", 4) == 4
    assert all(
        collectives.elements_of(size, "all_to_all", 4) % 4 == 0
        for size in collectives.SIZES
    )


@pytest.mark.parametrize("collective", collectives.COLLECTIVES)
def test_a_collective_over_gloo(collective: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives, "SIZES", (8, 4096))
    record = measured(collectives.SMALL_GLOO, collective=collective, ranks=2)
    assert (record.status, record.reason) == ("ok", "")
    assert record.series["sizes"].columns["size"] == [8.0, 4096.0]
    assert record.metrics["latency"].value == record.series["sizes"].columns["time"][0]
    assert f"{collective} of 4096 B differs from what the ranks sent" in record.checks


def test_a_wrong_collective_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives, "SIZES", (8,))
    monkeypatch.setattr(collectives, "expected", lambda *of: collectives.inputs(5, 2))
    record = measured(collectives.SMALL_GLOO, collective="all_reduce", ranks=2)
    assert record.status == "failed"
    assert "all_reduce of 8 B differs" in record.reason


def test_thread_counts_end_with_all_threads() -> None:
    assert host.thread_counts(1) == [1]
    assert host.thread_counts(2) == [1, 2]
    assert host.thread_counts(6) == [1, 2, 4, 6]
    assert host.thread_counts(8) == [1, 2, 4, 8]


def test_the_triad_over_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "ELEMENTS", 1 << 16)
    record = measured(host.TRIAD)
    assert (record.status, record.reason) == ("ok", "")
    series = record.series["threads"].columns
    assert series["threads"][0] == 1.0
    assert record.metrics["one_thread"].value == series["bandwidth"][0]
    assert record.metrics["bandwidth"].value == series["bandwidth"][-1]


def test_what_one_core_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "CHAIN", 10_000)
    record = measured(host.CORE)
    assert (record.status, record.reason) == ("ok", "")
    assert 1e7 < record.metrics["multiply_add"].value < 1e11
    assert 1e4 < record.metrics["python"].value < 1e9
    assert 1e-8 < record.metrics["page_fault"].value < 1e-3


def test_a_page_is_counted_once_it_holds_what_was_written() -> None:
    assert host.touch_pages(3) == 3
    assert host.count_calls(5) == 5


@pytest.mark.parametrize("format", ["torch", "safetensors", "distributed"])
def test_a_checkpoint_on_the_cpu(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if format == "safetensors":
        pytest.importorskip("safetensors")
    monkeypatch.setattr(storage, "REPEATING", 0.0)
    record = measured(storage.CHECKPOINT, format=format, size="8MiB")
    assert (record.status, record.reason) == ("ok", "")
    assert {name: len(metric.samples) for name, metric in record.metrics.items()} == {
        "write": 2,
        "cold": 2,
        "warm": 2,
    }
    assert "what was read (cold) differs from what was written" in record.checks
    assert record.metrics["write"].info["file_system"]


def test_a_checkpoint_that_is_read_wrongly_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = storage.formats()["torch"]
    spoilt = storage.Format(
        right.save, lambda folder, like: {name: each + 1 for name, each in like.items()}
    )
    monkeypatch.setattr(storage, "formats", lambda: {"torch": spoilt})
    record = measured(storage.CHECKPOINT, format="torch", size="1MiB")
    assert (record.status, "what was read (cold) differs" in record.reason) == (
        "failed",
        True,
    )


def test_a_checkpoint_in_memory_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"none / overlay rw 0 0\nnone {tmp_path.resolve()} tmpfs rw 0 0\nnone /other ext4 rw 0 0\n"
    )
    assert storage.file_system(tmp_path / "a", mounts) == "tmpfs"
    assert storage.file_system(Path("/"), mounts) == "overlay"
    assert storage.file_system(Path("/"), tmp_path / "lacking") == ""
    monkeypatch.setattr(storage, "file_system", lambda folder: "tmpfs")
    record = measured(storage.CHECKPOINT, format="torch", size="1MiB")
    assert (
        "the temporary folder is a tmpfs: this is memory, not storage; TMPDIR names another"
        in record.warnings
    )


def test_safetensors_is_asked_for_where_it_is_lacking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    lacking = "needs module safetensors (pip install safetensors)"
    assert storage.why_not(node(), {"format": "safetensors"}) == lacking
    assert storage.why_not(node(), {"format": "torch"}) == ""


@pytest.mark.slow
def test_compiling_cold_and_warm_on_the_cpu() -> None:
    record = measured(launches.COMPILE)
    assert (record.status, record.reason) == ("ok", "")
    assert record.metrics["warm"].value < record.metrics["cold"].value


def test_the_cores_rate_of_each_round_outlives_the_joining_of_rounds() -> None:
    from hpml_plugins import Samples
    from hpml_plugins.model.record import MetricSamples
    from hpml_plugins.model.rounds import join_rounds
    from hpml_plugins.plugins.machine.charts import with_core_rate

    rounds = []
    for number, rate in enumerate((7.1e7, 3.6e7)):
        found = Samples.of([500 / rate], "s", core_rate=rate)
        eager = MetricSamples("s", "lower", list(found.values), dict(found.info))
        rounds.append(
            a_record("machine_launch", {"eager": eager}, run="r", started=float(number))
        )
    ((_, _, timed),) = with_core_rate(join_rounds(rounds))
    assert [each.rate for each in timed] == [7.1e7, 3.6e7]
    assert [each.time * each.rate for each in timed] == pytest.approx([500, 500])


def test_gpus_that_nobody_watches_are_named() -> None:
    bench = Bench(node(H200, H200, H200), {}, gpus=1)
    copies.warn_of_unwatched(bench, [0])
    assert bench.collected.warnings == []
    copies.warn_of_unwatched(bench, range(3))
    assert bench.collected.warnings == [
        "not watched: GPU 1, 2; clocks, power and throttling are of the GPUs before"
    ]
