"""asv's command line, in this process, remembering what publishing came to."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from asv.main import main

from hpml_plugins.asv.remembered import VARIABLE


def run_asv(words: Sequence[str], remembered: Path) -> None:
    """Run `asv WORDS`, for which this process is meant from now on: asv ends it with its status."""
    os.environ[VARIABLE] = str(remembered)
    sys.argv = ["asv", *words]
    main()
