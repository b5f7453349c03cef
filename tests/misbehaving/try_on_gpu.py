"""Misbehave on this machine's GPU in every way, and say whether the card was usable by the next
point each time.

`python tests/misbehaving/try_on_gpu.py` needs nothing but what the package needs; status 1 when a
promise is broken.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
# numba with driver 580 crashes where CUDA reports an error (docs/measurement.md)
CRASHED = "died of SIG"
#: way → what its Record may say, as regular expressions; "" is a point that succeeded
EXPECTED = {
    "run_out_of_memory": r"CUDA out of memory\. Tried to allocate [\d.]+ GiB",
    "run_out_of_memory_in_numba": rf"CUDA_ERROR_OUT_OF_MEMORY|{CRASHED}",
    "use_an_illegal_address": rf"illegal|ILLEGAL_ADDRESS|UNKNOWN|{CRASHED}",
    "index_out_of_range": rf"device-side assert|{CRASHED}",
    "hold_memory": r"^$",
    "leave_a_holder_of_memory": r"^$",
    "never_end_on_the_gpu": r"timed out after 30 s",
    "die_with_a_kernel_running": r"ended with exit status 5 before it reported",
}


def run() -> list[dict[str, object]]:
    """The Records of all points, as `hpml run` gives them."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(HERE / "on_gpu.py", folder)
        Path(folder, "registry.yaml").write_text(
            "version: 1\nplugins:\n  - {name: on_gpu, path: on_gpu.py}\n"
        )
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [str(HERE.parent.parent), *filter(None, sys.path)]
            ),
        }
        command = [
            sys.executable,
            "-m",
            "hpml_plugins",
            "run",
            "misbehaves_on_gpu",
            "--json",
        ]
        done = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, check=False
        )
    if not done.stdout:
        sys.exit(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def broken(records: list[dict[str, object]]) -> list[str]:
    """The promises that were not kept."""
    found = []
    for record in records:
        way, reason = str(record["params"]["way"]), str(record.get("reason", ""))  # type: ignore[index]
        if way.startswith("look"):
            found += [f"{way}: the card was not as before: {reason}"] * (
                record["status"] != "ok"
            )
        elif not re.search(EXPECTED[way], reason) or (record["status"] == "ok") != (
            EXPECTED[way] == "^$"
        ):
            found.append(f"{way}: {record['status']}, {reason!r}, not {EXPECTED[way]!r}")
    return found


def main() -> int:
    """Run and tell."""
    records = run()
    for record in records:
        print(
            f"{record['params']['way']:28} {record['status']:8} {record.get('reason', '')}"
        )  # type: ignore[index]
    if any(record["status"] == "skipped" for record in records):
        return 77  # no GPU here
    problems = broken(records)
    print(*problems, sep="\n")
    print(
        f"{len(EXPECTED)} ways to misbehave on a GPU, {len(records) - len(EXPECTED)} looks at the"
        f" card: {len(problems)} promises broken"
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
