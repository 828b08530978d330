import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from muster.client.life.connectivity import NETWORKS
from muster.common.bounds import INSTRUCTION_BYTES
from muster.common.errors import RemoteProtocolError
from muster.common.exchange import (
    LARGEST_UTILITY,
    Answer,
    Call,
    Commit,
    Decision,
    DeviceState,
    Fingerprint,
    Held,
    Identity,
    Key,
    Observation,
    Outcome,
    Reason,
    Receipt,
    SumHeader,
    SumRequest,
    ToDevice,
    Update,
    UtilityCurve,
    Valuation,
)
from muster.common.facts import Facts
from muster.common.tensors import safetensors_header, schema_of
from muster.v1 import fleet_pb2 as pb
from muster.wire import CHUNK_BYTES, LEAST_CHUNK_BYTES, messages
from muster.wire.bodies import body_view, checksum, chunks, decode_vector
from muster.wire.messages import LARGEST

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
LARGE = st.integers(0, LARGEST)
SECONDS = st.floats(0, 1e9)
KEYS = st.builds(Key, st.text(max_size=20), NUMBERS, NUMBERS)
FINITE = st.floats(-1e30, 1e30)
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
    examples=LARGE,
    checksum=st.binary(min_size=16, max_size=16),
    length=LARGE,
    train_s=SECONDS,
    fetch_s=SECONDS,
    loss=st.floats(allow_nan=False),
    modelled_s=SECONDS,
    fetch_wait_s=SECONDS,
    fetched_at=SECONDS,
    slot_wait_s=SECONDS,
    steps=LARGE,
    facts=st.builds(Facts, *[st.none() | st.floats(allow_nan=False)] * len(Facts._fields)),
    report=st.binary(max_size=100),
    held=st.none(),
)
HELD = st.builds(Held, st.floats(0, allow_nan=False), st.floats(0, allow_nan=False))
RECEIPTS = st.builds(
    Receipt,
    KEYS,
    st.sampled_from(Outcome),
    st.none() | st.sampled_from(Reason),
    st.text(max_size=30),
    LARGE,
)
SHARES = st.floats(0, 1)
CALLS = st.builds(
    Call,
    KEYS,
    NUMBERS,
    SECONDS,
    st.binary(max_size=16),
    NUMBERS,
    NUMBERS,
    NUMBERS,
    st.none() | SHARES,
    st.booleans(),
    st.binary(max_size=100),
)
UTILITIES = st.floats(-LARGEST_UTILITY, LARGEST_UTILITY)
CURVATURES = st.floats(0, LARGEST_UTILITY, exclude_min=True)
VALUATIONS = st.builds(
    Valuation,
    SHARES,
    st.none() | SHARES,
    st.none() | st.builds(UtilityCurve, CURVATURES, UTILITIES, UTILITIES, UTILITIES),
    st.none() | st.booleans(),
    st.booleans(),
    st.none() | UTILITIES,
    st.none() | st.floats(-LARGEST_UTILITY, 1),
    st.none() | UTILITIES,
    st.none() | UTILITIES,
)


CLIENTS = st.lists(st.text(max_size=9), max_size=3).map(tuple)
WEIGHTS = st.floats(0, 1e300)
SUMMING = st.builds(
    lambda weighed, number, begins, ends, step: ToDevice(
        receipts=[],
        calls=[call for call, _ in weighed],
        sum_request=SumRequest(number, tuple(weight for _, weight in weighed), begins, ends, step),
    ),
    st.lists(st.tuples(CALLS, WEIGHTS), max_size=3),
    LARGE,
    st.booleans(),
    st.booleans(),
    st.binary(max_size=40),
)


@given(TENSORS)
def test_any_list_of_tensors_comes_back_bit_for_bit(tensors: dict[str, np.ndarray]) -> None:
    schema = schema_of({name: tensor.shape for name, tensor in tensors.items()})
    vector = decode_vector(body_view(schema.flatten(tensors)), schema.parameters)
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
    with pytest.raises(RemoteProtocolError, match="20 bytes; the 6 float32 that were expected"):
        decode_vector(bytes(20), 6)


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
    changes: dict[str, Any] = {field: seconds}
    wire = messages.encode_submit(update._replace(**changes), 0).header.update
    with pytest.raises(RemoteProtocolError, match=f"{field} is"):
        messages.decode_update(wire)


