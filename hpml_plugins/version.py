"""The version of this package, for modules that the package's own `__init__` names."""

__version__ = "0.1.0"
