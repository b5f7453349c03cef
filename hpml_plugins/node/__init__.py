"""This node: CPU and memory from the system, GPUs through NVML, its name, and whether it meets a
point's requirements. Modules that use NVML are imported only if there is a driver."""

from typing import TYPE_CHECKING

from hpml_plugins.lazy import import_lazily
from hpml_plugins.node.detect import (
    detect_node,
    earlier_names,
    filed_under,
    machine_name,
    pin_devices,
    read_gpus,
    usable,
)
from hpml_plugins.node.load import GLANCE, CpuWatch, describe_load
from hpml_plugins.node.needs import data_used, gpus_used, unmet

if TYPE_CHECKING:
    from hpml_plugins.node.nvml import read_state

__getattr__ = import_lazily(__name__, {".nvml": ("read_state",)})
