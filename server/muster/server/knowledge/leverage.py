"""The leverage of devices on what is learned from their covariates.

The leverage of a row is its entry on the diagonal of the hat matrix of linear regression on the
features and a constant. It is at most 1, and over all rows the sum is the number of coefficients.
The leverage of a device is the sum over its rows: the number of coefficients that it decides.

Hoaglin, Welsch, The hat matrix in regression and ANOVA, The American Statistician 32 (1978).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from muster.common.seeds import FloatArray, IntArray

HIGH = 0.95
"""A device with a larger leverage decides a coefficient nearly alone."""

_ENOUGH = 5
"""Devices for each coefficient. With fewer, a large leverage says nothing about a device."""

_NOTHING = 1e-12
"""A direction in which the features vary less, relative to the others, is rounding."""


class Leverage(NamedTuple):
    """The device with the largest leverage.

    Attributes:
        place: its position in the population.
        devices, coefficients: how many there are.
    """

    place: int
    value: float
    devices: int
    coefficients: int

    def estimate(self, clients: Sequence[str]) -> Mapping[str, float]:
        """The leverage by client, as an estimate of the ledger."""
        return {clients[self.place]: self.value}

    def warnings(self, clients: Sequence[str], of: str) -> list[str]:
        """A sentence if the device decides a coefficient nearly alone."""
        if self.value <= HIGH or self.devices < _ENOUGH * self.coefficients:
            return []
        sentence = (
            f"the covariates of {clients[self.place]} alone decide a coefficient of {of}, although "
            f"there are {self.devices} devices (estimates 'leverage')"
        )
        return [sentence]


def largest_leverage(features: FloatArray, places: IntArray) -> Leverage:
    """The device with the largest leverage.

    Args:
        features: shape (n, d), n > 0, finite, without a column of ones.
        places: the position of each row's device, shape (n,).
    """
    scale = np.abs(features).max(axis=0, initial=0.0)
    scaled = features / np.where(scale > 0, scale, 1.0)
    spread = scaled - scaled.mean(axis=0)
    deviations = spread.std(axis=0)
    varying = deviations > _NOTHING
    left, sizes, _ = np.linalg.svd(spread[:, varying] / deviations[varying], full_matrices=False)
    rank = int(np.count_nonzero(sizes > _NOTHING * max(sizes, default=0.0)))
    of_rows = 1 / len(features) + np.square(left[:, :rank]).sum(axis=1)
    devices, owners = np.unique(places, return_inverse=True)
    of_devices = np.bincount(owners, weights=of_rows)
    first = int(of_devices.argmax())
    return Leverage(int(devices[first]), float(of_devices[first]), len(devices), 1 + rank)
