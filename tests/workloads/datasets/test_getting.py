from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import re
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from data_files import write_idx_files, write_image_folders

from hpml_plugins import HpmlError, load_data
from hpml_plugins.workloads.datasets.command import download, unpack

Hpml = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A small cifar10-jpeg.tar.xz."""
    write_image_folders(tmp_path / "made", train=1)
    path = tmp_path / "cifar10-jpeg.tar.xz"
    with tarfile.open(path, "w:xz") as tar:
        for part in ("train", "test"):
            tar.add(tmp_path / "made" / part, part)
    return path


def test_an_archive_is_unpacked_found_and_loaded(archive: Path, root: Path) -> None:
    assert unpack(archive, root) == root / "cifar10-jpeg"
    assert len(load_data("cifar10-jpeg").train) == 10
    assert [path.name for path in root.iterdir()] == ["cifar10-jpeg"]
    with pytest.raises(
        HpmlError, match=r"cifar10-jpeg is in .* already; remove that first"
    ):
        unpack(archive, root)


def evil(
    path: Path, *, name: str = "train/x.jpg", kind: bytes = tarfile.REGTYPE, link: str = ""
) -> Path:
    with tarfile.open(path, "w") as tar:
        member = tarfile.TarInfo(name)
        member.type, member.linkname, member.size = (
            kind,
            link,
            4 if kind == tarfile.REGTYPE else 0,
        )
        tar.addfile(member, io.BytesIO(b"evil"))
    return path


@pytest.mark.parametrize(
    "member",
    [
        {"name": "../../escaped"},
        {"name": "train/link", "kind": tarfile.SYMTYPE, "link": "/etc/passwd"},
        {"name": "train/link", "kind": tarfile.SYMTYPE, "link": "../../../escaped"},
        {"name": "train/link", "kind": tarfile.SYMTYPE, "link": "inside"},
        {"name": "train/hard", "kind": tarfile.LNKTYPE, "link": "../../../../etc/passwd"},
        {"name": "train/../../escaped"},
        {"name": "train/null", "kind": tarfile.CHRTYPE},
        {"name": "train/pipe", "kind": tarfile.FIFOTYPE},
    ],
)
def test_an_archive_that_reaches_out_of_its_folder_is_refused(
    tmp_path: Path, root: Path, member: dict[str, object]
) -> None:
    with pytest.raises(
        HpmlError, match=r"cifar10-jpeg\.tar: cannot be unpacked into .*Error: "
    ) as raised:
        unpack(evil(tmp_path / "cifar10-jpeg.tar", **member), root)  # type: ignore[arg-type]
    assert "\n" not in str(raised.value)
    assert list(root.iterdir()) == []
    assert not list(tmp_path.rglob("escaped"))


def test_an_absolute_name_lands_inside_or_nowhere(tmp_path: Path, root: Path) -> None:
    target = tmp_path / "absolute"
    with pytest.raises(HpmlError, match="is not cifar10-jpeg"):
        unpack(evil(tmp_path / "cifar10-jpeg.tar", name=str(target)), root)
    assert not target.exists()
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("keep", [0.0, 0.01, 0.5, 0.9])
def test_a_damaged_archive_is_one_line_and_leaves_nothing(
    archive: Path, root: Path, keep: float
) -> None:
    archive.write_bytes(archive.read_bytes()[: int(keep * archive.stat().st_size)])
    with pytest.raises(HpmlError, match=r"cifar10-jpeg\.tar\.xz: cannot be unpacked"):
        unpack(archive, root)
    assert list(root.iterdir()) == []


def test_flipped_bytes_in_an_archive_are_one_line(archive: Path, root: Path) -> None:
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 0xFF
    archive.write_bytes(content)
    with pytest.raises(HpmlError, match="cannot be unpacked"):
        unpack(archive, root)
    assert list(root.iterdir()) == []


def tarred(*members: tuple[str, int], end: bytes = bytes(1024)) -> bytes:
    """A tar archive of files of zeros. end: what stands behind the last member."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, size in members:
            member = tarfile.TarInfo(name)
            member.size = size
            tar.addfile(member, io.BytesIO(bytes(size)))
        length = tar.offset
    return file.getvalue()[:length] + end


