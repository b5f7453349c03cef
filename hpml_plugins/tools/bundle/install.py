"""On the node: check that the bundle fits it, check the repository out, write the commands.
Standard library only.

install.sh has unpacked `site` (packages), `history.bundle` and `install`: this file, its manifest,
the node's facts.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ACTIVATE = """\
# . {here}/activate: the node's Python sees the packages of this folder, and asv and hpml are commands
export HPML_BUNDLE_SITE={site} ASV_PYTHONPATH={site} PYTHONUNBUFFERED=1
export PYTHONPATH={site}:{repository}"${{PYTHONPATH:+:$PYTHONPATH}}"
case :$PATH: in *:{here}:*) ;; *) export PATH={here}:"$PATH" ;; esac
"""  # noqa: E501

COMMAND = """\
#!/bin/sh
# {module} with the node's own Python, in the repository unless called in a project's folder
. {here}/activate
[ -e asv.conf.json ] || cd {repository}
exec {python} -m {module} "$@"
"""

PACK_RESULTS = """\
#!/bin/sh
# pack-results [FILE]: what was measured here, beyond what came in the history, to be unpacked in the project at home
set -eu
case $#${{1:-}} in 0 | 1[!-]*) ;; *) echo "usage: pack-results [FILE]" >&2; exit 2 ;; esac
file=${{1:-hpml-results.tar.gz}}
case $file in /*) ;; *) file=$PWD/$file ;; esac
cd {repository}
list=$(mktemp)
trap 'rm -f "$list"' EXIT
git diff -z --name-only --diff-filter=d {commit} -- results >"$list"
git ls-files -z --others --exclude-standard -- results >>"$list"
[ -s "$list" ] || {{ echo "pack-results: nothing was measured here yet" >&2; exit 2; }}
tar czf "$file" --null -T "$list"
echo "$file: at home, in the project's folder: mkdir ../node && tar xzf ${{file##*/}} -C ../node && hpml merge ../node/results"
"""  # noqa: E501


class _Refused(Exception):
    """This node cannot use the bundle; the message says why and how to fix it."""


def check(manifest: dict[str, Any], node: dict[str, Any], python: str) -> None:
    """Raise Refused unless the bundle was made for this kind of node. python: its path, for the
    message."""
    if manifest["abi"] != node["abi"]:
        fix = "name another with --python PATH"
        raise _Refused(
            f"made for {manifest['abi']}, and {python} is {node['abi']} (Python {node['python']});"
            f" {fix}"
        )
    if manifest["machine"] != node["machine"] or _numbers(manifest["libc"]) > _numbers(
        node["libc"]
    ):
        here = f"{node['machine']} with {node['libc'] or 'another C library'}"
        fix = "make one with this node's own facts"
        raise _Refused(
            f"made for {manifest['machine']} with {manifest['libc']}, and this node is {here};"
            f" {fix}"
        )
    missing = [name for name in manifest["counts_on"] if name not in node["packages"]]
    if missing:
        fix = (
            "name the Python that has it with --python PATH, or make a bundle with this node's own"
            " facts"
        )
        raise _Refused(f"{python} has no {', '.join(missing)}; {fix}")


def install(here: Path, manifest: dict[str, Any], python: str) -> Path:
    """Check the repository out and write the commands; return the repository's folder."""
    repository = here / str(manifest["folder"])
    (first, *others) = manifest["branches"]
    _git(
        "clone", "--quiet", "--branch", first, str(here / "history.bundle"), str(repository)
    )
    for branch in others:
        _git("-C", str(repository), "branch", "--quiet", branch, f"origin/{branch}")
    # the bundle's file, from which nothing can be fetched later
    _git("-C", str(repository), "remote", "remove", "origin")
    words = {
        "here": here,
        "site": here / "site",
        "repository": repository,
        "python": python,
    }
    quoted = {name: shlex.quote(str(word)) for name, word in words.items()}
    (here / "activate").write_text(ACTIVATE.format(**quoted))
    _write_command(here / "asv", COMMAND.format(module="asv", **quoted))
    _write_command(here / "hpml", COMMAND.format(module="hpml_plugins", **quoted))
    _write_command(
        here / "pack-results", PACK_RESULTS.format(commit=manifest["commit"], **quoted)
    )
    return repository


def main() -> None:
    """Install into the folder named on the command line."""
    given = Path(sys.argv[1])
    here = given.resolve()
    manifest, node = (
        json.loads((here / "install" / name).read_text())
        for name in ("manifest.json", "node.json")
    )
    try:
        check(manifest, node, sys.executable)
        repository = install(here, manifest, sys.executable)
    except _Refused as error:
        sys.exit(f"hpml-bundle: {error}")
    shutil.rmtree(here / "install")
    print(f"installed; measure with {given}/asv run")
    print(f"results come into {repository}/results, and {given}/pack-results packs them")


def _numbers(libc: str) -> list[int]:
    name, _, version = libc.partition(" ")
    if name == "glibc":
        return [int(part) for part in version.split(".") if part.isdigit()]
    return []


def _git(*args: str) -> None:
    done = subprocess.run(["git", *args], capture_output=True, text=True, check=False)
    if done.returncode:
        raise _Refused(f"git {args[0]}: {' '.join(done.stderr.split())}")


def _write_command(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


if __name__ == "__main__":
    main()
