"""Computes what a link should deliver, without sockets or a clock."""

import math
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_MEDIAN_OF_JITTER = 0.5934351055062116
_ERROR_OF_MEDIAN = 1.1946

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
