"""Distributions of a value over devices.

    compute = 400.0
    compute = { kind = "log-normal", median = 400.0, sigma = 0.5 }
    os = { kind = "categorical", values = ["14", "15"], weights = [0.7, 0.3] }

A distribution does not draw random numbers itself. It turns uniform numbers, of which each device
has its own, into values. A bare number or text means the same value for all devices.
"""

import csv
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, SerializeAsAny, model_validator

from muster.common.bounds import (
    COVARIATE,
    LARGEST,
    Bounds,
    LogDeviation,
    NotNegative,
    Number,
    Positive,
    in_range,
)
from muster.common.plugins import Plugin, Registry
from muster.common.seeds import FARTHEST_NORMAL, FloatArray, normals

Values = NDArray[Any]
"""float64, or text."""


class Distribution(Plugin):
    """A distribution of a value over devices."""

    looks_up: ClassVar[bool] = False
    """Whether it looks values up by the devices' names or positions, so that a device has one value
    for good. Where a value is drawn again and again, such a distribution is refused."""

    @abstractmethod
    def draw(
        self, numbers: FloatArray, clients: Sequence[str] = (), positions: Sequence[int] = ()
    ) -> Values:
        """The devices' values, shape (n,).

        Args:
            numbers: uniform in [0, 1), shape (n, 2).
            clients: the devices' names, for values that are looked up by name.
            positions: positions of the devices in the population, from 0, for values that are
                looked up by position.

        Raises:
            ValueError: a value to look up is missing. The message does not have the key's path.
        """

    def levels(self) -> list[str]:
        """All texts that the distribution can give; empty if it gives numbers."""
        return []

    def bounds(self) -> Bounds:
        """The smallest and the largest number that it can give. A distribution that says nothing
        has the bounds of any covariate."""
        return -COVARIATE, COVARIATE

    def gives_numbers(self) -> bool:
        """Whether the distribution may be used where a number is needed."""
        return not self.levels()


class ConstantDistribution(Distribution):
    """The same value for all devices. A bare number or text means the same."""

    value: Number | str
    """A number, or text."""

    @model_validator(mode="after")
    def _is_something(self) -> Self:
        if self.value == "":
            raise ValueError("value is empty text; expected a number, or a word")
        return self

    def draw(
        self, numbers: FloatArray, clients: Sequence[str] = (), positions: Sequence[int] = ()
    ) -> Values:
        return np.full(len(numbers), self.value)

    def bounds(self) -> Bounds:
        if isinstance(self.value, str):
            return super().bounds()
        return self.value, self.value

    def levels(self) -> list[str]:
        return [self.value] if isinstance(self.value, str) else []


class Normal(Distribution):
    """Gaussian (Box, Muller, A note on the generation of random normal deviates, 1958)."""

    mean: Number = 0.0
    """Mean of the values."""

    sd: NotNegative = 1.0
    """Standard deviation of the values."""

    def draw(
        self, numbers: FloatArray, clients: Sequence[str] = (), positions: Sequence[int] = ()
    ) -> Values:
        return self.mean + self.sd * normals(*numbers.T)[0]

    def bounds(self) -> Bounds:
        away = FARTHEST_NORMAL * self.sd
        return self.mean - away, self.mean + away


class UniformDistribution(Distribution):
    """Uniform between two numbers."""

    low: Number = 0.0
    """The smallest value."""

    high: Number = 1.0
    """Upper limit of the values."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low = {self.low:g} is above high = {self.high:g}")
        return self

    def draw(
        self, numbers: FloatArray, clients: Sequence[str] = (), positions: Sequence[int] = ()
    ) -> Values:
        return self.low + (self.high - self.low) * numbers[:, 0]

    def bounds(self) -> Bounds:
        return self.low, self.high


class LogNormal(Distribution):
    """Log-normal, median · exp(sigma · N(0, 1)): positive, with a long upper tail."""

    median: Positive
    """Median of the values."""

    sigma: LogDeviation
    """Standard deviation of the values' logarithm."""

    def draw(
        self, numbers: FloatArray, clients: Sequence[str] = (), positions: Sequence[int] = ()
    ) -> Values:
        return self.median * np.exp(self.sigma * normals(*numbers.T)[0])

    def bounds(self) -> Bounds:
        factor = math.exp(FARTHEST_NORMAL * self.sigma)
        return self.median / factor, self.median * factor


