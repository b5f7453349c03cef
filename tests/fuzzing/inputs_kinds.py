"""Files that a measurement reads: ncu's tables, data sets."""

from __future__ import annotations

import csv
import functools
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data_files import write_idx_files
from fuzzing.engine import Kind
from fuzzing.mutating import mutate_bytes, mutate_header, mutate_table


def _tables() -> Sequence[bytes]:
    """A table as `ncu --csv` writes it, between its other words."""
    text = io.StringIO()
    text.write("==PROF== Connected to process 1234 (/usr/bin/python3)\n")
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(
        ["ID", "Process ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"]
    )
    for number in range(3):
        writer.writerow(
            [
                number,
                1234,
                'add(float, "x")',
                "gpu__time_duration.sum",
                "nsecond",
                "1,035,200",
            ]
        )
        writer.writerow([number, 1234, 'add(float, "x")', "dram__bytes.sum", "byte", "n/a"])
    return [text.getvalue().encode()]


def _read_table(data: bytes, folder: Path) -> str:
    from hpml_plugins.workloads.ncu import parse

    kernels = parse(data.decode("utf-8", "replace").splitlines())  # as subprocess gives it
    assert all(
        math.isfinite(value) for kernel in kernels for value in kernel.counters.values()
    ), "a count is not a number"
    return "read" if kernels else "no kernels"


@functools.cache
def _idx() -> dict[str, bytes]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        for packed in (False, True):
            write_idx_files(Path(folder), packed=packed)
        return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


@functools.cache
def _idx_files() -> Sequence[bytes]:
    """Each begins with the number of the file that it is of: one of four plain, one of four
    packed."""
    return [bytes([number]) + content for number, content in enumerate(_idx().values())]


def _mutate_idx(random: Any, data: bytes) -> bytes:
    name = list(_idx())[data[0] % 8]
    if not name.endswith(".gz"):
        return data[:1] + mutate_header(random, data[1:])
    import gzip

    try:  # what is packed is changed before it is packed as often as after
        plain = gzip.decompress(data[1:]) if random.randrange(2) else b""
    except (OSError, EOFError, ValueError):
        plain = b""
    changed = (
        gzip.compress(mutate_header(random, plain), 1, mtime=0)
        if plain
        else mutate_bytes(random, data[1:])
    )
    return data[:1] + changed


def _read_idx(data: bytes, folder: Path) -> str:
    from hpml_plugins.workloads.datasets.builtin import SOURCES
    from hpml_plugins.workloads.datasets.decoding import to_data_set
    from hpml_plugins.workloads.datasets.source import read_checked

    source = SOURCES["fashion-mnist"]
    place = folder / "fashion-mnist"
    place.mkdir(exist_ok=True)
    mutated = list(_idx())[data[0] % 8] if data else ""
    packed = mutated.endswith(".gz")
    for name, content in _idx().items():
        (place / name).unlink(missing_ok=True)
        if name.endswith(".gz") == packed:
            (place / name).write_bytes(data[1:] if name == mutated else content)
    found = source.find(folder)
    assert found
    to_data_set(source.name, read_checked(source, found))
    return "read"


KINDS = (
    Kind("ncu table", _tables, mutate_table, _read_table),
    Kind("idx files", _idx_files, _mutate_idx, _read_idx),
)
