"""The privacy that a run has spent: ε for a number of releases, by Google's dp-accounting.

What counts as one more device differs between the settings, because the noise hides different
things:

- Central, without amplification: two runs are neighbours if in one of them all updates of one
  device are replaced by zero. Which devices take part is not hidden. The sum of clipped updates
  changes by at most C, so a version is a Gaussian mechanism with noise multiplier z. This holds
  whatever decides who takes part.
- Central, with a fixed number of devices drawn uniformly: also a bound for neighbours of which one
  device has other data, by amplification (Wang, Balle, Kasiviswanathan, Subsampled Rényi
  Differential Privacy and Analytical Moments Accountant, AISTATS 2019). Then the sum changes by at
  most 2·C, and z/2 counts. Replacing updates by zero is such a change. So both bounds hold for it,
  and the smaller one is taken.
- Local: two updates of a device differ by at most 2·C, and z/2 counts.
- In secure sums: neighbours as for central noise, without amplification. Updates are whole numbers
  of norm at most C before noise. The noise of at least n devices, discrete Gaussians of variance
  z²·C²/n, makes their sum 1/(2·z²)-concentrated differentially private (Kairouz, Liu, Steinke, The
  Distributed Discrete Gaussian Mechanism for Federated Learning with Secure Aggregation, ICML 2021,
  proposition 14; `muster.common.secure.noise` says what is left out). This bounds the Rényi
  divergences, and they bound ε.
"""

import math
from functools import cached_property
from typing import Any

import numpy as np

from muster.server.settings.privacy import DeviceSampling, Privacy


class Accountant:
    """Computes ε.

    Args:
        sample: how devices are sampled; None if no amplification by sampling may be claimed.
    """

    def __init__(self, privacy: Privacy, sample: DeviceSampling | None) -> None:
        self._privacy, self._place = privacy, privacy.place
        self._sample = sample if self._place.amplified else None

    def prepare(self) -> None:
        """Import what `epsilon` needs, which takes a second or two."""
        if self._privacy.noise:
            self.epsilon(1)

    def releases(self, rounds: int, versions: int) -> int:
        """How many releases so many rounds are at most that made so many versions: the versions or,
        with noise of devices, one in each round."""
        return versions if self._place.in_versions else rounds

    def epsilon(self, releases: int) -> float | None:
        """Return ε for δ after so many releases; None if there is no noise.

        Args:
            releases: see `releases`.
        """
        if not self._privacy.noise:
            return None
        if not releases:
            return 0.0
        multiplier = self._privacy.noise / self._place.distance
        if self._place.in_sums:
            return self._concentrated(multiplier, releases)
        spent = self._composed(multiplier, releases)
        return spent if self._sample is None else min(spent, self._amplified(releases))

    def _composed(self, multiplier: float, releases: int) -> float:
        """ε of so many Gaussian mechanisms, which are together one of multiplier/√releases; exact
        (Balle and Wang, Improving the Gaussian Mechanism for Differential Privacy, ICML 2018)."""
        from dp_accounting import get_epsilon_gaussian

        with np.errstate(divide="ignore"):  # it takes log(0) on its way
            deviation = multiplier / math.sqrt(releases)
            return float(get_epsilon_gaussian(deviation, self._privacy.delta))

    def _concentrated(self, multiplier: float, releases: int) -> float:
        """ε of so many sums, each 1/(2·multiplier²)-concentrated differentially private."""
        from dp_accounting.rdp import compute_epsilon
        from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS

        orders = np.asarray(DEFAULT_RDP_ORDERS)
        divergences = orders * (releases / (2 * multiplier**2))
        return float(compute_epsilon(orders, divergences, self._privacy.delta)[0])

    def _amplified(self, releases: int) -> float:
        """ε of so many releases about devices that are drawn anew for each."""
        from dp_accounting.rdp import compute_epsilon

        one = self._one_sampled
        found, _ = compute_epsilon(one.orders, releases * one.rdp, self._privacy.delta)
        return float(found)

    @cached_property
    def _one_sampled(self) -> Any:
        """The Rényi accountant of one release; half a second for the first time."""
        from dp_accounting import (
            GaussianDpEvent,
            NeighboringRelation,
            SampledWithoutReplacementDpEvent,
        )
        from dp_accounting.rdp import RdpAccountant

        assert self._sample is not None
        accountant = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
        gaussian = GaussianDpEvent(self._privacy.noise / 2)
        sample = self._sample
        accountant.compose(SampledWithoutReplacementDpEvent(sample.devices, sample.size, gaussian))
        return accountant
