"""Distributions of a value over devices.

    compute = 400.0
    compute = { kind = "log-normal", median = 400.0, sigma = 0.5 }
    os = { kind = "categorical", values = ["14", "15"], weights = [0.7, 0.3] }

A distribution does not draw random numbers itself. It turns uniform numbers, of which each device
has its own, into values. A bare number or text means the same value for all devices.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

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
from muster.common.file_tables import drawn_rows, read_table, rows_of_devices
from muster.common.plugins import Plugin, Registry
from muster.common.seeds import FARTHEST_NORMAL, FloatArray, Numbers, normals

Values = NDArray[Any]
"""float64, or text."""


class Distribution(Plugin):
    """A distribution of a value over devices."""

    looks_up: ClassVar[bool] = False
    """Whether it looks values up by the devices' names or positions, so that a device has one value
    for good. Where a value is drawn again and again, such a distribution is refused."""

    unit: str | None = None
    """Unit of the numbers, such as "Mbit/s" or "ms", for keys that need one; no other key takes
    it."""

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

    def stream(self, *purpose: str) -> tuple[str, ...]:
        """The name of the stream from which the numbers for `draw` come, if what they decide is
        called `purpose`."""
        return purpose

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
    """A column of a CSV or Parquet file: numbers if all cells are numbers, otherwise words.

    If the file has a column `client`, a device's row is the one with its name. Otherwise rows are
    in the order of the population; with a column `group`, those with the name of a group are in the
    order of its devices.
    """

    looks_up = True

    path: str
    """Path of the file."""

    column: str
    """Name of the column."""

    rows: Literal["each", "drawn"] = "each"
    """each: every device has a row. drawn: every device draws a row, with a probability in
    proportion to the column `weight` if the file has one, and only among the rows of its group if
    the file has a column `group`. All columns that are drawn from files of one name come from the
    same row."""

    def stream(self, *purpose: str) -> tuple[str, ...]:
        return ("rows", Path(self.path).name) if self.rows == "drawn" else purpose

    def draw(
        self, numbers: FloatArray, clients: Sequence[str] = (), positions: Sequence[int] = ()
    ) -> Values:
        table = read_table(self.path)
        found = table.column(self.column)
        if self.rows == "drawn":
            return found[drawn_rows(table, clients, numbers[:, 0])]
        return found[list(rows_of_devices(table, clients, positions))]

    def levels(self) -> list[str]:
        found = read_table(self.path).column(self.column)
        return sorted(set(found.tolist())) if found.dtype.kind == "U" else []

    def gives_numbers(self) -> bool:
        return True  # `draw` refuses words; processes that draw nothing lack the file

    def require_numbers(self, least: float, most: float) -> None:
        """Check that all cells of the column are numbers in a range.

        Raises:
            ValueError: one is not; the message has its line.
        """
        read_table(self.path).numbers(self.column, least, most)


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
    return _without_unit(_parse(value, "a number, text or a distribution's table"))


def parse_number(value: object) -> object:
    """Read a bare number, or a table that names a distribution of numbers."""
    return _without_unit(_numbers_only(_parse(value, "a number or a distribution's table")))


def parse_words(value: object) -> object:
    """Read text, or a table that names a distribution of words."""
    if isinstance(value, str) and value:
        return value
    if isinstance(value, Mapping | Distribution):
        return _without_unit(DISTRIBUTIONS.parse(value))
    raise ValueError(f"expected text or a distribution's table, found {value!r}")


def parse_path(value: object) -> object:
    """Read the path of a file, or the table of a file with a column of paths."""
    if isinstance(value, str) and value:
        return value
    found = DISTRIBUTIONS.parse(value)
    if isinstance(found, File):
        return _without_unit(found)
    raise ValueError(
        f"expected a path, or {{ kind = 'file', … }} with a column of paths, found {value!r}"
    )


def _numbers_only(found: object) -> object:
    if isinstance(found, Distribution) and not found.gives_numbers():
        raise ValueError(f"expected a number or a distribution of numbers, found {found.kind!r}")
    return found


def _without_unit(found: object) -> object:
    if isinstance(found, Distribution) and found.unit is not None:
        raise ValueError(f"unit = {found.unit!r}, but the key has no unit; leave it out")
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


def draw_for_devices(
    setting: float | str | Distribution,
    seed: int,
    clients: Sequence[str],
    positions: Sequence[int],
    *purpose: str,
) -> Values:
    """The values of a setting for some devices, from their own random numbers.

    Args:
        clients, positions: as in `Distribution.draw`.
        purpose: what the values are; part of the streams' names.

    Raises:
        ValueError: a value to look up is missing.
    """
    found = distribution_of(setting)
    numbers = Numbers(seed, found.stream(*purpose), clients, width=2, ahead=1).at(0)
    return found.draw(numbers, clients, positions)


def numbers_for_devices(
    setting: float | Distribution,
    seed: int,
    clients: Sequence[str],
    positions: Sequence[int],
    *purpose: str,
) -> FloatArray:
    """`draw_for_devices` of numbers.

    Raises:
        ValueError: a value to look up is missing or is a word.
    """
    if isinstance(setting, File):
        setting.require_numbers(-LARGEST, LARGEST)  # names the line of a word
    return _no_words(draw_for_devices(setting, seed, clients, positions, *purpose))


def draw(setting: float | Distribution, numbers: FloatArray) -> FloatArray:
    """The devices' numbers, shape (n,), of a setting and uniform numbers of shape (n, 2).

    Raises:
        ValueError: the values are words.
    """
    return _no_words(distribution_of(setting).draw(numbers))


def _no_words(values: Values) -> FloatArray:
    if values.dtype.kind == "U":
        raise ValueError(f"expected numbers, found the word {str(values[0])!r}")
    return values
