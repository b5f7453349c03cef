"""The results folder: Records as JSON lines, which are authoritative, and asv's files, which are
generated from them.

Each name is imported at its first use: a run only appends Records, and needs neither merging nor
asv's files.
"""

from typing import TYPE_CHECKING

from hpml_plugins.lazy import import_lazily

if TYPE_CHECKING:
    from hpml_plugins.model.serialization import decode
    from hpml_plugins.store.asv_results import foreign_declarations, read_foreign
    from hpml_plugins.store.declarations import DECLARATIONS, asv_name, declare_metric
    from hpml_plugins.store.files import (
        MAX_FILE,
        OnDamage,
        atomic_write,
        machine_folder,
        machine_folders,
        open_result,
        path_in,
        read_object,
        read_object_or_empty,
        results_folder,
        walk_results,
    )
    from hpml_plugins.store.history import (
        CommitOrder,
        Standing,
        commit_order,
        describe_by_date,
        describe_outside,
    )
    from hpml_plugins.store.index import Index, current_records, of_node
    from hpml_plugins.store.locks import Lock, Locked, lock_machine
    from hpml_plugins.store.merge import find_results, merge_results
    from hpml_plugins.store.projection import project, save_declarations
    from hpml_plugins.store.records import (
        MAX_RECORDS,
        append_record,
        decode_file,
        is_in_records,
        misplaced,
        read_file,
        read_records,
        record_file,
        record_files,
        stored_rounds,
        unpack_records,
    )

_NAMES = {
    "hpml_plugins.model.serialization": ("decode",),
    ".asv_results": ("foreign_declarations", "read_foreign"),
    ".declarations": ("DECLARATIONS", "asv_name", "declare_metric"),
    ".files": (
        "MAX_FILE",
        "OnDamage",
        "atomic_write",
        "machine_folder",
        "machine_folders",
        "open_result",
        "path_in",
        "read_object",
        "read_object_or_empty",
        "results_folder",
        "walk_results",
    ),
    ".history": (
        "CommitOrder",
        "Standing",
        "commit_order",
        "describe_by_date",
        "describe_outside",
    ),
    ".index": ("Index", "current_records", "of_node"),
    ".locks": ("Lock", "Locked", "lock_machine"),
    ".merge": ("find_results", "merge_results"),
    ".projection": ("project", "save_declarations"),
    ".records": (
        "MAX_RECORDS",
        "append_record",
        "decode_file",
        "is_in_records",
        "misplaced",
        "read_file",
        "read_records",
        "record_file",
        "record_files",
        "stored_rounds",
        "unpack_records",
    ),
}
__all__ = [name for names in _NAMES.values() for name in names]

__getattr__ = import_lazily(__name__, _NAMES)
