"""Which commits a machine has still to measure."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from hpml_plugins.errors import UsageError

NEW, ALL = "NEW", "ALL"


class History:
    """The commits of the project, each question asked of git once, however many machines ask.

    branches: as asv.conf.json names them; "" is the one checked out.
    """

    def __init__(self, root: Path, branches: Sequence[str]) -> None:
        self._root = root
        self._branches = [branch or "HEAD" for branch in branches] or ["HEAD"]
        self._asked: dict[str, list[str]] = {}

    def wanted(self, spec: str, measured: Iterable[str]) -> list[str]:
        """The commits, the newest of each branch first.

        spec: "" for the heads of the branches, "ALL", "NEW" (what came after the newest that the machine has
        measured), or what `git rev-list` understands, such as main~5..main.  measured: the first eight letters of the
        commits that this machine has results of.  Raises UsageError for what git does not know.
        """
        known = set(measured)
        if spec not in ("", NEW, ALL):
            return self._ask(spec)
        found: dict[str, None] = {}
        for branch in self._branches:
            for commit in self._ask(branch):
                if spec == NEW and commit[:8] in known:
                    break
                found[commit] = None
                if not spec:
                    break
        return list(found)

    def _ask(self, spec: str) -> list[str]:
        if spec not in self._asked:
            command = ["git", "rev-list", "--first-parent", "--end-of-options", spec, "--"]
            try:
                done = subprocess.run(command, cwd=self._root, capture_output=True, text=True, check=True)
            except FileNotFoundError:
                raise UsageError("git is not installed; results name commits") from None
            except subprocess.CalledProcessError as error:
                raise UsageError(f"--commits {spec!r}: git says {error.stderr.strip()}") from None
            self._asked[spec] = done.stdout.split()
        return self._asked[spec]


def measured(results: Path, machine: str) -> set[str]:
    """The first eight letters of the commits that this machine has results of, as asv names its files."""
    return {path.name.partition("-")[0] for path in (results / machine).glob("*-*.json")}
