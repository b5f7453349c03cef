from __future__ import annotations

import gzip
import hashlib
import math
import re
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from data_files import idx, write_cifar10, write_idx_files, write_image_folders
from support import unavailable

from hpml_plugins import HpmlError, load_data
from hpml_plugins.workloads.datasets import DataSource
from hpml_plugins.workloads.datasets.builtin import (
    CIFAR10_CLASSES,
    IDX_FILES,
    find_folder,
    read_idx,
)
from hpml_plugins.workloads.datasets.dataset import Arrays
from hpml_plugins.workloads.datasets.decoding import (
    channel_statistics,
    decoded_copy,
    fingerprint,
)

DEBIAN = Path("/usr/share/datasets")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("name", "place"), [("mnist", "MNIST/raw"), ("fashion-mnist", "FashionMNIST/raw")]
)
def test_idx_files_are_read_plain_and_packed(
    root: Path, name: str, place: str, packed: bool
) -> None:
    images, labels, test_images, test_labels = write_idx_files(root / place, packed=packed)
    data = load_data(name)
    assert (data.name, data.shape, len(data.classes)) == (name, (1, 28, 28), 10)
    assert (data.train.images.dtype, data.train.labels.dtype) == (torch.uint8, torch.int64)
    assert np.array_equal(data.train.images[:, 0].numpy(), images)
    assert np.array_equal(data.train.labels.numpy(), labels)
    assert np.array_equal(data.test.images[:, 0].numpy(), test_images)
    assert np.array_equal(data.test.labels.numpy(), test_labels)


def test_packed_and_plain_files_of_the_same_data_have_one_fingerprint(root: Path) -> None:
    write_idx_files(root / "MNIST/raw")
    plain = load_data("mnist")
    for file in (root / "MNIST/raw").iterdir():
        file.unlink()
    write_idx_files(root / "MNIST/raw", packed=True)
    assert load_data("mnist").fingerprint == plain.fingerprint
    write_idx_files(root / "MNIST/raw", train=41, packed=True)
    assert load_data("mnist").fingerprint != plain.fingerprint


def test_image_folders_are_read_in_the_order_of_the_classes(root: Path) -> None:
    write_image_folders(root / "cifar10-jpeg")
    data = load_data("cifar10-jpeg")
    assert (data.shape, data.classes) == ((3, 32, 32), CIFAR10_CLASSES)
    assert data.train.labels.tolist() == [label for label in range(10) for _ in range(3)]
    # one grey level a class, which JPEG keeps
    assert torch.equal(data.train.images[:, 0, 0, 0].long(), 20 * data.train.labels)
    assert len(data.test) == 10


