"""licences.py [FILE]: the licence of each package that constraints.txt pins, as the installed
packages state it.

Ends with status 1 when a package states none, or one that has not been looked at.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections import Counter
from pathlib import Path

#: What permits use as a dependency without conditions on our own code. LGPL and MPL: unchanged, as
#: installed.
_LOOKED_AT = re.compile(
    r"\b(MIT|MIT-CMU|HPND|BSD|Apache|ISC|PSF|PSF-2\.0|Python Software"
    r" Foundation|Zlib|ZPL|Zope|MPL|Mozilla|LGPL|"
    r"Unlicense|0BSD|CC0|NVIDIA|BSL)",
    re.IGNORECASE,
)
#: Packages whose metadata does not say it: what they say elsewhere.
STATED_ELSEWHERE = {
    "atheris": "Apache-2.0 (its LICENSE)",
    "cuda-toolkit": "NVIDIA (names the packages of a CUDA release and holds no files)",
    "torchao": "BSD-3-Clause (its LICENSE)",
}
#: Programs that only our tests run, each with its licence: they are started as processes of their
#: own, and nothing of them is imported, linked or given to others.
RUN_BY_TESTS = {"codespell": "GPL-2.0-only"}
_LONG = 60


def licence(name: str) -> str:
    """The licence that an installed package states; "" for none. Raises PackageNotFoundError."""
    data = importlib.metadata.metadata(name)
    if expression := data.get("License-Expression"):
        return str(expression)
    classified = [
        line.rpartition(" :: ")[2]
        for line in data.get_all("Classifier") or ()
        if line.startswith("License :: ") and line != "License :: OSI Approved"
    ]
    if classified:
        return ", ".join(classified)
    stated = str(data.get("License") or "").strip()
    first = stated.splitlines()[0].strip() if stated else ""
    if first and first.upper() != "UNKNOWN":
        return first[:_LONG]
    return STATED_ELSEWHERE.get(name.lower(), "")


def pinned(path: Path) -> list[str]:
    """The names in a file of constraints."""
    return [
        line.partition("==")[0]
        for line in path.read_text().splitlines()
        if re.match(r"[A-Za-z0-9._-]+==", line)
    ]


def main(path: Path) -> int:
    """Print the table; returns the exit status."""
    rows, faults = [], []
    for name in pinned(path):
        try:
            stated, version = licence(name), importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            rows.append((name, "", "not installed here"))
            continue
        rows.append((name, version, stated or "?"))
        if not _LOOKED_AT.search(stated) and RUN_BY_TESTS.get(name) != stated:
            faults.append(f"{name} {version}: {stated or 'states no licence'}")
    widths = [max(len(row[place]) for row in rows) for place in (0, 1)]
    for name, version, stated in rows:
        print(f"{name:{widths[0]}}  {version:{widths[1]}}  {stated}")
    kinds = Counter(stated for _, _, stated in rows)
    print(
        f"\n{len(rows)} packages: "
        + "; ".join(f"{kind} {count}" for kind, count in kinds.most_common(8))
        + "; …"
    )
    for fault in faults:
        print(f"NOT LOOKED AT: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "constraints.txt")))
