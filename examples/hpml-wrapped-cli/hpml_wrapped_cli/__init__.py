"""`openssl speed` as a benchmark: its own timing, its output parsed and held against itself."""

import re
import subprocess

from hpml_plugins import Benchmark, HpmlError, Metric, Requires, Samples, hookimpl

RUNS = 3


def parse(output):
    """(operations, bytes of each, seconds, bytes a second) from `openssl speed -mr` of one algorithm and size.

    Raises HpmlError where the output is not of that form, as another version's may be.
    """
    size = re.search(r"^\+DT:[^:]+:\d+:(\d+)$", output, re.MULTILINE)
    counted = re.search(r"^\+R:(\d+):[^:]+:([\d.]+)$", output, re.MULTILINE)
    speed = re.search(r"^\+F:\d+:[^:]+:([\d.]+)$", output, re.MULTILINE)
    if not (size and counted and speed):
        raise HpmlError(f"openssl speed printed something else than openssl 3.0 does: {output[:200]!r}")
    return int(counted[1]), int(size[1]), float(counted[2]), float(speed[1])


def measure(bench, *, algorithm, size):
    command = ["openssl", "speed", "-elapsed", "-mr", "-seconds", "1", "-bytes", str(size), "-evp", algorithm]
    speeds = []
    for number in range(RUNS):
        bench.progress(" ".join(command), number / RUNS)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise HpmlError(f"openssl ended with status {done.returncode}: {done.stderr[-200:]}")
        operations, each, seconds, speed = parse(done.stderr + "\n" + done.stdout)
        speed = bench.result(speed)
        bench.check(
            abs(operations * each / seconds / speed - 1) < 0.01, "its speed is not its operations over its time"
        )
        speeds.append(speed)
    return {"throughput": Samples.of(speeds, "B/s", timer="openssl speed")}


SPEED = Benchmark(
    "openssl_speed",
    measure,
    metrics=[Metric("throughput", "B/s", "higher", "one thread")],
    grid={"algorithm": ["sha256", "aes-256-gcm"], "size": [1024, 16384]},
    requires=Requires(tools=("openssl",)),
    version="1",
    timeout=60,
    description="Throughput of OpenSSL's hash and cipher on one thread, by openssl speed.",
)


@hookimpl
def hpml_benchmarks():
    return [SPEED]
