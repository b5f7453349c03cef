"""Numbers of the plugin kernels against float64 and by hand; test_kernels.py runs them in a process
of their own."""

from __future__ import annotations

import pytest
from older_torch import skip_without_row_scales

from hpml_plugins.plugins.kernels import gemm


@pytest.mark.parametrize("format", ["bfloat16", "fp8_tensor", "fp8_row", "int8"])
def test_products_agree_with_float64_and_their_formats_lose_what_they_must(
    format: str,
) -> None:
    import torch

    from hpml_plugins.plugins.kernels.products import operands, product

    if format == "fp8_row":
        skip_without_row_scales()
    x, w = operands(16, 256, 128, torch.bfloat16, "cpu", 0)
    wanted = product(format, x, w)
    (build,) = wanted.ways.values()
    result = build()()
    assert result.shape == (16, 256)
    assert wanted.error(result) < gemm.LARGEST_ERROR
    # relative: bfloat16 rounds the result to 8 bits, int8 and fp8 the operands to about 7 and 4
    low, high = {"bfloat16": (1e-3, 3e-3), "int8": (5e-3, 2e-2)}.get(format, (2e-2, 5e-2))
    assert low < wanted.error(result, of_format=True) < high
    assert wanted.error(result + result.abs().max() / 4) > gemm.LARGEST_ERROR
    if format == "int8":
        assert (
            list(wanted.ways) == ["torch._int_mm, 32 rows, unscaled int32"]
            and result.dtype == torch.int32
        )


def test_block_formats_keep_what_their_bits_can_hold() -> None:
    import torch

    from hpml_plugins.plugins.kernels.products import (
        from_blocks,
        quantize_blocks,
        to_blocks,
    )
    from hpml_plugins.plugins.kernels.variants import relative_error

    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(0))
    elements, scales = to_blocks("mxfp8", x)
    assert (
        elements.shape == (4, 64)
        and scales.dtype == torch.float8_e8m0fnu
        and scales.shape == (4, 2)
    )
    assert relative_error(from_blocks("mxfp8", elements, scales), x) < 0.05
    elements, scales = to_blocks("nvfp4", x)
    assert (
        elements.shape == (4, 32)
        and scales.dtype == torch.float8_e4m3fn
        and scales.shape == (4, 4)
    )
    back = from_blocks("nvfp4", elements, scales)
    assert 0.05 < relative_error(back, x) < 0.15
    # of a block, the largest number is kept to the rounding of its scale, 2**-4
    assert float((back - x).abs().max() / x.abs().max()) < 0.2
    assert (
        quantize_blocks("nvfp4", x)[1].numel() == 128 * 4
    )  # padded to a tile of the tensor cores


def test_numbers_of_block_formats_by_hand() -> None:
    import torch

    from hpml_plugins.plugins.kernels.products import from_blocks, to_blocks

    # the largest of 16 becomes 6, of 32 becomes 448 or the power of two below: here the scales are
    # 1 and 2**-6
    x = torch.tensor([[6.0, -4.0, 3.0, -0.5, *[0.0] * 12, *[7.0] * 16]])
    elements, scales = to_blocks("nvfp4", x[:, :16])
    assert scales.float().tolist() == [[1.0]]
    # codes 7, 6 with the sign, 5, 1 with the sign; the first of a byte in the lower bits
    assert elements.view(torch.uint8)[0, :3].tolist() == [
        7 | (6 | 8) << 4,
        5 | (1 | 8) << 4,
        0,
    ]
    assert torch.equal(from_blocks("nvfp4", elements, scales), x[:, :16])
    elements, scales = to_blocks("mxfp8", x)
    assert scales.view(torch.uint8).tolist() == [[127 - 6]]
    assert torch.equal(from_blocks("mxfp8", elements, scales), x)


def test_scales_lie_where_tensor_cores_look_for_them() -> None:
    import torch

    from hpml_plugins.plugins.kernels.products import interleave_scales

    rows, columns = 130, 5
    scales = (torch.arange(rows * columns) % 251).to(torch.uint8).reshape(rows, columns)
    found = interleave_scales(scales)
    assert found.numel() == 256 * 8
    for row, column in ((0, 0), (33, 2), (127, 4), (129, 3)):
        tile = (row // 128) * 2 + column // 4
        place = tile * 512 + (row % 32) * 16 + (row % 128) // 32 * 4 + column % 4
        assert found[place] == scales[row, column]


@pytest.mark.parametrize(("length", "window"), [(512, 0), (512, 200), (640, 129)])
def test_a_mask_by_blocks_is_that_of_all_pairs(length: int, window: int) -> None:
    import torch
    from torch.nn.attention.flex_attention import create_block_mask

    from hpml_plugins.plugins.kernels.flex import causal_mask

    reach = window or length
    ours = causal_mask(length, window, "cpu")
    pairs = create_block_mask(
        lambda b, h, q, k: (k <= q) & (k > q - reach),
        None,
        None,
        length,
        length,
        device="cpu",
    )
    assert torch.equal(ours.to_dense(), pairs.to_dense())
    assert int(ours.full_kv_num_blocks.sum()) == int(pairs.full_kv_num_blocks.sum())


def test_pages_hold_the_cache_and_a_paged_mask_finds_them() -> None:
    import torch

    from hpml_plugins.plugins.kernels import attention_ways as ways

    q, k, v = ways.make_inputs(3, 256, 4, 2, 16, "cpu", 0, queries=1)
    table = ways.page_table(3, 256, "cpu", 0)
    pages = [ways.to_pages(each, table) for each in (k, v)]
    assert torch.equal(ways.gather_pages(pages[0], table), k)
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    for build in ways.paged_ways(table).values():
        torch.testing.assert_close(build()(q, *pages), wanted)


def test_attention_in_float64_is_that_of_autograd() -> None:
    import torch

    from hpml_plugins.plugins.kernels.attention_ways import exact, exact_gradients

    generator = torch.Generator().manual_seed(0)
    q, g = (
        torch.randn(2, 40, 8, generator=generator, dtype=torch.float64) for _ in range(2)
    )
    k, v = (torch.randn(40, 8, generator=generator, dtype=torch.float64) for _ in range(2))
    leaves = [each.clone().requires_grad_() for each in (q, k, v)]
    keys, values = (each.expand(2, 40, 8) for each in leaves[1:])
    result = torch.nn.functional.scaled_dot_product_attention(
        leaves[0], keys, values, is_causal=True
    )
    wanted = [result, *torch.autograd.grad(result, leaves, g)]
    for ours, theirs in zip(exact_gradients(q, k, v, g, chunk=16), wanted, strict=True):
        torch.testing.assert_close(ours, theirs)
    # of a window of one key, the result is that key's value
    rows = torch.tensor([3, 39])
    torch.testing.assert_close(exact(q, k, v, 1, True, rows), v[rows].expand(2, 2, 8))
