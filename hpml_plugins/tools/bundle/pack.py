"""Makes the file: the packages that the node lacks, the repository with its history, and an
installer."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hpml_plugins import version
from hpml_plugins.asv import read_configuration
from hpml_plugins.errors import UsageError
from hpml_plugins.git import ask_git, tell_git
from hpml_plugins.temporary import temporary_folder
from hpml_plugins.tools.bundle import packages
from hpml_plugins.tools.bundle.packages import NodeFacts

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class _Bundle:
    """The bundle. carried: the packages in it; kept: packages that it needs from the node; name →
    version."""

    carried: Mapping[str, str]
    kept: Mapping[str, str]
    history: _PackedHistory
    warnings: tuple[str, ...]


def make_bundle(
    root: Path, node: NodeFacts, file: Path, extra: Iterable[str] = ()
) -> _Bundle:
    """Write the bundle of the project at `root` for this node. extra: requirements beyond the
    project's own.

    Raises HpmlError, and leaves no file, if it cannot be made.
    """
    request = packages.request_packages(root, node, extra)
    with temporary_folder("hpml-bundle-") as scratch:
        branches = [
            name or "" for name in read_configuration(root / "asv.conf.json").branches
        ]
        history = pack_history(root, branches, scratch / "history.bundle")
        resolved = packages.resolve(request, node, scratch)
        carried = packages.lacking(resolved, node)
        kept = {name: version for name, version in resolved.items() if name not in carried}
        packages.unpack(carried, node, scratch / "site")
        own = packages.is_own(root)
        if not own:
            package = Path(version.__file__).parent
            shutil.copytree(
                package,
                scratch / "site" / package.name,
                ignore=shutil.ignore_patterns("__pycache__"),
            )
        manifest = {
            "abi": node.abi,
            "machine": node.machine,
            "libc": node.libc,
            "counts_on": sorted(
                {*kept, *(name for name in request.given if name in node.packages)}
            ),
            "branches": history.branches,
            "commit": history.commit,
            "folder": "hpml-plugins" if own else "repository",
        }
        (scratch / "install").mkdir()
        for name in ("install.py", "ask_node.py"):
            shutil.copyfile(_HERE / name, scratch / "install" / name)
        (scratch / "install" / "manifest.json").write_text(json.dumps(manifest, indent=2))
        partial = file.with_name(f".{file.name}.partial")
        try:
            _write(partial, scratch)
            partial.replace(file)
        except OSError as error:
            raise UsageError(f"cannot be written: {error.strerror}", str(file)) from None
        finally:
            partial.unlink(missing_ok=True)
    return _Bundle(carried, kept, history, request.warnings + history.warnings)


def _write(file: Path, scratch: Path) -> None:
    """A shell script, followed by the archive."""
    script = (_HERE / "install.sh").read_text()
    script = script.replace("@PAYLOAD_LINE@", str(script.count("\n") + 1))
    with file.open("wb") as out:
        out.write(script.encode())
        with tarfile.open(fileobj=out, mode="w:gz") as archive:
            for name in ("history.bundle", "site", "install"):
                archive.add(
                    scratch / name,
                    name,
                    filter=lambda member: member.replace(
                        uid=0, gid=0, uname="", gname="", deep=False
                    ),
                )


@dataclass(frozen=True)
class _PackedHistory:
    """The packed history. commit: of the first branch."""

    branches: tuple[str, ...]
    commit: str
    commits: int
    warnings: tuple[str, ...]


def pack_history(root: Path, branches: list[str], file: Path) -> _PackedHistory:
    """Pack these branches ("" and HEAD: the one checked out) and the tags. Raises UsageError if one
    does not exist."""
    where = str(root)
    if not ask_git(root, "rev-parse", "--git-dir"):
        raise UsageError(
            "not a git repository; results name commits, and asv checks them out", where
        )
    if ask_git(root, "rev-parse", "--is-shallow-repository") == "true":
        raise UsageError(
            "the repository is a shallow clone; run git fetch --unshallow", where
        )
    own = ask_git(root, "symbolic-ref", "--short", "HEAD") or "HEAD"
    names = tuple(dict.fromkeys(own if name in ("", "HEAD") else name for name in branches))
    for name in names:
        if not ask_git(
            root, "rev-parse", "--verify", "--quiet", f"refs/heads/{name}^{{commit}}"
        ):
            raise UsageError(
                f"asv.conf.json names branch {name!r}, which is not here; git branch {name} COMMIT"
                " creates it",
                where,
            )
    tell_git(root, "bundle", "create", "-q", str(file), *names, "--tags")
    commit = tell_git(root, "rev-parse", f"refs/heads/{names[0]}")
    warnings = []
    if changed := tell_git(root, "status", "--porcelain").splitlines():
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        warnings.append(
            f"{changed[0].split(maxsplit=1)[1]}{more} not committed: uncommitted changes do not"
            " travel"
        )
    if ask_git(root, "rev-parse", "HEAD") != commit:
        warnings.append(
            f"{names[0]} travels (asv.conf.json), not the commit that is checked out here"
        )
    commits = int(tell_git(root, "rev-list", "--count", commit))
    return _PackedHistory(names, commit, commits, tuple(warnings))
