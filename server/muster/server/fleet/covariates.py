"""The covariates that devices report, held to the bounds that the scenario states.

Rules that correct for who takes part compute the weights of all devices from the covariates of
all. A single value far from the others could switch such a correction off. A device whose
covariates lie outside their bounds therefore counts as one whose covariates are not known: such a
rule gives it the weight 0, and weighs the others without it.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

from muster.common.exchange import Answer, Identity, Observation
from muster.server.fleet.devices import EnrolledDevice

log = logging.getLogger(__name__)

_TOLERANCE = 1e-9
"""Relative. Bounds are computed with another rounding than values."""

OfGroup = Mapping[str, Sequence[float]]
"""The smallest and the largest value of the covariates of a group, by name, in the order in which
devices report X."""


class ReportedCovariates:
    """Replaces covariates that a device cannot have by what the server knows without them.

    Args:
        devices: all devices, by client.
        z, x: by group, the covariates that its devices have, with their bounds. A group that is
            absent has no bounds.
        known: the covariates Z that the server knows without being told, by client.
        warn: takes a sentence about a device, once for each device and kind of covariates.
    """

    def __init__(
        self,
        devices: Mapping[str, EnrolledDevice],
        z: Mapping[str, OfGroup],
        x: Mapping[str, OfGroup],
        known: Mapping[str, Mapping[str, float]],
        warn: Callable[[str], None],
    ) -> None:
        self._devices = devices
        self._z = z
        self._x = x
        self._known = known
        self._warn = warn
        self._told: set[tuple[str, str]] = set()

    def of_identity(self, identity: Identity) -> Identity:
        """The identity with possible covariates Z; None if they are not known.

        Z is fixed before enrollment: what the server knows, or was told first, stays.
        """
        device = self._devices[identity.client]
        stated, known = identity.z, self._known.get(identity.client, device.z)
        if stated is None or stated == known:
            return identity
        if known is not None:
            what = ", ".join(sorted(k for k in {*stated, *known} if stated.get(k) != known.get(k)))
            self._tell(identity.client, "Z", f"{what}, which the server knows otherwise; it stays")
            return identity._replace(z=known)
        bounds = self._z.get(device.group)
        if bounds is None or not (faults := list(_outside(bounds, stated))):
            return identity
        self._tell(identity.client, "Z", f"{faults[0]}; they count as not known")
        return identity._replace(z=None)

    def of_answer(self, answer: Answer) -> Answer:
        """The answer with possible covariates X, also in what it reports in advance."""
        foreseen = [self.of_observation(later) for later in answer.foreseen]
        return answer._replace(x=self._possible(answer.key.client, answer.x), foreseen=foreseen)

    def of_observation(self, seen: Observation) -> Observation:
        """The observation with possible covariates X."""
        x = self._possible(seen.client, seen.x)
        return seen if x is seen.x else seen._replace(x=x)

    def _possible(self, client: str, x: tuple[float, ...]) -> tuple[float, ...]:
        """The covariates X; empty if they are not known."""
        device = self._devices.get(client)
        if not x or device is None or (bounds := self._x.get(device.group)) is None:
            return x
        faults = list(_outside(bounds, dict(zip(bounds, x, strict=False))))
        if not faults:
            return x
        self._tell(client, "X", f"{faults[0]}; they count as not known")
        return ()

    def _tell(self, client: str, kind: str, what: str) -> None:
        if (client, kind) not in self._told:
            self._told.add((client, kind))
            self._warn(f"{client} reports impossible covariates {kind}: {what}")


def _outside(bounds: OfGroup, stated: Mapping[str, float]) -> Iterator[str]:
    """Yield what is wrong with the covariates of a device."""
    for name in stated.keys() - bounds.keys():
        yield f"{name}, which its group does not have"
    for name, (least, most) in bounds.items():
        value = stated.get(name)
        room = _TOLERANCE * max(abs(least), abs(most))
        if value is None:
            yield f"{name} is missing"
        elif not least - room <= value <= most + room:
            yield f"{name} = {value:g}, expected {least:g} to {most:g}"
