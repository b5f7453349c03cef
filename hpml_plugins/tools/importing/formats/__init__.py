"""One module per format: `read(path, text, found)` returns a Source, or None for another format.

text: the file.  found: its parsed JSON, None if it is not JSON. Raises HpmlError or
msgspec.ValidationError for a damaged file that has the format's marks.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from hpml_plugins.errors import HpmlError
from hpml_plugins.tools.importing.formats import (
    asv,
    google_benchmark,
    hyperfine,
    nccl_tests,
    nvbench,
    pytest_benchmark,
    tritonbench,
)
from hpml_plugins.tools.importing.reading import Source, parse_json, read_text

FORMATS = {
    "Google Benchmark": google_benchmark.read,
    "pytest-benchmark": pytest_benchmark.read,
    "hyperfine": hyperfine.read,
    "nvbench": nvbench.read,
    "nccl-tests": nccl_tests.read,
    "asv": asv.read,
    "tritonbench": tritonbench.read,
}


def read_source(path: Path) -> Source:
    """The contents of a result file. Raises HpmlError, with the file's name, if it has no known
    format or is damaged."""
    text = read_text(path)
    found = parse_json(text)
    for name, read in FORMATS.items():
        try:
            source = read(path, text, found)
        except HpmlError as error:
            raise HpmlError(f"{name}: {error}", str(path)) from None
        except (msgspec.ValidationError, ValueError, OverflowError) as error:
            raise HpmlError(f"not as {name} writes it: {error}", str(path)) from None
        if source is None:
            continue
        if not source.readings:
            raise HpmlError(f"{name}: no result in it", str(path))
        return source
    known = ", ".join(FORMATS)
    raise HpmlError(
        f"not a result file of: {known}; export JSON if the tool can", str(path)
    )
