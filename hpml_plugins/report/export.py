"""Records as a table for other programs: one row a metric of a Record, written as Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hpml_plugins.errors import HpmlError
from hpml_plugins.model.record import Record
from hpml_plugins.model.samples import Samples

#: Column → Arrow type. A Record that was skipped or failed has one row, without a metric.
COLUMNS = {
    "benchmark": "string", "plugin": "string", "version": "string", "params": "string", "status": "string",
    "reason": "string", "metric": "string", "unit": "string", "direction": "string", "median": "float64",
    "low": "float64", "high": "float64", "samples": "list", "machine": "string", "gpu": "string", "num_gpu": "int64",
    "commit": "string", "environment": "string", "run": "string", "started": "timestamp", "duration": "float64",
    "energy": "float64", "warnings": "strings", "packages": "string", "node": "string",
}  # fmt: skip

#: Unix time, s, of the year 33658: a damaged clock may say more, and no table holds it.
LAST_MOMENT = 1e12


def rows(record: Record) -> Iterator[dict[str, Any]]:
    """The rows of one Record. low, high: the 95 % interval of the median.  params, packages, node: JSON objects."""
    gpus = record.gpus
    common = {
        "benchmark": record.benchmark,
        "plugin": record.plugin,
        "version": record.version,
        "params": json.dumps(record.params),
        "status": record.status,
        "reason": record.reason,
        "machine": record.machine,
        "gpu": " + ".join(dict.fromkeys(str(gpu.get("name")) for gpu in gpus)) or "none",
        "num_gpu": len(gpus),
        "commit": record.commit,
        "environment": record.environment,
        "run": record.run,
        "started": round(record.started * 1e6) if abs(record.started) < LAST_MOMENT else None,
        "duration": record.duration,
        "energy": record.energy,
        "warnings": record.warnings,
        "packages": json.dumps(record.packages),
        "node": json.dumps(record.node),
    }
    for name, metric in record.metrics.items():
        samples = Samples(tuple(metric.samples))
        low, high = samples.interval()
        yield common | {
            "metric": name,
            "unit": metric.unit,
            "direction": metric.direction,
            "median": samples.median,
            "low": low,
            "high": high,
            "samples": metric.samples,
        }
    if not record.metrics:
        yield common


def write_parquet(records: Iterable[Record], path: Path) -> int:
    """Write the rows of all Records; returns how many. Raises HpmlError without pyarrow, or where it cannot write."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise HpmlError("export needs pyarrow: pip install 'hpml-plugins[export]'") from None
    kinds = {
        "list": pyarrow.list_(pyarrow.float64()),
        "strings": pyarrow.list_(pyarrow.string()),
        "timestamp": pyarrow.timestamp("us", tz="UTC"),
    }
    schema = pyarrow.schema([(name, kinds.get(kind) or getattr(pyarrow, kind)()) for name, kind in COLUMNS.items()])
    found = [row for record in records for row in rows(record)]
    table = pyarrow.table({name: [row.get(name) for row in found] for name in COLUMNS}, schema=schema)
    try:
        parquet.write_table(table, path)
    except OSError as error:
        raise HpmlError(f"cannot be written: {error.strerror or error}", str(path)) from None
    return len(found)
