from __future__ import annotations

import pytest

from hpml_plugins.errors import HpmlError, nearest, raise_interrupt


def test_an_error_is_one_line_that_any_terminal_can_show() -> None:
    # what a file says is quoted: line breaks, an escape sequence, a right-to-left mark, half a
    # character
    said = str(
        HpmlError("unknown key 'a\nb\t\x1b[31m\u202e\ud800 ü 🚀'", "registry.yaml:3")
    )
    assert said == "registry.yaml:3: unknown key 'a b \\x1b[31m\\u202e\\ud800 ü 🚀'"
    assert said.encode()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("h201-x1", "did you mean 'h200-x1'?"),
        ("H100", "did you mean 'h100-80gb-hbm3-x1' or 'h100-80gb-hbm3-x2'?"),
        ("x", "known: h100-80gb-hbm3-x1, h100-80gb-hbm3-x2, h200-x1, cpu-intel-xeon-x2"),
        ("a100", "known: h100-80gb-hbm3-x1, h100-80gb-hbm3-x2, h200-x1, cpu-intel-xeon-x2"),
        ("", "known: h100-80gb-hbm3-x1, h100-80gb-hbm3-x2, h200-x1, cpu-intel-xeon-x2"),
    ],
)
def test_the_nearest_name_is_one_that_looks_alike_or_contains_it(
    name: str, told: str
) -> None:
    machines = ["h100-80gb-hbm3-x1", "h100-80gb-hbm3-x2", "h200-x1", "cpu-intel-xeon-x2"]
    assert nearest(name, machines) == told


def test_what_asv_makes_of_ctrl_c_is_raised_as_an_interrupt() -> None:
    def as_asv() -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise ValueError("Interrupted.")  # noqa: B904  # as asv does

    with pytest.raises(ValueError, match="Interrupted") as caught:
        as_asv()
    with pytest.raises(KeyboardInterrupt):
        raise_interrupt(caught.value)
    raise_interrupt(ValueError("another"))
