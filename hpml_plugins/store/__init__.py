"""The record store: one JSON line a Record, appended, under results/<machine>/records/."""

from hpml_plugins.store.records import Damaged, append, check_writable, read, record_file

__all__ = ["Damaged", "append", "check_writable", "read", "record_file"]
