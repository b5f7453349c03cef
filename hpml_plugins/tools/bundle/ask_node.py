"""The facts about a node for a bundle: its Python, C library and packages. Standard library only.

`hpml bundle --ask` prints this file, to be run by the node's own Python. It also runs on Pythons
that are too old for the project, which then get a clear message instead of a syntax error.
"""

import json
import os
import platform
import re
import sys


def ask():
    # type: () -> dict[str, object]
    """The facts, as values for JSON. packages: normalised name → version, of what Python would
    import first."""
    name = "cp" if sys.implementation.name == "cpython" else sys.implementation.name
    return {
        "hpml_node": 1,
        "python": platform.python_version(),
        "abi": "{}{}{}{}".format(
            name, sys.version_info[0], sys.version_info[1], getattr(sys, "abiflags", "")
        ),
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()).strip(),  # "glibc 2.39"
        "packages": _packages(),
    }


def _packages():
    # type: () -> dict[str, str]
    if sys.version_info < (3, 8):  # noqa: UP036
        return {}
    from importlib.metadata import distributions

    # packages of an earlier bundle are not the node's own
    path = [entry for entry in sys.path if entry != os.environ.get("HPML_BUNDLE_SITE")]
    found = {}  # type: dict[str, str]
    for each in distributions(path=path):
        name = re.sub("[-_.]+", "-", each.metadata["Name"] or "").lower()
        # leftovers of a broken installation have another
        if re.match(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?\Z", name):
            found.setdefault(name, each.version)
    return dict(sorted(found.items()))


if __name__ == "__main__":
    print(json.dumps(ask(), indent=2))
