"""asv's scripts as published: every fault that we mend is still where we look for it."""

from __future__ import annotations

import shutil
from importlib.resources import files
from pathlib import Path

from hpml_plugins.report.site.guard import PATCHES, guard


def test_every_mend_fits_the_installed_asv_and_is_done_once(tmp_path: Path) -> None:
    html = tmp_path / "html"
    shutil.copytree(Path(str(files("asv"))) / "www", html)
    assert list(guard(html)) == []
    first = {path.name: path.read_text() for path in html.glob("*.js")}
    for name, patches in PATCHES.items():
        for old, new in patches:
            assert new in first[name]
            assert old not in first[name].replace(new, "")
    assert list(guard(html)) == []
    assert {path.name: path.read_text() for path in html.glob("*.js")} == first
    assert (html / "index.html").read_text().count("guard.js") == 1


def test_a_changed_asv_is_said(tmp_path: Path) -> None:
    html = tmp_path / "html"
    shutil.copytree(Path(str(files("asv"))) / "www", html)
    (html / "summarygrid.js").write_text("// another asv")
    said = list(guard(html))
    assert len(said) == len(PATCHES["summarygrid.js"])
    assert "asv's summarygrid.js has no" in said[0]
