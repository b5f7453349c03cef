"""Misbehaves while it is measured, one point a way."""

import atexit
import ctypes
import inspect
import itertools
import os
import signal
import subprocess
import sys
import threading
import time

from hpml_plugins import Benchmark, Metric, Requires, Samples, hookimpl


def crash():
    ctypes.string_at(0)


def hang():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(3600)


def end():
    os._exit(5)


def leave():
    sys.exit(6)


def print_a_lot():
    for _ in range(10_000):
        print("x" * 100)
    os.write(1, b"to the descriptor\n")


def change_folder():
    os.chdir("/")


def leave_threads():
    for _ in range(20):
        threading.Thread(target=time.sleep, args=(3600,)).start()


def leave_processes():
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])


def leave_a_daemon():
    subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(3600)  # daemon"],
        start_new_session=True,
    )


def hold_memory():
    globals()["held"] = bytearray(os.urandom(1)) * (256 << 20)
    if (torch := sys.modules.get("torch")) and torch.cuda.is_available():
        globals()["on_gpu"] = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")


def set_torch_flags():
    import torch

    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch._C._set_deterministic_algorithms(True)  # the public way imports for seconds
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    torch.set_grad_enabled(False)


def patch():
    Samples.median = property(lambda self: -1.0)
    time.perf_counter = lambda: 0.0


def change_variables():
    os.environ.clear()
    os.environ["MISBEHAVING"] = "yes"


def handle_signals():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)


def exit_late():
    atexit.register(os._exit, 9)


def close_everything():
    os.closerange(0, 3)


def raise_an_error():
    raise ValueError("on purpose")


def abort():
    os.abort()


def fork_without_end():
    for _ in range(
        100
    ):  # with an end, so that a machine whose guard is broken survives this test
        if not os.fork():
            time.sleep(3600)
    time.sleep(3600)


def allocate_a_hundred_gigabytes():
    size = max(100 << 30, 8 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    held = bytearray(size)
    for place in range(0, size, 4096):  # a kernel that promises everything
        held[place] = 1


def return_nan():
    return {"zero": float("nan")}


def return_text():
    return {"zero": "fast"}


def return_another_metric():
    return {"zero": 0.0, "speed": 1.0}


def find_a_wrong_result(bench):
    bench.check(bench.result(1 + 1) == 3, "the sum differs")


def turn_the_clock_back(bench):
    reads = itertools.count()
    # a second back at each look: no batch is long enough, so it grows to 2**20 calls, and -1 s over
    # those is a step's
    time.perf_counter = lambda: -float(next(reads))
    return {"zero": bench.time(lambda: None)}


WAYS = {
    way.__name__: way
    for way in (
        crash,
        hang,
        end,
        leave,
        print_a_lot,
        change_folder,
        leave_threads,
        leave_processes,
        leave_a_daemon,
        hold_memory,
        set_torch_flags,
        patch,
        change_variables,
        handle_signals,
        exit_late,
        close_everything,
        raise_an_error,
        abort,
        fork_without_end,
        allocate_a_hundred_gigabytes,
        return_nan,
        return_text,
        return_another_metric,
        find_a_wrong_result,
        turn_the_clock_back,
    )
}


def measure(bench, *, way):
    act = WAYS[way]
    returned = act(bench) if inspect.signature(act).parameters else act()
    return returned or {"zero": 0.0}


@hookimpl
def hpml_benchmarks():
    return [
        Benchmark(
            "misbehaves",
            measure,
            [Metric("zero", "s", "lower")],
            {"way": list(WAYS)},
            Requires(modules=("torch",)),
            timeout=5,
        )
    ]
