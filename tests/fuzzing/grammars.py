"""Grammars: JSON, YAML, Python expressions and texts that no library would write, around trees of
the right shape."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import yaml
from fuzzing.mutating import PLAIN, RAW, TEXTS

Grammar = Callable[[Random], bytes]

#: What steers a terminal, forges a line, leaves a folder, starts a program, opens a tag, or is no
#: character.
PIECES = (
    *(
        "\x1b[2J",
        "\x1b]0;title\x07",
        "\x9b31m",
        "\r",
        "\n",
        "\x08",
        "\x7f",
        "\0",
        "\t",
        "\x0b",
        "\x0c",
        "\x85",
        "\u2028",
    ),
    *(
        "\u2029",
        "\u202e",
        "\u2066",
        "\u200b",
        "\ufeff",
        "\ufffe",
        "\uffff",
        "\ud800",
        "\udcff",
        "\U000e0001",
        "e\u0301",
    ),
    *(
        "hpml: forged",
        "\nhpml: forged",
        "../",
        "../../x",
        "/",
        "\\",
        "~",
        "-",
        "--",
        "=1+1",
        "@SUM(1)",
        "$(id)",
        "`id`",
    ),
    *(
        "${HOME}",
        "%s",
        "{}",
        "{0.__class__}",
        "%n",
        ";",
        "&",
        "|",
        ">",
        "<",
        '"',
        "'",
        "<script>alert(1)</script>",
    ),
    *(
        "</script>",
        "</title>",
        "<!--",
        "--!>",
        "]]>",
        "<![CDATA[",
        "<meta http-equiv=refresh content=0;url=//evil>",
    ),
    *(
        '" onmouseover=alert(1) x="',
        "javascript:alert(1)",
        "data:text/html,x",
        "//evil",
        "&lt;",
        "&#0;",
        "&bomb;",
    ),
    *(
        "{{7*7}}",
        "{%x%}",
        "é",
        "漢",
        "🚀",
        "ß",
        "İ",
        "name",
        "time",
        "x",
        "1",
        " ",
        "nan",
        "inf",
        "1e999",
        "null",
        "#SBATCH",
    ),
)
NUMBERS = (
    *(
        "nan",
        "inf",
        "-inf",
        "NaN",
        "Infinity",
        "1e300",
        "1e999",
        "-1",
        "0",
        "-0",
        "0.0",
        "1",
        "2",
        "0x10",
        "1_000",
        "١",
    ),
    *(
        "9" * 400,
        "9" * 5000,
        "1" + "0" * 400,
        "0x" + "f" * 5000,
        "1e-400",
        "",
        " ",
        "1 ",
        "+1",
        "1,5",
        "1.5.2",
        "true",
    ),
    *(
        str(2**31),
        str(2**63),
        str(2**64),
        "1e9",
        "1000000001",
        "0.5",
        "3",
        "10",
        "１",
        "1e",
        "0b1",
        "None",
    ),
)


def text(random: Random, longest: int = 4) -> str:
    """A text of hostile pieces."""
    pieces = random.choices(PIECES, k=random.randint(1, longest))
    return "".join(pieces) * (
        random.choice((1, 50, 2000)) if not random.randrange(40) else 1
    )


def text_bytes(random: Random) -> bytes:
    """The same as bytes, now and then not UTF-8."""
    return text(random).encode(
        "utf-8", "surrogatepass" if random.randrange(4) else "replace"
    )


def json_of(trees: Callable[[], Sequence[bytes]]) -> Grammar:
    """JSON of the shape of given documents: hostile values, keys twice, nesting, spellings that
    json.dumps lacks."""

    def write(random: Random) -> bytes:
        return (
            _around(random, _json(random, random.choice(_parsed(trees, json.loads))))
        ).encode("utf-8", "surrogatepass")

    return write


def yaml_of(trees: Callable[[], Sequence[bytes]]) -> Grammar:
    """YAML likewise: anchors, aliases, merged keys, tags, both styles, integers and days of all
    spellings."""

    def write(random: Random) -> bytes:
        tree = random.choice(_parsed(trees, yaml.safe_load))
        if random.randrange(4):
            body = "\n".join(_Block(random).lines(tree, 0))
        else:
            body = _json(random, tree)
        head = random.choice(
            (
                "",
                "",
                "",
                "",
                "%YAML 1.2\n---\n",
                "---\n",
                "# \x1b[2J\n",
                "\ufeff",
                "%TAG ! x:\n---\n",
                "&r ",
            )
        )
        return _around(random, f"{head}{body}\n").encode("utf-8", "surrogatepass")

    return write


@functools.cache
def _parsed(
    trees: Callable[[], Sequence[bytes]], read: Callable[[bytes], Any]
) -> list[Any]:
    return [read(each) for each in trees()]


def _around(random: Random, body: str) -> str:
    """Now and then with something in front or behind."""
    if random.randrange(16):
        return body
    odd = random.choice(
        (
            "\0",
            "\ufeff",
            "\x1b",
            "}",
            "]",
            "...",
            "\n---\n",
            "null",
            "\x85",
            "\t",
            "[" * 3000,
            "{}",
            body,
        )
    )
    return random.choice(
        (odd + body, body + odd, body[: len(body) // 2] + odd + body[len(body) // 2 :])
    )


def _hostile_scalar(random: Random) -> str:
    """One value, as JSON or YAML would have it, or nearly."""
    kind = random.randrange(4)
    if kind == 0:
        return random.choice(RAW)
    if kind == 1:
        return random.choice(NUMBERS) or "''"
    if kind == 2:
        return json.dumps(random.choice(PLAIN))
    return _string(random, random.choice(TEXTS) if random.randrange(2) else text(random))


def _string(random: Random, value: str) -> str:
    """A string in quotes: escaped, or with some characters as they are."""
    if value.isascii() and not random.randrange(12):
        return '"' + "".join(f"\\u{ord(each):04x}" for each in value) + '"'
    return json.dumps(value, ensure_ascii=bool(random.randrange(2)))


def _json(random: Random, tree: Any, share: float = 0.04) -> str:
    """A tree as JSON, each place with that probability hostile."""
    if random.random() < share:
        return _hostile_scalar(random)
    if isinstance(tree, dict):
        pairs = [
            f"{_string(random, str(key))}: {_json(random, value, share)}"
            for key, value in tree.items()
        ]
        if pairs and random.random() < share:
            pairs.append(random.choice(pairs))
        if random.random() < share:
            pairs.insert(
                0, f"{_string(random, text(random, 2))}: {_hostile_scalar(random)}"
            )
        if pairs and random.random() < share:
            del pairs[random.randrange(len(pairs))]
        return "{" + ", ".join(pairs) + "}"
    if isinstance(tree, list):
        cells = [_json(random, each, share) for each in tree]
        if cells and random.random() < share:
            cells *= random.choice((0, 2, 30))
        return "[" + ", ".join(cells) + "]"
    return _string(random, tree) if isinstance(tree, str) else json.dumps(tree)


class _Block:
    """Writes a tree as YAML's block style, and remembers the anchors that it set."""

    SHARE = 0.05

    def __init__(self, random: Random) -> None:
        self.random = random
        self.anchors: list[str] = []

    def lines(self, tree: Any, depth: int) -> list[str]:
        """The lines of a tree, indented by `depth`."""
        random, blanks = self.random, " " * depth
        if isinstance(tree, dict) and tree:
            found: list[str] = []
            pairs = list(tree.items())
            if random.random() < self.SHARE:
                pairs.insert(random.randrange(len(pairs) + 1), random.choice(pairs))
            for key, value in pairs:
                found += self._entry(f"{blanks}{self._key(key)}:", value, depth)
            if random.random() < self.SHARE:
                merged = f"*{random.choice(self.anchors)}" if self.anchors else "{a: 1}"
                found.append(f"{blanks}<<: {merged}")
            return found
        if isinstance(tree, list) and tree:
            return [
                line for each in tree for line in self._entry(f"{blanks}-", each, depth)
            ]
        return [f"{blanks}{self._scalar(tree)}"]

    def _entry(self, head: str, value: Any, depth: int) -> list[str]:
        random = self.random
        if random.random() < self.SHARE:
            return [f"{head} {self._odd()}"]
        if random.random() < self.SHARE:
            self.anchors.append(name := f"a{len(self.anchors)}")
            head += f" &{name}"
        if isinstance(value, dict | list) and value:
            if random.random() < self.SHARE:
                return [f"{head} {_json(random, value)}"]
            step = 2 if random.randrange(20) else 0
            return [head, *self.lines(value, depth + step)]
        return [f"{head} {self._scalar(value)}"]

    def _odd(self) -> str:
        random = self.random
        if self.anchors and random.randrange(2):
            return f"*{random.choice(self.anchors)}"
        tag = random.choice(
            (
                "",
                "",
                "!!str ",
                "!!int ",
                "!!float ",
                "!!set ",
                "!!binary ",
                "!!timestamp ",
                "!x ",
                "!!null ",
            )
        )
        plain = random.choice(
            (
                "0x" + "f" * 5000,
                "0777",
                "12:30:45",
                "1:" + "59:" * 300 + "0",
                "2026-01-01",
                "yes",
                "~",
                "=",
                "|\n  a\n  b",
                ">",
                "[*a0, *a0]",
                "&a0 [*a0]",
                "? x",
                "'" + text(random).replace("'", "''") + "'",
                text(random),
                "- -",
                "{",
                "!!python/name:os",
            )
        )
        return tag + (plain if random.randrange(2) else _hostile_scalar(random))

    def _key(self, key: Any) -> str:
        return self._odd() if self.random.random() < self.SHARE / 2 else str(key)

    def _scalar(self, value: Any) -> str:
        if isinstance(value, str) and (
            not value.isalnum() or self.random.random() < self.SHARE
        ):
            return _string(self.random, value)
        return json.dumps(value)


