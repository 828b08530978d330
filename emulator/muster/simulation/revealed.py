"""What devices reveal of their secrets in secure sums, to everybody who reads all frames."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from muster.common.exchange import SumHeader, ToDevice
from muster.common.secure.steps import StepRequest, SumStep, decode_step

_OWN_PAD, _KEY = b"\1", b"\0"
"""The two kinds of shares, as the records of a request for an opening ask for them."""


class _Asked(NamedTuple):
    """A step that a device is asked for.

    Attributes:
        sum: what tells the sums of a round apart: model, weight, and, when it is opened, whose
            updates are in it.
    """

    device: str
    round: int
    request: StepRequest
    sum: Any

    @property
    def shares(self) -> Sequence[tuple[int, bytes]]:
        """The owners of the shares, each with the kind."""
        return (self.request.device, _OWN_PAD), *self.request.records


class RevealedShares:
    """The padded updates and the openings of secure sums in a history."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, int], _Asked] = {}
        self._padded: list[_Asked] = []
        self._given: list[_Asked] = []

    def asked(self, process: str, message: ToDevice) -> None:
        """The server has asked a process for something."""
        wanted = message.sum_request
        if wanted is not None and wanted.step:
            request, key = decode_step(wanted.step), message.calls[0].key
            members = sorted(request.records) if request.step is SumStep.OPENING else ()
            about = message.calls[0].model_checksum, wanted.weights, members
            self._asked[process, wanted.number] = _Asked(key.client, key.round, request, about)

    def replied(self, process: str, header: SumHeader) -> None:
        """A process has sent a reply to the server."""
        asked = self._asked.get((process, header.number))
        # A process may still send its reply to a server that is dead.
        if asked is None or not header.length:
            return
        if asked.request.step is SumStep.UPDATE:
            self._padded.append(asked)
        if asked.request.step is SumStep.OPENING and asked not in self._given:
            self._given.append(asked)

    def violations(self) -> Iterator[str]:
        """The promises that devices have broken, a sentence each."""
        padded: dict[tuple[str, int], _Asked] = {}
        for asked in self._padded:
            if padded.setdefault((asked.device, asked.round), asked).sum != asked.sum:
                yield f"{asked.device} padded two updates in round {asked.round}"
        first: dict[tuple[str, int], _Asked] = {}
        shares: dict[tuple[bytes, int], Counter[bytes]] = {}
        for given in self._given:
            device, round, request, sum = given
            if first.setdefault((device, round), given).sum != sum:
                yield f"{device} helped to open two sums of round {round}"
            if (updates := Counter(dict(given.shares).values())[_OWN_PAD]) < request.threshold:
                yield f"{device} helped to open a sum of {updates} updates in round {round}"
            for owner, kind in given.shares:
                shares.setdefault((request.attempt, owner), Counter())[kind] += 1
        least = {given.request.attempt: given.request.threshold for given in self._given}
        for (attempt, owner), of_kind in shares.items():
            if min(of_kind[_OWN_PAD], of_kind[_KEY]) >= least[attempt]:
                yield f"both secrets of device {owner} are open in one attempt"
