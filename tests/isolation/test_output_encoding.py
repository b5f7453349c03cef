"""A process that prints what its locale cannot encode: escaped, and the reason is not lost."""

from __future__ import annotations

import os
import subprocess
import sys

CODE = r"""
from hpml_plugins.isolation import run_isolated

def fails(send):
    print("\u03c0 \u2260 3 \xb5")
    raise RuntimeError("\xe9")

outcome = run_isolated(fails, 20, lambda message: None)
print(ascii(outcome.fault), ascii(outcome.output))
"""


def test_a_locale_without_utf8_loses_no_reason() -> None:
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=env, capture_output=True, text=True, check=True
    )
    assert "exit status 1" in done.stdout
    assert r"\u03c0 \u2260 3 \xb5" in done.stdout.replace("\\\\", "\\")
    assert "RuntimeError: " in done.stdout
