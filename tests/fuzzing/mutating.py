"""Damaging files so that they get past the first check: a change of what they say, or of their
bytes, or both.

All choices are a Random's, whose seed hypothesis or libFuzzer gives.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import yaml

#: Written into the text as they stand: no library would spell them. Deep nesting, long numbers,
#: half characters.
RAW = (
    "NaN",
    "Infinity",
    "-Infinity",
    "1e999",
    "-1e999",
    "-0",
    "1" + "0" * 400,
    "9" * 5000,
    "[" * 100_000,
    '{"a":' * 20_000,
    "[" * 60 + "]" * 60,
    "[" * 2000 + "]" * 2000,
    '"\\ud800"',
    '"\\u0000"',
    "0x10",
    "1_000",
    "!!python/object/apply:os.getcwd []",
    "!!binary aGk=",
    "&a [1]",
    "*a",
    "2026-13-45",
    "2026-02-30 25:00:00",
    ".nan",
    ".inf",
    "~",
    "? a",
    "<<: {a: 1}",
    "|",
    "%YAML 9.9",
)
TEXTS = (
    "",
    " ",
    "x",
    "../../../../outside",
    "/outside/of/it",
    "a/b",
    "a\\b",
    "<script>alert(1)</script>",
    "\x00",
    "\x1b[31mred",
    "\u202eright to left",
    "\u2028",
    "é" * 300,
    "n" * 5000,
    "None",
    "nan",
    "1e999",
    "null",
    "[1, 2",
    "'a'",
    "1" * 5000,
    "(" * 300 + ")" * 300,
    "-" * 300 + "1",
    "{}%s{0}",
    "${HOME}",
    "`id`",
    "$(id)",
    "a\nb",
    "a\r\nb",
    "a\tb",
    "🚀",
    "1.2.3",
    "v1",
    "=",
    "name",
)
PLAIN = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    255,
    10**9,
    2**31,
    2**63,
    2**64,
    -(2**63),
    10**30,
    0.0,
    -0.5,
    1e-300,
    1e308,
    float("nan"),
    float("inf"),
    [],
    {},
    [[]],
    [{}],
    {"": ""},
    {"a": {"b": {"c": [1, "2", None]}}},
)
BYTES = (
    b"\xff\xfe",
    b"\x00",
    b"\xc3\x28",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\n",
    b"\r",
    b"\t",
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"- ",
    b"#",
    b"\x85",
    b"\x1b[2J",
    b"'",
    b"e9999",
    b"%",
)

Place = tuple[Any, Any]
Mutate = Callable[[Random, bytes], bytes]


def any_value(random: Random) -> Any:
    """A value that a file of this shape would not have there."""
    kind = random.randrange(4)
    if kind == 0:
        return _raw(random.randrange(len(RAW)))
    return random.choice(TEXTS) if kind == 1 else _copy(random.choice(PLAIN))


def mutate_tree(random: Random, tree: Any) -> Any:
    """A few changes of lists and mappings: swap, delete, duplicate, replace, rename, wrap,
    splice."""
    root = [tree]
    for _ in range(1 + random.randrange(3)):
        places = list(_places(root))
        holder, key = random.choice(places)
        other, other_key = random.choice(places)
        kind = random.randrange(9)
        if kind == 0 and holder is not root:
            del holder[key]
        elif kind == 1 and isinstance(holder, list):
            holder.insert(key, _copy(holder[key]))
        elif kind == 1:
            holder[f"{key}2"] = _copy(holder[key])
        elif kind == 2:
            holder[key], other[other_key] = _copy(other[other_key]), _copy(holder[key])
        elif kind == 3 and isinstance(holder, dict):
            holder[random.choice(TEXTS)] = holder.pop(key)
        elif kind == 4:
            holder[key] = [holder[key]] if random.randrange(2) else {"a": holder[key]}
        elif kind == 5:
            holder[key] = _near(random, holder[key])
        elif kind == 6 and isinstance(holder[key], list):
            holder[key] = holder[key] * random.choice((0, 2, 50))
        elif kind == 6 and isinstance(holder[key], dict):
            holder[key][random.choice(TEXTS)] = any_value(random)
        else:
            holder[key] = any_value(random)
    return root[0]


def mutate_bytes(random: Random, data: bytes) -> bytes:
    """Truncation, flipped bytes, pieces and lines deleted, doubled or swapped, invalid UTF-8."""
    kind = random.randrange(8)
    if not data:
        return random.choice(BYTES)
    at = random.randrange(len(data))
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]
    if kind == 2:
        return data[:at] + random.choice(BYTES) + data[at:]
    end = min(len(data), at + 1 + random.randrange(64))
    if kind == 3:
        return data[:at] + data[end:]
    if kind == 4:
        return data[:end] + data[at:end] * random.choice((1, 2, 100)) + data[end:]
    if kind == 5:
        return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]
    lines = data.splitlines(keepends=True)
    one, two = random.randrange(len(lines)), random.randrange(len(lines))
    if kind == 6:
        lines[one], lines[two] = lines[two], lines[one]
    else:
        lines[one] = b"  " + lines[one] if random.randrange(2) else lines[one].lstrip()
    return b"".join(lines)


def mutate_json(random: Random, data: bytes) -> bytes:
    """A JSON document: its tree, and in one case of five its bytes too."""
    return _structured(random, data, json.loads, lambda tree: json.dumps(tree))


def mutate_yaml(random: Random, data: bytes) -> bytes:
    """A YAML document, likewise."""
    return _structured(
        random,
        data,
        yaml.safe_load,
        lambda tree: yaml.safe_dump(tree, allow_unicode=True, sort_keys=False),
    )


def mutate_table(random: Random, data: bytes) -> bytes:
    """Lines of cells in quotes: cells and columns."""
    lines = [line.split(b'","') for line in data.split(b"\n")]
    for _ in range(1 + random.randrange(3)):
        row = random.choice(lines)
        cell = random.randrange(len(row))
        kind = random.randrange(5)
        if kind == 0:
            row[cell] = str(
                random.choice((*TEXTS, *RAW[:6], -1, "1,2,3", "n/a", "1e400"))
            ).encode("utf-8", "surrogatepass")
        elif kind == 1:
            del row[cell:]
        elif kind == 2:
            row *= 2
        elif kind == 3:
            other = random.choice(lines)
            row[cell] = other[random.randrange(len(other))] if other else b""
        else:
            row[cell] = row[cell] + b'"'
        if not row:
            row.append(b"")
    changed = b"\n".join(b'","'.join(row) for row in lines)
    return changed if random.randrange(4) else mutate_bytes(random, changed)


def mutate_header(random: Random, data: bytes) -> bytes:
    """A binary file that begins with big-endian sizes: the sizes, or its bytes."""
    if random.randrange(2):
        return mutate_bytes(random, data)
    size = random.choice(
        (0, 1, 27, 2**16, 2**31 - 1, 2**31, 2**32 - 1, random.randrange(2**32))
    )
    at = 4 * random.randrange(4)
    return data[:at] + size.to_bytes(4, "big") + data[at + 4 :]


def _structured(
    random: Random, data: bytes, read: Callable[[str], Any], write: Callable[[Any], str]
) -> bytes:
    try:
        tree = read(data.decode())
        text = write(mutate_tree(random, tree))
    # Bytes that an earlier change spoilt; dates and integers of thousands of digits that one made.
    except (
        ValueError,
        TypeError,
        ArithmeticError,
        LookupError,
        AttributeError,
        RecursionError,
        yaml.YAMLError,
    ):
        return mutate_bytes(random, data)
    whole = re.sub(r"(['\"]?)@raw(\d+)@\1", lambda found: RAW[int(found[2])], text).encode(
        "utf-8", "surrogatepass"
    )
    return whole if random.randrange(5) else mutate_bytes(random, whole)


def _raw(number: int) -> str:
    return f"@raw{number}@"


def _places(holder: Any) -> Iterator[Place]:
    for key in range(len(holder)) if isinstance(holder, list) else list(holder):
        yield holder, key
        if isinstance(holder[key], list | dict):
            yield from _places(holder[key])


def _near(random: Random, value: Any) -> Any:
    """A value that differs little, so that only a careful reader minds."""
    if isinstance(value, bool) or value is None:
        return random.choice((0, 1, "yes", None))
    if isinstance(value, int | float):
        return random.choice(
            (
                -value,
                value + 0.5,
                value * 10**6,
                str(value),
                0,
                float("nan"),
                float("inf"),
                [value],
            )
        )
    if isinstance(value, str):
        return random.choice(
            (
                value.upper(),
                value[:-1],
                value + "x",
                value * 100,
                value + "\u0301",
                [value],
                "../" + value,
            )
        )
    return type(value)()


def _copy(value: Any) -> Any:
    # Deep: a place that is there twice would make YAML's aliases, and a swap with its own child a
    # ring.
    if isinstance(value, list):
        return [_copy(each) for each in value]
    if isinstance(value, dict):
        return {key: _copy(each) for key, each in value.items()}
    return value
