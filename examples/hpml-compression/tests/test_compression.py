import pytest
from hpml_compression import WORDS, make_text

from hpml_plugins.testing import check_plugin


def test_a_text_has_its_size_and_is_that_of_its_seed():
    text = make_text(64, 1)
    assert len(text) == 64 * 1024
    assert text == make_text(64, 1) != make_text(64, 2)
    assert set(text.decode().split()[:-1]) == set(WORDS)


@pytest.mark.parametrize("codec", ["zlib", "bz2", "lzma"])
def test_a_text_is_compressed_to_less_than_a_quarter(codec):
    library = pytest.importorskip(codec)
    assert len(library.compress(make_text(64, 0))) < 16 * 1024


def test_hpml_check_finds_nothing_to_fix():
    check_plugin("hpml_compression")
