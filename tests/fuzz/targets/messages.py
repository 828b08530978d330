"""Targets: the messages between devices and the server.

gRPC parses the messages of all methods but Attend, and refuses bytes that are no message.
"""

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError, Message
from tests.fuzz.mutation import message_mutation
from tests.fuzz.target import Target, same

from muster.common.errors import RemoteProtocolError
from muster.common.exchange import ToDevice
from muster.common.facts import Facts
from muster.v1 import fleet_pb2 as pb
from muster.wire import messages

REFUSALS = (RemoteProtocolError, DecodeError)

MEASURED: dict[str, Any] = dict.fromkeys(Facts._fields, 0.7)
UPDATE = pb.Update(
    client="a", round=1, attempt=1, examples=10, checksum=bytes(16), length=4, loss=0.5,
    train_s=1.0, steps=3, report=b"\x01\x02", **MEASURED,
)  # fmt: skip
STATE = pb.DeviceState(battery=0.5, charging=True, network="wifi", hour=3.0)
ANSWER = pb.Answer(
    client="a", round=1, attempt=1, decision=pb.DECISION_ACCEPT, update=UPDATE, state=STATE,
    x=[1.0],
    valuation=pb.Valuation(
        received_accuracy=0.5, own_accuracy=0.4, curve=pb.UtilityCurve(a=1.0), r_squared=0.9,
        gains=True, forced=True, fitted_utility=0.4, received_loss=1.5, own_loss=2.5,
    ),
)  # fmt: skip
HELD = pb.Update(
    client="d", examples=1, checksum=bytes(16), held=pb.HeldUpdate(largest=1.0, squared_norm=2.0)
)
REFUSAL = pb.Receipt(
    client="a", round=1, attempt=1, outcome=pb.OUTCOME_REFUSED, reason=pb.REASON_CHECKSUM
)


# --- Attend --------------------------------------------------------------------------------------


def _verify_from_device(found: messages.FromDevice) -> None:
    # What is wrong with a valuation stays with the receiver.
    answers = [(answer._replace(fault=""), bytes(body)) for answer, body in found.answers]
    back = messages.decode_from_device(messages.encode_answers(answers))
    assert same([(answer, bytes(body)) for answer, body in back.answers], answers)
    seen = list(found.seen)
    assert same(messages.decode_from_device(messages.encode_heartbeat(seen)).seen, seen)
    if found.reply is not None:
        back = messages.decode_from_device(messages.encode_reply(*found.reply))
        assert same(back.reply, found.reply)


def _verify_to_device(found: ToDevice) -> None:
    back = messages.decode_to_device(messages.encode_to_device(found))
    for message in (back, found):
        message.model = None if message.model is None else bytes(message.model)
    assert same(back, found)


def _device_messages() -> list[bytes]:
    heartbeat = pb.Heartbeat(devices=[pb.Observation(client="b", state=STATE, x=[2.0])])
    declined = pb.Answer(client="b", round=1, decision=pb.DECISION_DECLINE, away_steps=2)
    announcing = pb.Answer(
        client="c", decision=pb.DECISION_DECLINE, away_steps=1,
        foreseen=[pb.Foreseen(state=STATE, x=[1.0])],
    )  # fmt: skip
    reply = pb.SumReply(header=pb.SumHeader(number=1, length=4, checksum=bytes(16)), body=bytes(4))
    holding = pb.Answer(client="d", decision=pb.DECISION_ACCEPT, update=HELD)
    return [
        pb.DeviceMessage(bodies=[bytes(4)], answers=[ANSWER, declined]).SerializeToString(),
        pb.DeviceMessage(answers=[announcing, holding]).SerializeToString(),
        pb.DeviceMessage(heartbeat=heartbeat).SerializeToString(),
        pb.DeviceMessage(reply=reply).SerializeToString(),
    ]


def _server_messages() -> list[bytes]:
    call = pb.Call(
        client="a", round=2, model_checksum=bytes(16), deadline_s=60.0, weight=0.5,
        counted_round=1, retains_model=True, instruction=b"\x01\x02",
    )  # fmt: skip
    message = pb.ServerMessage(
        model=bytes(8), receipts=[REFUSAL], committed=pb.Commit(round=1, version=1), calls=[call],
        scenario_s=3.0,
    )  # fmt: skip
    asking = pb.ServerMessage(
        calls=[call], sum=pb.SumRequest(number=1, weights=[3.0], begins=True, ends=True)
    )
    goodbye = pb.ServerMessage(goodbye=pb.Goodbye(status="completed"))
    return [each.SerializeToString() for each in (message, asking, goodbye)]


