"""Secure aggregation on the device: the steps in which it contributes to a sum that hides its
update.

The secrets of an attempt exist only in this process. A device that is started again knows nothing
of them, refuses the steps of the attempt, and takes part in the next one with new keys. What it
must not forget is which sum it has opened (`muster.client.device.opened`).
"""

import secrets
from collections.abc import Mapping
from hashlib import sha256
from struct import pack

import numpy as np

from muster.client.calls.call_batch import CallBatch
from muster.client.calls.partial_sums import HeldUpdates
from muster.client.calls.training_runner import TrainingRunner
from muster.client.device.learner import Learner
from muster.client.device.memory import StoredUpdate
from muster.client.device.opened import OpenedSums
from muster.common.errors import RemoteProtocolError
from muster.common.exact_sum import Term
from muster.common.exchange import Body, Call, SumHeader, SumRequest
from muster.common.secure.graph import LEAST
from muster.common.secure.grid import SumFormat
from muster.common.secure.keys import PrivateKey, derived_key, pad_key, seal, unseal
from muster.common.secure.padded import PaddedSum, padded_sum
from muster.common.secure.sharing import SECRET_BYTES, SHARE_BYTES, split
from muster.common.secure.steps import StepRequest, SumStep, decode_step
from muster.common.seeds import stream
from muster.wire.bodies import checksum

_KEY_BYTES = 32


class _Attempt:
    """The secrets of a device in one attempt, and what it has said."""

    def __init__(self, request: StepRequest) -> None:
        self.name, self.device = request.attempt, request.device
        sealing, self.pad_secret, self.own_pad = (
            secrets.token_bytes(SECRET_BYTES) for _ in range(3)
        )
        self.sealing_key, self.pad_key = PrivateKey(sealing), PrivateKey(self.pad_secret)
        self.sealing: dict[int, bytes] = {}
        """By neighbour, what the keys for their shares are derived from."""
        self.neighbours: Mapping[int, bytes] = {}
        self.threshold = 0
        self.own_share = b""
        self.held: Mapping[int, bytes] = {}
        """By neighbour, its two shares for this device."""
        self.padded = 0, b""
        """The round, and the digest of the padded update."""
        self.said: dict[SumStep, tuple[StepRequest, bytes]] = {}

    @property
    def least(self) -> int:
        """The fewest devices, of the neighbours and itself, with which the device goes on."""
        return max(self.threshold, LEAST)


class SecureDevice:
    """The part of one device in secure sums.

    It answers every step of an attempt once: the same request gets the same bytes again, and
    another one is refused. So no request can make it give both shares of a neighbour, or pad two
    vectors alike. In a round it pads one update with one weight, and opens one sum.

    Args:
        index: its place in the population. It answers to no other: if the server could give one
            index to two devices, the sets of two sums would look alike to their neighbours.
        opened: remembers the newest update that was padded, and the newest sum that was opened.
    """

    def __init__(self, index: int, opened: OpenedSums) -> None:
        self._index = index
        self._opened = opened
        self._attempt: _Attempt | None = None

    def needs_update(self, request: StepRequest) -> bool:
        """Whether the device needs its weighted update for the reply."""
        return request.step is SumStep.UPDATE and self._known(request) is not None

    def _known(self, request: StepRequest) -> _Attempt | None:
        attempt = self._attempt
        if attempt is None or ((attempt.name, attempt.device) != (request.attempt, request.device)):
            return None
        return attempt

    def reply(
        self,
        request: StepRequest,
        call: Call,
        weight: float,
        stored: StoredUpdate | None,
        sum: PaddedSum | None,
    ) -> bytes | None:
        """The reply to a request; None: the device refuses.

        Args:
            stored: the update for the call; None if it is not here.
            sum: the weighted update, if `needs_update`; None if it is not here. It gets the pads.
        """
        if request.device != self._index:
            return None
        if request.step is SumStep.KEYS and self._known(request) is None:
            self._attempt = _Attempt(request)
        if (attempt := self._known(request)) is None:
            return None
        if (known := attempt.said.get(request.step)) is not None:
            return known[1] if known[0] == request else None
        if any(step not in attempt.said for step in SumStep if step < request.step):
            return None
        match request.step:
            case SumStep.KEYS:
                reply: bytes | None = attempt.sealing_key.public + attempt.pad_key.public
            case SumStep.SHARES:
                reply = _shares(attempt, request)
            case SumStep.UPDATE:
                reply = None
                if stored is not None and sum is not None:
                    reply = self._update(attempt, request, call, weight, stored, sum)
            case SumStep.OPENING:
                reply = self._opening(attempt, request)
        if reply is not None:
            attempt.said[request.step] = request, reply
        return reply

    def _update(
        self,
        attempt: _Attempt,
        request: StepRequest,
        call: Call,
        weight: float,
        stored: StoredUpdate,
        sum: PaddedSum,
    ) -> bytes | None:
        padded = _padded(attempt, request, sum)
        about = pack("<d", weight) + call.model_checksum + stored.update.checksum
        attempt.padded = call.key.round, sha256(about).digest()
        return padded if padded and self._opened.may_pad(*attempt.padded) else None

    def _opening(self, attempt: _Attempt, request: StepRequest) -> bytes | None:
        said = dict(request.records)
        alive = [index for index, flag in said.items() if flag == b"\1"]
        if said.keys() != attempt.held.keys() or len(alive) + 1 < attempt.least:
            return None
        # What opens this sum, except for the attempt. The difference of two sums with the same
        # update could be another device's update.
        round, padded = attempt.padded
        about = sha256(padded)
        for index, flag in sorted(said.items()):
            about.update(pack("<I", index) + flag)
        if not self._opened.may_open(round, about.digest()):
            return None
        shares = [attempt.own_share]
        for index, flag in request.records:
            own_pad, pad = attempt.held[index][:SHARE_BYTES], attempt.held[index][SHARE_BYTES:]
            shares.append(own_pad if flag == b"\1" else pad)
        return b"".join(shares)


