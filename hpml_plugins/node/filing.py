"""The name under which results of this machine are filed in a project."""

from __future__ import annotations

import re
from pathlib import Path

from hpml_plugins.model.node import Node
from hpml_plugins.node.detect import machine_name
from hpml_plugins.store import machine_folders, read_object_or_empty

#: What `machine_name` gives, for any machine.
_OURS = re.compile(r"[a-z0-9-]+-x\d+")


def filed_under(node: Node, results: Path) -> str:
    """The name of this machine's results: that of `asv machine`, where asv measured here before
    and nothing is filed under our own, else `machine_name`.

    A node with GPUs is not filed under an older name: it does not tell how many of them were
    visible, and one history would mix them.
    """
    own = machine_name(node)
    earlier = earlier_names(results)
    if node.gpus or len(earlier) != 1 or (results / own).is_dir():
        return own
    return earlier[0]


def earlier_names(results: Path) -> list[str]:
    """The names that asv's user gave this computer: they are in ~/.asv-machine.json, have results
    here and are not of our making."""
    known = read_object_or_empty(Path("~/.asv-machine.json").expanduser())
    found = (folder.name for folder in machine_folders(results))
    return [name for name in found if name in known and not _OURS.fullmatch(name)]
