"""The repository with its history, as `git bundle` packs it."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from hpml_plugins.errors import UsageError


@dataclass(frozen=True)
class History:
    """What was packed. commit: of the first branch.  origin: address to fetch from later, "" where there is none."""

    branches: tuple[str, ...]
    commit: str
    commits: int
    origin: str
    warnings: tuple[str, ...]


def pack_history(root: Path, branches: list[str], file: Path) -> History:
    """Pack these branches ("" and HEAD: the one checked out) and the tags. Raises UsageError when one is not there."""
    if _ask(root, "rev-parse", "--git-dir") is None:
        raise UsageError("not a git repository; results name commits, and asv checks them out", str(root))
    if _ask(root, "rev-parse", "--is-shallow-repository") == "true":
        raise UsageError("the history is cut off: git fetch --unshallow", str(root))
    own = _ask(root, "symbolic-ref", "--short", "HEAD") or "HEAD"
    names = tuple(dict.fromkeys(own if name in ("", "HEAD") else name for name in branches))
    for name in names:
        if _ask(root, "rev-parse", "--verify", "--quiet", f"refs/heads/{name}^{{commit}}") is None:
            raise UsageError(
                f"no commit on a branch {name!r} here, which asv.conf.json names; git branch {name} COMMIT makes it",
                str(root),
            )
    _ask(root, "bundle", "create", "-q", str(file), *names, "--tags", check=True)
    commit = str(_ask(root, "rev-parse", f"refs/heads/{names[0]}", check=True))
    return History(
        branches=names,
        commit=commit,
        commits=int(_ask(root, "rev-list", "--count", commit, check=True) or 0),
        origin=public_address(_ask(root, "remote", "get-url", "origin") or ""),
        warnings=tuple(_left_behind(root, names[0], commit)),
    )


def public_address(address: str) -> str:
    """The address without user and password; "" for a folder of this machine, which a node cannot reach."""
    if address.startswith("file:"):
        return ""
    if "://" in address:
        # ssh://git@host needs its user, and it is no secret
        return re.sub(r"^(https?|ftps?)://[^/@]*@", r"\1://", re.sub(r"^(ssh://[^/@:]+):[^/@]*@", r"\1@", address))
    return address if re.match(r"[^/.:][^/:]*:", address) else ""


def _left_behind(root: Path, branch: str, commit: str) -> list[str]:
    found = []
    changed = (_ask(root, "status", "--porcelain", check=True) or "").splitlines()
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        found.append(f"{changed[0].split(maxsplit=1)[1]}{more} not committed: what is not committed does not travel")
    if _ask(root, "rev-parse", "HEAD") != commit:
        found.append(f"{branch} travels (asv.conf.json), not the commit that is checked out here")
    return found


def _ask(root: Path, *args: str, check: bool = False) -> str | None:
    """git's answer; None when it fails, or UsageError where it must not."""
    try:
        done = subprocess.run(["git", *args], cwd=root, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise UsageError("git is not installed; a bundle carries the history") from None
    if done.returncode and check:
        raise UsageError(f"git {args[0]}: {done.stderr}", str(root))
    return None if done.returncode else done.stdout.strip()
