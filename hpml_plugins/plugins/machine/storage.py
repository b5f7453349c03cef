"""The benchmark `machine_checkpoint`: a checkpoint written to a folder and read from it, cold and
warm."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from hpml_plugins import Bench, Benchmark, Metric, Node, Requires, Samples
from hpml_plugins.plugins.machine.units import size_in_bytes

TENSORS = 16
#: The fewest repetitions of writing and reading in a round, which continue until REPEATING s have
#: passed.
FEWEST, REPEATING = 2, 0.2
MOUNTS = Path("/proc/mounts")


class Format(NamedTuple):
    """save: writes tensors into a folder.  load: reads them from a folder onto a device, given
    similar tensors."""

    save: Callable[[Mapping[str, Any], Path], object]
    load: Callable[[Path, Mapping[str, Any]], Mapping[str, Any]]


def formats() -> dict[str, Format]:
    """torch.save and torch.load, safetensors, and torch.distributed.checkpoint by one process."""
    import torch

    def device_of(like: Mapping[str, Any]) -> Any:
        return next(iter(like.values())).device

    def load_safetensors(folder: Path, like: Mapping[str, Any]) -> Mapping[str, Any]:
        file = folder / "checkpoint.safetensors"
        return import_module("safetensors.torch").load_file(file, device=str(device_of(like)))  # type: ignore[no-any-return]

    def save_safetensors(tensors: Mapping[str, Any], folder: Path) -> None:
        import_module("safetensors.torch").save_file(
            dict(tensors), folder / "checkpoint.safetensors"
        )

    def save_distributed(tensors: Mapping[str, Any], folder: Path) -> None:
        import torch.distributed.checkpoint as distributed

        distributed.save(dict(tensors), checkpoint_id=folder)

    def load_distributed(folder: Path, like: Mapping[str, Any]) -> Mapping[str, Any]:
        import torch.distributed.checkpoint as distributed

        found = {name: torch.empty_like(tensor) for name, tensor in like.items()}
        distributed.load(found, checkpoint_id=folder)
        return found

    return {
        "torch": Format(
            lambda tensors, folder: torch.save(dict(tensors), folder / "checkpoint.pt"),
            lambda folder, like: torch.load(
                folder / "checkpoint.pt", map_location=device_of(like), weights_only=True
            ),
        ),
        "safetensors": Format(save_safetensors, load_safetensors),
        "distributed": Format(save_distributed, load_distributed),
    }


def why_not(node: Node, point: dict[str, Any]) -> str:
    """Why a point cannot be measured: safetensors is not a dependency of this project."""
    from importlib.util import find_spec

    lacks = point["format"] == "safetensors" and find_spec("safetensors") is None
    return "needs module safetensors (pip install safetensors)" if lacks else ""


def measure(bench: Bench, *, format: str, size: str) -> dict[str, Samples]:
    """Write and read `size` of tensors on the bench's device.

    write: until the files are on the storage (fsync).  cold: after requesting the kernel to drop
    them from its cache.
    """
    import torch

    made, nbytes = formats()[format], size_in_bytes(size)
    torch.manual_seed(bench.seed)
    shape = (nbytes // TENSORS // 4,)
    tensors = {
        f"layer.{number}": torch.randint(
            -(2**31), 2**31, shape, dtype=torch.int32, device=bench.device
        )
        for number in range(TENSORS)
    }
    laps: dict[str, list[float]] = {"write": [], "cold": [], "warm": []}
    with tempfile.TemporaryDirectory(prefix="hpml-checkpoint-") as name:
        kind = file_system(Path(name))
        if kind in ("tmpfs", "ramfs"):
            bench.warn(
                f"the temporary folder is a {kind}: this is memory, not storage; TMPDIR names"
                " another"
            )
        made.save({"warm-up": torch.zeros(1)}, Path(name))  # imports, and the first call's work
        started = time.perf_counter()
        while len(laps["write"]) < FEWEST or time.perf_counter() - started < REPEATING:
            bench.progress(f"repetition {len(laps['write']) + 1}", 0.3)
            _empty(Path(name))
            _repeat(bench, made, tensors, Path(name), laps)
    return {
        lap: nbytes / Samples.of(values, "s", file_system=kind, size=nbytes)
        for lap, values in laps.items()
    }


def _repeat(
    bench: Bench,
    made: Format,
    tensors: Mapping[str, Any],
    folder: Path,
    laps: Mapping[str, list[float]],
) -> None:
    """Write, read cold and read warm once, with checks; appends the seconds of each."""

    def timed(lap: str, step: Callable[[], Any]) -> Any:
        _wait(bench.device)
        started = time.perf_counter()
        result = step()
        _wait(bench.device)
        laps[lap].append(time.perf_counter() - started)
        return result

    def write() -> None:
        made.save(tensors, folder)
        synchronize(files(folder))

    timed("write", write)
    written = sum(file.stat().st_size for file in files(folder))
    total = sum(tensor.nbytes for tensor in tensors.values())
    bench.check(
        total <= written < 1.05 * total, f"the files do not have the tensors' size of {total} B"
    )
    for lap in ("cold", "warm"):
        if lap == "cold":
            drop_from_cache(files(folder))
        found = timed(lap, lambda: made.load(folder, tensors))
        right = found.keys() == tensors.keys() and all(
            bool((bench.result(found[name]) == tensor).all()) for name, tensor in tensors.items()
        )
        bench.check(right, f"what was read ({lap}) differs from what was written")


def _wait(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def files(folder: Path) -> list[Path]:
    """All files of the folder, at every depth."""
    return [path for path in folder.rglob("*") if path.is_file()]


def _empty(folder: Path) -> None:
    for path in files(folder):
        path.unlink()


def synchronize(paths: Iterable[Path]) -> None:
    """Wait until the files are on the storage."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def drop_from_cache(paths: Iterable[Path]) -> None:
    """Request the kernel to drop the files, which are on the storage, from its page cache."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def file_system(folder: Path, mounts: Path = MOUNTS) -> str:
    """The type of the file system that a folder is on: "ext4", "tmpfs"; empty if unknown."""
    try:
        lines = [line.split() for line in mounts.read_text().splitlines()]
    except OSError:
        return ""
    place = str(folder.resolve())
    over = [
        (len(at), kind)
        for _, at, kind, *_ in lines
        if place == at or place.startswith(at.rstrip("/") + "/")
    ]
    return max(over, default=(0, ""))[1]


CHECKPOINT = Benchmark(
    "machine_checkpoint",
    measure,
    [
        Metric("write", "B/s", "higher", "from the device to the storage, fsync included"),
        Metric(
            "cold",
            "B/s",
            "higher",
            "from the storage to the device, the files not in the page cache",
        ),
        Metric("warm", "B/s", "higher", "from the page cache to the device"),
    ],
    grid={"format": ("torch", "safetensors", "distributed"), "size": ("64MiB", "1GiB")},
    requires=Requires(gpus=1, modules=("torch",), cpu_fallback=True, also=(why_not,)),
    timeout=300,
    description=(
        "A checkpoint of 16 tensors on the GPU (without one: on the CPU), written and read in"
        " TMPDIR."
    ),
    terms={
        "format=distributed": "torch.distributed.checkpoint, by one process",
        "format=torch": "torch.save, torch.load",
    },
)
