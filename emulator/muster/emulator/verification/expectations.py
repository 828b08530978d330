"""Computes what a link should deliver, without sockets or a clock."""

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from muster.common import seeds
from muster.common.jitter import delays
from muster.common.rates.recording import Direction
from muster.common.seeds import FloatArray
from muster.emulator.links.shape import Shape

T = TypeVar("T")

_MEDIAN_OF_JITTER = 0.5934351055062116
_ERROR_OF_MEDIAN = 1.1946

_DRAWS = 20_001

BUFFERS = 4
_BUFFER_BYTES = 64 << 10
_BUFFER_S = 0.25


def jain(shares: Sequence[float]) -> float:
    """Jain's index of fairness of shares, (Σx)² / (n Σx²): 1 if all are equal, 1/n if one device
    has everything, 0 if no device has anything (Jain, Chiu, Hawe, DEC-TR-301, 1984)."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 0.0


def median_of_jitter_s(jitter_s: float) -> float:
    """Median of the time that jitter adds to a round trip.

    Each direction adds max(0, N(0, jitter)), which is 0 with probability 1/2. For the sum s of both
    directions,

        P(s <= x·jitter) = Φ(x) − 1/4 + (Φ(x/√2) − 1/2)²

    which is 1/2 at x = 0.5934. The mean, 2·jitter/√(2π) = 0.798·jitter, is larger because the sum
    is skewed, so a measured median must be compared with the median.
    """
    return _MEDIAN_OF_JITTER * jitter_s


def error_of_median_s(jitter_s: float, echoes: int) -> float:
    """Standard error that jitter causes in the median of `echoes` round trips: 1/(2·f·√n), where f
    is the density of the sum of both directions at its median, 0.4185/jitter."""
    return _ERROR_OF_MEDIAN * jitter_s / math.sqrt(echoes)


def drawn_delays(shape: Shape, direction: Direction, seed: int) -> FloatArray:
    """Many delays of a direction as a link should have them, seconds."""
    draws = seeds.stream(seed, "verify", "delays", direction)
    of_link = shape.jitter_distribution, shape.delay_s(direction), shape.jitter_s
    return delays(*of_link, draws, _DRAWS)


def added_by_jitter_s(shape: Shape, seed: int) -> float:
    """Median of the time that a link's jitter adds to a round trip; may be negative."""
    if shape.jitter_distribution == "late" or not shape.jitter_s:
        return median_of_jitter_s(shape.jitter_s)
    return float(np.median(_drawn_trips(shape, seed))) - shape.rtt_s


def error_by_jitter_s(shape: Shape, echoes: int, seed: int) -> float:
    """Standard error that a link's jitter causes in the median of `echoes` round trips."""
    if shape.jitter_distribution == "late" or not shape.jitter_s:
        return error_of_median_s(shape.jitter_s, echoes)
    return error_of_drawn_median(_drawn_trips(shape, seed), echoes)


def error_of_drawn_median(drawn: FloatArray, count: int) -> float:
    """Standard error of the median of so many numbers that are distributed like `drawn` ones: by
    the density between their quantiles 0.4 and 0.6."""
    low, high = (float(each) for each in np.quantile(drawn, (0.4, 0.6)))
    return (high - low) / 0.2 / (2 * math.sqrt(count))


def _drawn_trips(shape: Shape, seed: int) -> FloatArray:
    return drawn_delays(shape, "up", seed) + drawn_delays(shape, "down", seed)


def settling_bytes(rate_bps: float | None) -> float:
    """Number of bytes that must pass before a rate is measured: four buffers.

    A buffer is 64 KiB, or on a slow link the bytes that it carries in a quarter of a second, so
    that the slowest link has settled after a second. Bytes that wait in buffers at the sender do
    not distort the rate, because it is measured at the receiver. The first bytes are left out
    because they may be a burst that an idle link has saved up.
    """
    if rate_bps is None:
        return BUFFERS * _BUFFER_BYTES
    return BUFFERS * min(_BUFFER_BYTES, _BUFFER_S * rate_bps / 8)


def batches(jobs: Sequence[T], weights: Sequence[float], limit: float, most: int) -> list[list[T]]:
    """Divide `jobs`, in order, into batches of at most `most` jobs whose weights add up to at most
    `limit`. A job that weighs more than `limit` gets a batch of its own."""
    found: list[list[T]] = []
    weight = math.inf
    for job, heavy in zip(jobs, weights, strict=True):
        if weight + heavy > limit or len(found[-1]) == most:
            found.append([])
            weight = 0.0
        found[-1].append(job)
        weight += heavy
    return found
