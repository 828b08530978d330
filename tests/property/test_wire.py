import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from muster.common.errors import RemoteProtocolError
from muster.common.exchange import (
    Answer,
    Call,
    Commit,
    Decision,
    DeviceState,
    Fingerprint,
    Identity,
    Key,
    Observation,
    Outcome,
    Reason,
    Receipt,
    ToDevice,
    Update,
)
from muster.common.tensors import Schema, TensorSpec, safetensors_header, schema_of
from muster.v1 import fleet_pb2 as pb
from muster.wire import CHUNK_BYTES, messages
from muster.wire.bodies import body_view, checksum, chunks, decode_vector

FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True)
TENSORS = st.dictionaries(
    st.text(min_size=1, max_size=8),
    array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4).flatmap(
        lambda shape: arrays(np.float32, shape, elements=FLOATS)
    ),
    min_size=1,
    max_size=5,
)
NUMBERS = st.integers(0, 2**32 - 1)
SECONDS = st.floats(0, 1e9)
KEYS = st.builds(Key, st.text(max_size=20), NUMBERS, NUMBERS)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
X = st.lists(FINITE, max_size=3).map(tuple)
STATES = st.builds(
    DeviceState,
    battery=st.floats(0, 1),
    charging=st.booleans(),
    idle=st.booleans(),
    network=st.sampled_from(["ethernet", "wifi", "cellular"]),
    unmetered=st.booleans(),
    hour=st.floats(0, 24, exclude_max=True),
)
UPDATES = st.builds(
    Update,
    KEYS,
    examples=st.integers(0, 2**64 - 1),
    checksum=st.binary(max_size=16),
    length=st.integers(0, 2**64 - 1),
    train_s=SECONDS,
    fetch_s=SECONDS,
    loss=st.floats(allow_nan=False),
    modelled_s=SECONDS,
    fetch_wait_s=SECONDS,
    fetched_at=SECONDS,
    slot_wait_s=SECONDS,
)
RECEIPTS = st.builds(
    Receipt,
    KEYS,
    st.sampled_from(Outcome),
    st.none() | st.sampled_from(Reason),
    st.text(max_size=30),
    st.integers(0, 2**64 - 1),
)
CALLS = st.builds(Call, KEYS, NUMBERS, SECONDS, st.binary(max_size=16), NUMBERS)


@given(TENSORS)
def test_any_list_of_tensors_comes_back_bit_for_bit(tensors: dict[str, np.ndarray]) -> None:
    schema = schema_of({name: tensor.shape for name, tensor in tensors.items()})
    vector = decode_vector(body_view(schema.flatten(tensors)), schema)
    back = schema.unflatten(vector)
    assert messages.decode_schema(messages.encode_schema(schema)) == schema
    assert list(back) == list(tensors)
    for name, tensor in tensors.items():
        assert back[name].shape == tensor.shape
        assert back[name].tobytes() == tensor.tobytes()


@given(TENSORS)
def test_the_body_behind_our_header_is_a_safetensors_file(tensors: dict[str, np.ndarray]) -> None:
    from safetensors.numpy import load

    schema = schema_of({name: tensor.shape for name, tensor in tensors.items()})
    file = safetensors_header(schema) + bytes(body_view(schema.flatten(tensors)))
    for name, tensor in load(file).items():
        assert tensor.shape == tensors[name].shape
        assert tensor.tobytes() == tensors[name].tobytes()


def test_a_body_of_another_length_is_refused() -> None:
    schema = Schema((TensorSpec("w", (2, 3)),))
    with pytest.raises(RemoteProtocolError, match="20 bytes; the schema's 6 float32 take 24"):
        decode_vector(bytes(20), schema)


@given(st.integers(0, 3 * CHUNK_BYTES + 5), st.integers(0, 3))
def test_chunks_from_any_offset_give_the_rest(length: int, skip: int) -> None:
    body = bytes(length)
    offset = min(length, skip * CHUNK_BYTES)
    pieces = list(chunks(body, offset))
    assert sum(len(piece) for piece in pieces) == length - offset
    assert all(0 < len(piece) <= CHUNK_BYTES for piece in pieces)


@given(UPDATES, NUMBERS)
def test_the_header_of_an_upload_comes_back(update: Update, offset: int) -> None:
    wire = pb.SubmitMessage.FromString(messages.encode_submit(update, offset).SerializeToString())
    assert messages.decode_update(wire.header.update) == update
    assert wire.header.offset == offset


@given(
    UPDATES,
    st.sampled_from(["train_s", "slot_wait_s"]),
    st.sampled_from([-1.0, math.nan, math.inf]),
)
def test_an_update_of_no_duration_is_refused(update: Update, field: str, seconds: float) -> None:
    wire = messages.encode_submit(update._replace(**{field: seconds}), 0).header.update
    with pytest.raises(RemoteProtocolError, match=f"{field} is"):
        messages.decode_update(wire)


@given(RECEIPTS)
def test_a_receipt_comes_back(receipt: Receipt) -> None:
    wire = pb.Receipt.FromString(messages.encode_receipt(receipt).SerializeToString())
    assert messages.decode_receipt(wire) == receipt


ANSWERS = st.builds(
    Answer,
    KEYS,
    st.sampled_from(Decision),
    SECONDS,
    st.none() | st.sampled_from(Reason),
    st.none() | UPDATES,
    st.none() | STATES,
    X,
    NUMBERS,
)


