"""`asv` with results and environments of its own: `python -m hpml_plugins.asv.queue RESULTS NAME run …`.

asv takes these folders from asv.conf.json alone, and makes the folder of that file its own: a copy would not do.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from asv.config import Config
from asv.main import main


def use_folders(results: Path, name: str) -> None:
    """Let every Config that is loaded say these results, and a folder of this name for environments."""
    original = Config.load

    def load(path: str | None = None) -> Any:
        conf = original(path)
        conf.results_dir = str(results)
        conf.env_dir = str(Path(conf.env_dir, name))
        return conf

    Config.load = load


if __name__ == "__main__":
    use_folders(Path(sys.argv[1]), sys.argv[2])
    sys.argv = ["asv", *sys.argv[3:]]
    main()
