"""Entry point of a rank started on several nodes: `python -m hpml_plugins.measure.ranks.multi_node_worker DIR`."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from pathlib import Path

from hpml_plugins.measure.ranks.slurm import ORDER
from hpml_plugins.measure.ranks.worker import live


class _Nobody:
    """Progress is told by the first node alone, and its srun takes the output."""

    def send(self, told: object) -> None:
        """Drop it."""


def main(folder: str) -> None:
    """Read the order, take the place that the launcher gave, run."""
    team, function, args = pickle.loads(Path(folder, ORDER).read_bytes())
    signal.alarm(int(team.timeout) + 60)  # srun killed outright takes nobody with it
    live(int(os.environ["RANK"]), team, function, args, _Nobody(), int(os.environ["LOCAL_RANK"]))


if __name__ == "__main__":
    main(sys.argv[1])
