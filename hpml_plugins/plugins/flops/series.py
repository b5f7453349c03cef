"""The series: what was counted by layer and by operator, as columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hpml_plugins import Work

UNITS = {
    "calls": "1",
    "multiply_adds": "MAC",
    "flops": "FLOP",
    "parameters": "1",
    "activations": "1",
    "activation_bytes": "B",
    "bytes": "B",
    "apart": "1",
}

Columns = dict[str, list[float | str]]


def layer_columns(sums: Mapping[str, Work], types: Mapping[str, str], parameters: Mapping[str, int]) -> Columns:
    """The series `layers`: modules with operations that touch data, or parameters, of their own."""
    rows = {name: row for name, row in sums.items() if row.multiply_adds or row.bytes or parameters[name]}
    return {
        "layer": list(rows),
        "type": [types[name] for name in rows],
        **_numbers(rows.values()),
        "parameters": [parameters[name] for name in rows],
    }


def operator_columns(sums: Mapping[str, Work]) -> Columns:
    """The series `operators`: those that touch data; `counted` says how: "multiply-adds", "apart", "none" or "no"."""
    rows = {name: row for name, row in sums.items() if row.bytes or not row.counted}
    return {
        "operator": list(rows),
        "counted": [_how(row) for row in rows.values()],
        "calls": [row.calls for row in rows.values()],
        **_numbers(rows.values()),
        "apart": [row.apart for row in rows.values()],
    }


def _numbers(rows: Iterable[Work]) -> Columns:
    rows = list(rows)
    return {
        "multiply_adds": [row.multiply_adds for row in rows],
        "flops": [row.flops for row in rows],
        "activations": [row.activations for row in rows],
        "activation_bytes": [row.activation_bytes for row in rows],
        "bytes": [row.bytes for row in rows],
    }


def _how(row: Work) -> str:
    if not row.counted:
        return "no"
    return "multiply-adds" if row.multiply_adds else "apart" if row.apart else "none"


def units(columns: Iterable[str]) -> dict[str, str]:
    """The units of those columns that are numbers."""
    return {column: UNITS[column] for column in columns if column in UNITS}


def formatted(numbers: Mapping[str, int], sign: str = "") -> str:
    """ "add_ ×8, relu_ ×17" """
    return ", ".join(f"{name} {sign}{number}" for name, number in sorted(numbers.items()))
