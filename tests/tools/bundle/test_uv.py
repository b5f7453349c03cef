"""An error of uv in one line; and uv itself without a network."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from asv_project import no_network

from hpml_plugins.errors import UsageError
from hpml_plugins.tools.bundle import packages
from hpml_plugins.tools.bundle.packages import NodeFacts

NODE = NodeFacts(1, "3.12.3", "cp312", "x86_64", "glibc 2.28", {"torch": "2.11.0"})


@pytest.mark.parametrize(
    ("stderr", "message"),
    [
        (  # what uv 0.13 printed for mpi4py 4.0.0 without MPI
            (
                "error: Failed to build `mpi4py==4.0.0`\n  cause: The build backend returned an"
                " error\n"
            ),
            (
                "mpi4py==4.0.0 has no wheel for Python 3.12 on x86_64 with glibc 2.28: it has only"
                " sources that must be"
            ),
        ),
        (
            (
                "error: Failed to download and build `msgspec==0.22.0`\n  cause: The built wheel"
                " `msgspec-0.22.0-cp311-cp311-linux_x86_64.whl` is not compatible with the target"
                " Python 3.12 on Linux x86_64.\n"
            ),
            "msgspec==0.22.0 has no wheel for Python 3.12",
        ),
        (
            (
                "warning: w\nerror: Request failed after 3 retries in 5.7s\n"
                "  cause: Failed to fetch: https://index.example/pluggy/\n  cause: dns error\n"
            ),
            (
                "no package index answers (Failed to fetch: https://index.example/pluggy/); hpml"
                " bundle needs a network"
            ),
        ),
        (
            (
                "error: No solution found when resolving dependencies\n  cause: Because you require"
                " numpy<2 and numpy>2.\n"
            ),
            (
                "no packages fit the node: No solution found when resolving dependencies Because"
                " you require numpy<2 and"
            ),
        ),
        (
            (
                "error: Failed to download `tabulate==0.10.0`\n  cause: Hash mismatch for"
                " `tabulate==0.10.0`\n\n"
            ),
            (
                "Hash mismatch for `tabulate==0.10.0`: the package index has another file than the"
                " one that was tried;"
            ),
        ),
        ("Segmentation fault", "no packages fit the node: Segmentation fault"),
    ],
)
def test_a_failure_is_explained_in_one_line(stderr: str, message: str) -> None:
    assert packages.explain(stderr, NODE).startswith(message)


@pytest.mark.skipif(
    not no_network(), reason="this machine does not let us take the network away"
)
def test_without_a_network_the_index_is_what_is_missing(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from hpml_plugins.errors import UsageError\nfrom"
        " hpml_plugins.tools.bundle import packages\nfrom hpml_plugins.tools.bundle.packages"
        " import NodeFacts, PackageRequest\nnode = NodeFacts(1, '3.12.3', 'cp312', 'x86_64',"
        f" 'glibc 2.28', {{}}); scratch = Path({str(tmp_path)!r})\ntry:"
        " packages.resolve(PackageRequest(('pluggy',), {}, ()), node, scratch)\nexcept"
        " UsageError as error: print(error)\n"
    )
    env = {
        "UV_CACHE_DIR": str(tmp_path / "cache"),
        "UV_HTTP_RETRIES": "0",
        "PATH": "/usr/bin:/bin",
    }
    done = subprocess.run(
        [*no_network(), sys.executable, "-c", code],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.match(
        r"no package index answers \(Failed to fetch: \S+/pluggy/\)", done.stdout
    )


def test_uv_that_is_not_installed_is_named_with_its_fix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "uv", None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(
        UsageError,
        match=r"uv is not installed; it resolves the node.s packages: python3 -m pip install",
    ):
        packages.find_uv()