@given(RECEIPTS)
def test_a_receipt_comes_back(receipt: Receipt) -> None:
    wire = pb.Receipt.FromString(messages.encode_receipt(receipt).SerializeToString())
    assert messages.decode_receipt(wire) == receipt


BARE_ANSWERS = st.builds(
    Answer,
    KEYS,
    st.sampled_from(Decision),
    SECONDS,
    st.none() | st.sampled_from(Reason),
    st.none(),
    st.none() | STATES,
    X,
    NUMBERS,
    st.none() | VALUATIONS,
    st.just(""),
    st.just(()),
)
ANNOUNCING = st.builds(
    lambda answer, reports: answer._replace(
        away_steps=len(reports),
        foreseen=[Observation(answer.key.client, state, x) for state, x in reports],
    ),
    BARE_ANSWERS,
    st.lists(st.tuples(st.none() | STATES, X), min_size=1, max_size=3),
)
UPDATING = st.builds(
    lambda answer, update, held: answer._replace(
        decision=Decision.ACCEPT, update=update._replace(key=answer.key, held=held)
    ),
    BARE_ANSWERS,
    UPDATES,
    st.none() | HELD,
)
ANSWERS = BARE_ANSWERS | ANNOUNCING | UPDATING


def has_body(answer: Answer) -> bool:
    return answer.update is not None and answer.update.held is None


@given(
    st.lists(
        st.tuples(ANSWERS, st.binary(max_size=40)),
        max_size=3,
        unique_by=lambda said: said[0].key.client,
    )
)
def test_answers_come_back(said: list[tuple[Answer, bytes]]) -> None:
    wire = messages.encode_answers(said)
    expected = [(answer, body if has_body(answer) else b"") for answer, body in said]
    assert messages.decode_from_device(wire) == (expected, [], None)
    # It is what any protobuf runtime reads, and what it writes is what is read here.
    plain = pb.DeviceMessage.FromString(wire)
    assert list(plain.bodies) == [body for answer, body in said if has_body(answer)]
    assert messages.decode_from_device(plain.SerializeToString()) == (expected, [], None)


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
                answers=[
                    pb.Answer(decision=pb.DECISION_ACCEPT, update=pb.Update(checksum=bytes(16)))
                ]
            ).SerializeToString(),
            "1 updates .* 0 bodies",
        ),
    ],
)
def test_a_message_with_broken_bodies_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(RemoteProtocolError, match=why):
        messages.decode_from_device(data)


@pytest.mark.parametrize("field", ["largest", "squared_norm"])
def test_a_held_update_with_a_negative_number_is_refused(field: str) -> None:
    held = pb.HeldUpdate(largest=1.0, squared_norm=1.0)
    setattr(held, field, -1.0)
    with pytest.raises(RemoteProtocolError, match="expected numbers >= 0"):
        messages.decode_update(pb.Update(checksum=bytes(16), held=held))


def test_an_update_that_is_held_cannot_be_uploaded() -> None:
    update = pb.Update(checksum=bytes(16), held=pb.HeldUpdate())
    with pytest.raises(RemoteProtocolError, match="expected its body"):
        messages.decode_submit(pb.SubmitMessage(header=pb.SubmitHeader(update=update)))


@pytest.mark.parametrize(("away", "reports"), [(0, 1), (2, 1), (1, 2), (33, 33)])
def test_reports_in_advance_are_one_for_each_step(away: int, reports: int) -> None:
    foreseen = [pb.Foreseen(x=[1.0])] * reports
    with pytest.raises(RemoteProtocolError, match="expected one for each, and at most 32"):
        decode_alone(pb.Answer(decision=pb.DECISION_DECLINE, away_steps=away, foreseen=foreseen))


