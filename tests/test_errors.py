from __future__ import annotations

from hpml_plugins.errors import HpmlError


def test_an_error_is_one_line_that_any_terminal_can_show() -> None:
    # what a file says is quoted: line breaks, an escape sequence, a right-to-left mark, half a
    # character
    said = str(
        HpmlError("unknown key 'a\nb\t\x1b[31m\u202e\ud800 ü 🚀'", "registry.yaml:3")
    )
    assert said == "registry.yaml:3: unknown key 'a b \\x1b[31m\\u202e\\ud800 ü 🚀'"
    assert said.encode()