# --- the other methods ---------------------------------------------------------------------------


def _message_target(
    name: str,
    kind: type[Message],
    decode: Callable[[Any], Any],
    encode: Callable[[Any], Any],
    *seeds: Message,
) -> Target:
    """A target whose messages gRPC parses."""

    def verify(found: Any) -> None:
        assert same(decode(kind.FromString(encode(found).SerializeToString())), found)

    return Target(
        name=name,
        read=lambda data: decode(kind.FromString(data)),
        refusals=REFUSALS,
        verify=verify,
        seeds=lambda: [*(seed.SerializeToString() for seed in seeds), b"\xff"],
        mutate=message_mutation(kind),
    )


def _decode_enrolling(request: pb.EnrollRequest) -> Any:
    fingerprint = messages.decode_fingerprint(request.fingerprint)
    return fingerprint, [messages.decode_identity(device) for device in request.devices]


def _encode_enrolling(found: Any) -> pb.EnrollRequest:
    fingerprint, devices = found
    return pb.EnrollRequest(
        devices=map(messages.encode_identity, devices),
        fingerprint=messages.encode_fingerprint(fingerprint),
    )


def _decode_enrolled(enrolled: pb.Enrolled) -> Any:
    return messages.decode_schema(enrolled.schema), messages.decode_commit(enrolled.committed)


def _encode_enrolled(found: Any) -> pb.Enrolled:
    schema, committed = found
    return pb.Enrolled(
        schema=messages.encode_schema(schema), committed=messages.encode_commit(committed)
    )


def _encode_fetch(found: messages.Fetch) -> pb.FetchRequest:
    return pb.FetchRequest(**found._asdict())


TARGETS = (
    Target(
        name="device-messages",
        read=messages.decode_from_device,
        refusals=REFUSALS,
        verify=_verify_from_device,
        seeds=_device_messages,
        mutate=message_mutation(pb.DeviceMessage),
    ),
    Target(
        name="server-messages",
        read=messages.decode_to_device,
        refusals=REFUSALS,
        verify=_verify_to_device,
        seeds=_server_messages,
        mutate=message_mutation(pb.ServerMessage),
    ),
    _message_target(
        "enroll-requests",
        pb.EnrollRequest,
        _decode_enrolling,
        _encode_enrolling,
        pb.EnrollRequest(
            devices=[pb.Identity(client="a", examples=10, capacity=1.0, z={"age": 3.0})],
            fingerprint=pb.Fingerprint(torch="2.13.0+cpu", device="cpu", threads=1),
        ),
    ),
    _message_target(
        "enroll-replies",
        pb.Enrolled,
        _decode_enrolled,
        _encode_enrolled,
        pb.Enrolled(
            schema=pb.Schema(tensors=[pb.Tensor(name="w", shape=[2, 3])]),
            committed=pb.Commit(round=1, version=1),
        ),
    ),
    _message_target(
        "submit-headers",
        pb.SubmitMessage,
        messages.decode_submit,
        lambda found: messages.encode_submit(*found),
        pb.SubmitMessage(header=pb.SubmitHeader(update=UPDATE, offset=4)),
        pb.SubmitMessage(chunk=bytes(8)),
    ),
    _message_target(
        "sum-headers",
        pb.SumMessage,
        messages.decode_sum_header,
        lambda found: messages.encode_sum_header(*found),
        pb.SumMessage(header=pb.SumHeader(number=1, length=48, checksum=bytes(16), missing=["a"])),
        pb.SumMessage(chunk=bytes(8)),
    ),
    _message_target(
        "fetch-requests",
        pb.FetchRequest,
        messages.decode_fetch,
        _encode_fetch,
        pb.FetchRequest(version=3, offset=4096, chunk_bytes=4096, client="a", round=4),
    ),
    _message_target(
        "receipts", pb.Receipt, messages.decode_receipt, messages.encode_receipt, REFUSAL
    ),
)
