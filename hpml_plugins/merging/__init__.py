"""The union of results folders: the same whatever the order, and merging twice changes nothing.

Each kind of file has a join that is commutative, associative and idempotent; `folders` applies them file by file.
"""

from hpml_plugins.merging.folders import Report, merge_folders

__all__ = ["Report", "merge_folders"]
