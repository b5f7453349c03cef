"""Records as a table for other programs: one row per metric of a Record, written as Parquet."""

from __future__ import annotations

import datetime
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hpml_plugins.errors import HpmlError, needs_extra
from hpml_plugins.model.record import Record
from hpml_plugins.store import atomic_write

#: Unix time, s, of the year 9999: a damaged clock may give more, which tables cannot store.
LAST_MOMENT = 253_402_300_000

_TEXT = (
    "benchmark",
    "plugin",
    "version",
    "params",
    "status",
    "reason",
    "metric",
    "unit",
    "direction",
    "machine",
    "gpu",
    "commit",
    "environment",
    "run",
    "packages",
    "node",
)


def record_rows(record: Record) -> Iterator[dict[str, Any]]:
    """The rows of one Record; one row without a metric if it was skipped or failed.

    low, high: the 95 % interval of the value.  params, packages, node: JSON objects.
    """
    copied = (
        "benchmark",
        "plugin",
        "version",
        "status",
        "reason",
        "machine",
        "commit",
        "environment",
        "run",
        "duration",
    )
    moment = abs(record.started) < LAST_MOMENT
    common: dict[str, Any] = {name: getattr(record, name) for name in copied} | {
        "params": json.dumps(record.params),
        "gpu": record.gpu_type,
        "num_gpu": len(record.gpus),
        "started": (
            datetime.datetime.fromtimestamp(record.started, datetime.UTC)
            if moment
            else None
        ),
        "energy": record.energy,
        "warnings": record.remarks,
        "packages": json.dumps(record.packages),
        "node": json.dumps(record.node),
    }
    for name, metric in record.metrics.items():
        found = metric.estimate
        yield common | {
            "metric": name,
            "unit": metric.unit,
            "direction": metric.direction,
            "value": found.value,
            "low": found.low,
            "high": found.high,
            "samples": metric.samples,
        }
    if not record.metrics:
        yield common


def write_parquet(records: Iterable[Record], path: Path) -> int:
    """Write the rows of all Records and return their number.

    Raises UsageError without pyarrow, HpmlError if it cannot write.
    """
    with needs_extra("export"):
        import pyarrow
        from pyarrow import parquet
    columns = {name: pyarrow.string() for name in _TEXT}
    columns |= {
        name: pyarrow.float64() for name in ("value", "low", "high", "duration", "energy")
    }
    columns |= {"num_gpu": pyarrow.int64(), "started": pyarrow.timestamp("us", tz="UTC")}
    columns |= {
        "samples": pyarrow.list_(pyarrow.float64()),
        "warnings": pyarrow.list_(pyarrow.string()),
    }
    found = [row for record in records for row in record_rows(record)]
    table = pyarrow.Table.from_pylist(found, schema=pyarrow.schema(list(columns.items())))
    try:
        if path.exists() and not path.is_file():  # such as a pipe: /dev/stdout
            # pyarrow would treat a name such as `a:b` as an address
            with path.open("wb") as file:
                parquet.write_table(table, file)
        else:
            content = io.BytesIO()
            parquet.write_table(table, content)
            target = path.resolve()
            target.parent.stat()  # a missing folder is no folder to make
            atomic_write(target, content.getvalue())
    except OSError as error:
        raise HpmlError(
            f"cannot be written: {error.strerror or error}", str(path)
        ) from None
    return len(found)
