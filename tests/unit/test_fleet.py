import pytest

from muster.common.bounds import INSTRUCTION_BYTES
from muster.common.errors import Unauthenticated
from muster.common.exchange import (
    Call,
    Commit,
    Fingerprint,
    Identity,
    Key,
    Outcome,
    Receipt,
    ToDevice,
)
from muster.server.fleet.devices import EnrolledDevice, Outbox
from muster.server.fleet.fleet import Fleet

FINGERPRINT = Fingerprint("test", "test", "cpu", 1)


def make_fleet(devices: int) -> Fleet:
    return Fleet(EnrolledDevice(f"d{index}", "g", index, 5) for index in range(devices))


def identities(*clients: str) -> list[Identity]:
    return [Identity(client, 5) for client in clients]


def messages(outbox: Outbox) -> list[ToDevice | None]:
    return [outbox.get_nowait() for _ in range(outbox.qsize())]


async def test_what_is_too_much_for_a_message_goes_into_several() -> None:
    fleet = make_fleet(2500)
    pack = fleet.enroll(identities(*fleet.devices), FINGERPRINT)
    outbox = fleet.attend(pack, now=0.0)
    calls = [Call(Key(client, 1, 1), 0, 0.0, b"") for client in fleet.devices]
    pack.receipts = [Receipt(Key(f"d{n}", 0, 1), Outcome.ACCEPTED) for n in range(1500)]
    pack.send(Commit(0, 0), calls, b"model", goodbye="stopped")
    sent = [message for message in messages(outbox) if message is not None]
    assert [len(message.calls) for message in sent] == [1000, 1000, 500]
    assert [call for message in sent for call in message.calls] == calls
    assert sum(len(message.receipts) for message in sent) == 1500
    assert all(message.model == b"model" for message in sent)
    assert [message.goodbye for message in sent] == [None, None, "stopped"]


async def test_calls_with_long_instructions_go_into_more_messages() -> None:
    fleet = make_fleet(40)
    pack = fleet.enroll(identities(*fleet.devices), FINGERPRINT)
    outbox = fleet.attend(pack, now=0.0)
    told = [bytes(INSTRUCTION_BYTES), *[b"short"] * 39]
    calls = [
        Call(Key(client, 1, 1), 0, 0.0, b"", instruction=each)
        for client, each in zip(fleet.devices, told, strict=True)
    ]
    assert pack.send(Commit(0, 0), calls, b"model") == 3 * len(b"model")
    sent = [message for message in messages(outbox) if message is not None]
    assert [len(message.calls) for message in sent] == [16, 16, 8]
    assert [call for message in sent for call in message.calls] == calls


async def test_a_device_that_enrolls_again_ends_the_session_it_had() -> None:
    fleet = make_fleet(3)
    old = fleet.enroll(identities("d0", "d1"), FINGERPRINT)
    outbox = fleet.attend(old, now=0.0)
    assert fleet.present == 2
    new = fleet.enroll(identities("d1"), FINGERPRINT)
    assert messages(outbox) == [None], "its stream is told to end"
    assert fleet.present == 0
    with pytest.raises(Unauthenticated):
        fleet.of_session(old.session)
    assert fleet.of_session(new.session) is new
    assert not fleet.leave(old, outbox), "it has left already"
    fleet.attend(new, now=1.0)
    assert [device.present for device in fleet.devices.values()] == [False, True, False]


async def test_a_stream_that_is_replaced_is_told_to_end_and_counts_once() -> None:
    fleet = make_fleet(2)
    pack = fleet.enroll(identities("d0", "d1"), FINGERPRINT)
    first, second = fleet.attend(pack, now=0.0), fleet.attend(pack, now=1.0)
    assert messages(first) == [None]
    assert fleet.present == 2
    assert not fleet.leave(pack, first)
    assert fleet.leave(pack, second)
    assert fleet.present == 0
