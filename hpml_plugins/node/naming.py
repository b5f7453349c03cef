"""Stable names of machines, from what they are and not from what they are called today."""

from __future__ import annotations

import re

from hpml_plugins.model.node import Node

#: Words of a product name that do not tell one GPU type from another.
_NOISE = ("nvidia", "tesla", "geforce", "graphics", "corporation", "processor", "cpu", "(r)", "(tm)")


def machine_name(node: Node) -> str:
    """`h200-x2` for two of NVIDIA's H200, `cpu-amd-epyc-x2` for two CPUs without GPU.

    A cloud node has another host name each time; its results still belong to one history.
    """
    if node.gpus:
        return f"{slug(node.gpu)}-x{node.num_gpu}"
    return f"cpu-{slug(node.cpu)}-x{node.num_cpu}"


def slug(text: str) -> str:
    """A name made of lower-case letters, digits and hyphens, without the words that say nothing."""
    words = text.lower()
    for noise in _NOISE:
        words = words.replace(noise, " ")
    words = re.sub(r"@.*|\b\d+-core\b", " ", words)
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-") or "unknown"
