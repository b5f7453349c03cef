"""Detecting what this node is: CPU and memory from the system, GPUs through NVML, names of machines."""

from hpml_plugins.node.detect import detect_node
from hpml_plugins.node.naming import machine_name
from hpml_plugins.node.needs import unmet

__all__ = ["detect_node", "machine_name", "unmet"]
