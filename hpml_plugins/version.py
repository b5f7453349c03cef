"""The version of this package, for modules that its `__init__` imports."""

__version__ = "0.1.0"
