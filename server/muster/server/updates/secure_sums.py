"""Secure sums: the server gets the weighted sum of updates, and no update.

The server asks every device for keys, shares, its padded update and the opening
(`muster.common.secure.steps`). It keeps nothing of this beyond an attempt. A device that was
started again has forgotten its keys: in lockstep, where it takes part whatever happens, the server
then begins a new attempt; on other clocks the device has dropped out.
"""

import math
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple

from muster.common import seeds
from muster.common.errors import RunFailed
from muster.common.events import SecureStep, SecureSumFailed, Tell, Warned
from muster.common.exact_sum import ExactSum
from muster.common.masks import Mask
from muster.common.partial_sums import ROUNDING
from muster.common.secure.graph import LEAST, Sharing, neighbours_of, sharing_of
from muster.common.secure.grid import SumFormat
from muster.common.secure.keys import PrivateKey, pad_key
from muster.common.secure.padded import PaddedSum, padded_sum, placed
from muster.common.secure.sharing import SHARE_BYTES, joined
from muster.common.secure.steps import KEYS_BYTES, SEALED_BYTES, StepRequest, SumStep, reply_bytes
from muster.server.runtime.worker import WorkerThread
from muster.server.settings.secure import Secure
from muster.server.updates.formats import UpdateFormats
from muster.server.updates.partial_sums import Asked, PartialSums
from muster.server.updates.round_updates import PendingUpdate

_ATTEMPTS = 20
"""Attempts of a round in lockstep, before the devices that refuse count as missing."""


class OpenedSum(NamedTuple):
    """The sum of the updates of some devices.

    Attributes:
        bounds: the largest absolute entry of each of them, weighted.
        mask: the coordinates of the model that all of them have trained; None: the whole model.
    """

    total: PaddedSum
    bounds: Sequence[float]
    mask: Mask | None = None

    def add_to(self, sum: ExactSum) -> None:
        """Add it to the sum of a round.

        Raises:
            Diverged: the sum left its range.
        """
        sum.add_part(placed(self.total, self.mask), self.bounds)

    def close(self) -> None:
        """Nothing is open."""


class _Member(NamedTuple):
    """A device of a sum.

    Attributes:
        bound: the largest absolute entry of its weighted update.
    """

    update: PendingUpdate
    weight: float
    bound: float


Records = Mapping[int, Sequence[tuple[int, bytes]]]


