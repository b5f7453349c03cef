"""Where fvcore does not import, models are counted all the same, to the same numbers, and the Record says so."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from hpml_plugins import Bench, Node, count_model
from hpml_plugins.plugins.flops.benchmark import FLOPS
from hpml_plugins.workloads.complexity import tracing

#: Plain convolutions, branches, depthwise, channels shuffled, attention, shifted windows.
MODELS = ("alexnet", "googlenet", "mobilenet_v3_small", "shufflenet_v2_x0_5", "vit_b_16", "swin_t")


def without_fvcore(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "fvcore"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fvcore", None)  # importing it raises ImportError


def held_against_fvcore(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly the same multiply-adds, whole and by layer, and parameters; the rest within a thousandth."""
    counted = count_model(model)
    with monkeypatch.context() as patch:
        without_fvcore(patch)
        again = count_model(model)
    assert counted.without_fvcore == ""
    assert "fvcore" in again.without_fvcore
    assert again.total.multiply_adds > 0
    assert again.total.flops == again.torch_flops
    assert again.parameters == counted.parameters
    assert again.total.multiply_adds == counted.total.multiply_adds
    for layer, work in counted.layers.items():
        assert again.layers[layer].multiply_adds == work.multiply_adds, layer
    for name in ("apart", "activations", "activation_bytes", "bytes"):
        assert getattr(again.total, name) == pytest.approx(getattr(counted.total, name), rel=1e-3), name


@pytest.mark.parametrize("model", MODELS)
def test_the_counts_are_those_of_fvcore(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held_against_fvcore(model, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("model", [model for model in FLOPS.grid["model"] if model not in MODELS])
def test_the_counts_of_every_classifier_are_those_of_fvcore(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held_against_fvcore(model, monkeypatch)


def test_alexnet_without_fvcore_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    without_fvcore(monkeypatch)
    count = count_model("alexnet")
    # 714,188,480 multiply-adds, by hand in the tests of the plugin that publishes them
    assert count.total.multiply_adds == count.operators["conv"].multiply_adds + count.operators["linear"].multiply_adds
    assert count.total.multiply_adds == 714_188_480


def test_the_record_names_the_counter_that_stood_in(monkeypatch: pytest.MonkeyPatch) -> None:
    without_fvcore(monkeypatch)
    bench = Bench(Node(os="", arch="", cpu="", num_cpu=1, ram=0, python="3"), {"model": "alexnet"})
    values = FLOPS.measure(bench, model="alexnet")
    assert values["multiply_adds"] == 714_188_480
    assert "for fvcore does not import: ModuleNotFoundError" in " ".join(bench.warnings)


def test_a_model_of_somebody_s_own_is_counted_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_net.py").write_text(
        "import torch\n"
        "def make():\n"
        "    layers = torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 5)\n"
        "    return torch.nn.Sequential(*layers)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    held_against_fvcore("own_net:make@3x8x8", monkeypatch)
    # 8 · 6 · 6 · 3 · 9 + 288 · 5
    assert count_model("own_net:make@3x8x8").total.multiply_adds == 7_776 + 1_440


def test_a_fault_of_the_model_is_no_lack_of_fvcore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad_net.py").write_text(
        "import torch\nclass make(torch.nn.Module):\n    def forward(self, x):\n        return self.missing(x)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(Exception, match="no attribute 'missing'"):
        count_model("bad_net:make@3x8x8")


def test_fvcore_is_asked_in_one_file_only() -> None:
    root = Path(tracing.__file__).parents[2]
    asks = re.compile(r"^ *(from|import) fvcore", re.MULTILINE)
    importing = [path for path in root.rglob("*.py") if asks.search(path.read_text())]
    assert importing == [Path(tracing.__file__)]
