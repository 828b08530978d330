"""Labelled data sets, each read once per process.

Values keep the small types in which they were stored, and are converted for the model only when a
client's share is taken. A nursery reads a data set before it forks, so all its children share one
copy.
"""

import gzip
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from muster.common.errors import ConfigError
from muster.common.seeds import stream
from muster.tasks.files import verified
from muster.tasks.inputs import each, shapes_of, taken


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set: examples and their labels.

    Attributes:
        train_x, test_x: shape (examples, *shape of one). Whole numbers from 0 to `brightest`; for
            texts the numbers of tokens, below `vocabulary`; sparse float32 rows of scipy; or
            several arrays by name, each for an argument of the model.
        train_y, test_y: shape (examples,); int64 from 0 to `labels` − 1, or float32 values.
        brightest: the value that `scaled` maps to 1.
        labels: number of labels.
        vocabulary: number of tokens, if examples are texts.
        train_user: shape (examples,), the user of each example, from 0, if the data have users; for
            the natural partition.
        train_unit: shape (examples,), the piece of data from which each example was cut. All
            examples of a piece go either to training or to validation.
        standard: mean and standard deviation of the training examples' values, which `scaled` maps
            to 0 and 1; shape (channels, 1, 1) for pictures in colour, (features,) for rows of a
            table, else (). None: it divides by `brightest`.
    """

    train_x: Any
    train_y: npt.NDArray[Any]
    test_x: Any
    test_y: npt.NDArray[Any]
    brightest: int = 1
    labels: int = 10
    vocabulary: int | None = None
    train_user: npt.NDArray[np.int64] | None = None
    train_unit: npt.NDArray[np.int64] | None = None
    standard: tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]] | None = None

    @property
    def inputs(self) -> Any:
        """The inputs of a model: the shape of an example, (tokens, vocabulary) for texts, or the
        shapes of several arrays by name."""
        shape = shapes_of(self.train_x)
        return shape if self.vocabulary is None else (*shape, self.vocabulary)

    def restricted(self, labels: Sequence[int]) -> Self:
        """Return the examples with these labels, which become 0, 1, … in this order.

        Raises:
            ConfigError: the data set does not have one of the labels.
        """
        if unknown := sorted(set(labels) - set(range(self.labels))):
            raise ConfigError(
                f"task.labels: expected labels from 0 to {self.labels - 1}, which these data have, "
                f"found {', '.join(map(str, unknown))}"
            )
        number = np.full(self.labels, -1)
        number[list(labels)] = np.arange(len(labels))
        train, test = (np.flatnonzero(number[y] >= 0) for y in (self.train_y, self.test_y))
        return replace(
            self,
            train_x=taken(self.train_x, train),
            train_y=number[self.train_y[train]],
            test_x=taken(self.test_x, test),
            test_y=number[self.test_y[test]],
            labels=len(labels),
            train_user=None if self.train_user is None else self.train_user[train],
            train_unit=None if self.train_unit is None else self.train_unit[train],
        )

    def standardised(self) -> Self:
        """Return the same data with `standard`.

        Raises:
            ConfigError: the examples are texts.
        """
        if self.vocabulary is not None or not isinstance(self.train_x, np.ndarray):
            found = "several inputs by name" if isinstance(self.train_x, dict) else "texts"
            raise ConfigError(
                f"task.standardise: expected pictures or signals, found {found}; leave it out"
            )
        return replace(self, standard=_mean_and_deviation(self.train_x))

    def scaled(self, values: Any) -> Any:
        """Return a copy of rows of x as a model reads them: standardised, divided by `brightest`,
        or tokens. Of several arrays, those of whole numbers stay whole numbers."""
        if isinstance(values, dict):
            return each(_plain, values)
        if self.vocabulary is not None:
            return np.asarray(values, np.int64)
        if not isinstance(values, np.ndarray):
            return np.asarray(values.toarray(), np.float32)
        scaled = values.astype(np.float32)
        if self.standard is None:
            scaled /= np.float32(self.brightest)
        else:
            mean, deviation = self.standard
            scaled -= mean
            scaled /= deviation
        return scaled


def _plain(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return values.astype(np.float32 if values.dtype.kind == "f" else np.int64)


def _mean_and_deviation(
    values: npt.NDArray[Any],
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Those of each channel of pictures in colour, of each column of a table, else of all values; 1
    in place of a deviation of 0."""
    axes = {4: (0, 2, 3), 2: (0,)}.get(values.ndim)
    mean = np.asarray(values.mean(axes, dtype=np.float64))
    # In blocks: float64 takes eight times the memory of pictures.
    blocks = (values[first : first + 1_000] for first in range(0, len(values), 1_000))
    squares = sum(np.square(block, dtype=np.float64).sum(axes) for block in blocks)
    deviation = np.sqrt(np.maximum(squares * (mean.size / values.size) - mean**2, 0.0))
    deviation = np.where(deviation > 0, deviation, 1.0)
    shape = {4: (-1, 1, 1), 2: (-1,)}.get(values.ndim, ())
    return mean.astype(np.float32).reshape(shape), deviation.astype(np.float32).reshape(shape)


