"""The benchmark name of a test, and the point of its parameters."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Characters of a test's name and of its digest: together they are shorter than the longest name of
#: a benchmark.
LONGEST_SLUG = 80
DIGEST = 8
#: The form of tests whose benchmark names are unique without a digest.
_PLAIN = re.compile(r"tests/test_([a-z][a-z0-9]*)\.py::test_([a-z0-9]+(?:_[a-z0-9]+)*)")
_ADDRESS = re.compile(r"\bat 0x[0-9a-f]{4,}")


@dataclass(frozen=True)
class TestName:
    """A test as pytest names it.

    function: path and names, `tests/test_sort.py::TestLists::test_long`.  id: of its parameters,
    `10-quick`; empty without any.  params: name → value.  ids: of each `parametrize`, in the order
    of `params`.
    """

    __test__ = False

    function: str
    id: str = ""
    params: Mapping[str, object] = field(default_factory=dict)
    ids: Sequence[str] = ()

    @classmethod
    def of(cls, node: Any) -> TestName:
        """The name of a test collected by pytest."""
        callspec = getattr(node, "callspec", None)
        if callspec is None:
            return cls(node.nodeid)
        # pytest's own list has no public name; without it, the whole id distinguishes parameters
        ids = tuple(getattr(callspec, "_idlist", ()))
        function = node.nodeid.removesuffix(f"[{callspec.id}]")
        return cls(function, callspec.id, dict(callspec.params), ids)

    @property
    def nodeid(self) -> str:
        """The name as pytest prints it."""
        return f"{self.function}[{self.id}]" if self.id else self.function

    @property
    def benchmark(self) -> str:
        """`tests/test_sorting.py::test_long` becomes `sorting_long`; no other test does.

        Folders, classes, capitals, letters beyond ASCII and underscores in the file's name could
        give two tests the same name. A test with any of these gets a digest of its whole name at
        the end.
        """
        if plain := _PLAIN.fullmatch(self.function):
            name = f"{plain[1]}_{plain[2]}"
            if len(name) <= LONGEST_SLUG:
                return name
        words = re.findall(r"[a-z0-9]+", self.function.lower().replace(".py::", "::"))
        slug = "_".join(word for word in words if word not in ("test", "tests"))[
            :LONGEST_SLUG
        ]
        slug = slug.strip("_")
        readable = slug if slug[:1].isalpha() else f"test_{slug}".strip("_")
        digest = hashlib.sha256(self.function.encode(errors="surrogateescape")).hexdigest()
        # two underscores, as in no name without a digest
        return f"{readable}__{digest[:DIGEST]}"

    @property
    def point(self) -> dict[str, Any]:
        """The parameters as a point: plain values as they are, pytest's id for other objects.

        The parameter `id` is added if these do not identify the point: values with their own ids,
        and objects that share a `parametrize` with other arguments.
        """
        known = self.ids if len(self.ids) == len(self.params) else ()
        own_ids = dict(zip(self.params, known, strict=False))
        values: dict[str, Any] = {}
        for name, value in self.params.items():
            if _is_plain(value):
                values[name] = value
            elif name in own_ids:
                values[name] = own_ids[name]
        if self.id and "-".join(map(str, values.values())) != self.id:
            key = "id"
            while key in self.params:
                key += "_"
            values[key] = self.id
        return values

    @property
    def is_unstable(self) -> bool:
        """Whether the point has a memory address, which changes with every run."""
        return any(
            isinstance(value, str) and _ADDRESS.search(value)
            for value in self.point.values()
        )


def _is_plain(value: object) -> bool:
    """Whether a Record can store the value unchanged. False for a derived type, such as an enum."""
    if type(value) is float:
        return math.isfinite(value)
    if type(value) is int:
        return abs(value) < 2**63
    return type(value) in (str, bool)
