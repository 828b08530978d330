"""The [server.privacy] table of a scenario."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from muster.common.bounds import Positive
from muster.common.config import Section
from muster.common.requirements import Requirement as R
from muster.common.withholders import Withholder as W

Where = Literal["server", "device", "sum"]


@dataclass(frozen=True, kw_only=True)
class NoisePlace:
    """What follows from the place where noise is added.

    Attributes:
        requires: what privacy requires in the table of combinations.
        withholds: what it takes away there.
        in_versions: whether the server adds the noise, to the sum of each version. Then a version
            is one release; otherwise a round is.
        in_updates: whether every device clips its update and adds all of the noise to it.
        in_sums: whether every device clips its weighted update and adds a part of the noise of a
            secure sum to it.
        clips: whether the server clips updates by their weights, and weighs all alike.
        distance: by how many C a release differs at most between neighbouring runs, if nothing is
            known of who takes part.
        amplified: whether those who see the releases do not see who was sampled, so that sampling
            amplifies.
    """

    requires: tuple[R, ...]
    withholds: tuple[W, ...]
    in_versions: bool = False
    in_updates: bool = False
    in_sums: bool = False
    clips: bool = True
    distance: int = 1
    amplified: bool = False


PLACES: Mapping[Where, NoisePlace] = {
    "server": NoisePlace(
        requires=(R.BOUNDED_CHANGE, R.CLIPPING),
        withholds=(W.EQUAL_WEIGHTS, W.SERVER_PRIVACY),
        in_versions=True,
        amplified=True,
    ),
    "device": NoisePlace(
        requires=(R.BOUNDED_CHANGE, R.CLIPPING_BY_DEVICES),
        withholds=(W.DEVICE_PRIVACY,),
        in_updates=True,
        clips=False,
        distance=2,
    ),
    "sum": NoisePlace(
        requires=(R.BOUNDED_CHANGE, R.CLIPPING, R.NOISY_SUMS),
        withholds=(W.EQUAL_WEIGHTS, W.SUM_PRIVACY),
        in_sums=True,
    ),
}


class Privacy(Section):
    """Differential privacy for devices: every update is clipped, and noise is added.

    McMahan, Ramage, Talwar, Zhang, Learning Differentially Private Recurrent Language Models, ICLR
    2018, Algorithm 1. https://arxiv.org/abs/1710.06963
    """

    clip: Positive
    """C, the largest norm of an update. A longer update is scaled to it."""

    noise: Annotated[float, Field(ge=0, le=1e6)]
    """z, the noise multiplier: the standard deviation of the Gaussian noise in every coordinate is
    z·C, or more in secure sums. With 0, updates are only clipped, and no ε is computed."""

    delta: Annotated[float, Field(ge=1e-15, le=0.1)] = 1e-5
    """δ of (ε, δ)-differential privacy. It should be well below 1 divided by the number of
    devices."""

    where: Where = "server"
    """server: the server clips every update, weighs all alike, and adds noise to their sum once in
    each version (central differential privacy). device: every device clips its update and adds
    noise to it before it is sent (local differential privacy). sum: every device clips its weighted
    update and adds a part of the noise to it, so that a secure sum has all of it; it needs
    `server.secure` with a `range`."""

    @property
    def place(self) -> NoisePlace:
        """What follows from `where`."""
        return PLACES[self.where]

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise in every coordinate."""
        return self.noise * self.clip


class DeviceSampling(Section):
    """Uniform sampling of a fixed number of devices in each round, without replacement."""

    size: int
    """Number of devices in each round."""

    devices: int
    """Number of devices from which they are drawn."""
