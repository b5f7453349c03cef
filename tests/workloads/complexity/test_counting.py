"""Counting a model: formulas held against hand arithmetic, the public names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hpml_plugins import HpmlError, build_model, count_model
from hpml_plugins.workloads.complexity import models, tracing


def test_importing_the_counting_imports_nothing_heavy() -> None:
    code = (
        "import sys, hpml_plugins.workloads.complexity;"
        "print(*{'torch', 'torchvision', 'fvcore', 'numpy', 'numba'} & set(sys.modules))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "\n"
    )


def test_products_of_batches_and_einsums_by_hand() -> None:
    assert (
        tracing.batched_product_multiply_adds([2, 3, 4], [2, 4, 5]) == 120
    )  # 2 · 3 · 4 · 5
    assert (
        tracing.einsum_multiply_adds(
            "b h i d, b h j d -> b h i j", [[2, 3, 4, 5], [2, 3, 6, 5]]
        )
        == 720
    )
    with pytest.raises(NotImplementedError):
        tracing.einsum_multiply_adds("a,b,c->abc", [[1], [2], [3]])


@pytest.mark.parametrize(
    ("equation", "shapes", "multiply_adds"),
    [
        ("...ij,...jk->...ik", [[2, 3, 4], [2, 4, 5]], 120),  # 2 · 3 · 4 · 5
        ("...ij,jk", [[7, 2, 3, 4], [4, 5]], 840),  # 7 · 2 · 3 · 4 · 5
        ("...ij,...jk->...ik", [[1, 3, 4], [2, 4, 5]], 120),  # broadcast
        ("ij,jk", [[2, 3], [3, 4]], 24),
        ("i,i", [[6], [6]], 6),
        ("i,i->", [[6], [6]], 6),
        ("i,j->ij", [[2], [3]], 0),  # products without a sum
        ("bi,bi->bi", [[2, 3], [2, 3]], 0),
        ("bij,bj->bi", [[2, 3, 4], [2, 4]], 24),
        ("ijl,jk->ik", [[2, 3, 9], [3, 4]], 24),  # l is summed over beforehand
        ("ij->ji", [[2, 3]], 0),
    ],
)
def test_an_einsum_by_hand(
    equation: str, shapes: list[list[int]], multiply_adds: int
) -> None:
    assert tracing.einsum_multiply_adds(equation, shapes) == multiply_adds


def test_attention_by_hand() -> None:
    assert tracing.attention_multiply_adds(12, 197, 197, 64, 64) == 59_610_624


def test_without_fvcore_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "fvcore"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fvcore", None)  # importing it raises ImportError
    with pytest.raises(HpmlError, match="pip install fvcore"):
        count_model("alexnet")


def test_a_model_of_ones_own_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_net.py").write_text(
        "import torch\ndef make():\n    layers = torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(),"
        " torch.nn.Flatten(), torch.nn.Linear(288, 5)\n    return torch.nn.Sequential(*layers)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    counted = count_model("own_net:make@3x8x8")
    # 8 · 6 · 6 · 3 · 9 + 288 · 5
    assert counted.total.multiply_adds == 7_776 + 1_440
    assert counted.torch_flops == counted.total.flops


def test_fvcore_is_imported_in_one_module_only() -> None:
    root = Path(tracing.__file__).parents[2]
    imports = re.compile(r"^ *(from|import) fvcore", re.MULTILINE)
    assert [path for path in root.rglob("*.py") if imports.search(path.read_text())] == [
        Path(tracing.__file__)
    ]


def test_a_model_is_counted_at_the_size_it_was_trained_for() -> None:
    assert [
        models.image_size(name) for name in ("resnet50", "inception_v3", "efficientnet_b1")
    ] == [224, 299, 240]


def test_a_count_adds_up_by_layer_by_operator_and_by_operation() -> None:
    count = count_model("alexnet")
    # 714,188,480 multiply-adds, by hand in the tests of the plugin that publishes them
    for rows in (count.layers, count.operators):
        assert sum(row.multiply_adds for row in rows.values()) == 714_188_480
        assert sum(row.bytes for row in rows.values()) == count.total.bytes
    assert sum(operation.multiply_adds for operation in count.operations) == 714_188_480
    assert count.total.flops == count.torch_flops == 2 * 714_188_480
    assert sum(count.layer_parameters.values()) == count.parameters == 61_100_840
    assert count.layer_types["classifier.6"] == "Linear"
    assert count.published_multiply_adds == pytest.approx(0.714e9)
    assert not count.has_negative


def test_a_built_model_takes_its_example() -> None:
    network, given = build_model("resnet18@3x64x64")
    assert (tuple(given.shape), network.training) == ((1, 3, 64, 64), False)
    assert tuple(network(given).shape) == (1, 1000)


def test_an_unknown_model_is_neither_built_nor_counted() -> None:
    for use in (build_model, count_model):
        with pytest.raises(
            HpmlError, match=r"no classifier 'resnet19'; did you mean 'resnet18'"
        ):
            use("resnet19")