@cache
def digits() -> Dataset:
    """Return scikit-learn's 1,797 handwritten digits of 8×8 pixels, which need no files.

    The data have no split of their own. Every fifth picture of a fixed shuffle is for testing,
    whatever the scenario's seed, so that results of different seeds can be compared.
    """
    rows = _digit_rows()
    x, y = rows[:, :-1].reshape(-1, 8, 8).astype(np.uint8), rows[:, -1].astype(np.int64)
    order = stream(0, "digits", "split").permutation(len(y))
    test, train = np.sort(order[::5]), np.sort(np.delete(order, np.s_[::5]))
    return Dataset(x[train], y[train], x[test], y[test], brightest=16)


def _digit_rows() -> npt.NDArray[np.float64]:
    """The pixels of each picture and its label, from the file that scikit-learn has; importing
    scikit-learn takes a second."""
    package = find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    path = Path(package.origin).parent / "datasets/data/digits.csv.gz"
    if not path.exists():  # other versions of scikit-learn may keep it elsewhere
        from sklearn.datasets import load_digits

        found = load_digits()
        return np.column_stack([found.data, found.target])
    with gzip.open(path) as file:
        return np.loadtxt(file, delimiter=",")


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


@cache
def cifar10(directory: Path) -> Dataset:
    """Return a subset of CIFAR-10 with 20,000 and 5,000 pictures of 3×32×32 values.

    Raises:
        ConfigError: the file is missing, or its checksum is wrong.
    """
    with np.load(io.BytesIO(*verified("cifar10", directory)), allow_pickle=False) as file:
        train_x, test_x = _summed(file["x_train_delta"]), _summed(file["x_test_delta"])
        train_y, test_y = file["y_train"].astype(np.int64), file["y_test"].astype(np.int64)
    return Dataset(train_x, train_y, test_x, test_y, brightest=255)


def _summed(differences: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Undo the differences along both axes, modulo 256, and of red and blue from green."""
    x = np.cumsum(np.cumsum(differences, axis=2, dtype=np.uint8), axis=3, dtype=np.uint8)
    x[:, 0] += x[:, 1]
    x[:, 2] += x[:, 1]
    return x


@cache
def uci_har(directory: Path) -> Dataset:
    """Return windows of 9 signals by 128 samples from 30 persons, with 6 activities as labels.

    Values are int16 in units of 1/4096 g or rad/s. A segment is a run of windows that overlap. One
    segment of each person and activity is for testing, whatever the scenario's seed.

    Raises:
        ConfigError: the file is missing, or its checksum is wrong.
    """
    with np.load(io.BytesIO(*verified("uci-har", directory)), allow_pickle=False) as file:
        x, y = file["x_q4096"], file["y"].astype(np.int64)
        user, segment = file["subject"].astype(np.int64) - 1, file["segment"].astype(np.int64)
    random = stream(0, "uci-har", "split")
    test = np.zeros(len(y), bool)
    for pair in np.unique(user * 6 + y):
        there = np.unique(segment[user * 6 + y == pair])
        if len(there) > 1:
            test |= segment == random.choice(there)
    train = ~test
    return Dataset(
        x[train],
        y[train],
        x[test],
        y[test],
        brightest=4096,
        labels=6,
        train_user=user[train],
        train_unit=segment[train],
    )


def _parsed(compressed: bytes) -> npt.NDArray[np.uint8]:
    """Read the IDX format: a type, the number of dimensions, their sizes, then the bytes."""
    body = gzip.decompress(compressed)
    dimensions = body[3]
    sizes = np.frombuffer(body, ">u4", dimensions, offset=4).astype(int)
    return np.frombuffer(body, np.uint8, offset=4 + 4 * dimensions).reshape(sizes)
