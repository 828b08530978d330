"""The [server.secure] table of a scenario."""

import math
from typing import Annotated, Self

from pydantic import Field, model_validator

from muster.common.bounds import Positive
from muster.common.config import Section
from muster.common.secure.graph import LEAST, sharing_of
from muster.common.secure.grid import (
    FEWEST_BITS,
    MOST_BITS,
    Rounding,
    SumFormat,
    SumNoise,
    grid_of,
)
from muster.server.settings.privacy import Privacy

EQUAL_WEIGHT = 1.0
"""The weight of every update, if devices add noise to sums."""


class Secure(Section):
    """Secure aggregation: the server gets the weighted sum of the updates of a round, and no
    update.

    Bonawitz and others, Practical Secure Aggregation for Privacy-Preserving Machine Learning, CCS
    2017. https://eprint.iacr.org/2017/281. With many devices on the sparse graph of Bell and
    others, Secure Single-Server Aggregation with (Poly)Logarithmic Overhead, CCS 2020.
    https://eprint.iacr.org/2020/704
    """

    drop_out: Annotated[float, Field(ge=0, le=0.5)] = 0.1
    """The largest share of the devices of a round that may drop out between the beginning and the
    end of a sum. If more do, the round is empty."""

    collusion: Annotated[float, Field(ge=0, le=0.5)] = 0.05
    """The largest share of the devices of a round that may tell the server all that they know."""

    range: Positive | None = None
    """The largest absolute entry of an update; a larger one is clipped to it. Then an entry is sent
    as a whole number of 2, 4 or 8 bytes. Absent: sums are exact, and an entry takes 16 bytes."""

    bits: Annotated[int, Field(ge=FEWEST_BITS, le=MOST_BITS)] | None = None
    """With `range`: bits of an entry of the heaviest update, with its sign. The sum of all updates
    must fit into the bytes of an entry too. Absent: as many as fit into 4 bytes."""

    rounding: Rounding | None = None
    """With `range`: how entries become whole numbers. nearest: the nearest one. stochastic: the one
    above or below at random, so that the mean is right, with few bits. Absent: nearest."""

    largest_weight: Positive | None = None
    """With `range`: the largest weight that the aggregator gives to an update; the run fails if it
    gives a larger one. Absent: the most examples that a device has, or 1 with noise in sums, which
    is right for all of muster's own rules."""

    plain: bool = False
    """Whether devices send the same whole numbers without pads, so that the server sees every
    update: to compare a run with, because it makes the same model, bit for bit."""

    keep_sums: bool = False
    """Whether the server writes down the sum of every round, so that `muster audit` can make every
    version again. A sum is as long as what a device sends."""

    @model_validator(mode="after")
    def _half_stays_honest(self) -> Self:
        if 2 * self.drop_out + self.collusion >= 1:
            raise ValueError(
                f"drop_out = {self.drop_out:g} and collusion = {self.collusion:g}: no threshold "
                f"both opens a sum and keeps updates secret; expected 2 · drop_out + collusion "
                f"below 1"
            )
        return self

    @model_validator(mode="after")
    def _the_grid_has_a_range(self) -> Self:
        for name in ("bits", "rounding", "largest_weight"):
            if self.range is None and getattr(self, name) is not None:
                raise ValueError(
                    f"{name}: exact sums have no grid; set range too, the largest absolute entry "
                    f"of an update, or leave {name} out"
                )
        return self

    def noisy_devices(self, devices: int, minimum: int) -> int:
        """The fewest devices whose noise a sum has and nobody knows: those of the smallest sum that
        is opened, without as many as may collude in the largest.

        Args:
            devices: the most whose updates are in one sum.
            minimum: of the updates of a round.
        """
        return max(minimum, LEAST) - math.floor(self.collusion * devices)

    def noise_of(self, privacy: Privacy | None, devices: int, minimum: int) -> SumNoise | None:
        """The noise of each device; None: devices add none to sums."""
        if privacy is None or not privacy.place.in_sums:
            return None
        certain = max(self.noisy_devices(devices, minimum), 1)  # fewer are refused
        return SumNoise(norm=privacy.clip, deviation=privacy.deviation / math.sqrt(certain))

    def format(
        self, devices: int, examples: int, privacy: Privacy | None = None, minimum: int = LEAST
    ) -> SumFormat:
        """How devices send their updates.

        Args:
            devices: the most whose updates are in one sum.
            examples: the most that a device has.
            minimum: of the updates of a round.
        """
        noise = self.noise_of(privacy, devices, minimum)
        heaviest = self.largest_weight
        if heaviest is None:
            heaviest = EQUAL_WEIGHT if noise is not None else float(max(examples, 1))
        grid = None
        if self.range is not None:
            rounding = self.rounding or "nearest"
            grid = grid_of(self.range, self.bits, rounding, devices, heaviest, noise)
        neighbours = sharing_of(max(devices, LEAST), self.drop_out, self.collusion).neighbours
        return SumFormat(grid=grid, plain=self.plain, heaviest=heaviest, neighbours=neighbours)