class Categorical(Distribution):
    """One of several words."""

    values: list[str]
    """The words."""

    weights: list[NotNegative] | None = None
    """Relative frequency of each word, in any unit. Absent: all words are equally frequent."""

    @model_validator(mode="after")
    def _can_be_drawn(self) -> Self:
        if not self.values:
            raise ValueError("values is empty; expected at least one")
        if "" in self.values:
            raise ValueError("values has an empty text; expected words")
        if twice := sorted({value for value in self.values if self.values.count(value) > 1}):
            raise ValueError(f"values has {', '.join(map(repr, twice))} more than once")
        if self.weights is not None:
            if len(self.weights) != len(self.values):
                raise ValueError(
                    f"{len(self.weights)} weights for {len(self.values)} values; "
                    "expected one for each"
                )
            if not 0 < sum(self.weights) < math.inf:
                total = sum(self.weights)
                raise ValueError(f"weights add up to {total:g}; expected a number above 0")
        return self

    def draw(
        self, numbers: FloatArray, clients: Sequence[str] = (), positions: Sequence[int] = ()
    ) -> Values:
        shares = np.cumsum(self.weights or np.ones(len(self.values)))
        return np.array(self.values)[
            np.searchsorted(shares / shares[-1], numbers[:, 0], side="right")
        ]

    def levels(self) -> list[str]:
        return list(self.values)


class PositionDistribution(Distribution):
    """Grows evenly from device to device: first + step · position in the population, from 0.

    For values of devices that must be known beforehand. It draws nothing.
    """

    looks_up = True

    first: Number = 0.0
    """The value of the first device of the population."""

    step: Number = 1.0
    """The difference of a device's value to that of the device before it."""

    def draw(
        self, numbers: FloatArray, clients: Sequence[str] = (), positions: Sequence[int] = ()
    ) -> Values:
        return self.first + self.step * np.array(positions, np.float64)


class File(Distribution):
    """A column of a CSV file with a header: numbers if all cells are numbers, otherwise words.

    If the file has a column `client`, a device's row is the one with its name. Otherwise rows are
    in the order of the population.
    """

    looks_up = True

    path: str
    """Path of the file."""

    column: str
    """Name of the column."""

    def draw(
        self, numbers: FloatArray, clients: Sequence[str] = (), positions: Sequence[int] = ()
    ) -> Values:
        found, rows = self._read()
        if rows is None:
            if max(positions, default=-1) >= len(found):
                raise ValueError(
                    f"{self.path} has {len(found)} rows, and no column 'client'; expected one for "
                    f"every device of the population, which has at least {max(positions) + 1}"
                )
            return found[list(positions)]
        if missing := [client for client in clients if client not in rows]:
            others = f" nor of {len(missing) - 1} others" if len(missing) > 1 else ""
            raise ValueError(f"{self.path} has no row of client {missing[0]!r}{others}")
        return found[[rows[client] for client in clients]]

    def levels(self) -> list[str]:
        found, _ = self._read()
        return sorted(set(found.tolist())) if found.dtype.kind == "U" else []

    def gives_numbers(self) -> bool:
        return True  # `draw` refuses words; processes that draw nothing lack the file

    def _read(self) -> tuple[Values, dict[str, int] | None]:
        """The whole column, and the row of each client if the file names clients."""
        header, table = self._table()
        cells = _column(header, table, self.column)
        if cells is None:
            raise ValueError(
                f"{self.path} has no column {self.column!r}; there are: {', '.join(header)}"
            )
        if "" in cells:
            row = cells.index("") + 1
            raise ValueError(f"{self.path}: row {row} has nothing in column {self.column!r}")
        found = _numbers_or_text(cells)
        if found.dtype.kind == "f" and not (np.abs(found) <= LARGEST).all():
            raise ValueError(
                f"{self.path}: expected numbers from {-LARGEST:g} to {LARGEST:g} in column "
                f"{self.column!r}, found others"
            )
        clients = _column(header, table, "client")
        if clients is None:
            return found, None
        rows = {client: number for number, client in enumerate(clients)}
        if len(rows) < len(clients):
            twice = next(c for number, c in enumerate(clients) if rows[c] != number)
            raise ValueError(f"{self.path} has more than one row of client {twice!r}")
        return found, rows

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """The header, and the rows without empty ones at the end."""
        try:
            with open(Path(self.path).expanduser(), encoding="utf-8-sig", newline="") as file:
                table = list(csv.reader(file, skipinitialspace=True))
        except (OSError, RuntimeError, UnicodeDecodeError, csv.Error) as error:  # also: no home
            raise ValueError(f"{self.path} cannot be read: {error}") from None
        while table and not table[-1]:
            table.pop()
        return (table[0], table[1:]) if table else ([], [])


