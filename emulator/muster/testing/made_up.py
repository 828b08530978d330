"""Made-up fleets and rounds, for tests of a rule without devices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from muster.common.exchange import PROPENSITY, Valuation
from muster.common.features import Feature
from muster.common.seeds import BoolArray
from muster.common.tensors import Vector
from muster.server.aggregators import Contribution
from muster.server.fleet.devices import EnrolledDevice
from muster.server.knowledge.population import Oracle, Population

Z = ("age", "wealth")
"""The covariates Z of made-up devices."""

X = ("load", PROPENSITY)
"""Their covariates X; the second one is the truth, which only an oracle gets to know."""


@dataclass(frozen=True)
class MadeUpDevice:
    """A device of a made-up population.

    Attributes:
        z: its covariates, in the order of `Z`.
        enrolled: whether it may train.
        propensity: the true propensity of its enrollment.
    """

    client: str
    z: tuple[float, float] = (0.0, 0.0)
    enrolled: bool = True
    propensity: float = 1.0


@dataclass(frozen=True)
class MadeUpUpdate:
    """An update of a made-up round.

    Attributes:
        contribution: what the server knows of it; facts that the rule does not need are taken out.
        delta: Δ, float32, shape (parameters,); twice as long if the rule has control variates.
        trained: the coordinates that the device trained, shape (parameters,); None: all.
    """

    contribution: Contribution
    delta: Vector
    trained: BoolArray | None = None


@dataclass(frozen=True)
class MadeUpRound:
    """A made-up round.

    Attributes:
        updates: the updates that count, in the order of their arrival; empty for an empty round.
        x: the covariates X of the enrolled devices, in the order of `X`, by client.
        valuations: how rational devices valued the model, by client.
    """

    updates: Sequence[MadeUpUpdate] = ()
    x: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    valuations: Mapping[str, Valuation] = field(default_factory=dict)


@dataclass(frozen=True)
class MadeUpCourse:
    """A made-up fleet and the rounds that it plays.

    Attributes:
        model: the initial model, float32, shape (parameters,).
    """

    devices: Sequence[MadeUpDevice]
    model: Vector
    rounds: Sequence[MadeUpRound]

    def population(self, features: Sequence[str]) -> Population:
        """The population as the server knows it.

        The means of the population are those of the enrolled devices, so that calibrated weights
        exist. The true shares of all enrolled devices are the same.

        Args:
            features: the features of Z whose means a rule needs.
        """
        z = np.array([device.z for device in self.devices], dtype=np.float64)
        there = np.array([device.enrolled for device in self.devices])
        columns = dict(zip(Z, z[there].T, strict=True))
        moments = {
            text: float(Feature.parse(text, Z).of(columns).mean()) for text in {*Z, *features}
        }
        enrolled = {
            device.client: EnrolledDevice(device.client, "made-up", place, 1)
            for place, device in enumerate(self.devices)
            if device.enrolled
        }
        oracle = Oracle(
            enrollment=[device.propensity for device in self.devices],
            shares=(there / there.sum()).tolist(),
        )
        known = [dict(zip(Z, device.z, strict=True)) for device in self.devices]
        clients = [device.client for device in self.devices]
        return Population(clients, Z, known, enrolled, moments, oracle)