@given(st.builds(SumHeader, LARGE, LARGE, st.binary(min_size=16, max_size=16), CLIENTS), NUMBERS)
def test_the_header_of_a_sum_comes_back(header: SumHeader, offset: int) -> None:
    sent = messages.encode_sum_header(header, offset).SerializeToString()
    assert messages.decode_sum_header(pb.SumMessage.FromString(sent)) == (header, offset)


@given(
    st.builds(SumHeader, LARGE, LARGE, st.binary(min_size=16, max_size=16), CLIENTS),
    st.binary(max_size=40),
)
def test_the_reply_to_a_step_comes_back(header: SumHeader, body: bytes) -> None:
    wire = messages.encode_reply(header, body)
    assert messages.decode_from_device(wire) == ([], [], (header, body))


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (pb.SumMessage(chunk=b"four"), "begins with a header"),
        (pb.SumMessage(header=pb.SumHeader(length=12, checksum=b"?")), "a checksum of 1 bytes"),
        (pb.SumMessage(header=pb.SumHeader(length=2**41, checksum=bytes(16))), "length is"),
    ],
)
def test_an_impossible_header_of_a_sum_is_refused(message: pb.SumMessage, why: str) -> None:
    with pytest.raises(RemoteProtocolError, match=why):
        messages.decode_sum_header(message)


@pytest.mark.parametrize("weights", [[], [1.0, 2.0], [-1.0], [math.nan], [math.inf]])
def test_a_request_for_a_sum_has_a_weight_for_each_call(weights: list[float]) -> None:
    request = pb.SumRequest(number=1, weights=weights)
    message = pb.ServerMessage(calls=[pb.Call(client="a", round=1)], sum=request)
    with pytest.raises(RemoteProtocolError, match="weight"):
        messages.decode_to_device(message.SerializeToString())


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
        st.none(),
    )
    | SUMMING
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


@given(
    st.lists(
        st.builds(Observation, st.text(max_size=9), st.none() | STATES, X),
        max_size=3,
        unique_by=lambda seen: seen.client,
    )
)
def test_what_devices_tell_unasked_comes_back(seen: list[Observation]) -> None:
    assert messages.decode_from_device(messages.encode_heartbeat(seen)) == ([], seen, None)


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
        pb.Identity(client="a", examples=1, capacity=1.0, z={"age": -1e31}),
        pb.Identity(client="a", examples=LARGEST + 1, capacity=1.0),
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
        pb.Observation(client="a", x=[1e31]),
        pb.Observation(client="a", state=pb.DeviceState(battery=1.0, network="pigeon")),
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


# --- bounds --------------------------------------------------------------------------------------

UPDATE = pb.Update(client="a", round=1, attempt=1, examples=1, checksum=bytes(16), length=4)
ANSWER = pb.Answer(client="a", round=1, attempt=1, decision=pb.DECISION_ACCEPT, update=UPDATE)


@given(st.integers(LARGEST + 1, 2**64 - 1), st.sampled_from(["examples", "length"]))
def test_an_update_of_impossible_size_is_refused(number: int, field: str) -> None:
    wire = pb.Update.FromString(UPDATE.SerializeToString())
    setattr(wire, field, number)
    with pytest.raises(RemoteProtocolError, match=f"{field} is {number}; expected at most"):
        messages.decode_update(wire)


def test_sums_over_the_largest_numbers_fit_into_an_integer_of_the_ledger() -> None:
    rounds, devices = 800, 10_000
    assert rounds * devices * LARGEST < 2**63


@pytest.mark.parametrize("length", [0, 15, 17, 3000])
def test_a_checksum_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"a checksum of {length} bytes; expected 16"):
        messages.decode_update(pb.Update(checksum=bytes(length)))


