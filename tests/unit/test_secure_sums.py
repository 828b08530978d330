"""Secure sums of server and devices without a network: every drop-out, and servers that lie."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from itertools import combinations, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from muster.client.calls.partial_sums import HeldUpdates
from muster.client.calls.secure_sums import SecureDevice, SecureSteps
from muster.client.calls.training_runner import TrainingRunner
from muster.client.device.memory import StoredUpdate
from muster.client.device.opened import OpenedSums
from muster.client.life.settings import ClockSettings
from muster.common.clock import WallClock
from muster.common.compression import Whole
from muster.common.events import Event, SecureStep, SecureSumFailed
from muster.common.exact_sum import ExactSum, Term
from muster.common.exchange import Key, SumRequest, Update
from muster.common.secure.keys import PrivateKey, pad_key
from muster.common.secure.padded import padded_sum
from muster.common.secure.sharing import SHARE_BYTES, joined
from muster.common.secure.steps import KEYS_BYTES, SEALED_BYTES, StepRequest, SumStep, decode_step
from muster.common.seeds import stream
from muster.server.fleet.devices import EnrolledDevice
from muster.server.fleet.fleet import Fleet
from muster.server.runtime.worker import WorkerThread
from muster.server.settings.privacy import Privacy
from muster.server.settings.secure import Secure
from muster.server.updates.formats import UpdateFormats
from muster.server.updates.secure_sums import OpenedSum, SecureSums

PARAMETERS = 5
CLIENTS = [f"d{number}" for number in range(5)]
Dies = Callable[[int, SumStep], bool]


class Reply(SimpleNamespace):
    """What has arrived of a device."""

    body: bytes

    @property
    def received(self) -> int:
        return len(self.body)

    def whole(self) -> bytes:
        return self.body

    def close(self) -> None:
        pass


class Devices:
    """Devices that the server reaches without a network.

    Args:
        dies: whether a device ends before it takes a step. It is back, with a new process, at the
            next one.
        late: whether the reply of a device comes too late.
    """

    def __init__(
        self,
        folder: Path,
        dies: Dies = lambda device, step: False,
        late: Dies = lambda device, step: False,
    ) -> None:
        self._folder = folder
        self.dies = dies
        self.late = late
        self.told: list[Event] = []
        self.weights = dict.fromkeys(CLIENTS, 2.0)
        self.asked: list[tuple[StepRequest, bytes | None]] = []
        self.there = {client: self._new(client) for client in CLIENTS}
        draws = np.random.default_rng(5)
        self.vectors = {
            client: draws.normal(size=PARAMETERS).astype(np.float32) for client in CLIENTS
        }

    def _new(self, client: str) -> SecureDevice:
        folder = self._folder / client
        folder.mkdir(parents=True, exist_ok=True)
        return SecureDevice(CLIENTS.index(client), OpenedSums(folder))

    def restart(self, client: str) -> None:
        self.there[client] = self._new(client)

    def reply(self, client: str, request: StepRequest, weight: float = 2.0) -> bytes | None:
        """What a device says."""
        device, vector = self.there[client], self.vectors[client]
        total = None
        if device.needs_update(request):
            total = padded_sum(PARAMETERS, None)
            term = Term(lambda start, stop: vector[start:stop], weight, 9.0)
            total.add_term(term, np.random.default_rng())
        call: Any = SimpleNamespace(key=Key(client, 4, 1), model_checksum=b"m" * 16)
        update = Update(Key(client, 4, 1), 1, client.encode() * 8, 20, 0.0, 0.0, 0.0)
        said = device.reply(request, call, weight, StoredUpdate(update, vector.tobytes()), total)
        self.asked.append((request, said))
        return said

    async def exchange(
        self, asked: Sequence[Any], again: bool, patience_s: float, renewed: bool
    ) -> list[Reply]:
        replies = []
        for of in asked:
            request = decode_step(of.step)
            client = CLIENTS[request.device]
            if self.dies(request.device, request.step):
                self.restart(client)
            said = self.reply(client, request, self.weights[client])
            assert said is None or len(said) in of.lengths
            late = self.late(request.device, request.step)
            replies.append(Reply(body=b"" if late else self.damaged(request, said or b"")))
        return replies

    def damaged(self, request: StepRequest, said: bytes) -> bytes:
        """What the server gets of what a device says."""
        return said

    def revoked_of(self, clients: Any) -> set[str]:
        return set()


def all_of_them(round: int, entries: int) -> int:
    """The entries that a device without a mask trains."""
    return entries


async def collected(
    devices: Devices,
    lockstep: bool = False,
    clients: Sequence[str] = CLIENTS,
    least: int = 3,
    **settings: Any,
) -> tuple[list[OpenedSum], set[str]]:
    worker = WorkerThread(True)
    secure = Secure(**{"drop_out": 0.4, "collusion": 0.0, **settings})
    sums: Any = devices
    indices = {client: index for index, client in enumerate(CLIENTS)}
    fleet = Fleet(EnrolledDevice(client, "dev", index, 1) for client, index in indices.items())
    formats = UpdateFormats({}, {}, PARAMETERS, None, fleet)
    about = secure, secure.format(5, 1), "fedavg", 7, lockstep, formats, least
    server = SecureSums(*about, indices, sums, worker, devices.told.append)
    held: list[Any] = [
        SimpleNamespace(update=SimpleNamespace(key=Key(c, 4, 1)), body=SimpleNamespace(largest=9.0))
        for c in clients
    ]
    try:
        alone = server.alone(4, held)
        if alone:
            return [], alone
        return await server.collect(4, held, [2.0] * len(held), 10.0, False)
    finally:
        worker.close()


def right(devices: Devices, clients: Sequence[str]) -> list[Any]:
    total = ExactSum(PARAMETERS)
    for client in clients:
        total.add(devices.vectors[client], 2.0)
    pieces = total.pieces(0, PARAMETERS)
    return [pieces.coarse.tolist(), pieces.middle.tolist()]


def require_exact(devices: Devices, opened: OpenedSum, missing: set[str]) -> None:
    survivors = [client for client in CLIENTS if client not in missing]
    pieces = opened.total.read(0, PARAMETERS)
    assert [pieces.coarse.tolist(), pieces.middle.tolist()] == right(devices, survivors)


def require_one_share_each(devices: Devices) -> None:
    """In no attempt did devices give enough shares of both secrets of any device."""
    given: dict[tuple[bytes, int, bytes], int] = {}
    threshold = 3
    for request, said in devices.asked:
        if request.step is SumStep.OPENING and said is not None:
            for index, flag in [(request.device, b"\1"), *request.records]:
                about = request.attempt, index, flag
                given[about] = given.get(about, 0) + 1
    for (attempt, index, flag), count in given.items():
        other = given.get((attempt, index, b"\0" if flag == b"\1" else b"\1"), 0)
        assert min(count, other) < threshold


STEPS = [*SumStep]
ONE = [((device, step),) for device, step in product(range(5), STEPS)]
TWO = [pair for pair in combinations([d for (d,) in ONE], 2) if pair[0][0] < pair[1][0]]


@pytest.mark.parametrize("deaths", [(), *ONE, *TWO], ids=str)
async def test_the_sum_is_that_of_the_survivors(
    deaths: tuple[tuple[int, SumStep], ...], tmp_path: Path
) -> None:
    devices = Devices(tmp_path, lambda device, step: (device, step) in deaths)
    sums, missing = await collected(devices)
    # A device that comes back before it gave its keys takes part, and one that ends after its
    # padded update came is in the sum.
    gone = {CLIENTS[device] for device, step in deaths if step in (SumStep.SHARES, SumStep.UPDATE)}
    assert missing == gone
    require_exact(devices, sums[0], missing)
    require_one_share_each(devices)


@pytest.mark.parametrize("deaths", ONE, ids=str)
async def test_in_lockstep_a_death_takes_no_device_out(
    deaths: tuple[tuple[int, SumStep], ...], tmp_path: Path
) -> None:
    left = set(deaths)

    def once(device: int, step: SumStep) -> bool:
        dies = (device, step) in left
        left.discard((device, step))
        return dies

    devices = Devices(tmp_path, once)
    sums, missing = await collected(devices, lockstep=True)
    assert missing == set()
    require_exact(devices, sums[0], missing)
    require_one_share_each(devices)


@pytest.mark.parametrize("step", [SumStep.SHARES, SumStep.UPDATE, SumStep.OPENING])
async def test_below_the_threshold_nothing_is_opened(step: SumStep, tmp_path: Path) -> None:
    devices = Devices(tmp_path, lambda device, asked: device < 3 and asked is step)
    assert await collected(devices) == ([], {*CLIENTS})
    openings = [said for request, said in devices.asked if request.step is SumStep.OPENING]
    assert sum(said is not None for said in openings) < 3


async def test_two_devices_make_no_sum(tmp_path: Path) -> None:
    devices = Devices(tmp_path)
    assert await collected(devices, clients=CLIENTS[:2]) == ([], {*CLIENTS[:2]})
    assert devices.asked == []
    assert devices.told == [SecureSumFailed(4, None, 2, 3, 2)]


async def test_the_journal_has_who_has_taken_every_step(tmp_path: Path) -> None:
    devices = Devices(tmp_path, lambda device, step: (device, step) == (1, SumStep.SHARES))
    await collected(devices)
    steps = ("keys", 5, 5), ("shares", 5, 4), ("update", 4, 4), ("opening", 4, 4)
    assert devices.told == [
        SecureStep(4, 1, step, asked, answered)
        for step, asked, took in steps
        for answered in (None, took)
    ]


@pytest.mark.parametrize("lockstep", [False, True])
async def test_the_journal_has_why_there_is_no_sum(lockstep: bool, tmp_path: Path) -> None:
    devices = Devices(tmp_path, lambda device, step: device < 3 and step is SumStep.UPDATE)
    sums, _ = await collected(devices, lockstep)
    assert not sums
    needed = 5 if lockstep else 3
    assert devices.told[-1] == SecureSumFailed(4, "update", 2, needed, 5)


async def test_keys_are_new_in_every_attempt(tmp_path: Path) -> None:
    devices = Devices(tmp_path)
    await collected(devices)
    await collected(devices)
    keys = [said for request, said in devices.asked if request.step is SumStep.KEYS]
    assert len({*keys}) == len(keys) == 10
    updates = [said for request, said in devices.asked if request.step is SumStep.UPDATE]
    assert len({*updates}) == len(updates) == 10


async def test_the_bytes_of_a_sum_are_those_of_its_messages(tmp_path: Path) -> None:
    devices = Devices(tmp_path)
    await collected(devices)
    format = Secure(drop_out=0.4, collusion=0.0).format(5, 1)
    for device in range(5):
        of_device = [(r, said) for r, said in devices.asked if said and r.device == device]
        down = sum(len(request.encoded()) for request, _ in of_device)
        assert format.traffic(PARAMETERS) == (down, sum(len(said) for _, said in of_device))


async def opened(devices: Devices) -> dict[SumStep, StepRequest]:
    """What a server has asked the first device, by step, in a sum that was opened."""
    await collected(devices)
    return {request.step: request for request, said in devices.asked if request.device == 0}


async def test_a_repeated_step_gets_the_same_bytes(tmp_path: Path) -> None:
    devices = Devices(tmp_path)
    asked = await opened(devices)
    before = {r.step: said for r, said in devices.asked if r.device == 0}
    assert {step: devices.reply("d0", request) for step, request in asked.items()} == before


async def test_a_device_opens_one_set_only(tmp_path: Path) -> None:
    devices = Devices(tmp_path)
    asked = (await opened(devices))[SumStep.OPENING]
    lies = [(index, b"\0" if index == 2 else flag) for index, flag in asked.records]
    assert devices.reply("d0", asked._replace(records=lies)) is None
    assert devices.reply("d0", asked._replace(records=asked.records[1:])) is None
    assert devices.reply("d0", asked) is not None


async def test_a_device_gives_one_share_of_each_neighbour(tmp_path: Path) -> None:
    devices = Devices(tmp_path)
    said = devices.reply("d0", (await opened(devices))[SumStep.OPENING])
    assert said is not None
    assert len(said) == SHARE_BYTES * 5


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param([(1, b"\1"), (2, b"\1"), (3, b"\1")], id="one is left out"),
        pytest.param([(1, b"\1"), (2, b"\0"), (3, b"\0"), (4, b"\0")], id="too few"),
    ],
)
async def test_a_device_checks_the_set_before_it_opens(
    flags: list[tuple[int, bytes]], tmp_path: Path
) -> None:
    devices = Devices(tmp_path, late=lambda device, step: step is SumStep.UPDATE)
    asked = await opened(devices)
    assert asked.keys() == {SumStep.KEYS, SumStep.SHARES, SumStep.UPDATE}
    opening = asked[SumStep.SHARES]._replace(step=SumStep.OPENING)
    assert devices.reply("d0", opening._replace(records=flags)) is None
    right = [(index, b"\1") for index in range(1, 5)]
    assert devices.reply("d0", opening._replace(records=right)) is not None


async def test_a_device_pads_its_update_for_one_set_only(tmp_path: Path) -> None:
    devices = Devices(tmp_path)
    asked = (await opened(devices))[SumStep.UPDATE]
    assert devices.reply("d0", asked._replace(records=asked.records[1:])) is None


def revealed(devices: Devices, owner: int) -> tuple[bytes, StepRequest]:
    """The secret of a device that the openings give, and one of the requests for them."""
    shares = {}
    for request, said in devices.asked:
        if request.step is SumStep.OPENING and said is not None:
            owners = [request.device, *(index for index, _ in request.records)]
            if owner in owners:
                at = owners.index(owner) * SHARE_BYTES
                shares[request.device + 1] = said[at : at + SHARE_BYTES]
                about = request
    secret = joined(dict(list(shares.items())[: about.threshold]))
    assert secret is not None
    return secret, about


def without_pads(devices: Devices, pads: Sequence[tuple[bytes, bool]]) -> list[Any]:
    """The update that the first device has sent, without some of its pads."""
    total = padded_sum(PARAMETERS, None)
    total.add_encoded(
        next(s for r, s in devices.asked if s and (r.step, r.device) == (SumStep.UPDATE, 0))
    )
    total.pad([(key, not positive) for key, positive in pads])
    pieces = total.read(0, PARAMETERS)
    return [pieces.coarse.tolist(), pieces.middle.tolist()]


async def test_an_update_stays_hidden_without_its_own_pad(tmp_path: Path) -> None:
    devices = Devices(tmp_path)
    await collected(devices)
    own, _ = revealed(devices, 0)
    assert without_pads(devices, [(own, True)]) != right(devices, ["d0"])


async def test_own_pads_are_new_in_every_attempt(tmp_path: Path) -> None:
    devices, pads = Devices(tmp_path), set()
    for _ in range(2):
        devices.asked.clear()
        await collected(devices)
        pads |= {revealed(devices, owner)[0] for owner in range(5)}
    assert len(pads) == 10


async def test_a_late_update_stays_hidden_without_the_pads_in_common(tmp_path: Path) -> None:
    """The server has opened them, because it believed that the device had dropped out."""
    late = Devices(tmp_path, late=lambda device, step: (device, step) == (0, SumStep.UPDATE))
    _, missing = await collected(late)
    assert missing == {"d0"}
    secret, asked = revealed(late, 0)
    keys = {r.device: said for r, said in late.asked if r.step is SumStep.KEYS and said}
    key = PrivateKey(secret)
    assert key.public == keys[0][KEYS_BYTES // 2 :]
    agreed = [key.agree(keys[other][KEYS_BYTES // 2 :]) for other in range(1, 5)]
    pads = [(pad_key(secret, asked.attempt), True) for secret in agreed if secret is not None]
    assert len(pads) == 4
    assert without_pads(late, pads) != right(late, ["d0"])


class Liars(Devices):
    """The first device gives shares that are none."""

    def damaged(self, request: StepRequest, said: bytes) -> bytes:
        lies = request.device == 0 and request.step is SumStep.OPENING
        return said[:-1] + bytes([said[-1] ^ 1]) if lies else said


@pytest.mark.parametrize("gone", [None, 4], ids=["of an own pad", "of a key"])
async def test_a_wrong_share_opens_nothing(gone: int | None, tmp_path: Path) -> None:
    devices = Liars(tmp_path, lambda device, step: (device, step) == (gone, SumStep.UPDATE))
    assert await collected(devices) == ([], {*CLIENTS})


async def test_a_new_process_has_new_keys_for_the_same_attempt(tmp_path: Path) -> None:
    devices = Devices(tmp_path)
    asked = (await opened(devices))[SumStep.KEYS]
    before = devices.reply("d0", asked)
    devices.restart("d0")
    after = devices.reply("d0", asked)
    assert before is not None
    assert after is not None
    half = KEYS_BYTES // 2
    assert {before[:half], before[half:]}.isdisjoint({after[:half], after[half:]})


@pytest.mark.parametrize("step", STEPS[1:])
async def test_a_new_process_knows_nothing_of_an_attempt(step: SumStep, tmp_path: Path) -> None:
    devices = Devices(tmp_path)
    asked = await opened(devices)
    devices.restart("d0")
    assert devices.reply("d0", asked[step]) is None


async def test_no_sum_without_one_device_is_opened_after_one_with_it(tmp_path: Path) -> None:
    """The difference would be the update of this device, also if all processes are new."""
    devices = Devices(tmp_path)
    await collected(devices)
    for client in CLIENTS:
        devices.restart(client)
    devices.dies = lambda device, step: device == 2 and step is SumStep.UPDATE
    assert await collected(devices) == ([], {*CLIENTS})
    assert await collected(devices, clients=CLIENTS[1:]) == ([], {*CLIENTS[1:]})
    devices.dies = lambda device, step: False
    sums, missing = await collected(devices)  # the same sum may be opened again
    require_exact(devices, sums[0], missing)


@pytest.mark.parametrize("anew", [False, True], ids=["the same process", "a new process"])
@pytest.mark.parametrize("opened", [False, True], ids=["never asked to open", "opened"])
async def test_no_update_is_padded_with_two_weights_in_a_round(
    opened: bool, anew: bool, tmp_path: Path
) -> None:
    """The others would open both sums, whose difference is a multiple of the update."""
    devices = Devices(
        tmp_path, late=lambda device, step: not opened and step is SumStep.UPDATE and device > 0
    )
    await collected(devices)
    if anew:
        devices.restart("d2")
    devices.late = lambda device, step: False
    devices.weights["d2"] = 3.0
    _, missing = await collected(devices)
    assert "d2" in missing
    said = [said for r, said in devices.asked if (r.device, r.step) == (2, SumStep.UPDATE)]
    assert [reply is None for reply in said] == [False, True]


@pytest.mark.parametrize("threshold", [0, 1, 2, 6])
async def test_a_threshold_that_gives_both_secrets_away_is_refused(
    threshold: int, tmp_path: Path
) -> None:
    devices = Devices(tmp_path)
    asked = await opened(devices)
    attempt = b"n" * 16
    keys = StepRequest(SumStep.KEYS, attempt, 0)
    assert devices.reply("d0", keys) is not None
    shares = asked[SumStep.SHARES]._replace(attempt=attempt, threshold=threshold)
    assert devices.reply("d0", shares) is None


async def test_shares_that_were_changed_are_refused(tmp_path: Path) -> None:
    devices = Devices(tmp_path)
    asked = await opened(devices)
    attempt = b"n" * 16
    for step in (SumStep.KEYS, SumStep.SHARES):
        assert devices.reply("d0", asked[step]._replace(attempt=attempt)) is not None
    # They were sealed for the attempt before.
    assert devices.reply("d0", asked[SumStep.UPDATE]._replace(attempt=attempt)) is None


@pytest.mark.parametrize("least", [3, 4])
async def test_a_sum_of_fewer_updates_than_a_round_needs_is_not_opened(
    least: int, tmp_path: Path
) -> None:
    """Of `least` devices, one drops out before its padded update came."""
    clients = CLIENTS[:least]
    devices = Devices(tmp_path, lambda device, step: (device, step) == (0, SumStep.UPDATE))
    opened, missing = await collected(devices, clients=clients, least=least)
    assert (opened, missing) == ([], set(clients))
    assert not [request for request, _ in devices.asked if request.step is SumStep.OPENING]


def attempted(devices: Devices, indices: dict[str, int], alive: int) -> list[bytes | None]:
    """What devices say in the last step of an attempt, if the server calls them by `indices` and
    says that the updates of the first `alive` of them came."""
    name = b"a" * 16

    def said(client: str, step: SumStep, records: Sequence[tuple[int, bytes]] = ()) -> Any:
        threshold = 0 if step is SumStep.KEYS else 2
        return devices.reply(client, StepRequest(step, name, indices[client], threshold, records))

    def others(client: str, facts: dict[str, bytes]) -> list[tuple[int, bytes]]:
        return [(indices[other], facts[other]) for other in indices if other != client]

    keys = {client: said(client, SumStep.KEYS) for client in indices}
    if None in keys.values():
        return [None]
    sealed = {client: said(client, SumStep.SHARES, others(client, keys)) for client in indices}
    for client in indices:
        sent = {}
        for sender, reply in sealed.items():
            places = [other for other in indices if other != sender]
            if client != sender:
                start = SEALED_BYTES * places.index(client)
                sent[sender] = reply[start : start + SEALED_BYTES]
        assert said(client, SumStep.UPDATE, others(client, sent)) is not None
    came = {client: b"\1" if n < alive else b"\0" for n, client in enumerate(indices)}
    return [said(client, SumStep.OPENING, others(client, came)) for client in list(indices)[:alive]]


def test_a_device_helps_to_open_no_sum_of_two(tmp_path: Path) -> None:
    places = {client: place for place, client in enumerate(CLIENTS[:3])}
    assert None not in attempted(Devices(tmp_path / "three"), places, alive=3)
    assert attempted(Devices(tmp_path / "two"), places, alive=2) == [None, None]


def test_a_device_does_not_stand_for_another_one(tmp_path: Path) -> None:
    """The sets of the devices 0, 1, 2 and 3, 1, 2 would look alike to the devices 1 and 2, and the
    difference of the two sums would be that of two updates."""
    _, second, third, fourth = CLIENTS[:4]
    assert attempted(Devices(tmp_path), {fourth: 0, second: 1, third: 2}, alive=3) == [None]


@pytest.mark.parametrize("told", [7, 8])
async def test_a_device_rounds_by_its_own_seed_whatever_the_server_says(told: int) -> None:
    """From sums with other draws of one device, its entries would follow more exactly."""
    vector = np.linspace(-0.93, 0.71, PARAMETERS, dtype=np.float32)  # between the steps
    update = Update(Key("a", 4, 1), 1, bytes(16), vector.nbytes, 0.0, 0.0, 0.0)
    stored = StoredUpdate(update, vector.tobytes())
    memory = SimpleNamespace(update_for=lambda call: stored)
    devices: Any = {
        "a": SimpleNamespace(seed=7, index=0, memory=memory, trained_entries=all_of_them)
    }
    runner = TrainingRunner(ClockSettings(), None, WallClock())
    format = Secure(range=1.0, bits=4, rounding="stochastic", plain=True).format(3, 1)
    held = HeldUpdates(devices, Whole(kind="none"), runner, secret=True)
    steps = SecureSteps(devices, held, runner, format)
    batch: Any = SimpleNamespace(
        calls=[SimpleNamespace(key=update.key)],
        work=SimpleNamespace(entries=PARAMETERS, seed=told),
    )
    step = StepRequest(SumStep.UPDATE, b"a" * 16, 0).encoded()
    request = SumRequest(1, [1.0], begins=True, ends=True, step=step)
    _, body = await steps.take(batch, request)
    right = padded_sum(PARAMETERS, format.grid)
    term = Term(lambda start, stop: vector[start:stop], 1.0, 1.0)
    right.add_term(term, stream(7, "secure grid", "a", 4))
    assert bytes(body) == right.encoded()


@pytest.mark.parametrize("round", [4, 5])
async def test_a_new_process_adds_the_same_noise_to_the_update_of_a_round(round: int) -> None:
    """Otherwise two attempts of a round would tell more than one release."""
    vector = np.linspace(-0.93, 0.71, PARAMETERS, dtype=np.float32)
    privacy = Privacy(clip=0.5, noise=2.0, where="sum")
    format = Secure(range=1.0, plain=True).format(3, 1, privacy, 3)
    assert format.grid is not None

    async def sent(seed: int, index: int, client: str) -> bytes:
        update = Update(Key(client, round, 1), 1, bytes(16), vector.nbytes, 0.0, 0.0, 0.0)
        stored = StoredUpdate(update, vector.tobytes())
        memory = SimpleNamespace(update_for=lambda call: stored)
        device = SimpleNamespace(seed=seed, index=index, memory=memory, trained_entries=all_of_them)
        devices: Any = {client: device}
        runner = TrainingRunner(ClockSettings(), None, WallClock())
        held = HeldUpdates(devices, Whole(kind="none"), runner, secret=True)
        batch: Any = SimpleNamespace(
            calls=[SimpleNamespace(key=update.key)], work=SimpleNamespace(entries=PARAMETERS)
        )
        step = StepRequest(SumStep.UPDATE, secrets.token_bytes(16), index).encoded()
        request = SumRequest(1, [1.0], begins=True, ends=True, step=step)
        _, body = await SecureSteps(devices, held, runner, format).take(batch, request)
        return bytes(body)

    first = await sent(7, 0, "a")
    assert first == await sent(7, 0, "a")
    others = [await sent(7, 1, "b"), await sent(8, 0, "a")]
    without = padded_sum(PARAMETERS, format.grid.model_copy(update={"deviation": 0.0}))
    term = Term(lambda start, stop: vector[start:stop], 1.0, 1.0)
    without.add_term(term, stream(7, "secure grid", "a", round))
    numbers = [np.frombuffer(each, "<i4") for each in (without.encoded(), first, *others)]
    noise = [(each - numbers[0]) * format.grid.step for each in numbers[1:]]
    for one, other in combinations(noise, 2):
        assert np.abs(one - other).max() > 0.01
    assert np.concatenate(noise).std() == pytest.approx(1.0 / math.sqrt(3), rel=0.5)
