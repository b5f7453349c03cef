from __future__ import annotations

import errno
import gc
import math
import multiprocessing
import os
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from records import a_record

from hpml_plugins.errors import HpmlError, unwritable
from hpml_plugins.model.record import MetricSamples, Record, Series
from hpml_plugins.model.serialization import decode, encode
from hpml_plugins.store import append_record, read_file, read_records, record_file
from hpml_plugins.store.records import collector_paused


def record(number: int = 0) -> Record:
    metrics = {"time": MetricSamples("s", "lower", [0.1, 0.25], {"batch": 4})}
    params = {"size": number, "how": "ünï", "share": 0.5, "on": True}
    return a_record(params=params, metrics=metrics)


def test_a_record_survives_its_line_of_json() -> None:
    assert decode(encode(record())) == record()
    assert b"\n" not in encode(record())


def test_columns_of_numbers_and_of_text_survive_and_mixed_ones_are_refused() -> None:
    columns: dict[str, list[float | str]] = {
        "layer": ["conv", "fc"],
        "parameters": [1.0, 2.0],
        "none": [None, None],
    }
    line = encode(
        msgspec.structs.replace(
            record(), series={"layers": Series(columns, {"parameters": "1"})}
        )
    )
    assert decode(line).series["layers"].columns == columns
    assert decode(line.replace(b"[1.0,2.0]", b"[1,2.5]")).series["layers"].columns[
        "parameters"
    ] == [1.0, 2.5]
    not_finite = decode(line.replace(b"[1.0,2.0]", b"[1.0,null]")).series["layers"]
    assert math.isnan(not_finite.numbers("parameters")[1])
    for bad in (b'[1.0,"2"]', b"[1.0,[2.0]]"):
        with pytest.raises(msgspec.ValidationError, match="series"):
            decode(line.replace(b"[1.0,2.0]", bad))


def test_a_newer_writers_extra_fields_do_not_hinder_reading() -> None:
    assert (
        decode(encode(record()).replace(b'{"schema"', b'{"later":[1],"schema"', 1))
        == record()
    )


def test_a_point_is_the_same_whatever_the_order_of_its_parameters() -> None:
    other = a_record(
        plugin="q", params=dict(reversed(record().params.items())), status="failed"
    )
    assert other.point == record().point
    assert record(1).point != record().point


def test_the_file_is_of_the_machine_and_the_commit_and_asv_leaves_it_alone(
    tmp_path: Path,
) -> None:
    path = record_file(tmp_path, "h200-x1", "0123456789abcdef")
    assert path.relative_to(tmp_path).as_posix() == "h200-x1/records/01234567.jsonl"


def test_records_come_back_in_the_order_written(tmp_path: Path) -> None:
    path = tmp_path / "a" / "records.jsonl"
    for number in range(5):
        append_record(path, record(number))
    assert [found.params["size"] for found in read_file(path)] == [0, 1, 2, 3, 4]


def test_a_file_cut_at_any_byte_gives_every_whole_record_and_goes_on(
    tmp_path: Path,
) -> None:
    path = tmp_path / "records.jsonl"
    for number in range(3):
        append_record(path, record(number))
    whole = path.read_bytes()
    lengths = [len(encode(record(number))) + 1 for number in range(3)]
    cuts = 0
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        kept = sum(cut >= sum(lengths[: count + 1]) for count in range(3))
        assert len(list(read_file(path))) == kept
        append_record(path, record(9))
        found = [item.params["size"] for item in read_file(path)]
        # a line cut exactly before its line break is closed by the next append, and is whole
        assert found in ([*range(kept), 9], [*range(kept + 1), 9])
        cuts += 1
    assert cuts == sum(lengths)


def test_a_damaged_line_is_reported_with_its_place_and_stepped_over(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    append_record(path, record(1))
    with path.open("ab") as file:
        file.write(b'{"benchmark": "to\n\xff\xfe\n')
    append_record(path, record(2))
    damage: list[str] = []
    assert [found.params["size"] for found in read_file(path, damage.append)] == [1, 2]
    assert [item.partition(" ")[0] for item in damage] == [f"{path}:2:", f"{path}:3:"]
    assert "ignored" in damage[0]


def _append_many(path: Path, first: int) -> None:
    for number in range(first, first + 50):
        append_record(path, record(number))


def test_many_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    context = multiprocessing.get_context("fork")
    writers = [
        context.Process(target=_append_many, args=(path, 50 * writer))
        for writer in range(8)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    damage: list[str] = []
    assert sorted(
        int(found.params["size"]) for found in read_file(path, damage.append)
    ) == list(range(400))
    assert damage == []


def test_a_place_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        HpmlError, match=r"cannot write the Record: .*; free space or fix permissions"
    ):
        append_record(tmp_path / "file" / "records.jsonl", record())


def test_a_folder_that_must_not_be_read_is_no_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_record(record_file(tmp_path, "m", "c" * 40), record())
    folder = tmp_path / "m" / "records"
    listed = Path.iterdir

    def refused(path: Path) -> object:
        if path == folder:  # root may read all
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", refused)
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.R_OK)
    with pytest.raises(PermissionError) as found:
        list(read_records(tmp_path))
    said = str(unwritable(found.value))
    assert said.endswith("records: cannot be read: Permission denied; fix permissions")


def test_a_full_disk_is_said_and_keeps_what_was_there(tmp_path: Path) -> None:
    if not os.access("/dev/full", os.W_OK):
        pytest.skip("no /dev/full on this system")
    with pytest.raises(HpmlError, match="No space left on device"):
        append_record(Path("/dev/full"), record())


def test_a_line_nested_so_deep_that_nothing_reads_it_is_stepped_over(
    tmp_path: Path,
) -> None:
    path = tmp_path / "records.jsonl"
    append_record(path, record(1))
    with path.open("ab") as file:
        file.write(
            encode(record(3)).replace(
                b'"status"', b'"node":' + b'{"a":' * 20_000 + b',"status"'
            )
            + b"\n"
        )
    append_record(path, record(2))
    damage: list[str] = []
    assert [found.params["size"] for found in read_file(path, damage.append)] == [1, 2]
    assert "(nested too deep)" in damage[0]


def test_reading_everything_pauses_the_collector_and_leaves_it_as_it_was(
    tmp_path: Path,
) -> None:
    with collector_paused():
        assert not gc.isenabled()
        with collector_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    append_record(
        tmp_path / "m" / "records" / "uncommitted.jsonl", replace(record(), machine="m")
    )
    reading = iter(read_records(tmp_path))
    assert next(reading).machine == "m"
    assert not gc.isenabled()
    del reading  # half read
    assert gc.isenabled()
