"""`openssl speed` as a benchmark: its own timing, its output parsed and held against itself."""

from hpml_plugins import Benchmark, Metric, ProgramOutput, Requires, hookimpl

#: What openssl 3.0 prints with -mr, for one algorithm and size.
OUTPUTS = {
    "throughput": ProgramOutput("B/s", r"^\+F:\d+:[^:]+:([\d.]+)$"),
    "operations": ProgramOutput("1", r"^\+R:(\d+):"),
    "seconds": ProgramOutput("s", r"^\+R:\d+:[^:]+:([\d.]+)$"),
}


def measure(bench, *, algorithm, size):
    command = [
        "openssl",
        "speed",
        "-elapsed",
        "-mr",
        "-seconds",
        "1",
        "-bytes",
        str(size),
        "-evp",
        algorithm,
    ]
    runs = bench.run_program(command, OUTPUTS)
    for number, throughput in enumerate(runs["throughput"].values):
        expected = runs["operations"].values[number] * size / runs["seconds"].values[number]
        bench.check(
            abs(throughput / expected - 1) < 0.01,
            "throughput differs from operations over time",
        )
    return {"throughput": runs["throughput"]}


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
