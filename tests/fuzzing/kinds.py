"""The kinds of files that come from outside, and what reads each. Seeds are made of the project's own files."""

from __future__ import annotations

from fuzzing import inputs_kinds, results_kinds, settings_kinds

KINDS = {kind.name: kind for kind in (*settings_kinds.KINDS, *results_kinds.KINDS, *inputs_kinds.KINDS)}
