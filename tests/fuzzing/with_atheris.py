"""One kind of file under libFuzzer, which keeps what reaches new lines: with_atheris.py KIND CASES
FOLDER.

Half of the changes are libFuzzer's own, half are those of the kind. The counts are left in
FOLDER/counts.msgpack.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random

import atheris
import msgspec

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from fuzzing.engine import Trial  # noqa: E402
from fuzzing.kinds import KINDS  # noqa: E402


def main(name: str, cases: int, folder: Path) -> None:
    """Run that many cases. Never returns."""
    kind = KINDS[name]
    corpus = folder / "corpus"
    corpus.mkdir(parents=True)
    for number, seed in enumerate(kind.seeds()):
        (corpus / str(number)).write_bytes(seed)
    with atheris.instrument_imports(
        include=["hpml_plugins", "yaml", "csv"], enable_loader_override=False
    ):
        trial = Trial(kind, folder)  # reads the seeds, which imports the readers

    def one(data: bytes) -> None:
        trial.case(data)
        if trial.counts.cases == cases:
            (folder / "counts.msgpack").write_bytes(msgspec.msgpack.encode(trial.finish()))
            os._exit(0)

    def mutated(data: bytes, longest: int, seed: int) -> bytes:
        if seed % 2:
            return bytes(atheris.Mutate(data, longest))
        return kind.draw(Random(seed), [data])[:longest]

    options = [
        "-max_len=200000",
        "-len_control=0",
        "-rss_limit_mb=0",
        "-timeout=600",
        "-verbosity=0",
    ]
    atheris.Setup([sys.argv[0], str(corpus), *options], one, custom_mutator=mutated)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