def _shares(attempt: _Attempt, request: StepRequest) -> bytes | None:
    """The shares of the device's secrets, sealed for each neighbour."""
    holders, threshold = len(request.records) + 1, request.threshold
    # With half of the shares or fewer, a server that tells every neighbour something else would get
    # both secrets.
    if holders < LEAST or not holders < 2 * threshold <= 2 * holders:
        return None
    attempt.neighbours, attempt.threshold = dict(request.records), threshold
    places = [attempt.device + 1, *(index + 1 for index in attempt.neighbours)]
    own_pad = split(attempt.own_pad, places, threshold)
    pad = split(attempt.pad_secret, places, threshold)
    attempt.own_share = own_pad[0]
    sealed = []
    for (index, keys), *both in zip(request.records, own_pad[1:], pad[1:], strict=True):
        if (agreed := attempt.sealing_key.agree(keys[:_KEY_BYTES])) is None:
            return None
        attempt.sealing[index] = agreed
        sealed.append(seal(_sealing_key(attempt, attempt.device, index), b"".join(both)))
    return b"".join(sealed)


def _sealing_key(attempt: _Attempt, sender: int, receiver: int) -> bytes:
    neighbour = receiver if sender == attempt.device else sender
    purpose = f"shares of {sender} for {receiver}"
    return derived_key(attempt.sealing[neighbour], purpose, attempt.name)


def _padded(attempt: _Attempt, request: StepRequest, sum: PaddedSum) -> bytes | None:
    """The weighted update under the device's own pad and those that it has with its neighbours."""
    held = {}
    if len(request.records) + 1 < attempt.least:
        return None
    pads = [(attempt.own_pad, True)]
    for index, sealed in request.records:
        keys = attempt.neighbours.get(index)
        if keys is None:
            return None
        shares = unseal(_sealing_key(attempt, index, attempt.device), sealed)
        agreed = attempt.pad_key.agree(keys[_KEY_BYTES:])
        if shares is None or agreed is None:
            return None
        held[index] = shares
        pads.append((pad_key(agreed, attempt.name), attempt.device < index))
    attempt.held = held
    sum.pad(pads)
    return sum.encoded()


class PlainDevice:
    """A device that sends its weighted update as it is, for a run to compare with."""

    def needs_update(self, request: StepRequest) -> bool:
        """Whether the device needs its weighted update for the reply."""
        return request.step is SumStep.UPDATE

    def reply(
        self,
        request: StepRequest,
        call: Call,
        weight: float,
        stored: StoredUpdate | None,
        sum: PaddedSum | None,
    ) -> bytes | None:
        """The reply to a request: see `SecureDevice.reply`."""
        return None if sum is None else sum.encoded()


class SecureSteps:
    """The steps of secure sums that the server asks the devices of a process for.

    Args:
        held: the updates of these devices.
        format: how the devices send them.
    """

    def __init__(
        self,
        devices: Mapping[str, Learner],
        held: HeldUpdates,
        runner: TrainingRunner,
        format: SumFormat,
    ) -> None:
        self._devices = devices
        self._held = held
        self._runner = runner
        self._format = format
        self._secure: dict[str, SecureDevice | PlainDevice] = {}

    def needs_update(self, batch: CallBatch, request: SumRequest) -> bool:
        """Whether a device needs its update for a step."""
        return self._device(batch).needs_update(decode_step(request.step))

    async def take(self, batch: CallBatch, request: SumRequest) -> tuple[SumHeader, Body]:
        """Take a step.

        Returns:
            The reply and its header, in which the device is missing if it refuses.

        Raises:
            RemoteProtocolError: there is no such step, or it asks several devices.
        """
        device, step = self._device(batch), decode_step(request.step)
        (call,), (weight,) = batch.calls, request.weights
        learner = self._devices[call.key.client]
        stored, total = learner.memory.update_for(call), None
        if device.needs_update(step) and stored is not None:
            entries = learner.trained_entries(call.key.round, batch.work.entries)
            term = self._held.term(stored, weight, entries)
            # A server that could choose the seed would learn more of an entry than its rounded
            # value.
            draws = stream(learner.seed, "secure grid", call.key.client, call.key.round)
            total = await self._runner.run(self._weighted, term, entries, draws)
            if not self._format.plain:
                # After a power cut it must have this update again: it pads no other in the round.
                await self._runner.run(learner.memory.sync)
        reply = await self._runner.run(device.reply, step, call, weight, stored, total)
        missing = [call.key.client] if reply is None else []
        body = reply or b""
        return SumHeader(request.number, len(body), checksum(body), missing), body

    def _weighted(self, term: Term, entries: int, draws: np.random.Generator) -> PaddedSum:
        total = padded_sum(entries, self._format.grid)
        total.add_term(term, draws)
        return total

    def _device(self, batch: CallBatch) -> SecureDevice | PlainDevice:
        if len(batch.calls) != 1:
            raise RemoteProtocolError(
                f"a step of a secure sum asks {len(batch.calls)} devices; expected 1"
            )
        client = batch.calls[0].key.client
        if (known := self._secure.get(client)) is None:
            known = PlainDevice()
            if not self._format.plain:
                device = self._devices[client]
                known = SecureDevice(device.index, OpenedSums(device.memory.folder))
            self._secure[client] = known
        return known
