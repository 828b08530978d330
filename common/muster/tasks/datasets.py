"""Labelled data sets, each read once per process.

Pixels stay bytes, and are scaled when a share is taken: a nursery that has read a data set before
it forks shares one copy of it with all its children.
"""

import gzip
import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from muster.common.errors import ConfigError
from muster.common.seeds import stream

VARIABLE = "MUSTER_DATA"

# By data set: the folder, and for pictures and labels of training and test the file and its SHA-256
# as published by the authors.
FOLDERS = {"mnist": "MNIST/raw", "fashion-mnist": "FashionMNIST/raw"}
CHECKSUMS = {
    "mnist": {
        "train-images-idx3": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "t10k-images-idx3": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    },
    "fashion-mnist": {
        "train-images-idx3": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "train-labels-idx1": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "t10k-images-idx3": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "t10k-labels-idx1": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    },
}


@dataclass(frozen=True, slots=True)
class Dataset:
    """Pictures and their labels.

    Attributes:
        train_x, test_x: uint8, shape (examples, height, width), from 0 to `brightest`.
        train_y, test_y: int64, shape (examples,), from 0 to `labels` − 1.
    """

    train_x: npt.NDArray[np.uint8]
    train_y: npt.NDArray[np.int64]
    test_x: npt.NDArray[np.uint8]
    test_y: npt.NDArray[np.int64]
    brightest: int
    labels: int = 10

    def scaled(self, pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Return a copy with values from 0 to 1."""
        return pixels.astype(np.float32) / np.float32(self.brightest)


@cache
def digits() -> Dataset:
    """Return scikit-learn's 1,797 handwritten digits of 8×8 pixels; it carries the data itself.

    It has no split of its own: every fifth picture of a fixed shuffle is for testing, whatever the
    scenario's seed, so that the results of different seeds compare.
    """
    from sklearn.datasets import load_digits

    found = load_digits()
    x, y = found.images.astype(np.uint8), found.target.astype(np.int64)
    order = stream(0, "digits", "split").permutation(len(y))
    test, train = np.sort(order[::5]), np.sort(np.delete(order, np.s_[::5]))
    return Dataset(x[train], y[train], x[test], y[test], brightest=16)


@cache
def idx(name: str, directory: Path) -> Dataset:
    """Return "mnist" or "fashion-mnist": 60,000 and 10,000 pictures of 28×28 pixels.

    Raises:
        ConfigError: files are missing, or their checksums are wrong.
    """
    train_x, train_y, test_x, test_y = (_parsed(body) for body in verified(name, directory))
    return Dataset(
        train_x, train_y.astype(np.int64), test_x, test_y.astype(np.int64), brightest=255
    )


def verified(name: str, directory: Path) -> list[bytes]:
    """Return the compressed files of a data set after comparing their checksums.

    Raises:
        ConfigError: naming every file that is missing, or every file that was altered.
    """
    paths = {directory / path: expected for path, expected in _files(name).items()}
    if missing := [path for path in paths if not path.is_file()]:
        raise ConfigError(_absent(name, missing, f"these are not in {directory}"))
    bodies = [path.read_bytes() for path in paths]
    found = [hashlib.sha256(body).hexdigest() for body in bodies]
    wrong = [
        f"  {path}: expected SHA-256 {expected}, found {actual}"
        for (path, expected), actual in zip(paths.items(), found, strict=True)
        if actual != expected
    ]
    if wrong:
        title = f"task.data.directory: {name} has incomplete or altered files; fetch them again"
        raise ConfigError("\n".join([title, *wrong]))
    return bodies


def directory_of(name: str, setting: str | None) -> Path:
    """Return where the files of the data set `name` should be.

    Args:
        setting: `[task.data] directory` as resolved when the scenario was read, where --data and
            the environment came first; it therefore comes before the environment here.

    Raises:
        ConfigError: neither says where.
    """
    if directory := setting or os.environ.get(VARIABLE):
        return Path(directory)
    raise ConfigError(_absent(name, _files(name), "no data directory is set"))


def _files(name: str) -> dict[str, str]:
    """Paths below the data directory, and checksums."""
    return {f"{FOLDERS[name]}/{file}-ubyte.gz": sha for file, sha in CHECKSUMS[name].items()}


def _absent(name: str, paths: Iterable[Path | str], why: str) -> str:
    title = f"task.data.directory: {name} needs files, and {why}:"
    advice = (
        "give the folder that holds them by [task.data] directory in the scenario, by --data, or "
        f"by the environment variable {VARIABLE}"
    )
    return "\n".join([title, *(f"  {path}" for path in paths), advice])


def _parsed(compressed: bytes) -> npt.NDArray[np.uint8]:
    """Read the IDX format: a type, the number of dimensions, their sizes, then the bytes."""
    body = gzip.decompress(compressed)
    dimensions = body[3]
    sizes = np.frombuffer(body, ">u4", dimensions, offset=4).astype(int)
    return np.frombuffer(body, np.uint8, offset=4 + 4 * dimensions).reshape(sizes)
