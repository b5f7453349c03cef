"""What a plugin may do to the process that imports it is put back afterwards, for the next one to find."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def put_back() -> Iterator[None]:
    """Put back the working directory, variables, signal handlers, search path and streams when the block ends.

    Replaced functions of other modules, settings of libraries and threads cannot be put back: that is why points are
    measured in processes that import one plugin, where nothing is.
    """
    folder, variables, path, umask = _folder(), dict(os.environ), list(sys.path), os.umask(0)
    os.umask(umask)
    streams = sys.stdin, sys.stdout, sys.stderr, sys.excepthook
    handlers = _handlers()
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr, sys.excepthook = streams
        sys.path[:] = path
        os.umask(umask)
        if folder and folder != _folder():
            os.chdir(folder)
        if variables != dict(os.environ):
            os.environ.clear()
            os.environ.update(variables)
        for number, handler in handlers.items():
            if signal.getsignal(number) is not handler:
                with suppress(OSError, ValueError, TypeError):
                    signal.signal(number, handler)


def _folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:
        return ""  # removed under us


def _handlers() -> dict[int, signal._HANDLER]:
    if threading.current_thread() is not threading.main_thread():
        return {}  # only the main thread may set any
    return {number: signal.getsignal(number) for number in _SIGNALS}


#: Those that programs handle; asking for all 64 would cost more than importing a small plugin.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGALRM, signal.SIGPIPE,
            signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT, signal.SIGABRT, signal.SIGSEGV)  # fmt: skip
