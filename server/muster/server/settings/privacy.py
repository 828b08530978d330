"""The [server.privacy] table of a scenario."""

from typing import Annotated, Literal

from pydantic import Field

from muster.common.bounds import Positive
from muster.common.config import Section


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

    where: Literal["server", "device", "sum"] = "server"
    """server: the server clips every update, weighs all alike, and adds noise to their sum once in
    each version (central differential privacy). device: every device clips its update and adds
    noise to it before it is sent (local differential privacy). sum: every device clips its weighted
    update and adds a part of the noise to it, so that a secure sum has all of it; it needs
    `server.secure` with a `range`."""

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
