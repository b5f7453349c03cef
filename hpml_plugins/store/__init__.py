"""The results folder: Records as JSON lines, which are the truth, and asv's files, which are written from them."""

from typing import TYPE_CHECKING

from hpml_plugins.lazy import lazy_names
from hpml_plugins.store.files import atomic_write, read_object, read_object_or_empty
from hpml_plugins.store.locks import Lock, Locked, MachineLocked, lock_declarations, lock_machine
from hpml_plugins.store.records import (
    Damaged,
    append_record,
    check_writable,
    commit_order,
    current_records,
    decode_file,
    read_file,
    read_records,
    record_file,
    record_files,
)

if TYPE_CHECKING:
    from hpml_plugins.store.merge import MergeReport, merge_results
    from hpml_plugins.store.projection import count_missing, project

__all__ = [
    "Damaged",
    "Lock",
    "Locked",
    "MachineLocked",
    "MergeReport",
    "append_record",
    "atomic_write",
    "check_writable",
    "commit_order",
    "count_missing",
    "current_records",
    "decode_file",
    "lock_declarations",
    "lock_machine",
    "merge_results",
    "project",
    "read_file",
    "read_object",
    "read_object_or_empty",
    "read_records",
    "record_file",
    "record_files",
]

__getattr__ = lazy_names(
    __name__, {"merge": ("MergeReport", "merge_results"), "projection": ("count_missing", "project")}
)
