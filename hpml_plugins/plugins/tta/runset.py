"""A set of runs that can be interrupted: each is kept when it is done, and the next start goes on behind it."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from hpml_plugins.plugins.tta.running import Run

#: Where interrupted sets are kept; the user's cache when it is not set.
VARIABLE = "HPML_TTA_RUNS"


class _Kept(msgspec.Struct):
    about: dict[str, str]
    runs: list[Run]


class RunSet:
    """The runs of one set that are done, in a file that names what they are of.

    about: all that must be the same for two runs to be of one set: recipe, data, code, versions, card. A set of other
    facts is another file. The file goes when the set is whole, so that the next measurement starts anew.
    """

    def __init__(self, about: Mapping[str, str], folder: Path | None = None) -> None:
        self.about = dict(about)
        digest = hashlib.sha256(msgspec.json.encode(self.about, order="sorted")).hexdigest()[:20]
        self.path = (folder or _folder()) / f"{digest}.json"
        self.runs: list[Run] = self._read()
        self.resumed = len(self.runs)
        self.problem = ""

    def add(self, run: Run) -> None:
        """Keep a run: whole or not at all. Where nothing can be written, `problem` says so and the set goes on."""
        self.runs.append(run)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.name)
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.encode(_Kept(self.about, self.runs)))
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self.path)
        except OSError as error:
            self.problem = f"an interrupted set will not be resumed: {self.path}: {error}"

    def finish(self) -> None:
        """The set is whole."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _read(self) -> list[Run]:
        try:
            kept = msgspec.json.decode(self.path.read_bytes(), type=_Kept)
        except (OSError, msgspec.DecodeError):
            return []
        return kept.runs if kept.about == self.about else []


def code_digest() -> str:
    """SHA-256 of this plugin's own files, which decide what a run does."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.iterdir()):
        if path.suffix in (".py", ".yaml"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:20]


def _folder() -> Path:
    if named := os.environ.get(VARIABLE):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "hpml" / "tta"
