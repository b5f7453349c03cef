"""Asking something in a forked process, so that this one stays as it was."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable


def ask_in_child(function: Callable[[], bytes]) -> bytes:
    """What the function returns in a forked process; empty where that died."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=lambda: sender.send_bytes(function()))
    process.start()
    sender.close()
    try:
        return receiver.recv_bytes()
    except EOFError:
        return b""
    finally:
        receiver.close()
        process.join()