def test_cifar10_is_read_by_torchvision_only_with_the_right_md5(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchvision.datasets import CIFAR10

    files = write_cifar10(root / "cifar-10-batches-py")
    with pytest.raises(
        HpmlError, match=r"data set cifar10 is damaged: .*not found or corrupted"
    ):
        load_data("cifar10")
    md5 = {name: hashlib.md5(content).hexdigest() for name, content in files.items()}
    monkeypatch.setattr(
        CIFAR10,
        "train_list",
        [[f"data_batch_{n}", md5[f"data_batch_{n}"]] for n in range(1, 6)],
    )
    monkeypatch.setattr(CIFAR10, "test_list", [["test_batch", md5["test_batch"]]])
    monkeypatch.setattr(CIFAR10, "meta", {**CIFAR10.meta, "md5": md5["batches.meta"]})
    data = load_data("cifar10")
    assert (len(data.train), len(data.test), data.shape, data.classes) == (
        50,
        10,
        (3, 32, 32),
        CIFAR10_CLASSES,
    )


def test_digits_are_scikit_learns_with_a_fixed_split_by_class() -> None:
    from sklearn.datasets import load_digits

    data = load_data("digits")
    truth = load_digits()
    assert data.shape == (1, 8, 8)
    held = sorted(map(bytes, [*data.train.images.numpy(), *data.test.images.numpy()]))
    assert held == sorted(map(bytes, np.rint(truth.images * 255 / 16).astype(np.uint8)))
    # 178 182 177 183 181 182 181 179 174 180 digits of the classes 0 to 9; a fifth of each, rounded
    # down, is 35 36 35 36 36 36 36 35 34 36 = 355, and 1797 - 355 = 1442
    assert data.test.labels.bincount().tolist() == [35, 36, 35, 36, 36, 36, 36, 35, 34, 36]
    assert (len(data.train), len(data.test)) == (1442, 355)
    assert (
        data.fingerprint
        == "sha256:3411a1150e74dcd214b03ced69814c0ca38f58e5f807b4ff4ba44cf24224cc83"
    )


def test_fashion_mnist_of_debian_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    if not find_folder(DEBIAN, ("fashion-mnist",), IDX_FILES):
        unavailable("no Fashion-MNIST: apt-get install dataset-fashion-mnist")
    arrays = read_idx(DEBIAN / "fashion-mnist", "FashionMNIST")
    assert (arrays.train_images.shape, arrays.test_images.shape) == (
        (60000, 1, 28, 28),
        (10000, 1, 28, 28),
    )
    assert np.bincount(arrays.train_labels).tolist() == [6000] * 10
    mean, std = channel_statistics(arrays.train_images)
    # as published everywhere: 0.2860 and 0.3530
    assert (round(mean[0], 4), round(std[0], 4)) == (0.2860, 0.3530)
    assert (
        fingerprint(arrays)
        == "sha256:828b0ef6844fb2dbcf25da877fd3c197d0ebd5326e728bf80fbe0ec99d844d19"
    )


def test_channel_statistics_are_those_computed_by_hand() -> None:
    images = torch.tensor(
        [[[[0, 255]], [[51, 51]]], [[[0, 255]], [[51, 51]]]], dtype=torch.uint8
    )
    mean, std = channel_statistics(images)
    # channel 0: half 0, half 1: mean 1/2, deviation 1/2; channel 1: 51/255 = 0.2 everywhere,
    # deviation 0
    assert mean == pytest.approx((0.5, 0.2))
    assert std == pytest.approx((0.5, 0.0))


def test_channel_statistics_are_numpys() -> None:
    images = np.random.default_rng(0).integers(0, 256, (7, 3, 5, 4), dtype=np.uint8)
    mean, std = channel_statistics(images)
    assert mean == pytest.approx((images / 255).mean((0, 2, 3)))
    assert std == pytest.approx((images / 255).std((0, 2, 3)))


def test_normalized_images_have_mean_0_and_deviation_1(root: Path) -> None:
    write_idx_files(root / "MNIST/raw")
    data = load_data("mnist").normalized()
    assert data.train.images.dtype == torch.float32
    assert float(data.train.images.mean()) == pytest.approx(0, abs=1e-5)
    assert float(data.train.images.std(correction=0)) == pytest.approx(1, abs=1e-5)
    with pytest.raises(HpmlError, match="they are normalised once"):
        data.normalized()


def test_a_constant_channel_is_normalised_to_nothing_and_not_to_infinity(
    root: Path,
) -> None:
    write_image_folders(root / "cifar10-jpeg", classes=CIFAR10_CLASSES)
    data = load_data("cifar10-jpeg")
    flat = data.normalize(torch.zeros(1, 3, 2, 2, dtype=torch.uint8))
    assert math.isfinite(float(flat.sum()))


# --- the decoded copy


def quiet(text: str) -> None:
    """Discard the message."""


def toy(path: Path, loads: list[int], seconds: float = 0.0) -> DataSource:
    def load(folder: Path) -> Arrays:
        loads.append(threading.get_ident())
        threading.Event().wait(seconds)
        images = np.full((4, 1, 2, 2), int(folder.read_text()), dtype=np.uint8)
        return Arrays(images, np.arange(4), images[:2], np.arange(2), ("a", "b", "c", "d"))

    return DataSource("toy", lambda root: path, load, "toy", "make it")


def test_a_second_load_maps_the_decoded_copy_and_a_changed_file_is_decoded_again(
    tmp_path: Path,
) -> None:
    file, loads = tmp_path / "toy", []
    file.write_text("7")
    source = toy(file, loads)
    first, second = source.load(quiet), source.load(quiet)
    assert len(loads) == 1
    assert torch.equal(first.train.images, second.train.images)
    assert (first.mean, first.fingerprint) == (second.mean, second.fingerprint)
    second.train.images.zero_()  # a private copy of the pages: others do not see it
    assert int(source.load(quiet).train.images.max()) == 7
    file.write_text("200")
    assert int(source.load(quiet).train.images.max()) == 200
    assert len(loads) == 2
    kept = list((tmp_path / "cache/hpml/decoded").glob("*.pt"))
    assert len(kept) == 1  # the copy of the earlier state is gone


def test_many_at_once_decode_once(tmp_path: Path) -> None:
    file, loads = tmp_path / "toy", []
    file.write_text("7")
    source = toy(file, loads, seconds=0.2)
    with ThreadPoolExecutor(
        6
    ) as pool:  # the lock is by open file, so threads stand for processes
        sets = list(pool.map(lambda _: source.load(quiet), range(6)))
    assert len(loads) == 1
    assert {data.fingerprint for data in sets} == {sets[0].fingerprint}


@pytest.mark.parametrize("content", [b"", b"PK", b"{}", None, 0.5])
def test_a_damaged_copy_is_made_again(
    tmp_path: Path, content: bytes | float | None
) -> None:
    file, loads = tmp_path / "toy", []
    file.write_text("7")
    source = toy(file, loads)
    source.load(quiet)
    copy = decoded_copy("toy", file)
    whole = copy.read_bytes()
    copy.unlink()
    if content is not None:
        copy.write_bytes(
            whole[: int(content * len(whole))] if isinstance(content, float) else content
        )
    assert int(source.load(quiet).train.images.max()) == 7
    assert len(loads) == 2
    assert source.load(quiet).classes == ("a", "b", "c", "d")
    assert len(loads) == 2


def test_without_a_cache_to_write_to_data_are_decoded_each_time_and_it_is_said(
    tmp_path: Path,
) -> None:
    file, loads, said = tmp_path / "toy", [], []
    file.write_text("7")
    (tmp_path / "cache").write_text("a file where the folder should be")
    source = toy(file, loads)
    source.load(said.append)
    assert len(source.load(quiet).train) == 4
    assert len(loads) == 2
    assert "toy: decoded copy not kept: " in said[1]


# --- what is wrong with a data set


def damaged(name: str) -> str:
    with pytest.raises(HpmlError) as raised:
        load_data(name)
    text = str(raised.value)
    assert text.startswith(f"data set {name} is damaged: ")
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("train-images-idx3-ubyte", b""),
        ("train-images-idx3-ubyte", b"\0\0\x08\x03" + b"\xff" * 12),
        ("train-images-idx3-ubyte", idx(np.zeros((40, 28, 28)))[:-1]),
        ("train-labels-idx1-ubyte", idx(np.zeros(40))[:20]),
        ("train-labels-idx1-ubyte", b"<html>not found</html>"),
        ("t10k-images-idx3-ubyte.gz", b"\x1f\x8b\x08 this is no gzip"),
    ],
)
def test_a_damaged_idx_file_is_one_line_with_its_folder(
    root: Path, file: str, content: bytes
) -> None:
    folder = root / "MNIST/raw"
    write_idx_files(folder)
    (folder / file.removesuffix(".gz")).unlink()
    (folder / file).write_bytes(content)
    assert f"{folder}: " in damaged("mnist")


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_file_longer_than_any_of_its_kind_is_not_read(root: Path, suffix: str) -> None:
    folder, name = root / "MNIST/raw", "train-images-idx3-ubyte"
    write_idx_files(folder)
    (folder / name).unlink()
    with (gzip.open if suffix else open)(folder / f"{name}{suffix}", "wb") as file:
        for _ in range(500):  # a gzip bomb of 500 MB in 0.5 MB
            file.write(bytes(1 << 20))
    tracemalloc.start()
    try:
        assert f"{folder}: {name} is longer than 47040016 B" in damaged("mnist")
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()


