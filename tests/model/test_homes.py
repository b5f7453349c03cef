"""Home folders in texts: which are replaced, and what looking for them costs."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable

from hpml_plugins.model.validation import hide_homes

#: What is replaced, told as one says it: nothing of a path stands before the folder.
PLAIN = re.compile(r"(?<![\w.~-])/(?:root|(?:home|Users)/[^/\s\"'\\:]+)(?=/)")
PARTS = ("/", "/root", "/home", "/Users/ann", "/bo", "c", ".", "~", "-", " ", "é", '"')


def test_homes_are_replaced_wherever_they_begin() -> None:
    for parts in itertools.product(PARTS, repeat=4):
        text = "".join(parts)
        assert hide_homes(text) == PLAIN.sub("~", text)


def test_a_text_without_homes_costs_little() -> None:
    text = "<td>a page, 12.5 µs, of 1 Record at ab12cd34;\n" * 50_000

    def seconds(hide: Callable[[str], str]) -> float:
        started = time.process_time()
        assert hide(text) == text
        return time.process_time() - started

    plain = min(seconds(lambda told: PLAIN.sub("~", told)) for _ in range(3))
    assert min(seconds(hide_homes) for _ in range(3)) < plain / 3
