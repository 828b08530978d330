"""Bounds of the numbers in a scenario.

Every number has bounds, so that a scenario that is accepted also starts. Without them a number
could be too large for the protocol, SQLite or float32, make a process allocate huge arrays, or let
a loop run for hours in silence. The bounds are far from useful values: a number at its bound makes
a slow or senseless experiment, but not one that crashes.
"""

from typing import Annotated, Final

from pydantic import Field

DEVICES = 1_000_000
"""Most devices of a population, which `muster plan` computes in some minutes."""

RUNNING_DEVICES = 100_000
"""Most devices of a run. Before anything starts, their covariates, enrollment and configuration are
computed. That takes some seconds for so many devices; ten times as many would take a minute in
silence."""

ROUNDS = 10_000_000
"""Most rounds of a run. A round takes at least some milliseconds, so these take a day or more."""

Count = Annotated[int, Field(ge=1, le=1_000_000)]
"""A number of things."""

DeviceCount = Annotated[int, Field(ge=1, le=DEVICES)]
"""A number of devices of the population."""

MOST_EXAMPLES = 100_000_000
"""Most examples of a data set or a minibatch."""

ExampleCount = Annotated[int, Field(ge=1, le=MOST_EXAMPLES)]
"""A number of examples of a data set."""

RoundCount = Annotated[int, Field(ge=1, le=ROUNDS)]
"""A number of rounds."""

LARGEST = 1e12
"""The largest absolute value of a number. Squares and cubes of such numbers, and their sums over a
population, are finite too."""

Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
"""Any number."""

NotNegative = Annotated[float, Field(ge=0, le=LARGEST)]
"""A size, or a strength that may be 0."""

Positive = Annotated[float, Field(ge=1 / LARGEST, le=LARGEST)]
"""A size, or a strength, that must not be 0; its inverse is in the same range."""

LogDeviation = Annotated[float, Field(ge=0, le=10)]
"""σ of a log-normal. At 10, one device in six is at least 22,000 times the median."""

LONGEST_WORK_S = LARGEST / 2
"""The longest training of a device in a round, in modelled seconds. Together with its transfers it
is below `LARGEST`, the most seconds that a message may state."""

LongTime = Annotated[float, Field(ge=0.01, le=1e9)]
"""Seconds, from 10 ms to 30 years."""


Width = Annotated[int, Field(ge=1, le=100_000)]
"""Units or channels of a layer. `PARAMETERS` bounds the whole model."""

PARAMETERS = 2**28
"""Most parameters of a model: 1 GiB as float32, and 6 GiB in a server that adds up updates."""

INSTRUCTION_BYTES = 1 << 15
"""Most bytes of what a strategy tells a device, and of what an app reports to it. They travel in
messages that hold many of them."""

STEP_BYTES = 1 << 21
"""Most bytes of a step of a secure sum: those of a device with ten thousand neighbours."""

APP_METRICS = 100
"""Most metrics of a round that the server side of an app measures. More are left out."""

LONGEST_METRIC_NAME = 100
"""Most characters of the name of such a metric."""

Depth = Annotated[int, Field(ge=1, le=32)]
"""A number of layers or blocks on top of one another."""


Bounds = tuple[float, float]
"""The smallest and the largest value of a number."""

COVARIATE: Final = 1e30
"""The largest absolute value of any covariate. Squares of products of two such values are
finite."""


def in_range(number: float) -> bool:
    """Whether `number` is in the range of a `Number`."""
    return -LARGEST <= number <= LARGEST


FORESEEN_STEPS: Final = 32
"""Most steps of its life that a device looks ahead, and for which it reports in advance."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
"""The name of something that has files or programs of its own."""
