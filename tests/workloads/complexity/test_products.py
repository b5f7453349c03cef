"""Every sum of products is counted, the hand calculation beside the number, or the model is
refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hpml_plugins import HpmlError, Node, build_model, count_model
from hpml_plugins.plugins.flops import FLOPS
from hpml_plugins.testing import Context, measure_point

NETS = '''
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import rnn
from torch.utils.flop_counter import register_flop_formula
from torchvision.ops import DeformConv2d, roi_align

class Function(nn.Module):
    """A function of the input and of parameters of these shapes."""
    def __init__(self, function, *shapes, dtype=torch.float32):
        super().__init__()
        self.function = function
        self.weights = nn.ParameterList(
            nn.Parameter(torch.ones(shape, dtype=dtype)) for shape in shapes
        )
    def forward(self, *inputs):
        return self.function(*inputs, *self.weights)

class Output(nn.Module):
    """The first result of a recurrent layer."""
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
    def forward(self, *inputs):
        return self.layer(*inputs)[0]

class Packed(Output):
    def forward(self, x):
        sequence = rnn.pack_padded_sequence(x, [3, 2], batch_first=True, enforce_sorted=True)
        return self.layer(sequence)[0].data

class LstmHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.LSTM(16, 24, batch_first=True)
        self.head = nn.Linear(24, 10)
    def forward(self, x):
        return self.head(self.layer(x)[0][:, -1])

class Dead(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 64)
    def forward(self, x):
        self.b(x).relu()
        x @ self.a.weight
        return {"scores": [self.a(x)]}

class Deformable(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = DeformConv2d(4, 6, 3, groups=2)
    def forward(self, x):
        return self.layer(x, x.new_zeros(1, 18, x.shape[2] - 2, x.shape[3] - 2))

class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        return x @ w
    @staticmethod
    def backward(ctx, grad):
        return grad, grad

@torch.library.custom_op("hpmltest::known", mutates_args=())
def known(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b

@torch.library.custom_op("hpmltest::unknown", mutates_args=())
def unknown(a: torch.Tensor) -> torch.Tensor:
    return a * 2

if torch.ops.hpmltest.known not in torch.utils.flop_counter.flop_registry:
    @register_flop_formula(torch.ops.hpmltest.known)
    def known_flop(a, b, *args, out_shape=None, **kwargs):
        return 2 * a[0] * a[1] * b[1]

ops = torch.ops.hpmltest
def lstm(): return Output(nn.LSTM(16, 24, num_layers=2, bidirectional=True, batch_first=True))
def lstm_head(): return LstmHead()
def projected(): return Output(nn.LSTM(16, 24, proj_size=8, batch_first=True))
def gru(): return Output(nn.GRU(16, 24, batch_first=True))
def tanh(): return Output(nn.RNN(16, 24, batch_first=True))
def relu(): return Output(nn.RNN(16, 24, nonlinearity="relu", batch_first=True, bias=False))
def lstm_cell(): return Output(nn.LSTMCell(16, 24))
def gru_cell(): return nn.GRUCell(16, 24)
def rnn_cell(): return nn.RNNCell(16, 24)
def packed(): return Packed(nn.GRU(16, 24, batch_first=True)), (torch.zeros(2, 3, 16),)
def bilinear(): return nn.Bilinear(3, 4, 5)
def deformable(): return Deformable()
def same(): return nn.Conv2d(16, 16, 3, padding="same")
def same_1d(): return nn.Conv1d(4, 6, 3, padding="same", groups=2)
def valid(): return nn.Conv3d(2, 3, 3, padding="valid")
def transposed(): return nn.ConvTranspose2d(2, 6, 3, groups=2)
def reflected(): return nn.Conv2d(2, 3, 3, padding="same", padding_mode="reflect")
def tbc(): return Function(lambda x, w, b: torch.conv_tbc(x.transpose(0, 1), w, b), (3, 4, 5), (5,))
def matrix_vector(): return Function(lambda x, w: x @ w, (8,))
def dot(): return Function(lambda x, w: x[0] @ w, (8,))
def vdot(): return Function(lambda x, w: torch.vdot(x[0], w), (8,))
def addmv(): return Function(lambda x, w, b: torch.addmv(b, x[0], w), (8,), (3,))
def addmm(): return Function(lambda x, w, b: torch.addmm(b, x[0], w), (8, 5), (5,))
def addbmm(): return Function(lambda x, w, b: torch.addbmm(b, x, w), (2, 8, 5), (3, 5))
def addbmm_input(): return addbmm(), (torch.zeros(2, 3, 8),)
def broadcast(): return Function(lambda x, w: x[0] @ w, (2, 8, 5))
def inner(): return Function(lambda x, w: torch.inner(x[0], w), (2, 8))
def tensordot(): return Function(lambda x, w: torch.tensordot(x[0], w, 2), (3, 8, 5))
def euclidean(): return Function(torch.cdist, (1, 5, 3))
def euclidean_large(): return Function(torch.cdist, (1, 40, 3))
def manhattan(): return Function(lambda x, w: torch.cdist(x, w @ w.new_ones(3, 3), 1), (1, 5, 3))
def complex_product(): return Function(lambda x, w: x @ w, (8, 5), dtype=torch.complex64)
def complex_vector(): return Function(lambda x, w: x @ w, (8,), dtype=torch.complex64)
def complex_conv(): return nn.Conv1d(2, 3, 3).to(torch.complex64)
def weighted_bag():
    return Function(
        lambda i, t, w: functional.embedding_bag(i, t, per_sample_weights=w, mode="sum"),
        (10, 4), (1, 3),
    )
def einsum(): return Function(lambda x, w: torch.einsum("...ij,jk->...ik", x, w), (8, 5))
def dead(): return Dead()
def registered(): return Function(lambda x, w: ops.known(x, w), (16, 8))
def two(): return Function(lambda x, y, w: x @ w + y.float().mean(), (16, 8))
def mha(): return Output(nn.MultiheadAttention(8, 2)), (torch.zeros(3, 1, 8),) * 3
def attention():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return layer

def plus(function): return Function(lambda x, w: function(x) + (x @ w).sum(), (8, 8))
def solve(): return plus(lambda x: torch.linalg.solve(x + torch.eye(8), x).sum())
def inverse(): return plus(torch.linalg.pinv)
def fourier(): return plus(lambda x: torch.fft.rfft(x).abs().sum())
def unregistered(): return plus(ops.unknown)
def exponential(): return plus(torch.linalg.matrix_exp)
def pairs(): return plus(lambda x: torch.pdist(x[0]).sum())
def three(): return plus(lambda x: torch.einsum("bij,jk,kl->bil", x, x[0], x[0]).sum())
def chain(): return plus(lambda x: torch.linalg.multi_dot([x[0], x[0], x[0]]).sum())
def own_function(): return Function(lambda x, w: Square.apply(x, w) @ w, (8, 8))
def regions():
    return plus(lambda x: roi_align(x[None], [x.new_zeros(1, 4)], 2).sum())
'''

COUNTED = {
    # each weight in each of 10 steps: two layers of two directions, four gates of 24; the second
    # layer has both directions, 48, as input: 10 · 2 · (96 · (16 + 24) + 96 · (48 + 24))
    "lstm@10x16": 215_040,
    # 10 · 96 · (16 + 24) + 24 · 10
    "lstm_head@10x16": 38_640,
    # 8 hidden values come back, after a projection of 24 to 8: 10 · (96 · (16 + 8) + 8 · 24)
    "projected@10x16": 24_960,
    "gru@10x16": 28_800,  # three gates: 10 · 72 · (16 + 24)
    "tanh@10x16": 9_600,  # 10 · 24 · (16 + 24)
    "relu@10x16": 9_600,
    "lstm_cell@16": 3_840,  # 96 · (16 + 24)
    "gru_cell@16": 2_880,
    "rnn_cell@16": 960,
    "packed": 14_400,  # sequences of 3 and 2: 5 · 72 · (16 + 24)
    "bilinear@3,4": 60,  # 5 · 3 · 4
    "deformable@4x8x8": 3_888,  # 6 · 6 · 6 · (4 / 2) · 9
    "same@16x8x8": 147_456,  # 16 · 8 · 8 · 16 · 9
    "same_1d@4x10": 360,  # 6 · 10 · (4 / 2) · 3
    "valid@2x5x5x5": 4_374,  # 3 · 3³ · 2 · 27
    "transposed@2x4x4": 864,  # 2 · 4 · 4 · (6 / 2) · 9
    "reflected@2x8x8": 3_456,  # 3 · 8 · 8 · 2 · 9
    "tbc@7x4": 300,  # 5 long · 5 · 3 · 4
    "matrix_vector@3x8": 24,
    "dot@8": 8,
    "vdot@8": 8,
    "addmv@3x8": 24,
    "addmm@3x8": 120,  # 3 · 8 · 5
    "addbmm_input": 240,  # 2 · 3 · 8 · 5
    "broadcast@3x8": 240,  # 2 · 3 · 8 · 5
    "inner@3x8": 48,  # 3 · 2 · 8
    "tensordot@6x3x8": 720,  # 6 · 5 · 3 · 8
    "euclidean@7x3": 105,  # 7 · 5 · 3
    "euclidean_large@30x3": 3_600,  # 30 · 40 · 3, which torch computes by a matrix product
    "manhattan@7x3": 45,  # the product in it alone: 5 · 3 · 3
    "complex_product@complex64:3x8": 480,  # 4 · 3 · 8 · 5
    "complex_vector@complex64:3x8": 96,  # 4 · 3 · 8
    # torch computes it by three of real numbers: 3 · (3 · 8 · 2 · 3)
    "complex_conv@complex64:2x10": 432,
    "weighted_bag@int64:3": 12,  # 3 rows of 4
    "einsum@2x3x8": 240,  # 2 · 3 · 8 · 5
    "dead@16": 1_536,  # 16 · 16 + 16 · 64 + 16 · 16, of which the last is returned
    "registered@16": 128,
    "two@16,int64:4": 128,
    # of 3 tokens: 3 · 8 · 24, scores and values 2 · 3 · 3 · (4 + 4), 3 · 8 · 8
    "mha": 912,
    # of 3 tokens: as above, and 3 · 8 · 16 twice
    "attention@3x8": 1_680,
}

REFUSED = {
    "solve@8x8": "solve",
    "inverse@8x8": "aten::linalg_pinv ×1",
    "fourier@8x8": "_fft_r2c ×1",
    "unregistered@8x8": "hpmltest::unknown ×1",
    "exponential@8x8": "linalg_matrix_exp ×1",
    "pairs@8x8": "_pdist_forward ×1",
    "three@8x8": "without a formula: einsum, sum",
    "chain@8x8": "without a formula: linalg_multi_dot, sum",
    "own_function@8": "without a formula: prim::PythonOp.Square",
}


@pytest.fixture(autouse=True)
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "product_nets.py").write_text(NETS)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.parametrize("model", COUNTED)
def test_multiply_adds_by_hand(model: str) -> None:
    counted = count_model(f"product_nets:{model}")
    assert counted.total.multiply_adds == COUNTED[model]
    assert counted.total.flops == counted.torch_flops == 2 * COUNTED[model]


@pytest.mark.parametrize("model", REFUSED)
def test_what_may_multiply_and_has_no_formula_refuses_the_model_by_name(model: str) -> None:
    with pytest.raises(HpmlError, match=re.escape(REFUSED[model])) as raised:
        count_model(f"product_nets:{model}")
    assert "\n" not in str(raised.value)


def test_it_fails_the_point_and_no_other(node: Node) -> None:
    record = measure_point(FLOPS, {"model": "product_nets:unregistered@8x8"}, Context(node))
    assert record.status == "failed"
    assert "no formula for hpmltest::unknown ×1, which may multiply" in record.reason
    assert "register_flop_formula" in record.reason
    kept = measure_point(FLOPS, {"model": "product_nets:lstm@10x16"}, Context(node))
    assert (kept.status, kept.value("flops")) == ("ok", 430_080)


def test_what_has_no_products_and_no_formula_is_listed() -> None:
    assert count_model("product_nets:dead@16").uncounted == {"relu": 1}
    assert count_model("product_nets:manhattan@7x3").uncounted == {}
    assert count_model("product_nets:regions@1x8x8").uncounted.keys() >= {
        "torchvision::roi_align"
    }


def test_a_counted_model_is_as_it_was() -> None:
    network, inputs = build_model("product_nets:two@16,int64:4")
    before = type(network).forward
    assert [tuple(each.shape) for each in inputs] == [(1, 16), (1, 4)]
    assert network.forward.__func__ is before


def test_a_convolution_of_any_padding_is_one(node: Node) -> None:
    record = measure_point(FLOPS, {"model": "product_nets:same@16x8x8"}, Context(node))
    assert (record.reason, record.value("convolution_share")) == ("", 1.0)
    deformable = measure_point(
        FLOPS, {"model": "product_nets:deformable@4x8x8"}, Context(node)
    )
    assert deformable.value("convolution_share") == 1.0
