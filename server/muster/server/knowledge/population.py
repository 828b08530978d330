"""The population as the server knows it. An aggregator sees this and nothing more."""

from collections.abc import Mapping, Sequence

import numpy as np

from muster.common.config import Section
from muster.common.seeds import BoolArray, FloatArray, IntArray
from muster.server.fleet.devices import EnrolledDevice


class Oracle(Section):
    """The truth, which only an emulator knows. A quantity that the aggregator did not ask for is
    absent."""

    enrollment: list[float] | None = None
    """The propensity of enrollment of every device, by position."""

    shares: list[float] | None = None
    """c_i = E[1{i in S}/|S|] of every device, by position; 0 for a device that is not enrolled."""


class Population:
    """All devices, including those that are not enrolled.

    Args:
        clients: the names of all devices, by position.
        columns: the names of the columns of covariates Z.
        z: the columns of each device, by position; None if they are unknown until the device
            enrolls and reports them.
        enrolled: the devices that may train, by name.
        moments: means over the population, by column or feature of Z.

    Attributes:
        size: N, the number of devices.
        enrolled: whether each device may train, shape (N,).
    """

    def __init__(
        self,
        clients: Sequence[str],
        columns: Sequence[str],
        z: Sequence[Mapping[str, float] | None],
        enrolled: Mapping[str, EnrolledDevice],
        moments: Mapping[str, float],
        oracle: Oracle,
    ) -> None:
        self.size = len(clients)
        self.columns = tuple(columns)
        self.moments = moments
        self.oracle = oracle
        self._places = {client: place for place, client in enumerate(clients)}
        self.clients = clients
        self.enrolled: BoolArray = np.array([client in enrolled for client in clients])
        self._devices = enrolled
        self._from_start = all(values is not None for values in z)
        self._z = self._table(z)

    def places(self, clients: Sequence[str]) -> IntArray:
        """Return the positions of devices in the population, from 0."""
        return np.array([self._places[client] for client in clients], dtype=np.int64)

    def z(self) -> FloatArray:
        """Return the covariates Z, shape (N, columns). A device that lacks a column has 0 there; a
        device whose covariates the server does not know has NaN in every column."""
        if self._from_start:
            return self._z
        found = self._z.copy()
        for client, device in self._devices.items():
            if device.z is not None:
                found[self._places[client]] = self._row(device.z)
        return found

    def _table(self, z: Sequence[Mapping[str, float] | None]) -> FloatArray:
        found = np.full((len(z), len(self.columns)), np.nan)
        for place, values in enumerate(z):
            if values is not None:
                found[place] = self._row(values)
        return found

    def _row(self, values: Mapping[str, float]) -> list[float]:
        return [values.get(column, 0.0) for column in self.columns]
