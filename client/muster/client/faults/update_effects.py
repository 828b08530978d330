"""The effects of faults on the updates of one device."""

from collections.abc import Sequence

from muster.client.faults.contract import UpdateFault
from muster.client.faults.scheduled import DeviceFault, update_faults
from muster.client.training.trainer import Trained
from muster.common.exchange import Body
from muster.common.seeds import stream
from muster.tasks.task import Examples

MOST_DAMAGE = 4
"""Most times that an update arrives damaged, whatever the number of faults: after five failures the
device would begin a new session and send all of it again."""


class ActingFaults:
    """The faults that act on the update of a device in a round, in the order of the scenario.

    Args:
        faults: each with its name.
    """

    def __init__(
        self, faults: Sequence[tuple[str, UpdateFault]], client: str, seed: int, round: int
    ) -> None:
        self._faults = faults
        self._stream = client, seed, round

    def poison(self, examples: Examples, classes: int) -> Examples:
        for _, fault in self._faults:
            examples = fault.poison(examples, classes)
        return examples

    def tamper(self, trained: Trained) -> Trained:
        client, seed, round = self._stream
        for name, fault in self._faults:
            trained = fault.tamper(trained, stream(seed, "fault", name, client, round))
        return trained

    def rewrite(self, body: Body) -> Body:
        for _, fault in self._faults:
            body = fault.rewrite(body)
        return body

    def damage(self, body: Body) -> list[Body]:
        """What arrives in place of the body before it arrives whole."""
        client, seed, round = self._stream
        return [
            damaged
            for name, fault in self._faults
            for damaged in fault.damage(body, stream(seed, "fault", name, client, round, "damage"))
        ][:MOST_DAMAGE]

    @property
    def copies(self) -> int:
        """How often the update is sent once more."""
        return sum(fault.copies() for _, fault in self._faults)

    @property
    def repeats_last(self) -> bool:
        """Whether the update of the round before is sent again."""
        return any(fault.repeats_last() for _, fault in self._faults)


class UpdateEffects:
    """The faults of a device's updates."""

    def __init__(self, faults: Sequence[DeviceFault], client: str, seed: int) -> None:
        self._faults = update_faults(faults)
        self._client = client
        self._seed = seed

    def __bool__(self) -> bool:
        return bool(self._faults)

    def at(self, round: int, step: int) -> ActingFaults | None:
        """The faults that act on the update for a call of this round, at this step; None if none
        does."""
        acting = [
            (fault.name, fault.do)
            for fault in self._faults
            if isinstance(fault.do, UpdateFault) and fault.acts(self._client, round, step)
        ]
        return ActingFaults(acting, self._client, self._seed, round) if acting else None