class SecureSums:
    """Asks devices for their secure sums: one for all that train the same part of the model.

    Args:
        formats: which part each device trains.
        rule: the name of the aggregator.
        least: the fewest updates of a sum; a sum of fewer is not opened.
        indices: of all devices of the run, their places in the population.
    """

    def __init__(
        self,
        settings: Secure,
        format: SumFormat,
        rule: str,
        seed: int,
        lockstep: bool,
        formats: UpdateFormats,
        least: int,
        indices: Mapping[str, int],
        sums: PartialSums,
        worker: WorkerThread,
        tell: Tell,
    ) -> None:
        self._settings = settings
        self._format = format
        self._rule = rule
        self._warned = False
        self._seed = seed
        self._lockstep = lockstep
        self._formats = formats
        self._least = max(least, LEAST)
        self._index = indices
        self._sums = sums
        self._worker = worker
        self._tell = tell

    def bounds(self, updates: Sequence[PendingUpdate], weights: Sequence[float]) -> Sequence[float]:
        """The largest absolute entry of each weighted update in a sum.

        Raises:
            RunFailed: a weight is larger than the scenario says.
        """
        heaviest = max(weights)
        if self._format.grid is not None and heaviest > self._format.heaviest:
            raise RunFailed(
                f"the aggregator gave an update the weight {heaviest:g}; expected at most "
                f"{self._format.heaviest:g}. Set server.secure.largest_weight"
            )
        pairs = zip(updates, weights, strict=True)
        return [self._format.bound(weight, update.body.largest) for update, weight in pairs]

    def alone(self, round: int, held: Sequence[PendingUpdate]) -> set[str]:
        """The clients that too few others share a sum with."""
        found = set[str]()
        for part in self._formats.parts([update.update.key for update in held]):
            if (devices := len(part.places)) < self._least:
                self._tell(SecureSumFailed(round, None, devices, self._least, devices))
                found.update(held[at].update.key.client for at in part.places)
        return found

    async def collect(
        self,
        round: int,
        held: Sequence[PendingUpdate],
        weights: Sequence[float],
        patience_s: float,
        renewed: bool,
    ) -> tuple[list[OpenedSum], set[str]]:
        """Get the sums of held updates with their weights.

        Args:
            held: without those that are `alone`.
            patience_s, renewed: see `PartialSums.collect`, for each step.

        Returns:
            The sums that enough devices have stayed to open; and the clients whose updates are in
            none of them.

        Raises:
            RunStops: the run is to stop.
        """
        self._warn_of_clipping(round, held)
        bounds = self.bounds(held, weights)
        found: list[OpenedSum] = []
        missing = set[str]()
        for part in self._formats.parts([update.update.key for update in held]):
            members = {
                self._index[held[at].update.key.client]: _Member(held[at], weights[at], bounds[at])
                for at in part.places
            }
            opened, lost = await self._sum_of(round, part.mask, members, patience_s, renewed)
            found += opened
            missing |= lost
        return found, missing

    async def _sum_of(
        self,
        round: int,
        mask: Mask | None,
        members: Mapping[int, _Member],
        patience_s: float,
        renewed: bool,
    ) -> tuple[list[OpenedSum], set[str]]:
        """The sum of devices that train the same part of the model: see `collect`."""
        everybody = {member.update.update.key.client for member in members.values()}
        entries = self._formats.entries if mask is None else mask.size
        settings = self._settings
        sharing = sharing_of(len(members), settings.drop_out, settings.collusion)
        neighbours = self._neighbours(round, members, sharing)
        for number in range(1, _ATTEMPTS + 1):
            attempt = _Attempt(
                members,
                round,
                number,
                sharing.threshold,
                self._least,
                neighbours,
                padded_sum(entries, self._format.grid),
                self._format.plain,
                self._sums,
                self._worker,
                self._tell,
                patience=(patience_s, renewed),
                together=self._lockstep,
            )
            opened = await attempt.run()
            if opened is not None:
                placed_at = opened._replace(mask=mask)
                return [placed_at], everybody - attempt.clients(attempt.padded)
            if not self._lockstep:
                break
            gone = attempt.clients(attempt.silent) | self._sums.revoked_of(everybody)
            if gone:
                everybody = gone
                break
        self._tell(attempt.failed)
        return [], everybody

    def _warn_of_clipping(self, round: int, held: Sequence[PendingUpdate]) -> None:
        """Say once that updates are clipped."""
        grid = self._format.grid
        beyond = 0 if grid is None else sum(u.body.largest > grid.largest for u in held)
        if grid is not None and beyond and not self._warned:
            self._warned = True
            text = f"{beyond} of {len(held)} updates have entries beyond range = {grid.largest:g}"
            self._tell(Warned(round, self._rule, f"{text}, which are clipped"))

    def _neighbours(
        self, round: int, members: Mapping[int, _Member], sharing: Sharing
    ) -> dict[int, list[int]]:
        """The same in every attempt with the same devices, because a device opens one sum only."""
        draw = seeds.stream(self._seed, "secure sums", round).integers(2**63)
        return neighbours_of(sorted(members), sharing.neighbours, Random(int(draw)))


