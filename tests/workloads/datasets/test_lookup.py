from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from data_files import write_idx_files, write_image_folders

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Node, Requires
from hpml_plugins.model import why_no_data as why_missing
from hpml_plugins.node import unmet
from hpml_plugins.testing import Context, measure_point
from hpml_plugins.workloads.datasets import SOURCES
from hpml_plugins.workloads.datasets.places import cache, roots


def test_roots_are_the_named_ones_then_the_users_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HPML_DATA", f"/a:{tmp_path}/b::/a")
    assert roots() == (Path("/a"), tmp_path / "b", tmp_path / "cache/hpml/data")
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache() == Path("/home/somebody/.cache/hpml")


def test_the_first_root_that_holds_a_data_set_wins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HPML_DATA", f"{tmp_path}/empty:{tmp_path}/a:{tmp_path}/b")
    write_idx_files(tmp_path / "b/MNIST/raw")
    assert SOURCES["mnist"].path() == tmp_path / "b/MNIST/raw"
    write_idx_files(tmp_path / "a/mnist", packed=True)
    assert SOURCES["mnist"].path() == tmp_path / "a/mnist"


def test_a_half_downloaded_data_set_is_not_there(root: Path) -> None:
    write_idx_files(root / "MNIST/raw")
    (root / "MNIST/raw/t10k-labels-idx1-ubyte").unlink()
    assert SOURCES["mnist"].path() is None


def test_what_is_missing_is_told_with_the_places_and_the_mend(root: Path) -> None:
    assert (
        why_missing("cifar10-jpeg")
        == "needs data set cifar10-jpeg: no cifar10-jpeg/ with train/CLASS/*.jpg and"
        f" test/CLASS/*.jpg in {root}, {cache()}/data (hpml data add PATH/cifar10-jpeg.tar.xz;"
        " or name the folder that holds it in HPML_DATA)"
    )
    assert why_missing("cifar") == "no data set 'cifar'; did you mean 'cifar10'?"
    assert why_missing("digits") == ""


def test_a_missing_module_is_the_reason_where_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert (
        why_missing("cifar10")
        == "data set cifar10 needs module torchvision (pip install torchvision)"
    )
    assert why_missing("digits").startswith("needs data set digits: no digits.csv.gz in ")


def measure(bench: Bench, *, data: str) -> dict[str, float]:
    import torch

    # other tests have computed in the parent: the OpenMP threads of its forks are gone
    torch.set_num_threads(1)
    loaded = bench.data(data, train=20, test=10)
    return {"images": len(loaded.train)}


BENCHMARK = Benchmark(
    "counting",
    measure,
    [Metric("images", "1", "higher")],
    grid={"data": ["cifar10-jpeg", "mnist"]},
    requires=Requires(data="data"),
)


def test_a_point_is_skipped_for_the_data_set_of_its_own_parameter(
    root: Path, node: Node
) -> None:
    write_image_folders(root / "cifar10-jpeg")
    assert unmet(BENCHMARK, {"data": "cifar10-jpeg"}, node) == []
    (reason,) = unmet(BENCHMARK, {"data": "mnist"}, node)
    record = measure_point(BENCHMARK, {"data": "mnist"}, Context(node))
    assert (record.status, record.reason) == ("skipped", reason)
    assert "(hpml data get mnist; or" in reason


def test_the_record_says_which_data_were_used(root: Path, node: Node) -> None:
    write_idx_files(root / "MNIST/raw")
    record = measure_point(BENCHMARK, {"data": "mnist"}, Context(node))
    assert record.status == "ok", record.reason
    used = record.data["mnist"]
    assert str(used.pop("fingerprint")).startswith("sha256:")
    assert used == {"train": 20, "test": 10, "part": "20 + 10 by seed 0"}


def test_a_damaged_data_set_fails_the_point_in_one_line(root: Path, node: Node) -> None:
    write_idx_files(root / "MNIST/raw")
    (root / "MNIST/raw/train-images-idx3-ubyte").write_bytes(b"\0\0")
    record = measure_point(BENCHMARK, {"data": "mnist"}, Context(node))
    assert record.status == "failed"
    assert record.reason.startswith(f"data set mnist is damaged: {root}/MNIST/raw: ")
    assert "\n" not in record.reason


def test_asking_for_a_missing_data_set_without_requiring_it_skips_the_point(
    node: Node,
) -> None:
    benchmark = Benchmark(
        "b", lambda bench: bench.data("mnist"), [Metric("images", "1", "higher")]
    )
    record = measure_point(benchmark, {}, Context(node))
    assert record.status == "skipped"
    assert record.reason.startswith("needs data set mnist: ")


def test_requiring_the_data_of_a_parameter_that_is_none_is_said() -> None:
    with pytest.raises(
        HpmlError, match="Requires names parameter 'dta', which its grid lacks"
    ):
        Benchmark(
            "b",
            measure,
            BENCHMARK.metrics,
            grid=BENCHMARK.grid,
            requires=Requires(data="dta"),
        )


def test_looking_for_data_imports_nothing_heavy() -> None:
    code = (
        "import sys; from hpml_plugins import load_data; from hpml_plugins.workloads.datasets"
        " import SOURCES; SOURCES['digits'].why_missing(), SOURCES['cifar10'].why_missing();"
        " print({'torch', 'torchvision', 'numpy', 'sklearn'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("set()\n", "")


def test_the_built_in_data_sets_can_be_sent_to_ranks(root: Path) -> None:
    write_idx_files(root / "MNIST/raw")
    received = pickle.loads(pickle.dumps(SOURCES))
    assert received.keys() == SOURCES.keys()
    assert received["mnist"].path() == root / "MNIST/raw"
