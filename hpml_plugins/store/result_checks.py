"""Whether what asv loaded is of the shape that asv writes. Its loader takes any; what reads the rest does not."""

from __future__ import annotations

import math
from typing import Any

from hpml_plugins.store.declarations import MAX_POINTS

#: What loading a file that is not asv's can raise.
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError)
_NUMBERS = {float, int, bool, type(None)}
#: Numbers beyond are no measurement, and no format of numbers holds them.
_LARGEST = 2**63


def check_results(result: Any) -> None:
    """Raise TypeError where asv's Results are not sound; infinite numbers become NaN, asv's word for none."""
    text = result.commit_hash, result.env_name, *result.params
    _need(isinstance(result.params, dict) and all(isinstance(each, str) for each in text))
    _need(isinstance(result.env_vars, dict) and isinstance(result._duration, dict))
    _need(_is_number(result.date))
    _need(all(_is_number(each) for name, each in result._duration.items() if name.startswith("<")))
    for name, values in result._results.items():
        params, version = result._benchmark_params[name], result._benchmark_version[name]
        _need(params is None or _is_grid(params))
        if params is None:  # which asv would multiply out
            params = result._benchmark_params[name] = []
        points = math.prod(map(len, params))
        _need(points <= MAX_POINTS and (values is None or len(values) == points))
        _need(version is None or isinstance(version, str | int))
        _need(result._started_at[name] is None or _is_number(result._started_at[name]))
        _need(result._samples[name] is None or isinstance(result._samples[name], list))
        for each in result._stats[name] or ():
            _need(set(map(type, each.values())) <= _NUMBERS and all(map(_fits, each.values())))
        if values is None:
            continue
        _need(isinstance(values, list) and set(map(type, values)) <= _NUMBERS and all(map(_fits, values)))
        if math.inf in values or -math.inf in values:  # they end asv's step detection
            values[:] = [math.nan if value in (math.inf, -math.inf) else value for value in values]


def _is_grid(params: Any) -> bool:
    return isinstance(params, list) and all(
        isinstance(values, list) and all(isinstance(value, str) for value in values) for values in params
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and _fits(value)


def _fits(value: Any) -> bool:
    return not isinstance(value, int) or -_LARGEST <= value < _LARGEST


def _need(holds: bool) -> None:
    if not holds:
        raise TypeError("it is not of the shape that asv writes")