class _Attempt:
    """One attempt, with keys that are used in no other.

    Attributes:
        padded: the devices whose padded updates have come.
        silent: the devices from which nothing has come for as long as the server waits.
        failed: why the attempt has no sum, once it has failed.
    """

    failed: SecureSumFailed

    def __init__(
        self,
        members: Mapping[int, _Member],
        round: int,
        number: int,
        threshold: int,
        least: int,
        neighbours: Mapping[int, Sequence[int]],
        total: PaddedSum,
        plain: bool,
        sums: PartialSums,
        worker: WorkerThread,
        tell: Tell,
        *,
        patience: tuple[float, bool],
        together: bool,
    ) -> None:
        self.padded = set[int]()
        self.silent = set[int]()
        self._members = members
        self._round = round
        self._threshold = threshold
        self._least = len(members) if together else max(threshold, least)
        self._neighbours = neighbours
        self._total, self._plain = total, plain
        self._sums = sums
        self._worker = worker
        self._tell = tell
        self._number = number
        self._patience = patience
        self._name = secrets.token_bytes(16)

    def clients(self, devices: Iterable[int]) -> set[str]:
        """The names of devices."""
        return {self._members[device].update.update.key.client for device in devices}

    async def run(self) -> OpenedSum | None:
        """The opened sum; None if too few devices have answered."""
        if self._plain:
            self.padded = set(await self._ask(SumStep.UPDATE, dict.fromkeys(self._members, ())))
            return self._of_updates() if self._goes_on(SumStep.UPDATE, self.padded) else None
        keys = await self._ask(SumStep.KEYS, dict.fromkeys(self._members, ()))
        if not self._goes_on(SumStep.KEYS, keys):
            return None
        shares = await self._ask(SumStep.SHARES, self._about(keys, keys))
        if not self._goes_on(SumStep.SHARES, shares):
            return None
        sealed = {
            sender: dict(zip(self._among(sender, keys), _cut(reply, SEALED_BYTES), strict=True))
            for sender, reply in shares.items()
        }
        sent = {
            device: [(other, sealed[other][device]) for other in self._among(device, shares)]
            for device in shares
        }
        self.padded = set(await self._ask(SumStep.UPDATE, sent))
        if not self._goes_on(SumStep.UPDATE, self.padded):
            return None
        flags = {device: b"\1" if device in self.padded else b"\0" for device in shares}
        opening = await self._ask(SumStep.OPENING, self._about(self.padded, flags))
        opened = await self._worker.run(self._opened, keys, set(shares), opening)
        if opened is None:
            self._fail(SumStep.OPENING, len(opening), self._threshold)
        return opened

    def _goes_on(self, step: SumStep, answered: Collection[int]) -> bool:
        if len(answered) < self._least:
            self._fail(step, len(answered), self._least)
        return len(answered) >= self._least

    def _fail(self, step: SumStep, answered: int, needed: int) -> None:
        members = len(self._members)
        self.failed = SecureSumFailed(self._round, step.name.lower(), answered, needed, members)

    def _among(self, device: int, some: Iterable[int]) -> list[int]:
        here = set(some)
        return [other for other in self._neighbours[device] if other in here]

    def _about(self, asked: Iterable[int], facts: Mapping[int, bytes]) -> Records:
        return {
            device: [(other, facts[other]) for other in self._among(device, facts)]
            for device in asked
        }

    async def _ask(self, step: SumStep, records: Records) -> dict[int, bytes]:
        """Ask devices for a step, and return the replies of those that take it. Padded updates are
        added up at once, and their reply here is empty."""
        about_step = self._round, self._number, step.name.lower(), len(records)
        self._tell(SecureStep(*about_step, answered=None))
        asked = []
        for device, about in records.items():
            threshold = 0 if step is SumStep.KEYS else self._threshold
            request = StepRequest(step, self._name, device, threshold, about)
            length = reply_bytes(request, self._total.parameters * self._total.entry_bytes)
            member = self._members[device]
            asked.append(Asked([member.update], [member.weight], request.encoded(), (length,)))
        replies = await self._sums.exchange(asked, self._number > 1, *self._patience)
        found = {}
        try:
            for device, reply in zip(records, replies, strict=True):
                if reply is None:
                    self.silent.add(device)
                elif reply.received and step is SumStep.UPDATE:
                    await self._worker.run(self._total.add_encoded, reply.whole())
                    found[device] = b""
                elif reply.received:
                    found[device] = reply.whole()
        finally:
            for reply in replies:
                if reply is not None:
                    reply.close()
        self._tell(SecureStep(*about_step, answered=len(found)))
        return found

    def _opened(
        self, keys: Mapping[int, bytes], sharing: set[int], opening: Mapping[int, bytes]
    ) -> OpenedSum | None:
        """Take the pads off the sum; None if shares are missing, or give no sum of these
        updates."""
        given: dict[int, dict[int, bytes]] = {device: {} for device in sharing}
        for device, reply in opening.items():
            own, *others = _cut(reply, SHARE_BYTES)
            given[device][device + 1] = own
            for other, share in zip(self._among(device, sharing), others, strict=True):
                given[other][device + 1] = share
        pads: list[tuple[bytes, bool]] = []
        for device, shares in given.items():
            if len(shares) < self._threshold:
                return None
            secret = joined(dict(list(shares.items())[: self._threshold]))
            if secret is None:
                return None
            of_device = self._pads_of(device, secret, keys, sharing)
            if of_device is None:
                return None
            pads += of_device
        self._total.pad(pads)
        return self._of_updates()

    def _of_updates(self) -> OpenedSum | None:
        """The sum, without pads; None if it can be none of these updates."""
        bounds = [self._members[device].bound for device in self.padded]
        most = math.fsum(bounds) * (1 + 1e-6) + ROUNDING
        return OpenedSum(self._total, bounds) if self._total.largest() <= most else None

    def _pads_of(
        self, device: int, secret: bytes, keys: Mapping[int, bytes], sharing: set[int]
    ) -> list[tuple[bytes, bool]] | None:
        """What takes the pads of a device off: its own if its update came, else those that others
        have with it. None: the secret is not that of the device."""
        if device in self.padded:
            return [(secret, False)]
        key = PrivateKey(secret)
        if key.public != keys[device][KEYS_BYTES // 2 :]:
            return None
        pads = []
        for other in self._among(device, sharing & self.padded):
            agreed = key.agree(keys[other][KEYS_BYTES // 2 :])
            assert agreed is not None  # the other device has agreed on it
            pads.append((pad_key(agreed, self._name), other > device))
        return pads


def _cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]
