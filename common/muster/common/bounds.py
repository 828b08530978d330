"""How large and how small the numbers of a scenario may be.

Every number has bounds, so that a scenario that is accepted also starts. Without them a number can
be too large for the wire, SQLite or float32, make a process allocate arrays without end, or let a
loop run for hours in silence. The bounds are far from what is of use: a number at one of them makes
a slow or senseless experiment, not one that crashes.
"""

from typing import Annotated

from pydantic import Field

DEVICES = 100_000
"""Devices of a population. Before anything starts, its covariates, enrollment and configuration are
computed, which takes some seconds for so many; ten times as many would be a minute in silence."""

ROUNDS = 10_000_000
"""Rounds of a run; a round takes at least some milliseconds, so these are a day or more."""

Count = Annotated[int, Field(ge=1, le=1_000_000)]
"""How many there are of something."""

DeviceCount = Annotated[int, Field(ge=1, le=DEVICES)]
"""How many devices of the population."""

MOST_EXAMPLES = 100_000_000
"""Examples of a data set or a minibatch."""

ExampleCount = Annotated[int, Field(ge=1, le=MOST_EXAMPLES)]
"""How many examples of a data set."""

RoundCount = Annotated[int, Field(ge=1, le=ROUNDS)]
"""How many rounds."""

LARGEST = 1e12
"""The largest number, positive or negative. Squares and cubes of such numbers, and their sums over
a population, are finite too."""

Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
"""Any number."""

NotNegative = Annotated[float, Field(ge=0, le=LARGEST)]
"""A size, or a strength that may be 0."""

Positive = Annotated[float, Field(ge=1 / LARGEST, le=LARGEST)]
"""A size, or a strength; its inverse is in the same range."""

LogDeviation = Annotated[float, Field(ge=0, le=10)]
"""σ of a log-normal; at 10 one device in six is 22,000 times the median, or more."""

LongTime = Annotated[float, Field(ge=0.01, le=1e9)]
"""Seconds, from 10 ms to 30 years."""


Width = Annotated[int, Field(ge=1, le=100_000)]
"""Units or channels of a layer; what a whole model has is bounded besides."""

PARAMETERS = 2**28
"""Parameters of a model: 1 GiB as float32, and 6 GiB in a server that adds up updates of it."""

Depth = Annotated[int, Field(ge=1, le=32)]
"""Layers or blocks on top of one another."""


def in_range(number: float) -> bool:
    """Whether a number is a `Number`."""
    return -LARGEST <= number <= LARGEST
