"""What the code of a plugin imports and which programs it starts while it measures."""

from __future__ import annotations

import builtins
import sys
from pathlib import Path
from types import TracebackType
from typing import Any


class Watching:
    """While entered, notes the imports written in the plugin's own files, and the programs that these start.

    file: the plugin's.  imports: top-level names, without the standard library, hpml_plugins and the plugin's own.
    programs: their names, without this Python. Imports by `importlib` are not seen. For a process that ends soon: what
    watches programs stays.
    """

    def __init__(self, file: Path) -> None:
        self._file = file.resolve()
        self._own = {self._file.stem, self._file.parent.name, "hpml_plugins"}
        self.imports: set[str] = set()
        self.programs: set[str] = set()

    def __enter__(self) -> Watching:
        self._import = builtins.__import__
        builtins.__import__ = self._watched_import
        sys.addaudithook(self._audit)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        builtins.__import__ = self._import

    def _watched_import(
        self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        module = self._import(name, globals, locals, fromlist, level)
        top = name.partition(".")[0]
        known = level > 0 or top in self._own or top in sys.stdlib_module_names
        if not known and self._is_own((globals or {}).get("__file__")):
            found = getattr(sys.modules.get(top), "__file__", None)
            self.imports |= set() if self._is_own(found) else {top}
        return module

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event != "subprocess.Popen":
            return
        frame = sys._getframe(1)
        while frame.f_back and frame.f_globals.get("__name__") == "subprocess":
            frame = frame.f_back
        program = str(args[0] or (args[1] or ["?"])[0])
        if self._is_own(frame.f_globals.get("__file__")) and program != sys.executable:
            self.programs.add(Path(program).name)

    def _is_own(self, file: object) -> bool:
        if not isinstance(file, str):
            return False
        path = Path(file).resolve()
        beside = self._file.name == "__init__.py" or "site-packages" not in self._file.parts
        return path == self._file or (beside and path.is_relative_to(self._file.parent))
