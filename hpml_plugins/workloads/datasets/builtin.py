"""The built-in data sets: read by torchvision's loaders from a local folder, and scikit-learn's
digits."""

from __future__ import annotations

import gzip
import importlib.util
from functools import partial
from pathlib import Path
from typing import Any

from hpml_plugins.errors import HpmlError, describe
from hpml_plugins.workloads.datasets.dataset import Arrays
from hpml_plugins.workloads.datasets.source import DataSource

#: The four files of the MNIST format, uncompressed as torchvision leaves them, or compressed as
#: published.
IDX_FILES = tuple(
    f"{part}-{what}-ubyte"
    for part in ("train", "t10k")
    for what in ("images-idx3", "labels-idx1")
)
#: B of the largest of them: a header, and 60,000 images of 28×28. Longer files are not read into
#: memory.
LARGEST_IDX = 16 + 60_000 * 28 * 28
#: In torchvision's order, which is also alphabetical and therefore ImageFolder's.
CIFAR10_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
#: The share of each class of the digits that is for testing.
DIGITS_TEST_SHARE = 0.2
DIGITS_SEED = 0


def read_digits(file: Path) -> Arrays:
    """1,797 handwritten digits, 8×8, grey levels 0 to 16 spread over 0 to 255; split by
    `split_by_class`.

    The file is scikit-learn's own and is read as its load_digits does, which would take 2 s to
    import. Raises HpmlError unless it contains rows of 64 levels and a digit.
    """
    import numpy as np

    table = np.loadtxt(file, delimiter=",", ndmin=2)
    if table.shape[1] != 65 or not ((table >= 0) & (table <= 16)).all():
        raise HpmlError(f"{file}: not rows of 64 grey levels from 0 to 16 and a digit")
    images = np.rint(table[:, :64] * 255 / 16).astype(np.uint8).reshape(-1, 1, 8, 8)
    labels = table[:, 64].astype(np.int64)
    test = split_by_class(labels, DIGITS_TEST_SHARE, DIGITS_SEED)
    classes = tuple(str(digit) for digit in range(10))
    return Arrays(images[~test], labels[~test], images[test], labels[test], classes)


def split_by_class(labels: Any, share: float, seed: int) -> Any:
    """Which samples are for testing, a bool array: this share of each class, rounded down.

    Uses NumPy's RandomState, whose stream is frozen: every version of NumPy gives the same split.
    """
    import numpy as np

    random = np.random.RandomState(seed)
    test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        of_class = random.permutation(np.flatnonzero(labels == label))
        test[of_class[: int(len(of_class) * share)]] = True
    return test


def scikit_learn_root() -> tuple[Path, ...]:
    """The folder in which scikit-learn keeps `digits.csv.gz`, found without importing it."""
    spec = importlib.util.find_spec("sklearn")
    places = (spec.submodule_search_locations or []) if spec else []
    return tuple(Path(place, "datasets", "data") for place in places)


def read_idx(folder: Path, loader: str) -> Arrays:
    """MNIST or Fashion-MNIST from its four idx files, compressed or not. loader: torchvision's,
    which has the classes.

    An idx file is four bytes, the last of which is the number of dimensions, the sizes as 32-bit
    numbers, and the data. Source: yann.lecun.com/exdb/mnist.
    """
    import numpy as np

    def read(name: str, dimensions: int) -> Any:
        plain = folder / name
        with (
            plain.open("rb")
            if plain.is_file()
            else gzip.open(folder / f"{name}.gz") as file
        ):
            content = file.read(LARGEST_IDX + 1)
        if len(content) > LARGEST_IDX:
            raise HpmlError(
                f"{folder}: {name} is longer than {LARGEST_IDX} B, the largest file of this"
                " data set"
            )
        if content[:4] != bytes([0, 0, 8, dimensions]):
            raise HpmlError(
                f"{folder}: {name} is no idx file of bytes in {dimensions} dimensions"
            )
        sizes = np.frombuffer(content, ">i4", dimensions, offset=4)
        return (
            np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions)
            .reshape(sizes)
            .copy()
        )

    images = [read(name, 3)[:, None] for name in IDX_FILES[::2]]
    labels = [read(name, 1).astype(np.int64) for name in IDX_FILES[1::2]]
    return Arrays(
        images[0], labels[0], images[1], labels[1], tuple(_torchvision(loader).classes)
    )


def read_cifar10(folder: Path) -> Arrays:
    """CIFAR-10 by torchvision, which checks the MD5 of its files before unpickling them."""
    import numpy as np

    splits = [
        _torchvision("CIFAR10")(str(folder.parent), train=train) for train in (True, False)
    ]
    images = [np.ascontiguousarray(split.data.transpose(0, 3, 1, 2)) for split in splits]
    labels = [np.asarray(split.targets, dtype=np.int64) for split in splits]
    return Arrays(images[0], labels[0], images[1], labels[1], tuple(splits[0].classes))


