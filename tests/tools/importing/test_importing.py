"""`hpml import`: result files of seven tools become Records with the values that they hold."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from records import a_record
from support import call_hpml

from hpml_plugins.analysis.physics import Physics, physics_of
from hpml_plugins.errors import HpmlError
from hpml_plugins.model.record import Record
from hpml_plugins.report.reading import read_history
from hpml_plugins.store import append_record, read_records, record_file
from hpml_plugins.tools.importing.formats import read_source
from hpml_plugins.tools.importing.records import to_records

FILES = Path(__file__).with_name("files")
COMMIT = "0123456789" * 4


def imported(path: Path) -> dict[tuple[str, ...], Record]:
    """Benchmark and values of parameters → Record."""
    source = read_source(path)
    return {
        (record.benchmark, *map(str, record.params.values())): record
        for record in to_records(source, path.read_bytes())
    }


def call(*words: str) -> subprocess.CompletedProcess[str]:
    return call_hpml(Path(), *words)


def samples(record: Record, metric: str) -> list[float]:
    return record.metrics[metric].samples


# What each tool wrote, read from the file by other means than the importer's.


def test_google_benchmark_keeps_every_repetition_and_counter() -> None:
    path = FILES / "google-benchmark.json"
    found = imported(path)
    written = [
        row
        for row in json.loads(path.read_text())["benchmarks"]
        if row["run_type"] == "iteration"
    ]
    assert set(found) == {
        ("BM_sum", "1000"),
        ("BM_sum", "100000"),
        ("BM_copy", "4096", "real_time"),
        ("BM_fails",),
    }
    record = found["BM_sum", "1000"]
    rows = [row for row in written if row["run_name"] == "BM_sum/1000"]
    assert samples(record, "time") == pytest.approx(
        [row["real_time"] * 1e-9 for row in rows]
    )
    assert samples(record, "cpu_time") == pytest.approx(
        [row["cpu_time"] * 1e-9 for row in rows]
    )
    assert samples(record, "bytes_per_second") == [row["bytes_per_second"] for row in rows]
    assert samples(record, "flops") == [row["flops"] for row in rows]
    assert (record.metrics["bytes_per_second"].unit, record.metrics["flops"].unit) == (
        "B/s",
        "1",
    )
    assert record.metrics["flops"].direction is None
    microseconds = [
        row["real_time"] for row in written if row["run_name"].startswith("BM_copy")
    ]
    copied = found["BM_copy", "4096", "real_time"]
    assert samples(copied, "time") == pytest.approx([each * 1e-6 for each in microseconds])
    assert (found["BM_fails",].status, found["BM_fails",].reason) == ("failed", "no device")
    assert record.machine == "vm" and record.started > 1.79e9 and record.commit == ""
    assert record.warnings == ["the benchmark library was built for debugging"]


def test_google_benchmark_of_its_newest_version() -> None:
    path = FILES / "google-benchmark-1.9.5.json"
    found = imported(path)
    rows = json.loads(path.read_text())["benchmarks"]
    written = [
        row["real_time"] * 1e-9
        for row in rows
        if row["run_type"] == "iteration" and row["run_name"] == "total/1000"
    ]
    assert len(written) == 3
    assert samples(found["total", "1000"], "time") == pytest.approx(written)
    assert (found["skips",].status, found["skips",].reason) == ("failed", "no device")


def test_google_benchmark_of_aggregates_alone_gives_the_median() -> None:
    path = FILES / "google-benchmark-aggregates.json"
    record = imported(path)["BM_sum", "1000"]
    rows = json.loads(path.read_text())["benchmarks"]
    (median,) = [row for row in rows if row["name"] == "BM_sum/1000_median"]
    assert samples(record, "time") == pytest.approx([median["real_time"] * 1e-9])
    assert record.metrics["time"].info["statistic"] == "median of repetitions"


def test_pytest_benchmark_keeps_every_round() -> None:
    path = FILES / "pytest-benchmark.json"
    found = imported(path)
    for row in json.loads(path.read_text())["benchmarks"]:
        name = row["fullname"].partition("[")[0]
        key = tuple(map(str, (row["params"] or {}).values()))
        (record,) = [
            each
            for (benchmark, *values), each in found.items()
            if tuple(values) == key
            and benchmark == name.replace("::", "_").replace(".", "_")
        ]
        assert samples(record, "time") == row["stats"]["data"]
        assert record.metrics["time"].value == pytest.approx(row["stats"]["median"])
        assert physics_of(record, "time") is Physics.CPU
    assert found["test_b_py_TestA_test_join", "it's"].params == {"text": "it's"}
    assert record.node["cpu"] == "AMD EPYC" and record.packages == {
        "pytest-benchmark": "5.3.1"
    }


def test_hyperfine_keeps_every_run() -> None:
    path = FILES / "hyperfine-parameters.json"
    source = read_source(path)
    rows = json.loads(path.read_text())["results"]
    assert [dict(reading.params) for reading in source.readings] == [
        {"delay": int(row["parameters"]["delay"]), "command": row["command"]}
        for row in rows
    ]
    for reading, row in zip(source.readings, rows, strict=True):
        assert reading.metrics["time"].samples == row["times"]
        assert reading.metrics["user_time"].samples == [row["user"]]
    (failed,) = read_source(FILES / "hyperfine-failed.json").readings
    assert (
        failed.failure == "ended with exit status 1 in 3 of 3 runs" and not failed.metrics
    )


def test_commands_of_hyperfine_with_and_without_parameters_lie_side_by_side(
    tmp_path: Path,
) -> None:
    files = [str(FILES / name) for name in ("hyperfine.json", "hyperfine-parameters.json")]
    done = call("import", *files, "--machine", "box", "--into", str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    declared = json.loads((tmp_path / "benchmarks.json").read_text())
    names = {name: declared[f"{name}.track_time"]["param_names"] for name in BY_HYPERFINE}
    assert names == BY_HYPERFINE


BY_HYPERFINE = {"hyperfine": ["command"], "hyperfine_delay": ["delay", "command"]}


def test_asv_keeps_its_samples_parameters_and_versions() -> None:
    path = FILES / "asv/vm/0b4486c1-existing-python.json"
    found = imported(path)
    written = json.loads(path.read_text())
    row = written["results"]["b.TimeSuite.time_sum"]
    record = found["b_TimeSuite_time_sum", "1000", "b'c"]
    assert record.params == {"n": 1000, "mode": "b'c"}
    assert samples(record, "value") == row[11][3] and record.version == row[2]
    assert record.commit == written["commit_hash"]
    assert record.environment == "existing-python"
    assert found["b_time_fails",].status == "failed"
    assert samples(found["b_peakmem_list",], "value") == [37556224.0]
    assert found["b_peakmem_list",].metrics["value"].unit == "B"
    ratio = found["b_track_ratio",].metrics["value"]
    assert (ratio.unit, ratio.samples, ratio.info) == ("1", [0.5], {"unit": "ratio"})


def test_nvbench_keeps_samples_of_its_binary_files_rates_and_skips() -> None:
    found = imported_on(FILES / "nvbench.json", "box")
    record = found["copy_sweep", "F32", "67108864", "0.5"]
    written = [0.000125, 0.000126, 0.000126, 0.000128]
    assert samples(record, "time") == [
        struct.unpack("<f", struct.pack("<f", each))[0] for each in written
    ]
    assert samples(record, "batch_time") == [0.000122]
    assert samples(record, "bytes_per_second") == [4252432000000.0]
    assert samples(record, "items_per_second") == [531554000000.0]
    assert samples(record, "copy_extra") == [0.25]
    assert record.gpu_names == ["NVIDIA H200"]
    assert physics_of(record, "batch_time") in (Physics.NEVER_THROTTLED, Physics.STREAMING)
    skipped = found["copy_sweep", "F64", "1099511627776", "0.5"]
    assert (skipped.status, skipped.reason) == ("skipped", "Out of device memory.")
    assert physics_of(found["host_only",], "cpu_only_time") is Physics.CPU


def test_nccl_tests_as_printed() -> None:
    found = imported(FILES / "nccl-tests.txt")
    record = found["all_reduce_perf", "2097152", "float", "sum", "-1", "out_of_place", "2"]
    assert samples(record, "time") == pytest.approx([33.2e-6])
    assert samples(record, "bus_bandwidth") == [63.17e9]
    assert record.metrics["time"].info["statistic"] == "mean"
    assert record.gpu_names == ["NVIDIA H100 80GB HBM3"] * 2 and record.machine == "node7"
    assert physics_of(record, "time") is Physics.HOST_CLOCK
    assert len(found) == 4


def test_nccl_tests_with_timestamps(tmp_path: Path) -> None:
    """Of `-T 1`: a column of two words at the end of each row."""
    lines = (FILES / PRINTED).read_text().splitlines()
    dated = [
        f"{line} 2026-07-10 10:00:00" if line.startswith("     ") else line
        for line in lines
    ]
    text = "\n".join(dated).replace("#wrong \n", "#wrong timestamp\n")
    (tmp_path / PRINTED).write_text(text)
    assert len(imported(tmp_path / PRINTED)) == 4


#: As versions before 2.13 print: no version, collective or root, and the largest deviation.
OLD = """\
# nThread 1 nGpus 2 minBytes 1048576 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#
# Using devices
#   Rank  0 Pid   1320 on node3 device  0 [0x18] Tesla V100-SXM2-16GB
#   Rank  1 Pid   1320 on node3 device  1 [0x2a] Tesla V100-SXM2-16GB
#
#                                                       out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144   float     sum    25.40   41.28   41.28  1e-07    25.10   41.78   41.78    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 41.53
"""  # noqa: E501


def test_nccl_tests_of_an_older_version_is_named_by_its_file(tmp_path: Path) -> None:
    path = tmp_path / "node3-all_reduce_perf.txt"
    path.write_text(OLD)
    found = imported(path)
    assert {key[0] for key in found} == {"all_reduce_perf"}
    (record,) = [each for each in found.values() if each.params["place"] == "in_place"]
    assert samples(record, "time") == pytest.approx([25.1e-6])
    assert samples(record, "bus_bandwidth") == [41.78e9]
    assert record.machine == "node3" and record.gpu_names == ["Tesla V100-SXM2-16GB"] * 2
    path.write_text(OLD.replace("values : 0 OK", "values : 3 FAILED"))
    with pytest.raises(
        HpmlError, match="3 values were wrong, it does not say in which rows"
    ):
        imported(path)
    unnamed = tmp_path / "output.txt"
    unnamed.write_text(OLD)
    with pytest.raises(
        HpmlError, match=r"name the file after it, such as all_reduce_perf\.txt"
    ):
        imported(unnamed)


def test_a_set_of_runs_of_tritonbench_tells_its_card(tmp_path: Path) -> None:
    tree = json.loads((FILES / "tritonbench.json").read_text())
    path = tmp_path / "result.json"
    path.write_text(
        json.dumps({"name": "nightly", "env": {"device": "NVIDIA H100"}, "metrics": tree})
    )
    found, plain = imported_on(path, "box"), imported_on(FILES / "tritonbench.json", "box")
    assert found.keys() == plain.keys()
    key = ("softmax_fwd", "(4096, 256)", "triton_softmax")
    assert samples(found[key], "latency") == samples(plain[key], "latency")
    assert found[key].gpu_names == ["NVIDIA H100"] and plain[key].gpu_names == []
    path.write_text(json.dumps({"env": None, "metrics": tree}))
    assert imported_on(path, "box")[key].gpu_names == []


def test_nccl_tests_as_json_keeps_iterations_and_refuses_wrong_results() -> None:
    found = imported(FILES / "nccl-tests.json")
    record = found["all_gather_perf", "1048576", "float", "none", "-1", "out_of_place", "2"]
    assert samples(record, "time") == pytest.approx([18.1e-6, 18.4e-6, 19.1e-6])
    assert samples(record, "algorithm_bandwidth") == [56.68e9]
    wrong = found["all_gather_perf", "1048576", "float", "none", "-1", "in_place", "2"]
    assert (wrong.status, wrong.reason) == ("failed", "3 wrong elements")


def test_nccl_tests_tell_how_many_ranks_there_were(tmp_path: Path) -> None:
    """The JSON names one device of each process, even if a process has two GPUs."""
    file = FILES / "nccl-tests.json"
    record, *_ = imported(file).values()
    assert record.params["ranks"] == 2 and record.gpu_names == []
    # timed on GPUs, of which the class depends
    assert physics_of(record, "time") is Physics.DERIVED
    done = call("import", str(file), "--gpu", "NVIDIA H100", "--into", str(tmp_path))
    assert done.returncode == 0
    stored = list(read_records(tmp_path))
    assert [each.gpu_names for each in stored] == [["NVIDIA H100"] * 2] * 2
    classes = [physics_of(each, "time") for each in stored if each.metrics]
    assert classes == [Physics.LATENCY]


def test_nccl_tests_iterations_that_were_skipped_are_no_samples(tmp_path: Path) -> None:
    def skip(tree: Any) -> None:
        tree["results"][0]["out_of_place_per_iter"]["skipped_iterations"] = 1

    record, *_ = imported(changed("nccl-tests.json", skip)(tmp_path)).values()
    assert samples(record, "time") == pytest.approx([18.4e-6, 19.1e-6])


def test_tritonbench_csv_and_json() -> None:
    found = imported_on(FILES / "softmax.csv", "box")
    record = found["softmax", "(4096, 256)", "triton_softmax"]
    assert samples(record, "latency") == pytest.approx([10.4e-6])
    assert samples(record, "gbps") == [806.6e9]
    assert samples(record, "speedup") == [3.0]
    assert "speedup" not in found["softmax", "(4096, 65536)", "triton_softmax"].metrics
    assert found["softmax", "(4096, 65536)", "naive_softmax"].reason == "CUDA OOM"
    # neither card nor timer is told: it is not taken for a time of the CPU
    assert physics_of(record, "latency") is Physics.DERIVED
    found = imported_on(FILES / "tritonbench.json", "box")
    record = found["softmax_fwd", "(4096, 256)", "triton_softmax"]
    assert samples(record, "tflops") == [1.5e12] and samples(record, "accuracy") == [1.0]
    assert len(found) == 2


@pytest.mark.parametrize(
    ("file", "name"),
    [("tritonbench-vector_add.json", "vector_add_fwd"), ("vector_add.csv", "vector_add")],
)
def test_tritonbench_as_it_wrote_on_a_cpu(file: str, name: str) -> None:
    """A latency is a text in its JSON, and of a rate it writes three numbers."""
    found = imported_on(FILES / file, "box")
    assert [key[:2] for key in found] == [(name, "4096"), (name, "8192")]
    record = found[name, "4096", "torch_add"]
    assert samples(record, "latency") == pytest.approx([4.296000115573406e-6])
    assert samples(record, "gbps") == pytest.approx([11.441340474321532e9])
    # three vectors of 4 B per element
    rate = 12 * 4096 / record.metrics["latency"].value
    assert record.metrics["gbps"].value == pytest.approx(rate)
    assert record.gpu_names == []


@pytest.mark.parametrize("text", ["(1, 2) is no shape of it", "0 active drivers ([])", ""])
def test_what_tritonbench_says_of_a_failure_is_no_number(text: str, tmp_path: Path) -> None:
    path = tmp_path / "op.csv"
    path.write_text(f"x_val;a-latency;b-latency\n1;0.5;{text}\n")
    found = {key[2]: record for key, record in imported_on(path, "box").items()}
    assert samples(found["a"], "latency") == [0.5e-3]
    assert [each.reason for name, each in found.items() if name == "b"] == [text][
        : len(text)
    ]


def test_nvbench_as_it_wrote_without_a_gpu() -> None:
    path = FILES / "nvbench-cpu.json"
    found = imported_on(path, "box")
    assert list(found) == [
        ("simple_no_gpu", "0.01"),
        ("simple_no_gpu", "0.02"),
        ("simple_timer", "0.01"),
    ]
    states = [
        state
        for benchmark in json.loads(path.read_text())["benchmarks"]
        for state in benchmark["states"]
    ]
    for number, (record, state) in enumerate(zip(found.values(), states, strict=True)):
        raw = (FILES / f"nvbench-cpu.json-bin/{number}.bin").read_bytes()
        written = [sample for (sample,) in struct.iter_unpack("<f", raw)]
        assert samples(record, "cpu_only_time") == written and len(written) >= 8
        told = {each["tag"]: each["data"] for each in state["summaries"]}
        (mean,) = [
            float(each["value"])
            for each in told["nv/cpu_only/time/cpu/mean"]
            if each["name"] == "value"
        ]
        assert sum(written) / len(written) == pytest.approx(mean, rel=1e-6)
        assert record.gpu_names == [] and list(record.metrics) == ["cpu_only_time"]
        assert record.packages == {"nvbench": "0.1.0"}


def imported_on(path: Path, machine: str) -> dict[tuple[str, ...], Record]:
    from dataclasses import replace

    source = replace(read_source(path), machine=machine)
    return {
        (record.benchmark, *map(str, record.params.values())): record
        for record in to_records(source, path.read_bytes())
    }


# Odd files, three or more of each format: what is read of them, or why they are refused.


def changed(file: str, change: Callable[[Any], object]) -> Callable[[Path], Path]:
    """A file with its JSON changed, or its text where `change` returns one."""

    def write(folder: Path) -> Path:
        path = folder / file
        shutil.copytree(FILES, folder, dirs_exist_ok=True)
        text = path.read_text()
        try:
            tree = json.loads(text)
        except ValueError:
            path.write_text(str(change(text)))
        else:
            change(tree)
            path.write_text(json.dumps(tree))
        return path

    return write


def first(rows: str, **fields: object) -> Callable[[Any], object]:
    return lambda tree: tree[rows][0].update(fields)


GOOGLE, PYTEST, HYPERFINE = (
    "google-benchmark.json",
    "pytest-benchmark.json",
    "hyperfine.json",
)
ASV, NVBENCH = "asv/vm/0b4486c1-existing-python.json", "nvbench.json"
PRINTED, NCCL, CSV = "nccl-tests.txt", "nccl-tests.json", "softmax.csv"
STATE = ("benchmarks", 0, "states", 0)


def at(*path: Any, **fields: object) -> Callable[[Any], object]:
    def change(tree: Any) -> None:
        for step in path:
            tree = tree[step]
        tree.update(fields)

    return change


@pytest.mark.parametrize(
    ("write", "fault"),
    [
        (changed(GOOGLE, first("benchmarks", real_time="fast")), "Expected `float`"),
        (changed(GOOGLE, first("benchmarks", time_unit="h")), "time_unit 'h' is not one of"),
        (changed(GOOGLE, first("benchmarks", run_name="///")), "no letter or digit"),
        (changed(GOOGLE, first("benchmarks", real_time=float("nan"))), "cannot be stored"),
        (changed(GOOGLE, lambda tree: tree.update(benchmarks=[])), "no result in it"),
        (changed(GOOGLE, first("benchmarks", run_name="BM-sum/1000")), "would both be 'BM_sum'"),
        (changed(PYTEST, at("benchmarks", 0, "stats", data=[-1.0])), "a sample of -1 s"),
        (changed(PYTEST, at("benchmarks", 0, "stats", median=None)), "Expected `float`"),
        (changed(PYTEST, first("benchmarks", params={"a-b": 1, "a b": 2})), "two parameters"),
        (changed(HYPERFINE, first("results", times=[1e200])), "cannot be stored"),
        (changed(HYPERFINE, first("results", exit_codes=["0"])), "Expected `int | null`"),
        (changed(HYPERFINE, lambda tree: tree.update(results=[])), "no result in it"),
        (changed(ASV, lambda tree: tree.update(params={"machine": "x"})), "no result in it"),
        (changed(ASV, lambda tree: tree.update(result_columns=3)), "no result in it"),
        (changed(ASV, lambda tree: tree.update(results=[])), "no result in it"),
        (changed(NVBENCH, at("meta", "version", "json", major=2)), "its version is not 1"),
        (changed(NVBENCH, at(*STATE, axis_values=[{"name": "N", "type": "int64", "value": "x"}])), "invalid literal"),  # noqa: E501
        (changed(NVBENCH, at(*STATE, "summaries", 8, "data", 0, value="../x.bin")), "cannot name"),
        (changed(NVBENCH, at(*STATE, "summaries", 3, "data", 0, value="nan")), "cannot be stored"),
        (changed(PRINTED, lambda text: text.replace("# Collective", "# ")), "which collective"),
        (changed(PRINTED, lambda text: text.replace("-1    25.40", "25.40")), "has 12 columns"),
        (changed(PRINTED, lambda text: text.replace(" busbw", " other")), "its columns are"),
        (changed(NCCL, first("results", out_of_place=[1])), "Expected `object"),
        (changed(NCCL, first("results", size="1 MiB")), "Expected `int`"),
        (changed(NCCL, lambda tree: tree.update(results=[])), "no result in it"),
        (changed(CSV, lambda text: text.replace(";806.6", "")), "has 5 columns, the head has 6"),
        (changed(CSV, lambda text: text.partition("\n")[0] + "\n"), "no result in it"),
        (changed(CSV, lambda text: text.replace("0.0312", "-1")), "a sample of -0.1 s"),
        (changed("tritonbench.json", lambda tree: [*map(tree.pop, list(tree)[:-1])]), "no result"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused_in_one_line_that_names_it(
    write: Callable[[Path], Path], fault: str, tmp_path: Path
) -> None:
    path = write(tmp_path)
    done = call("import", str(path), "--machine", "m", "--into", str(tmp_path / "results"))
    assert done.returncode == 2 and fault in done.stderr and path.name in done.stderr
    assert done.stderr.count("\n") == 1 and not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("write", "key", "values"),
    [
        # numbers without a dot, an unnamed range, a template and a fixture
        (
            changed(
                GOOGLE, first("benchmarks", run_name="Fixture/BM<int, 4>/8/64", real_time=1)
            ),
            ("Fixture_BM_int_4", "8", "64"),
            [1e-9],
        ),
        # a namespace's `::` is no parameter
        (
            changed(
                GOOGLE, first("benchmarks", run_name="ns::BM_x/threads:2", real_time=5.0)
            ),
            ("ns_BM_x", "2"),
            [5e-9],
        ),
        # effort is no parameter
        (
            changed(
                GOOGLE, first("benchmarks", run_name="BM/min_time:2.000", real_time=5.0)
            ),
            ("BM",),
            [5e-9],
        ),
        # without the data of rounds
        (
            changed(
                PYTEST, first("benchmarks", stats={"median": 2.0, "rounds": 9, "min": 1})
            ),
            ("test_b_py_test_sort",),
            [2.0],
        ),
        # a parameter that is no plain value
        (
            changed(
                PYTEST,
                first(
                    "benchmarks",
                    params={"x": None, "y": [1]},
                    stats={"median": 1, "rounds": 1},
                ),
            ),
            ("test_b_py_test_sort", "null", "[1]"),
            [1.0],
        ),
        # an older hyperfine, which wrote no times; and one without exit codes
        (
            changed(
                HYPERFINE,
                lambda tree: (
                    tree["results"][0].pop("times"),
                    tree["results"][0].update(mean=3.0, exit_codes=[]),
                ),
            ),
            ("hyperfine", "sleep 0.01"),
            [3.0],
        ),
        # without its binary file the median is read
        (
            changed(NVBENCH, at(*STATE, "summaries", 8, "data", 0, value="gone/0.bin")),
            ("copy_sweep", "F32", "67108864", "0.5"),
            [0.000126],
        ),
        # an older nvbench wrote no median
        (
            changed(
                NVBENCH,
                lambda tree: [
                    tree["benchmarks"][0]["states"][0]["summaries"].pop(place)
                    for place in (8, 2)
                ],
            ),
            ("copy_sweep", "F32", "67108864", "0.5"),
            [0.00012625],
        ),
        # CPU time instead of time; what is no number is left out
        (
            changed(
                NCCL,
                first(
                    "results",
                    out_of_place={"cpu_time": 2.0, "alg_bw": "nan", "bus_bw": "nan"},
                ),
            ),
            ("all_gather_perf", "1048576", "float", "none", "-1", "out_of_place", "2"),
            [18.1e-6, 18.4e-6, 19.1e-6],
        ),
    ],
)
def test_an_odd_file_is_read_for_what_it_says(
    write: Callable[[Path], Path], key: tuple[str, ...], values: list[float], tmp_path: Path
) -> None:
    assert samples(imported_on(write(tmp_path), "m")[key], "time") == pytest.approx(values)


def test_memory_of_each_run_is_read_where_hyperfine_wrote_it(tmp_path: Path) -> None:
    path = changed(HYPERFINE, first("results", memory_usage_byte=[10, 20]))(tmp_path)
    found = imported_on(path, "m")["hyperfine", "sleep 0.01"]
    assert samples(found, "memory") == [10, 20] and found.metrics["memory"].unit == "B"


def test_asv_without_its_declarations_says_what_is_missing(tmp_path: Path) -> None:
    shutil.copytree(FILES / "asv", tmp_path / "asv")
    (tmp_path / "asv/benchmarks.json").unlink()
    with pytest.raises(HpmlError, match=r"benchmarks\.json is missing"):
        read_source(tmp_path / ASV)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "not a result file of"),
        (b"{}", "not a result file of"),
        (b'{"benchmarks": []}', "not a result file of"),
        (b"\xff\xfe", "not a text file"),
        (b"[" * 100_000, "not a result file of"),
        (
            b'{"context": ' + b'{"a":' * 900 + b"1" + b"}" * 900 + b', "benchmarks": 1}',
            "Google",
        ),
    ],
)
def test_hostile_files_are_refused_in_one_line(
    tmp_path: Path, content: bytes, fault: str
) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    done = call("import", str(path), "--machine", "m", "--into", str(tmp_path / "r"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and fault in done.stderr
    assert call("import", str(tmp_path), "--into", str(tmp_path / "r")).returncode == 2


# The command.


def test_imported_results_have_a_history_and_are_read_twice_without_a_change(
    tmp_path: Path,
) -> None:
    into = tmp_path / "results"
    arguments = ("import", str(FILES / GOOGLE), "--commit", COMMIT, "--into", str(into))
    assert call(*arguments).returncode == 0
    before = {path: path.read_bytes() for path in into.rglob("*") if path.is_file()}
    again = call(*arguments)
    assert "0 files written" in again.stdout
    assert before == {path: path.read_bytes() for path in into.rglob("*") if path.is_file()}
    assert {record.commit for record in read_records(into)} == {COMMIT}
    declared = json.loads((into / "benchmarks.json").read_text())
    history = read_history(into, None, declared, {COMMIT: 1}, {}, pytest.fail)
    tracked = history.metrics["BM_sum.track_time"]
    ((outcome, value),) = tracked.line("arg0=1000", "vm")
    assert outcome.commit == COMMIT and value and value.count == 3
    # asv's own file, for its pages
    (asv,) = into.glob("vm/*-google-benchmark.json")
    assert json.loads(asv.read_text())["results"]["BM_sum.track_time"][0][0] == value.value


def test_two_machines_are_compared(tmp_path: Path) -> None:
    into = tmp_path / "results"
    slow = changed(GOOGLE, slowed)(tmp_path)
    for machine, path in (("before", FILES / GOOGLE), ("after", slow)):
        arguments = ("--machine", machine, "--commit", COMMIT, "--into", str(into))
        assert call("import", str(path), *arguments).returncode == 0
    done = call("compare", "before", "after", "--results", str(into), "--format", "csv")
    rows = [line for line in done.stdout.splitlines() if ",WORSE," in f",{line},"]
    assert done.returncode == 0 and len(rows) >= 3
    common = ("--results", str(into), "--check")
    for sides, status in (
        (("before", "after"), 1),
        (("after", "before"), 3),
    ):  # most intervals are wide
        assert call("compare", *sides, *common).returncode == status


def slowed(tree: Any) -> None:
    for row in tree["benchmarks"]:
        row["real_time"] *= 3


def test_without_a_machine_it_asks_for_one(tmp_path: Path) -> None:
    done = call("import", str(FILES / HYPERFINE), "--into", str(tmp_path / "r"))
    assert done.returncode == 2 and "--machine NAME" in done.stderr


def test_a_named_gpu_is_that_of_a_file_that_tells_none(tmp_path: Path) -> None:
    into = tmp_path / "results"
    common = ("--machine", "box", "--gpu", "NVIDIA H200", "--into", str(into))
    assert call("import", str(FILES / CSV), *common).returncode == 0
    assert {record.gpu_type for record in read_records(into)} == {"NVIDIA H200"}
    assert json.loads((into / "box/machine.json").read_text())["gpu"] == "NVIDIA H200"
    done = call("import", str(FILES / NVBENCH), *common)
    assert done.returncode == 2 and "leave out --gpu" in done.stderr


def test_another_commit_than_the_file_tells_is_refused(tmp_path: Path) -> None:
    done = call("import", str(FILES / ASV), "--commit", COMMIT, "--into", str(tmp_path))
    assert done.returncode == 2 and "it names commit 0b4486c1" in done.stderr
    done = call("import", str(FILES / ASV), "--commit", "nosuch", "--into", str(tmp_path))
    assert done.returncode == 2 and "git knows no commit 'nosuch'" in done.stderr


def test_a_benchmark_of_a_plugin_is_not_taken_over(tmp_path: Path) -> None:
    from hpml_plugins.store import declare_metric, save_declarations

    record = a_record("BM_sum", {"time": 1.0})
    append_record(record_file(tmp_path, "m", ""), record)
    ours = declare_metric(
        "BM_sum", "time", "s", "lower", version="1", param_names=[], params=[], plugin="toy"
    )
    save_declarations(tmp_path, [ours])
    done = call("import", str(FILES / GOOGLE), "--into", str(tmp_path))
    assert done.returncode == 2 and "is one of plugin 'toy'" in done.stderr


def test_one_bad_file_among_several_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{}")
    into = tmp_path / "results"
    files = (str(FILES / GOOGLE), str(tmp_path / "bad.json"))
    assert call("import", *files, "--into", str(into)).returncode == 2
    assert not into.exists()