def _column(header: list[str], table: list[list[str]], name: str) -> list[str] | None:
    if name not in header:
        return None
    place = header.index(name)
    return [row[place].strip() if place < len(row) else "" for row in table]


def _numbers_or_text(cells: Sequence[str]) -> Values:
    try:
        return np.array([float(cell) for cell in cells])
    except ValueError:
        return np.array(cells)


BUILT_IN: dict[str, type[Distribution]] = {
    "categorical": Categorical,
    "constant": ConstantDistribution,
    "file": File,
    "log-normal": LogNormal,
    "normal": Normal,
    "position": PositionDistribution,
    "uniform": UniformDistribution,
}
DISTRIBUTIONS = Registry("distribution", "muster.distributions", BUILT_IN)


def parse_distribution(value: object) -> object:
    """Read a bare number or text, or a table that names a distribution."""
    if isinstance(value, str) and value:
        return value
    return _parse(value, "a number, text or a distribution's table")


def parse_number(value: object) -> object:
    """Read a bare number, or a table that names a distribution of numbers."""
    found = _parse(value, "a number or a distribution's table")
    if isinstance(found, Distribution) and not found.gives_numbers():
        raise ValueError(f"expected a number or a distribution of numbers, found {found.kind!r}")
    return found


def _parse(value: object, expected: str) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool) and in_range(value):
        return float(value)
    if isinstance(value, Mapping | Distribution):
        return DISTRIBUTIONS.parse(value)
    raise ValueError(f"expected {expected}, found {value!r}")


AnyDistribution = Annotated[
    Number | str | SerializeAsAny[Distribution], BeforeValidator(parse_distribution)
]
"""Numbers or text as a setting: the same for all devices, or a distribution."""

AnyNumber = Annotated[Number | SerializeAsAny[Distribution], BeforeValidator(parse_number)]
"""A number as a setting: the same for all devices, or a distribution of numbers."""


def distribution_of(setting: float | str | Distribution) -> Distribution:
    """The distribution that a setting means."""
    if isinstance(setting, Distribution):
        return setting
    return ConstantDistribution(kind="constant", value=setting)


def draw(
    setting: float | Distribution,
    numbers: FloatArray,
    clients: Sequence[str] = (),
    positions: Sequence[int] = (),
) -> FloatArray:
    """The devices' numbers, shape (n,), of a setting and uniform numbers of shape (n, 2).

    Args:
        clients, positions: as in `Distribution.draw`.

    Raises:
        ValueError: a value to look up is missing or is a word.
    """
    values = distribution_of(setting).draw(numbers, clients, positions)
    if values.dtype.kind == "U":
        raise ValueError(f"expected numbers, found the word {str(values[0])!r}")
    return values
