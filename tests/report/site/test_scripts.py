"""The scripts of the site: few, in one dialect, and typed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from support import ROOT, unavailable

from hpml_plugins.report.site.asv_page import STATIC

TSC = ROOT / ".tools" / "typescript" / "lib" / "tsc.js"
OPTIONS = (
    *("--noEmit", "--allowJs", "--checkJs", "--strict"),
    *("--target", "es2022", "--lib", "es2023,dom,dom.iterable"),
)
SCRIPTS = sorted(STATIC.glob("*.js"))


def check(*files: Path) -> str:
    """What the compiler says of these files, "" for nothing."""
    node = shutil.which("node")
    if node is None:
        unavailable("no node: apt-get install nodejs")
    if not TSC.is_file():
        unavailable(f"no TypeScript in {TSC.parents[1]}: sh tests/get-tools.sh fetches it")
    known = Path(__file__).with_name("globals.d.ts")
    command = [str(node), str(TSC), *OPTIONS, str(known), *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def test_every_script_has_the_types_that_it_says() -> None:
    assert check(*SCRIPTS) == ""


def test_a_wrong_type_is_found(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.js"
    wrong.write_text(
        "hpml.read(7).then(() => {});\nfunction twice(number) { return 2 * number; }\n"
    )
    said = check(wrong)
    assert "wrong.js(1,11): error TS2345" in said
    assert "wrong.js(2,16): error TS7006" in said


def test_the_scripts_are_few_and_of_one_dialect() -> None:
    lines = [line for path in SCRIPTS for line in path.read_text().splitlines()]
    assert 500 < len(lines) <= 1000
    for path in SCRIPTS:
        assert '"use strict";' in path.read_text()
    assert not [line for line in lines if re.search(r"\bvar |^\s*function \(", line)]