#: Objects that a plugin may hand over: subclasses of plain types, and such as fail when they are
#: looked at.
class Boom(Exception):
    """What objects raise that fail."""


def _fails(self: Any, *_: Any) -> Any:
    raise Boom("\x1b[2J\nhpml: forged")


METHODS = (
    "__eq__",
    "__hash__",
    "__repr__",
    "__str__",
    "__len__",
    "__iter__",
    "__getitem__",
    "__contains__",
    "__float__",
    "__int__",
    "__index__",
    "__bool__",
    "__lt__",
    "__call__",
    "__getattribute__",
    "__format__",
    "__add__",
    "__truediv__",
    "keys",
    "items",
)


def odd(base: type, method: str, *arguments: Any) -> Any:
    """An object of a subclass in which a method fails."""
    return type("Odd", (base,), {"__hash__": base.__hash__, method: _fails})(*arguments)


BASES = {
    "object": "",
    "str": "'time'",
    "int": "3",
    "float": "1.5",
    "dict": "{'time': 1.0}",
    "list": "[1.0]",
    "tuple": "(1.0,)",
}
VALUES = (
    *(
        "None",
        "True",
        "False",
        "0",
        "1",
        "-1",
        "2",
        "3.5",
        "-0.0",
        "1e308",
        "1e-320",
        "math.nan",
        "math.inf",
        "-math.inf",
        "1j",
    ),
    *(
        "2**63",
        "2**64",
        "-2**63",
        "10**400",
        "10**5000",
        "''",
        "'time'",
        "'n'",
        "'s'",
        "'a b'",
        "'x' * 101",
        "'x' * 10**5",
    ),
    *(
        "b''",
        "b'time'",
        "bytearray(b'1')",
        "[]",
        "{}",
        "()",
        "set()",
        "frozenset({'fp8'})",
        "[None]",
        "[[]]",
        "(1, 2)",
        "(2, 1)",
    ),
    *(
        "range(3)",
        "range(10**12)",
        "iter([1])",
        "itertools.count()",
        "itertools.repeat(1)",
        "object()",
        "object",
        "len",
        "print",
    ),
    *(
        "lambda: None",
        "lambda *a, **k: None",
        "lambda a, b: ''",
        "lambda a, b: 1 / 0",
        "measure",
        "needs",
        "math",
        "numpy",
    ),
    *(
        "numpy.float64(1)",
        "numpy.float64('nan')",
        "numpy.int64(1)",
        "numpy.bool_(True)",
        "numpy.str_('a')",
        "numpy.arange(3)",
    ),
    *(
        "numpy.array(1.0)",
        "numpy.array([1.0, 2.0])",
        "numpy.array([])",
        "decimal.Decimal('1.5')",
        "decimal.Decimal('sNaN')",
    ),
    *(
        "fractions.Fraction(1, 3)",
        "datetime.date(2026, 1, 1)",
        "Size.SMALL",
        "Ellipsis",
        "NotImplemented",
        "type",
        "{1: 2}",
    ),
    *(
        "'\\ud800'",
        "'\\x1b[2J'",
        "'a\\nhpml: forged'",
        "'time\\n'",
        "'\\0'",
        "loop",
        "types.MappingProxyType({'n': [1]})",
    ),
    *(
        "[1.0] * 10**4",
        "{'n': [1, 2]}",
        "{'n': list(range(400)), 'm': list(range(400))}",
        "{'n': ['a', 1, 1.5]}",
        "{3: 1}",
    ),
    *(
        "{'n': [True, 1]}",
        "{'n': [0.0, -0.0]}",
        "{'n': [1, 1.0]}",
        "{'n': [loop]}",
        "('torch',)",
        "('../x',)",
        "('',)",
        "('a', 3)",
    ),
)