def test_counts_labels_and_shapes_that_do_not_fit_are_named(root: Path) -> None:
    folder = root / "MNIST/raw"
    write_idx_files(folder)
    (folder / "train-labels-idx1-ubyte").write_bytes(idx(np.zeros(39)))
    assert "40 training images and 39 labels" in damaged("mnist")
    (folder / "train-labels-idx1-ubyte").write_bytes(idx(np.full(40, 10)))
    assert "training labels from 10 to 10 for 10 classes" in damaged("mnist")
    write_idx_files(folder)
    (folder / "t10k-images-idx3-ubyte").write_bytes(idx(np.zeros((20, 27, 28))))
    assert (
        "training and test images of different shape: [(1, 27, 28), (1, 28, 28)]"
        in damaged("mnist")
    )


def test_a_data_set_without_images_or_of_another_type_is_named(tmp_path: Path) -> None:
    images, labels = np.zeros((2, 1, 4, 4), dtype=np.uint8), np.zeros(2, dtype=np.int64)
    for arrays, fault in (
        (Arrays(images, labels, images[:0], labels[:0], ("a",)), "no test images"),
        (
            Arrays(images / 1.0, labels, images, labels, ("a",)),
            "training images are float64 (2, 1, 4, 4)",
        ),
    ):
        source = DataSource(
            "toy", lambda root: tmp_path, lambda path, held=arrays: held, "toy", "make it"
        )
        with pytest.raises(
            HpmlError, match=re.escape(f"data set toy is damaged: {tmp_path}: {fault}")
        ):
            source.load(quiet)


def test_a_truncated_image_is_named(root: Path) -> None:
    write_image_folders(root / "cifar10-jpeg")
    file = root / "cifar10-jpeg/test/cat/0000.jpg"
    file.write_bytes(file.read_bytes()[:-200])
    assert f"{file}: not a whole image: OSError: " in damaged("cifar10-jpeg")


def test_an_image_of_another_size_is_named(root: Path) -> None:
    from PIL import Image

    write_image_folders(root / "cifar10-jpeg")
    file = root / "cifar10-jpeg/train/dog/0001.jpg"
    Image.new("RGB", (16, 32)).save(file)
    assert f"{file}: its shape is (3, 32, 16), not (3, 32, 32)" in damaged("cifar10-jpeg")


def test_class_folders_that_are_others_or_empty_are_named(root: Path) -> None:
    folder = root / "cifar10-jpeg"
    write_image_folders(folder)
    (folder / "train/cat").rename(folder / "train/lion")
    assert f"{folder}/train: its class folders are not the 10 wanted: cat, lion" in damaged(
        "cifar10-jpeg"
    )
    (folder / "train/lion").rename(folder / "train/cat")
    (folder / "test/ship/0000.jpg").unlink()
    assert "ship" in damaged("cifar10-jpeg")
