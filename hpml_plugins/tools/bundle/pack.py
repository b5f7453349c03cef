"""Making the file: resolve, fetch, pack."""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from hpml_plugins.asv.configuration import NAME, read_configuration
from hpml_plugins.errors import UsageError
from hpml_plugins.tools.bundle import needs, uv
from hpml_plugins.tools.bundle.facts import NodeFacts
from hpml_plugins.tools.bundle.history import History, pack_history

_ON_NODE = ("install.py", "ask_node.py")


@dataclass(frozen=True)
class Bundle:
    """What was made. size: B."""

    file: Path
    size: int
    plan: needs.Plan
    history: History


def make_bundle(
    root: Path, node: NodeFacts, file: Path, extra: Iterable[str] = (), say: Callable[[str], None] = lambda text: None
) -> Bundle:
    """Write the bundle of the project at `root` for this node. extra: requirements beyond the project's own.

    say: is told what a user should know meanwhile. Raises HpmlError, and leaves no file, when it cannot be made.
    """
    question = needs.ask(needs.read_project(root), node, extra)
    for warning in question.warnings:
        say(warning)
    with tempfile.TemporaryDirectory(prefix="hpml-bundle-") as folder:
        scratch = Path(folder)
        history = pack_history(root, list(read_configuration(root / NAME).branches), scratch / "history.bundle")
        for warning in history.warnings:
            say(warning)
        plan = needs.plan(uv.resolve(question, node, scratch), node)
        uv.unpack(plan.carried, node, scratch / "site")
        counts_on = {*plan.kept, *(name for name in question.given if name in node.packages)}
        manifest = {
            "abi": node.abi,
            "machine": node.machine,
            "libc": node.libc,
            "counts_on": sorted(counts_on),
            "branches": history.branches,
            "commit": history.commit,
            "origin": history.origin,
        }
        partial = file.with_name(f".{file.name}.partial")
        try:
            _write(partial, scratch, json.dumps(manifest, indent=2))
            partial.replace(file)
        except OSError as error:
            raise UsageError(f"cannot be written: {error.strerror}", str(file)) from None
        finally:
            partial.unlink(missing_ok=True)
    return Bundle(file, file.stat().st_size, plan, history)


def _write(file: Path, scratch: Path, manifest: str) -> None:
    """A shell script, and behind its last line the archive."""
    sources = resources.files("hpml_plugins.tools.bundle")
    script = sources.joinpath("install.sh").read_text()
    script = script.replace("@PAYLOAD_LINE@", str(script.count("\n") + 1))
    with file.open("wb") as out:
        out.write(script.encode())
        with tarfile.open(fileobj=out, mode="w:gz") as archive:
            archive.add(scratch / "history.bundle", "history.bundle", filter=_nobodys)
            archive.add(scratch / "site", "site", filter=_nobodys)
            for name in _ON_NODE:
                _add_text(archive, f"install/{name}", sources.joinpath(name).read_text())
            _add_text(archive, "install/manifest.json", manifest)


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _add_text(archive: tarfile.TarFile, name: str, text: str) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(text.encode())
    archive.addfile(member, io.BytesIO(text.encode()))