def expression(random: Random, depth: int = 2) -> str:
    """A value as a Python expression."""
    kind = random.randrange(12)
    if kind < 7 or not depth:
        return random.choice(VALUES)
    if kind == 7:
        base, method = random.choice(list(BASES)), random.choice(METHODS)
        return f"odd({base}, {method!r}{', ' if BASES[base] else ''}{BASES[base]})"
    if kind == 8:
        return repr(text(random))
    if kind == 9:
        return (
            "["
            + ", ".join(expression(random, depth - 1) for _ in range(random.randrange(4)))
            + "]"
        )
    if kind == 10:
        return (
            "("
            + "".join(
                expression(random, depth - 1) + ", " for _ in range(random.randrange(4))
            )
            + ")"
        )
    keys = [
        random.choice(
            ("'time'", "'n'", "'a'", "'ratio'", "3", "None", repr(text(random, 2)))
        )
        for _ in range(random.randrange(4))
    ]
    return "{" + ", ".join(f"{key}: {expression(random, depth - 1)}" for key in keys) + "}"


def names() -> dict[str, Any]:
    """What the expressions use."""
    import datetime
    import decimal
    import enum
    import fractions
    import itertools
    import math
    import types

    import numpy

    from hpml_plugins import (
        Benchmark,
        DataSource,
        Figure,
        GpuType,
        Metric,
        PublishedFigure,
        Requires,
        Samples,
        Table,
    )

    class Size(enum.IntEnum):
        SMALL = 1

    loop: list[Any] = []
    loop.append(loop)  # a list that holds itself

    def measure(bench: object, *, n: object = 1) -> None: ...

    def needs(node: object, point: object) -> str:
        return ""

    return {
        **{
            each.__name__: each
            for each in (
                Benchmark,
                DataSource,
                Figure,
                GpuType,
                Metric,
                PublishedFigure,
                Requires,
                Samples,
                Table,
                Size,
                datetime,
                decimal,
                fractions,
                itertools,
                math,
                numpy,
                types,
                measure,
                needs,
                odd,
            )
        },
        "loop": loop,
    }
