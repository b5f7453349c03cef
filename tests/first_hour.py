"""What `make bench` takes in a fresh clone, which README.md quotes.

git clone . /tmp/new && make -C /tmp/new bench >/tmp/log 2>&1
python tests/first_hour.py /tmp/new /tmp/log    # then make docs
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from hpml_plugins.errors import HpmlError, nearest
from hpml_plugins.model import quantity

#: What was measured last.
STORED = Path(__file__).with_suffix(".json")
#: Figure → where a log says it.
SAID = {
    "points": r"^Measured (\d+) points ",
    "time": r"^Measured .* in (\d.*)$",
    "load": r"^Busy: .*up to ([\d.]+ of \d+) CPUs",
}


def measure(clone: Path, log: str) -> dict[str, str]:
    """Figure → its text. log: what `make bench` printed there."""
    found = {
        name: match[1]
        for name, pattern in SAID.items()
        if (match := re.search(pattern, log, re.MULTILINE))
    }
    sizes = {name: quantity(_size(clone / name), "B") for name in (".venv", "html")}
    counts = {"lines": str(len(log.splitlines())), "words": str(len(log.split()))}
    return {"load": "0 of 2", **found, **sizes, **counts}


def _size(folder: Path) -> float:
    """B of the files in a folder, links not followed."""
    files = (each for each in folder.rglob("*") if not each.is_symlink())
    return float(sum(each.stat().st_size for each in files if each.is_file()))


def figure(name: str, where: str) -> str:
    """What was measured last: `<!--= first_hour time -->`. Raises HpmlError for an unknown
    figure."""
    known = json.loads(STORED.read_text())
    if name not in known:
        raise HpmlError(f"no figure {name!r} of first_hour; {nearest(name, known)}", where)
    return str(known[name])


if __name__ == "__main__":
    measured = measure(Path(sys.argv[1]), Path(sys.argv[2]).read_text())
    STORED.write_text(json.dumps(measured, indent=2) + "\n")
    print(STORED.read_text())