@given(st.lists(st.tuples(ANSWERS, st.binary(max_size=40)), max_size=3))
def test_answers_come_back(said: list[tuple[Answer, bytes]]) -> None:
    wire = messages.encode_answers(said)
    expected = [(answer, body if answer.update else b"") for answer, body in said]
    assert messages.decode_from_device(wire) == (expected, [])
    # It is what any protobuf runtime reads, and what it writes is what is read here.
    plain = pb.DeviceMessage.FromString(wire)
    assert list(plain.bodies) == [body for answer, body in said if answer.update]
    assert messages.decode_from_device(plain.SerializeToString()) == (expected, [])


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x0a", "no length ends at byte 1"),
        (b"\x0a" + bytes([0x80] * 11), "no length ends at byte 11"),
        (b"\x0a\x05body", "a body of 5 begins at byte 2"),
        (b"\x12\xff", "no DeviceMessage"),
        (pb.DeviceMessage(bodies=[b"body"]).SerializeToString(), "0 updates .* 1 bodies"),
        (
            pb.DeviceMessage(
                answers=[pb.Answer(decision=pb.DECISION_ACCEPT, update=pb.Update())]
            ).SerializeToString(),
            "1 updates .* 0 bodies",
        ),
    ],
)
def test_a_message_with_broken_bodies_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(RemoteProtocolError, match=why):
        messages.decode_from_device(data)


@pytest.mark.parametrize("parameters", [1, 100, 5000])
def test_a_first_body_lies_where_its_numbers_are_aligned(parameters: int) -> None:
    vector = np.arange(parameters, dtype=np.float32)
    wire = messages.encode_to_device(ToDevice(model=body_view(vector)))
    model = messages.decode_to_device(wire).model
    assert model is not None
    read = np.frombuffer(model, np.float32)
    assert read.flags.aligned
    np.testing.assert_array_equal(read, vector)


@given(
    st.builds(
        ToDevice,
        st.lists(RECEIPTS, max_size=3),
        st.none() | st.builds(Commit, NUMBERS, NUMBERS),
        st.none() | st.binary(max_size=40),
        st.lists(CALLS, max_size=3),
        st.none() | st.text(max_size=10),
        st.none() | SECONDS,
    )
)
def test_what_the_server_says_comes_back(message: ToDevice) -> None:
    wire = messages.encode_to_device(message)
    assert messages.decode_to_device(wire) == message
    plain = pb.ServerMessage.FromString(wire)
    assert messages.decode_to_device(plain.SerializeToString()) == message


def test_a_fingerprint_comes_back() -> None:
    fingerprint = Fingerprint("2.13.0+cpu", "AVX2", "cpu", 1)
    assert messages.decode_fingerprint(messages.encode_fingerprint(fingerprint)) == fingerprint


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf])
def test_seconds_that_are_no_duration_are_refused(seconds: float) -> None:
    with pytest.raises(RemoteProtocolError, match="modelled_s"):
        decode_alone(pb.Answer(decision=pb.DECISION_ACCEPT, modelled_s=seconds))


def decode_alone(answer: pb.Answer) -> None:
    messages.decode_from_device(pb.DeviceMessage(answers=[answer]).SerializeToString())


@given(st.lists(st.builds(Observation, st.text(max_size=9), st.none() | STATES, X), max_size=3))
def test_what_devices_tell_unasked_comes_back(seen: list[Observation]) -> None:
    assert messages.decode_from_device(messages.encode_heartbeat(seen)) == ([], seen)


@given(
    st.builds(
        Identity,
        st.text(max_size=9),
        NUMBERS,
        st.floats(0, 1, exclude_min=True),
        st.dictionaries(st.text(max_size=5), FINITE, max_size=3),
    )
)
def test_an_identity_comes_back(identity: Identity) -> None:
    wire = pb.Identity.FromString(messages.encode_identity(identity).SerializeToString())
    assert messages.decode_identity(wire) == identity


@pytest.mark.parametrize(
    "wire",
    [
        pb.Identity(client="a", examples=1, capacity=0.0),
        pb.Identity(client="a", examples=1, capacity=1.5),
        pb.Identity(client="a", examples=1, capacity=1.0, z={"age": math.nan}),
    ],
)
def test_an_impossible_identity_is_refused(wire: pb.Identity) -> None:
    with pytest.raises(RemoteProtocolError, match="expected"):
        messages.decode_identity(wire)


@pytest.mark.parametrize(
    "wire",
    [
        pb.Observation(client="a", state=pb.DeviceState(battery=1.1)),
        pb.Observation(client="a", state=pb.DeviceState(battery=math.nan)),
        pb.Observation(client="a", state=pb.DeviceState(hour=24.0)),
        pb.Observation(client="a", x=[0.0, math.inf]),
    ],
)
def test_an_impossible_observation_is_refused(wire: pb.Observation) -> None:
    message = pb.DeviceMessage(heartbeat=pb.Heartbeat(devices=[wire]))
    with pytest.raises(RemoteProtocolError, match="expected"):
        messages.decode_from_device(message.SerializeToString())


@given(st.integers(4, 2**31 - 1))
def test_a_decision_from_the_future_is_refused(number: int) -> None:
    with pytest.raises(RemoteProtocolError, match="has no meaning here"):
        decode_alone(pb.Answer(decision=number))  # type: ignore[arg-type]


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_other_bodies_have_other_checksums(one: bytes, other: bytes) -> None:
    assert (checksum(one) == checksum(other)) == (one == other)
