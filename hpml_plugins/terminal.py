"""Print text of any origin safely: text from a file, a plugin or another machine cannot control the
terminal or forge a line."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Sequence

#: Separates groups of three digits: a narrow no-break space, which Python does not consider
#: printable.
THIN_SPACE = "\u202f"

#: Characters that change the direction of the following text and so can disguise a name
#: (Unicode's bidirectional embeddings, overrides and isolates); literal, and as escaped in JSON.
_TURNING = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# JSON within JSON escapes the backslash
_TURNING_ESCAPED = re.compile(r"\\+u(061c|200[ef]|202[a-e]|206[6-9])", re.IGNORECASE)


def escape_direction(text: str) -> str:
    """Replace each character that changes the direction of text, literal or escaped in JSON, by its
    code: `[U+202E]`."""
    if "\\u20" in text or "\\u06" in text:
        text = _TURNING_ESCAPED.sub(lambda found: f"[U+{found[1].upper()}]", text)
    return _TURNING.sub(lambda found: f"[U+{ord(found[0]):04X}]", text)


def printable(text: str) -> str:
    """Replace each character that is not printable, including line breaks, by its Python escape
    sequence."""
    return _escape(text, THIN_SPACE, repr)


def printable_json(text: str) -> str:
    """Replace each character that is not printable by its JSON escape sequence. Line breaks between
    values are kept."""
    return _escape(text, "\n", json.dumps)


def _escape(text: str, kept: str, quote: Callable[[str], str]) -> str:
    """Escape characters that are neither printable nor kept, as `quote` does between its quotes."""
    if text.isprintable():
        return text
    shown = [
        each if each.isprintable() or each == kept else quote(each)[1:-1] for each in text
    ]
    return "".join(shown)


def one_line(text: str) -> str:
    """Replace line breaks and runs of blanks by single blanks, and make all characters
    printable."""
    return printable(" ".join(text.split()))


def cut(text: str, most: int) -> str:
    """Shorten the text to at most this many characters, the last one an ellipsis if it was cut."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def say(*lines: object, error: bool = False) -> None:
    """Print each argument as one line, whatever it contains; without arguments, an empty line.
    error: to standard error.

    Where nobody reads on (`hpml list | head`), the command continues: its exit status does not
    depend on the reader.
    """
    stream = sys.stderr if error else sys.stdout
    try:
        print("\n".join(printable(str(line)) for line in lines), file=stream, flush=True)
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


class CountedWarnings:
    """Shows each warning of something left out, and counts them.

    places: the texts of which a warning must have one to be counted; without any, all count.
    """

    def __init__(self, places: Sequence[str] = ()) -> None:
        self.count = 0
        self._places = places

    def __call__(self, text: str) -> None:
        """Show it."""
        self.count += not self._places or any(place in text for place in self._places)
        warn(text)


def warn(message: object) -> None:
    """Print a message of `hpml` to standard error."""
    say(f"hpml: {message}", error=True)


def escape_unencodable() -> None:
    """Make standard output escape the characters that its encoding lacks, as standard error
    does."""
    if hasattr(sys.stdout, "reconfigure"):  # a notebook's stream cannot
        sys.stdout.reconfigure(errors="backslashreplace")


def align(rows: Sequence[Sequence[str]], to_right: Sequence[bool] = ()) -> list[str]:
    """Format the rows as lines with aligned columns. to_right: for each column, whether to align it
    right; by default none."""
    columns = []
    for number, cells in enumerate(zip(*rows, strict=True)):
        width = max(map(len, cells))
        right = number < len(to_right) and to_right[number]
        columns.append(
            [f"{cell:>{width}}" if right else f"{cell:<{width}}" for cell in cells]
        )
    return ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]