def test_a_report_or_an_instruction_that_is_too_long_is_refused() -> None:
    update = pb.Update.FromString(UPDATE.SerializeToString())
    call = pb.Call(client="a", round=1, attempt=1)
    long = bytes(INSTRUCTION_BYTES)
    for wire, field in ((update, "report"), (call, "instruction")):
        setattr(wire, field, long)
    assert messages.decode_update(update).report == long
    update.report += b"!"
    call.instruction += b"!"
    with pytest.raises(RemoteProtocolError, match="report has 32769 bytes; expected at most 32768"):
        messages.decode_update(update)
    message = pb.ServerMessage(calls=[call]).SerializeToString()
    with pytest.raises(RemoteProtocolError, match="instruction has 32769 bytes"):
        messages.decode_to_device(message)


@pytest.mark.parametrize(
    "changes",
    [
        {"decision": pb.DECISION_DECLINE},
        {"decision": pb.DECISION_ABORT},
        {"client": "b"},
        {"round": 2},
        {"attempt": 2},
    ],
)
def test_an_update_in_an_answer_to_something_else_is_refused(changes: dict[str, Any]) -> None:
    wire = pb.Answer.FromString(ANSWER.SerializeToString())
    wire.MergeFrom(pb.Answer(**changes))
    message = pb.DeviceMessage(bodies=[bytes(4)], answers=[wire])
    with pytest.raises(RemoteProtocolError, match="expected an update in an answer that accepts"):
        messages.decode_from_device(message.SerializeToString())


@pytest.mark.parametrize(
    "message",
    [
        pb.DeviceMessage(bodies=[bytes(4)] * 2, answers=[ANSWER, ANSWER]),
        pb.DeviceMessage(heartbeat=pb.Heartbeat(devices=[pb.Observation(client="a")] * 2)),
    ],
)
def test_a_device_that_speaks_twice_in_a_message_is_refused(message: pb.DeviceMessage) -> None:
    with pytest.raises(RemoteProtocolError, match=r"2 entries of 1 devices .* 'a'"):
        messages.decode_from_device(message.SerializeToString())


def test_an_upload_that_does_not_know_how_much_arrived_may_state_any_offset() -> None:
    any_offset = pb.SubmitMessage(header=pb.SubmitHeader(update=UPDATE, offset=2**63 - 1))
    assert messages.decode_submit(any_offset)[1] == 2**63 - 1
    any_offset.header.offset += 1
    with pytest.raises(RemoteProtocolError, match="offset is"):
        messages.decode_submit(any_offset)


@pytest.mark.parametrize("chunk_bytes", [1, LEAST_CHUNK_BYTES - 1, CHUNK_BYTES + 1, 2**32 - 1])
def test_chunks_of_another_size_are_refused(chunk_bytes: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"chunk_bytes is {chunk_bytes}; expected 4096"):
        messages.decode_fetch(pb.FetchRequest(chunk_bytes=chunk_bytes))


def test_a_download_in_chunks_of_any_other_size_may_begin_anywhere() -> None:
    asked = messages.decode_fetch(pb.FetchRequest(version=3, offset=7, client="a", round=4))
    assert tuple(asked) == (3, 7, CHUNK_BYTES, "a", 4)
    with pytest.raises(RemoteProtocolError, match="offset is"):
        messages.decode_fetch(pb.FetchRequest(offset=LARGEST + 1))


@pytest.mark.parametrize("field", ["torch", "cpu_capability", "device"])
def test_a_fingerprint_with_a_long_name_is_refused(field: str) -> None:
    long: dict[str, Any] = {field: "x" * 201}
    with pytest.raises(RemoteProtocolError, match=f"length of {field} is 201"):
        messages.decode_fingerprint(pb.Fingerprint(**long))


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf, 1e13])
def test_a_server_that_tells_an_impossible_time_is_refused(seconds: float) -> None:
    with pytest.raises(RemoteProtocolError, match="scenario_s is"):
        messages.decode_to_device(messages.encode_to_device(ToDevice(scenario_s=seconds)))


def test_the_networks_on_the_wire_are_those_that_devices_have() -> None:
    for network in NETWORKS:
        state = DeviceState(1.0, True, True, network.name, True, 0.0)
        seen = [Observation("a", state, ())]
        assert messages.decode_from_device(messages.encode_heartbeat(seen)).seen == seen