def read_cifar10_jpeg(folder: Path) -> Arrays:
    """CIFAR-10 as JPEG files in class folders, by torchvision's ImageFolder. Lossy, so it must not
    be named CIFAR-10.

    Raises HpmlError that names the wrong folder or file.
    """
    return Arrays(
        *_read_images(folder / "train"), *_read_images(folder / "test"), CIFAR10_CLASSES
    )


def _read_images(folder: Path) -> tuple[Any, Any]:
    import numpy as np
    from torchvision.datasets import ImageFolder
    from torchvision.transforms.functional import pil_to_tensor

    files = ImageFolder(str(folder), transform=pil_to_tensor)
    if tuple(files.classes) != CIFAR10_CLASSES:
        wrong = sorted(set(files.classes) ^ set(CIFAR10_CLASSES))
        raise HpmlError(
            f"{folder}: its class folders are not the 10 wanted: {', '.join(wrong[:5])}"
        )
    images = np.empty((len(files), 3, 32, 32), dtype=np.uint8)
    for number, (path, _) in enumerate(files.samples):
        try:
            image = files[number][0]
        except Exception as error:  # Pillow raises several kinds, without the file's name
            raise HpmlError(f"{path}: not a whole image: {describe(error)}") from error
        if image.shape != images.shape[1:]:
            raise HpmlError(
                f"{path}: its shape is {tuple(image.shape)}, not {images.shape[1:]}"
            )
        images[number] = image.numpy()
    return images, np.asarray(files.targets, dtype=np.int64)


def _torchvision(loader: str) -> Any:
    import torchvision.datasets

    return getattr(torchvision.datasets, loader)


def download(root: Path, loader: str) -> None:
    """Download with torchvision's loader of this name, which checks the MD5."""
    _torchvision(loader)(str(root), download=True)


def find_folder(root: Path, places: tuple[str, ...], names: tuple[str, ...]) -> Path | None:
    """The first of these folders under the root that contains files or folders of these names, each
    uncompressed or as .gz."""
    for folder in (root / place for place in places):
        if all(
            (folder / name).exists() or (folder / f"{name}.gz").is_file() for name in names
        ):
            return folder
    return None


def find_digits(root: Path) -> Path | None:
    """scikit-learn's file of the digits, in its own folder or copied into a root."""
    return next(
        (
            file
            for file in (root / "digits.csv.gz", root / "digits/digits.csv.gz")
            if file.is_file()
        ),
        None,
    )


#: Their functions can be pickled: ranks receive the data sets from the process that starts them.
_BUILT_IN = (
    DataSource(
        name="digits",
        find=find_digits,
        read=read_digits,
        looks_for="digits.csv.gz",
        how_to_get="pip install scikit-learn, which carries it",
        extra_roots=scikit_learn_root,
    ),
    *(
        DataSource(
            name=name,
            find=partial(find_folder, places=(f"{loader}/raw", name), names=IDX_FILES),
            read=partial(read_idx, loader=loader),
            looks_for=f"{loader}/raw/ or {name}/ with the four idx files",
            how_to_get=f"hpml data get {name}{otherwise}",
            modules=("torchvision",),
            download=partial(download, loader=loader),
        )
        for name, loader, otherwise in (
            ("mnist", "MNIST", ""),
            (
                "fashion-mnist",
                "FashionMNIST",
                ", or on Debian apt-get install dataset-fashion-mnist",
            ),
        )
    ),
    DataSource(
        name="cifar10",
        find=partial(
            find_folder,
            places=("cifar-10-batches-py",),
            names=("batches.meta", "test_batch"),
        ),
        read=read_cifar10,
        looks_for="cifar-10-batches-py/",
        how_to_get="hpml data get cifar10, or hpml data add cifar-10-python.tar.gz --name cifar10",
        modules=("torchvision",),
        download=partial(download, loader="CIFAR10"),
        unpack_to=".",
    ),
    DataSource(
        name="cifar10-jpeg",
        find=partial(find_folder, places=("cifar10-jpeg",), names=("train", "test")),
        read=read_cifar10_jpeg,
        looks_for="cifar10-jpeg/ with train/CLASS/*.jpg and test/CLASS/*.jpg",
        how_to_get="hpml data add PATH/cifar10-jpeg.tar.xz",
        modules=("torchvision",),
        unpack_to="cifar10-jpeg",
    ),
)

#: name → source
SOURCES = {source.name: source for source in _BUILT_IN}
