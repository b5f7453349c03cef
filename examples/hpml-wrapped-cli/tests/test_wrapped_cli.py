import pytest
from hpml_wrapped_cli import parse

from hpml_plugins import HpmlError
from hpml_plugins.testing import check_plugin

#: what openssl 3.0.19 printed, stderr and stdout
PRINTED = """+DT:AES-256-GCM:1:1024
+R:684720:AES-256-GCM:1.000000
+H:1024
+F:25:AES-256-GCM:701153280.00"""


def test_what_it_printed_is_read():
    operations, size, seconds, speed = parse(PRINTED)
    assert (operations, size, seconds, speed) == (684720, 1024, 1.0, 701153280.0)
    assert operations * size / seconds == speed  # 684,720 · 1024 B in 1 s


def test_another_output_is_refused():
    with pytest.raises(HpmlError, match="something else"):
        parse("Doing sha256 for 1s: 39674 sha256's in 1.00s")


def test_hpml_check_finds_nothing_to_fix():
    check_plugin("hpml_wrapped_cli")
