"""The kinds of input that come from outside, and what reads each. Seeds are made of the project's
own files."""

from __future__ import annotations

from fuzzing import (
    imports_kinds,
    inputs_kinds,
    places_kinds,
    plugins_kinds,
    results_kinds,
    settings_kinds,
    shown_kinds,
)

_ALL = (
    imports_kinds,
    settings_kinds,
    results_kinds,
    inputs_kinds,
    places_kinds,
    plugins_kinds,
    shown_kinds,
    places_kinds,
)
KINDS = {kind.name: kind for module in _ALL for kind in module.KINDS}
