"""The reference: a few steps that each visit to a GPU measures first, and that tell how fast this
card is in its type.

A Record of it is a Record like any other. Comparisons of different cards use it as a covariate: one
factor per card explains most of what cards of one type differ by.
"""

from __future__ import annotations

#: The benchmark. `asv run` measures it first, also where only other benchmarks that need a GPU were
#: selected.
REFERENCE = "reference"
#: Its metrics, s: a copy of 4 GiB; a float32 product; a bfloat16 product, settled, with its boost
#: beside it.
COPY, FLOAT32, BFLOAT16 = "copy", "float32", "bfloat16"
