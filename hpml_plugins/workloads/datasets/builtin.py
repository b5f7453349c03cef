"""The data sets that are known without a plugin, as plain values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hpml_plugins.workloads.datasets import readers
from hpml_plugins.workloads.datasets.source import DataSource


def idx_folder(*places: str) -> Callable[[Path], Path | None]:
    """Finds the first of these folders under a root that holds the four idx files, each plain or as .gz."""

    def find(root: Path) -> Path | None:
        for place in places:
            folder = root / place
            if all((folder / name).is_file() or (folder / f"{name}.gz").is_file() for name in readers.IDX_FILES):
                return folder
        return None

    return find


def find_cifar10(root: Path) -> Path | None:
    """The folder of the Python version of CIFAR-10, as torchvision unpacks it."""
    folder = root / "cifar-10-batches-py"
    return folder if (folder / "batches.meta").is_file() and (folder / "test_batch").is_file() else None


def find_cifar10_jpeg(root: Path) -> Path | None:
    """A folder with `train/<class>/` and `test/<class>/`."""
    folder = root / "cifar10-jpeg"
    return folder if (folder / "train").is_dir() and (folder / "test").is_dir() else None


def find_digits(root: Path) -> Path | None:
    """scikit-learn's file of the digits, in its own folder or copied into a root."""
    return next((file for file in (root / "digits.csv.gz", root / "digits/digits.csv.gz") if file.is_file()), None)


_BUILT_IN = (
    DataSource(
        name="digits",
        find=find_digits,
        load=readers.read_digits,
        looks_for="digits.csv.gz",
        mend="pip install scikit-learn, which carries it",
        extra_roots=readers.scikit_learn_root,
    ),
    DataSource(
        name="mnist",
        find=idx_folder("MNIST/raw", "mnist"),
        load=readers.read_mnist,
        looks_for="MNIST/raw/ or mnist/ with the four idx files",
        mend="hpml data get mnist",
        modules=("torchvision",),
        download=readers.download_mnist,
    ),
    DataSource(
        name="fashion-mnist",
        find=idx_folder("FashionMNIST/raw", "fashion-mnist"),
        load=readers.read_fashion_mnist,
        looks_for="FashionMNIST/raw/ or fashion-mnist/ with the four idx files",
        mend="hpml data get fashion-mnist, or on Debian apt-get install dataset-fashion-mnist",
        modules=("torchvision",),
        download=readers.download_fashion_mnist,
    ),
    DataSource(
        name="cifar10",
        find=find_cifar10,
        load=readers.read_cifar10,
        looks_for="cifar-10-batches-py/",
        mend="hpml data get cifar10, or hpml data add cifar-10-python.tar.gz --name cifar10",
        modules=("torchvision",),
        download=readers.download_cifar10,
        unpack_to=".",
    ),
    DataSource(
        name="cifar10-jpeg",
        find=find_cifar10_jpeg,
        load=readers.read_cifar10_jpeg,
        looks_for="cifar10-jpeg/ with train/CLASS/*.jpg and test/CLASS/*.jpg",
        mend="hpml data add PATH/cifar10-jpeg.tar.xz",
        modules=("torchvision",),
        unpack_to="cifar10-jpeg",
    ),
)

#: name → source
SOURCES = {source.name: source for source in _BUILT_IN}
