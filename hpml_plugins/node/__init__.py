"""This node: CPU and memory from the system, GPUs through NVML, its name, and whether it has what a
point needs."""

from hpml_plugins.node.detect import detect_node, machine_name, pin_devices, usable
from hpml_plugins.node.filing import earlier_names, filed_under
from hpml_plugins.node.load import GLANCE, CpuWatch, describe_load
from hpml_plugins.node.needs import data_used, gpus_used, unmet
from hpml_plugins.node.nvml import read_gpus, read_state
