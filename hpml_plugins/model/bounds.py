"""How large a value may be that is declared or stored: limits, and types by which msgspec enforces
them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

#: B of the longest name: files and folders are named after some, and a file system allows 255.
MOST_NAME = 200
#: Characters of a reason, a warning, a parameter's value; and of what a failed point printed.
MOST_TEXT, MOST_OUTPUT = 10_000, 100_000
#: Samples of a metric; and cells of a column of a series.
MOST_SAMPLES = 2_000_000
#: Entries of a mapping or a list of texts: metrics, series, columns, warnings, packages.
MOST_ENTRIES = 1_000
#: The largest number of any kind: squares of it, and sums of those, are finite.
LARGEST = 1e100
#: s; the longest duration, 31 years.
LONGEST_DURATION = 1e9
#: The largest integer: of 64 bits without a sign, as in every file format that Records are exported
#: to.
LARGEST_INTEGER = 2**64 - 1

# Bounds that msgspec holds while it decodes. JSON has no NaN and no infinity.
Text = Annotated[str, Meta(max_length=MOST_TEXT)]
Output = Annotated[str, Meta(max_length=MOST_OUTPUT)]
Number = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
#: A quantity of which there cannot be less than none.
Amount = Annotated[float, Meta(ge=0, le=LARGEST)]
Duration = Annotated[float, Meta(ge=0, le=LONGEST_DURATION)]
Rounds = Annotated[int, Meta(ge=1, le=MOST_ENTRIES)]
Texts = Annotated[list[Text], Meta(max_length=MOST_ENTRIES)]
Numbers = Annotated[list[Number], Meta(max_length=MOST_SAMPLES)]
Column = Annotated[list[Number | Text | None], Meta(max_length=MOST_SAMPLES)]
Words = Annotated[dict[Text, Text], Meta(max_length=MOST_ENTRIES)]
Facts = Annotated[dict[Text, Text | Number], Meta(max_length=MOST_ENTRIES)]
Amounts = Annotated[dict[Text, Amount], Meta(max_length=MOST_ENTRIES)]
FEW = Meta(max_length=MOST_ENTRIES)
Integer = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
if TYPE_CHECKING:
    NodeFacts = dict[str, Any]
else:  # what a node tells of itself, nested four deep: GPUs and their links
    Fact = None | bool | Integer | Number | Text
    for _ in range(4):
        Fact = (
            None
            | bool
            | Integer
            | Number
            | Text
            | Annotated[list[Fact], FEW]
            | Annotated[dict[Text, Fact], FEW]
        )
    NodeFacts = Annotated[dict[Text, Fact], FEW]
