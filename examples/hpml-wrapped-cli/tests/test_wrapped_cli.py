import pytest
from hpml_wrapped_cli import OUTPUTS

from hpml_plugins import HpmlError
from hpml_plugins.testing import check_plugin

#: what openssl 3.0.19 printed on standard error and output
ERRORS = "+DT:AES-256-GCM:1:1024\n+R:684720:AES-256-GCM:1.000000\n"
PRINTED = "+H:1024\n+F:25:AES-256-GCM:701153280.00\n"


def test_what_it_printed_is_read():
    run = {name: output.read(PRINTED, ERRORS) for name, output in OUTPUTS.items()}
    assert run == {"throughput": 701153280.0, "operations": 684720, "seconds": 1.0}
    assert (
        run["operations"] * 1024 / run["seconds"] == run["throughput"]
    )  # 684,720 · 1024 B in 1 s


def test_another_output_is_refused():
    with pytest.raises(HpmlError, match='finds no number in its output: "Doing sha256'):
        OUTPUTS["throughput"].read("Doing sha256 for 1s: 39674 sha256's in 1.00s")


def test_hpml_check_finds_nothing_to_fix():
    check_plugin("hpml_wrapped_cli")