#: A whole data set, as far as its folders tell.
WHOLE = tarred(("train/cat/1.jpg", 3000), ("test/cat/1.jpg", 600))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (gzip.compress(WHOLE)[:-8] + bytes(8), "CRC check failed"),
        (gzip.compress(WHOLE)[:-4], "end-of-stream marker"),
        (gzip.compress(WHOLE[:-1024] + b"x" * 512), "it is damaged or cut off"),
        (bz2.compress(WHOLE)[:-4] + b"\0\1\2\3", "Invalid data stream"),
        (lzma.compress(WHOLE)[:-20], "end-of-stream marker"),
        (WHOLE[:-1024], "it is damaged or cut off"),
        (WHOLE[:-512], "it is damaged or cut off"),
        (WHOLE[:-1024] + b"broken header" * 90, "it is damaged or cut off"),
        (
            gzip.compress(tarred(("train/a", 1), ("bomb", 30 << 20))),
            "more than 26214400 B, 100 times",
        ),
        (
            lzma.compress(tarred(("train/a", 1), ("test/b", 1)) + bytes(30 << 20)),
            "more than 26214400 B, 100 times",
        ),
    ],
)
def test_an_archive_is_read_to_its_end_and_a_bomb_is_not_unpacked(
    tmp_path: Path, root: Path, content: bytes, reason: str
) -> None:
    (path := tmp_path / "cifar10-jpeg.tar").write_bytes(content)
    with pytest.raises(HpmlError, match=re.escape(reason)):
        unpack(path, root)
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_a_whole_archive_is_unpacked_however_it_is_packed(
    tmp_path: Path, root: Path, pack: Callable[[bytes], bytes]
) -> None:
    (path := tmp_path / "cifar10-jpeg.tar").write_bytes(pack(WHOLE + bytes(8192)))
    assert unpack(path, root) == root / "cifar10-jpeg"


def test_a_file_with_holes_is_refused(tmp_path: Path, root: Path) -> None:
    made = tmp_path / "holes"
    with made.open("wb") as file:
        file.truncate(1 << 40)
    packed = tmp_path / "cifar10-jpeg.tar"
    subprocess.run(["tar", "--sparse", "-cf", packed, "-C", tmp_path, "holes"], check=True)
    with pytest.raises(HpmlError, match="'holes' is a file with holes"):
        unpack(packed, root)
    assert list(root.iterdir()) == []


def test_an_archive_of_something_else_is_said(tmp_path: Path, root: Path) -> None:
    with pytest.raises(
        HpmlError,
        match=r"cifar10-jpeg\.tar is not cifar10-jpeg: no cifar10-jpeg/ with train",
    ):
        unpack(evil(tmp_path / "cifar10-jpeg.tar", name="readme"), root)
    with pytest.raises(HpmlError, match="no data set 'cats'; known: digits"):
        unpack(tmp_path / "cats.tar", root)
    with pytest.raises(HpmlError, match="no such file"):
        unpack(tmp_path / "cifar10-jpeg.tar.xz", root)
    with pytest.raises(
        HpmlError,
        match="digits cannot be unpacked from an archive; pip install scikit-learn",
    ):
        unpack(tmp_path / "digits.tar", root)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A server of MNIST's four files on this machine, where torchvision looks."""
    from torchvision.datasets import MNIST

    folder = tmp_path / "served"
    write_idx_files(folder, packed=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sums = [
        (name, hashlib.md5((folder / name).read_bytes()).hexdigest())
        for name, _ in MNIST.resources
    ]
    monkeypatch.setattr(MNIST, "mirrors", [f"http://127.0.0.1:{server.server_address[1]}/"])
    monkeypatch.setattr(MNIST, "resources", sums)
    monkeypatch.setenv("no_proxy", "*")
    yield folder
    server.shutdown()
    server.server_close()


@pytest.mark.usefixtures("mirror")
def test_get_downloads_by_torchvision_and_a_second_get_finds_it(root: Path) -> None:
    assert download("mnist", root) == root / "MNIST/raw"
    assert len(load_data("mnist").train) == 40
    assert download("mnist", root) == root / "MNIST/raw"


def test_a_failed_download_is_one_line(mirror: Path, root: Path) -> None:
    (mirror / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(b"something else"))
    with pytest.raises(HpmlError, match="mnist could not be downloaded to ") as raised:
        download("mnist", root)
    assert "\n" not in str(raised.value)
    with pytest.raises(
        HpmlError,
        match=r"cifar10-jpeg cannot be downloaded; hpml data add PATH/cifar10-jpeg\.tar\.xz",
    ):
        download("cifar10-jpeg", root)


def test_the_command_lists_adds_and_shows(hpml: Hpml, archive: Path, root: Path) -> None:
    listed = hpml("data")
    assert listed.returncode == 0, listed.stderr
    assert "cifar10-jpeg   missing  hpml data add PATH/cifar10-jpeg.tar.xz" in listed.stdout
    assert f"looked in: {root}, " in listed.stdout
    assert (
        hpml("data", "add", str(archive), "--root", str(root)).stdout
        == f"unpacked into {root}/cifar10-jpeg\n"
    )
    shown = hpml("data", "show", "cifar10-jpeg").stdout
    assert "images       10 for training, 10 for testing" in shown
    assert f"cifar10-jpeg   here     {root}/cifar10-jpeg; decoded, " in hpml("data").stdout


def test_the_command_says_what_is_wrong_in_one_line(hpml: Hpml) -> None:
    for words, message in (
        (("get", "cifar11"), "hpml: no data set 'cifar11'; did you mean 'cifar10'?\n"),
        (
            ("get", "digits"),
            "hpml: digits cannot be downloaded; pip install scikit-learn, which carries it\n",
        ),
        (
            ("add", "/nowhere/cifar10-jpeg.tar"),
            "hpml: /nowhere/cifar10-jpeg.tar: no such file\n",
        ),
    ):
        done = hpml("data", *words)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", message)
