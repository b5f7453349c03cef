"""The plugin `memory`: its search, its counting by hand, its reading of a snapshot, and a point
measured on the CPU."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
from charted import picture
from hypothesis import given
from hypothesis import strategies as st
from records import a_record

from hpml_plugins import Bench, HpmlError, Node, Record, Table
from hpml_plugins.plugins.memory import MEMORY_PARTS, hpml_benchmarks, hpml_figures
from hpml_plugins.plugins.memory.charts import FIGURES, ON_CARD, card, layers, ratio
from hpml_plugins.plugins.memory.holdings import (
    Holdings,
    Recorder,
    occupied,
    saved_in_graph,
)
from hpml_plugins.plugins.memory.layers import (
    ACTIVATION,
    SHAPE,
    Stack,
    check_against_float64,
    shares,
)
from hpml_plugins.plugins.memory.search import (
    Trials,
    is_out_of_memory,
    largest_that_fits,
    set_limit,
)

# Searching


@given(limit=st.integers(0, 5000), start=st.integers(1, 5000))
def test_the_search_finds_the_last_size_that_fits_wherever_it_begins(
    limit: int, start: int
) -> None:
    found = largest_that_fits(lambda n: n <= limit, start=start)
    assert (found.largest, found.too_large) == (limit, limit + 1)
    assert len({size for size, _ in found.tries}) == len(found.tries)


def test_doubling_then_bisection_takes_few_tries() -> None:
    # 1 2 4 8 16 32 64 128 fit, 256 does not; then 192 160 144 136 132 134 133 halve 128 … 256 down
    # to 133 | 134
    tried = [size for size, _ in largest_that_fits(lambda n: n <= 133).tries]
    assert tried == [1, 2, 4, 8, 16, 32, 64, 128, 256, 192, 160, 144, 136, 132, 134, 133]


def test_what_never_fits_is_zero() -> None:
    assert largest_that_fits(lambda n: False, start=100).largest == 0


def test_what_always_fits_ends_at_the_bound() -> None:
    found = largest_that_fits(lambda n: True, most=1000)
    assert (found.largest, found.too_large) == (1000, None)


def test_a_search_over_a_fragmented_memory_ends_between_one_that_fits_and_one_that_does_not() -> (
    None
):
    fits = lambda n: n <= 100 and n % 7 != 3  # noqa: E731
    for start in range(1, 140):
        found = largest_that_fits(fits, start=start)
        assert found.too_large is not None
        assert found.largest == 0 or fits(found.largest)
        assert not fits(found.too_large)
        assert found.too_large == found.largest + 1


def test_a_tolerance_ends_the_search_early() -> None:
    exact = largest_that_fits(lambda n: n <= 7777)
    rough = largest_that_fits(lambda n: n <= 7777, tolerance=0.01)
    assert 7777 / 1.01 <= rough.largest <= 7777
    assert rough.too_large is not None and rough.too_large - rough.largest <= 77
    assert len(rough.tries) < len(exact.tries)


# Surviving


def test_out_of_memory_is_survived_and_what_the_step_held_is_let_go() -> None:
    import torch

    held: list[weakref.ref[Any]] = []
    cleaned = []

    def step() -> None:
        values = torch.ones(10)
        held.append(weakref.ref(values))
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    trials = Trials([], lambda: cleaned.append(True))
    assert not trials.survives(step)
    assert held[0]() is None
    assert trials.survives(lambda: None)
    assert (len(cleaned), trials.refusals) == (2, [])


def test_a_step_that_fails_otherwise_is_told_and_an_error_in_our_code_is_raised() -> None:
    trials = Trials([])

    def refused() -> None:
        raise RuntimeError("integer out\nof range")

    assert not trials.survives(refused)
    assert trials.refusals == ["integer out of range"]
    with pytest.raises(KeyError):
        trials.survives(lambda: {}["missing"])


def test_libraries_that_could_not_allocate_are_out_of_memory() -> None:
    assert is_out_of_memory(RuntimeError("CUDA error: out of memory"))
    assert is_out_of_memory(RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"))
    assert not is_out_of_memory(
        RuntimeError("CUDA error: an illegal memory access was encountered")
    )
    assert not is_out_of_memory(ValueError("out of memory"))


def test_a_limit_that_is_no_number_says_what_to_write(node: Node) -> None:
    with pytest.raises(
        HpmlError,
        match="limit is '16 GB'; use a number of GiB, or 'card' for all of the card",
    ):
        set_limit(Bench(node, {}), "16 GB", [0])


# Counting


def test_saved_tensors_are_counted_by_hand() -> None:
    import torch

    network = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3, bias=False),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(8, 3, bias=False),
    )
    images = torch.randn(1, 1, 4, 4)
    held, walked = Holdings(), Holdings()
    for holdings in (held, walked):
        holdings.claim("parameters", network.parameters())
        holdings.claim("data", [images])
    with held.watching():
        output = network(images)
    walked.claim("activations", saved_in_graph(output))
    # Weights: 2 · 1 · 3 · 3 + 3 · 8 = 42 numbers. The convolution's input is the image, 16 numbers.
    # ReLU's result, 1 · 2 · 2 · 2 = 8 numbers, is the linear layer's input too, through a view:
    # once.
    for holdings in (held, walked):
        assert [
            holdings.nbytes(part) for part in ("parameters", "data", "activations")
        ] == [
            4 * 42,
            4 * 16,
            4 * 8,
        ]
    assert held.nbytes("activations", "cpu") == 32
    assert held.nbytes("activations", "cuda:0") == 0


def test_the_recorder_claims_what_its_network_saves_only_while_it_is_on() -> None:
    import torch

    held = Holdings()
    recorder = Recorder(
        torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Sigmoid()), held
    )
    values = torch.randn(2, 4)
    held.claim("parameters", recorder.parameters())
    held.claim("data", [values])
    kept = [recorder(values)]
    assert held.nbytes("activations") == 0
    recorder.on = True
    kept.append(recorder(values))
    assert (
        held.nbytes("activations") == 2 * 4 * 4
    )  # the sigmoid's result, 2 × 4 numbers of 4 bytes
    assert held.nbytes("parameters") == 4 * 4 * 4


def test_a_snapshot_is_split_by_whom_each_block_belongs_to() -> None:
    def block(size: int, asked: int, state: str = "active_allocated") -> dict[str, Any]:
        return {"size": size, "requested_size": asked, "state": state}

    segments = [
        {
            "address": 1000,
            "total_size": 4096,
            "blocks": [block(512, 500), block(1536, 0, "inactive"), block(2048, 2000)],
        },
        {
            "address": 9000,
            "total_size": 1024,
            "blocks": [block(512, 12), block(512, 512, "active_awaiting_free")],
        },
    ]
    # Blocks begin at 1000, 1512, 3048; 9000, 9512.
    found = occupied(segments, {1000: "parameters", 3048: "activations", 1512: "gradients"})
    assert found.parts == {"parameters": 500, "activations": 2000, "other": 12}
    assert (found.parts.total(), found.allocated, found.reserved) == (
        2512,
        512 + 2048 + 512,
        5120,
    )
    assert found.lost == 1  # the gradient's address is in a block that nobody uses


def test_a_training_step_of_resnet18_has_its_parameters_four_times(node: Node) -> None:
    params: dict[str, Any] = {"model": "resnet18", "optimiser": "adam", "batch": 1}
    bench = Bench(node, params)
    value = MEMORY_PARTS.measure(bench, **params)
    assert set(value) == {metric.name for metric in MEMORY_PARTS.metrics}
    assert value["parameter_size"] == value["gradients"] == 11_689_512 * 4
    # Adam: two moments a parameter, and a step of 4 bytes for each of the 62 tensors of parameters
    assert value["optimiser_state"] == 2 * 46_758_048 + 62 * 4
    # 3 · 224 · 224 · 4 + 8 bytes are the image and its class; 20 batch norms keep 2 · 4800 numbers
    # and 20 counts
    assert value["other"] == 602_112 + 8 + 2 * 4800 * 4 + 20 * 8
    assert value["total"] == pytest.approx(value["parameter_size"] * value["ratio"])
    assert "saved tensors differ from those found in the graph" in bench.collected.checks


# Stacking


def test_layers_are_shared_evenly() -> None:
    assert shares(7, 2) == [4, 3]
    assert shares(6, 2) == [3, 3]
    assert shares(0, 1) == [0]


def test_a_stack_grows_and_shrinks_and_keeps_its_shape(node: Node) -> None:
    import torch

    stack = Stack(["cpu", "cpu"])
    stack.resize(9)
    assert stack.counts() == [(3, 2), (2, 2)]
    stack.resize(5)
    assert stack.counts() == [(2, 1), (1, 1)]
    images = torch.randn(1, 64, 4, 112)
    assert stack.forward(images).shape == images.shape
    bench = Bench(node, {})
    check_against_float64(bench, stack, images)
    assert bench.collected.checks == ["the layers' output differs from float64"]


def test_an_activation_of_the_stack_is_as_large_as_its_shape_says() -> None:
    # 16 · 64 · 112 · 112 numbers
    assert 4 * SHAPE[0] * SHAPE[1] * SHAPE[2] * SHAPE[3] == ACTIVATION


# Drawing


def record(benchmark: str, params: dict[str, Any], **metrics: float) -> Record:
    units = {name: "B" for name in metrics if name != "time"}
    return a_record(benchmark, metrics, units=units, params=params, machine="here")


CARD = record(
    "memory_card",
    {"model": "resnet18", "batch": 256, "gpus": 1},
    **dict.fromkeys(
        ("parameters", "gradients", "optimiser_state", "activations", "other"), 2.0**30
    ),
    working=2.0**29,
    slack=2.0**29,
    context=2.0**30,
    card=7 * 2.0**30,
    ratio=7.0,
    parameter_size=2.0**30,
)


CHARTS = {figure.name: figure for figure in FIGURES}


def test_the_bars_of_a_card_add_up_to_what_it_holds() -> None:
    (row,) = card([CARD]).rows()
    assert sum(float(row[part] or 0) for part in ON_CARD) == row["card"] == 7 * 2.0**30
    drawn = picture(CHARTS["card"], [CARD])
    assert len(drawn.marks["bar"]) == len(ON_CARD)
    assert {"here, resnet18, GPUs: 1, batch 256", "activations", "context"} <= drawn.texts


def test_the_ratio_stands_beside_the_published_ones() -> None:
    table = ratio([CARD])
    rows = {
        (row["machine"], row["model"], row["gpus"]): row["ratio"] for row in table.rows()
    }
    assert rows["here", "resnet18", 1] == 7.0
    published = "V100 SXM2, published"
    assert rows[published, "resnet18", 1] == 287.7373241
    assert rows[published, "resnet50", 2] == 147.9666531
    assert len(table) == 5
    drawn = picture(CHARTS["ratio"], table)
    assert {"here, batch 256", published} <= drawn.texts
    assert len(drawn.marks["point"]) == 5


def test_the_layers_stand_beside_the_published_ones() -> None:
    ours = record(
        "memory_layers",
        {"gpus": 1, "limit": 10.91},
        layers=221,
        conv=111,
        linear=110,
        time=0.03,
    )
    table = layers([ours])
    assert table.columns["layers"] == [221, 123, 123, 84, 116]
    assert table.columns["activations"][1] == 123 * 51_380_224
    points = picture(CHARTS["layers"], table).marks["point"]
    assert (
        sum(
            int(float(point.split("layers that fit: ")[1].split(";")[0]))
            for point in points
        )
        == 667
    )


@pytest.mark.parametrize("figure", hpml_figures(), ids=lambda figure: figure.name)
def test_a_figure_is_drawn_from_benchmarks_of_the_plugin(figure: Any) -> None:
    assert set(figure.benchmarks) <= {benchmark.name for benchmark in hpml_benchmarks()}
    assert isinstance(figure.table([]), Table)
