"""Code shared by plugins, outside the core: data sets, operation counting, formulas of
collectives."""

from hpml_plugins.workloads.collectives import bus_factor

__all__ = ["bus_factor"]
