from hpml_softmax import bytes_moved, triton_has_a_gpu

from hpml_plugins import Node
from hpml_plugins.testing import check_plugin

CPU = Node(os="Linux", arch="x86_64", cpu="C", num_cpu=2, ram=2.0**34, python="3.12")


def test_the_bytes_by_hand():
    assert bytes_moved(2, 3) == 48  # 6 elements read, 6 written, 4 B each


def test_without_a_gpu_only_the_triton_points_are_skipped():
    assert (
        triton_has_a_gpu(CPU, {"by": "triton", "cols": 256})
        == "Triton compiles for GPUs, this node has none"
    )
    assert triton_has_a_gpu(CPU, {"by": "torch", "cols": 256}) == ""


def test_hpml_check_finds_nothing_to_fix():
    check_plugin("hpml_softmax")
