"""Encoding of domain objects as protobuf messages, and decoding.

Decoding raises `RemoteProtocolError` for messages that no correct peer sends: an enum value without
a meaning, or a number that is not finite or out of its bounds. Values that pass can be written to
the ledger: they fit its 63-bit integers, and sums over its columns do not overflow.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from operator import attrgetter
from typing import NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message

from muster.common.bounds import COVARIATE, FORESEEN_STEPS, INSTRUCTION_BYTES, STEP_BYTES
from muster.common.errors import RemoteProtocolError, Unencodable
from muster.common.exchange import (
    Answer,
    Body,
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
    Valuation,
)
from muster.common.facts import NO_FACTS, Facts
from muster.common.tensors import Schema, schema_of
from muster.v1 import fleet_pb2 as pb
from muster.wire import CHUNK_BYTES, LEAST_CHUNK_BYTES
from muster.wire.bodies import split_bodies, with_bodies
from muster.wire.valuations import decode_valuation, encode_valuation

M = TypeVar("M", bound=Message)
E = TypeVar("E", bound=StrEnum)


def _numbers(enum: type[E], prefix: str, numbers: Iterable[tuple[str, int]]) -> dict[E, int]:
    """The protobuf number of each domain value, by name.

    A value without a number raises KeyError when this module is imported.
    """
    by_name = dict(numbers)
    return {value: by_name[f"{prefix}_{value.name}"] for value in enum}


_DECISIONS = _numbers(Decision, "DECISION", pb.Decision.items())
_REASONS = _numbers(Reason, "REASON", pb.Reason.items())
_OUTCOMES = _numbers(Outcome, "OUTCOME", pb.Outcome.items())


class _Meanings(dict[int, E]):
    """The domain value of each protobuf number in a field, which refuses all other numbers."""

    def __init__(self, field: str, numbers: Mapping[E, int]) -> None:
        super().__init__({number: value for value, number in numbers.items()})
        self._field = field

    def __missing__(self, number: int) -> E:
        raise RemoteProtocolError(f"{self._field} {number} has no meaning here")


_DECISION_OF = _Meanings("decision", _DECISIONS)
_REASON_OF: dict[int, Reason | None] = {0: None, **{n: value for value, n in _REASONS.items()}}
_OUTCOME_OF = _Meanings("outcome", _OUTCOMES)


LARGEST = 1 << 40
"""The largest length in bytes and the largest number of examples. The sum of eight million of them
is below 2⁶³, where SQLite's integers end."""

DETAIL = 500
"""Most characters of the error for which a device gives up."""

LONGEST_S = 1e12
"""The largest number of seconds: 30,000 years. UNIX times are below it, and sums stay finite."""

_CHECKSUM_BYTES = 16
_LONGEST_NAME = 200
"""Most characters of a name in a fingerprint, and of a name in a message."""

_NETWORKS = frozenset({"ethernet", "wifi", "cellular"})

_SECONDS = ("train_s", "fetch_s", "modelled_s", "fetch_wait_s", "fetched_at", "slot_wait_s")
"""Fields of an update that must be finite and not negative."""

_seconds_of = attrgetter(*_SECONDS)

_PLAIN = Update._fields[1 : Update._fields.index("facts")]
"""Fields of an update, after its key, that are the same in protobuf."""

_plain_of = attrgetter(*_PLAIN)


def _finite(value: float, field: str) -> float:
    if not 0 <= value <= LONGEST_S:
        raise RemoteProtocolError(
            f"{field} is {value}; expected a number of seconds from 0 to {LONGEST_S:g}"
        )
    return value


def _bounded(value: int, field: str, most: int = LARGEST) -> int:
    if value > most:
        raise RemoteProtocolError(f"{field} is {value}; expected at most {most}")
    return value


def _short(text: bytes, field: str) -> bytes:
    if len(text) > INSTRUCTION_BYTES:
        raise RemoteProtocolError(
            f"{field} has {len(text)} bytes; expected at most {INSTRUCTION_BYTES}"
        )
    return text


def _covariates(values: Sequence[float], field: str) -> Sequence[float]:
    if not all(abs(value) <= COVARIATE for value in values):  # a NaN compares as false
        raise RemoteProtocolError(
            f"{field} {list(values)}; expected finite numbers of at most {COVARIATE:g}"
        )
    return values


def _check_once(clients: Sequence[str]) -> None:
    if len(set(clients)) < len(clients):
        twice = next(client for client in clients if clients.count(client) > 1)
        raise RemoteProtocolError(
            f"{len(clients)} entries of {len(set(clients))} devices in a message; expected one of "
            f"each, found more of {twice[:_LONGEST_NAME]!r}"
        )


def _parsed(kind: type[M], data: bytes) -> M:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise RemoteProtocolError(f"{len(data)} bytes are no {kind.__name__}: {error}") from None


# --- fleet -> device ---------------------------------------------------------------------------


def encode_to_device(message: ToDevice) -> bytes:
    """Encode a message to devices as a serialised `pb.ServerMessage`.

    Raises:
        Unencodable: a number does not fit its field.
    """
    out = pb.ServerMessage()
    try:
        for receipt in message.receipts:
            _fill_receipt(out.receipts.add(), receipt)
        if message.committed is not None:
            out.committed.round, out.committed.version = message.committed
        for call in message.calls:
            _fill_call(out.calls.add(), call)
        if message.goodbye is not None:
            out.goodbye.status = message.goodbye
        if message.scenario_s is not None:
            out.scenario_s = message.scenario_s
        if (asked := message.sum_request) is not None:
            out.sum.number, weights, out.sum.begins, out.sum.ends, out.sum.step = asked
            out.sum.weights.extend(weights)
    except ValueError as error:  # of protobuf, which tells the number
        raise Unencodable(f"a message to devices cannot be encoded: {error}") from None
    alone: bytes = out.SerializeToString()
    return alone if message.model is None else with_bodies(alone, [message.model])


def _fill_call(out: pb.Call, call: Call) -> None:
    out.client, out.round, out.attempt = call.key
    out.base_version = call.base_version
    out.deadline_s = call.deadline_s
    out.model_checksum = call.model_checksum
    out.called_in_group = call.called_in_group
    out.step = call.step
    out.counted_round = call.counted_round
    if call.weight is not None:
        out.weight = call.weight
    out.retains_model = call.retains_model
    out.instruction = call.instruction


def decode_to_device(data: bytes) -> ToDevice:
    """Decode a serialised `pb.ServerMessage`."""
    bodies, alone = split_bodies(data)
    message = _parsed(pb.ServerMessage, alone)
    return ToDevice(
        receipts=list(map(decode_receipt, message.receipts)),
        committed=decode_commit(message.committed) if message.HasField("committed") else None,
        model=bodies[-1] if bodies else None,
        calls=list(map(_decode_call, message.calls)),
        goodbye=message.goodbye.status if message.HasField("goodbye") else None,
        scenario_s=(
            _finite(message.scenario_s, "scenario_s") if message.HasField("scenario_s") else None
        ),
        sum_request=_decode_request(message) if message.HasField("sum") else None,
    )


def _decode_request(message: pb.ServerMessage) -> SumRequest:
    request = message.sum
    if len(request.weights) != len(message.calls):
        raise RemoteProtocolError(
            f"a request for a sum has {len(request.weights)} weights for {len(message.calls)} calls"
        )
    if not all(0 <= weight < math.inf for weight in request.weights):
        raise RemoteProtocolError("a weight of a sum is not a finite number >= 0")
    if len(request.step) > STEP_BYTES:
        raise RemoteProtocolError(
            f"a step of a secure sum has {len(request.step)} bytes; expected at most {STEP_BYTES}"
        )
    return SumRequest(
        request.number, tuple(request.weights), request.begins, request.ends, request.step
    )


def _decode_call(call: pb.Call) -> Call:
    return Call(
        Key(call.client, call.round, call.attempt),
        call.base_version,
        _finite(call.deadline_s, "deadline_s"),
        call.model_checksum,
        call.called_in_group,
        call.step,
        call.counted_round,
        _decode_weight(call.weight) if call.HasField("weight") else None,
        call.retains_model,
        _short(call.instruction, "instruction") if call.instruction else b"",
    )


def _decode_weight(weight: float) -> float:
    if not 0 <= weight <= 1:
        raise RemoteProtocolError(f"a weight of {weight} in the model; expected 0 to 1")
    return weight


def encode_receipt(receipt: Receipt) -> pb.Receipt:
    out = pb.Receipt()
    _fill_receipt(out, receipt)
    return out


def _fill_receipt(out: pb.Receipt, receipt: Receipt) -> None:
    out.client, out.round, out.attempt = receipt.key
    out.outcome = _OUTCOMES[receipt.outcome]  # type: ignore[assignment]
    if receipt.reason is not None:
        out.reason = _REASONS[receipt.reason]  # type: ignore[assignment]
    if receipt.detail:
        out.detail = receipt.detail
    if receipt.offset:
        out.offset = receipt.offset


def decode_receipt(receipt: pb.Receipt) -> Receipt:
    return Receipt(
        Key(receipt.client, receipt.round, receipt.attempt),
        _OUTCOME_OF[receipt.outcome],
        _REASON_OF.get(receipt.reason),
        receipt.detail,
        _bounded(receipt.offset, "offset") if receipt.offset else 0,
    )


def encode_commit(commit: Commit) -> pb.Commit:
    return pb.Commit(round=commit.round, version=commit.version)


def decode_commit(commit: pb.Commit) -> Commit:
    return Commit(commit.round, commit.version)


def encode_schema(schema: Schema) -> pb.Schema:
    tensors = [pb.Tensor(name=t.name, shape=t.shape) for t in schema.tensors]
    return pb.Schema(tensors=tensors, frozen=schema.frozen)


def decode_schema(schema: pb.Schema) -> Schema:
    return schema_of({tensor.name: tensor.shape for tensor in schema.tensors}, schema.frozen)


# --- device -> fleet ---------------------------------------------------------------------------


class FromDevice(NamedTuple):
    """One message from a pack of devices.

    Attributes:
        answers: answers, each with the body of its update.
        seen: observations of a heartbeat.
        reply: to a step of a secure sum, with its header.
    """

    answers: Sequence[tuple[Answer, Body]]
    seen: Sequence[Observation]
    reply: tuple[SumHeader, bytes] | None = None


def encode_answers(answers: Sequence[tuple[Answer, Body]]) -> bytes:
    """Encode answers as a serialised `pb.DeviceMessage`, with the bodies of their updates.

    The bodies of answers without an update, and of updates that are held, are left out.
    """
    out, bodies = pb.DeviceMessage(), []
    for answer, body in answers:
        _fill_answer(out.answers.add(), answer)
        if answer.update is not None and answer.update.held is None:
            bodies.append(body)
    return with_bodies(out.SerializeToString(), bodies)


def encode_heartbeat(devices: Iterable[Observation]) -> bytes:
    """Encode a heartbeat as a serialised `pb.DeviceMessage`."""
    heartbeat = pb.Heartbeat(devices=map(_encode_observation, devices))
    encoded: bytes = pb.DeviceMessage(heartbeat=heartbeat).SerializeToString()
    return encoded


def _fill_answer(out: pb.Answer, answer: Answer) -> None:
    out.client, out.round, out.attempt = answer.key
    out.decision = _DECISIONS[answer.decision]  # type: ignore[assignment]
    if answer.reason is not None:
        out.reason = _REASONS[answer.reason]  # type: ignore[assignment]
    out.modelled_s = answer.modelled_s
    if answer.update is not None:
        _fill_update(out.update, answer.update)
    if answer.state is not None:
        out.state.CopyFrom(_encode_state(answer.state))
    if answer.x:
        out.x.extend(answer.x)
    out.away_steps = answer.away_steps
    out.detail = answer.detail[:DETAIL]
    for later in answer.foreseen:
        state = _encode_state(later.state) if later.state else None
        out.foreseen.add(state=state, x=later.x)
    if answer.valuation is not None:
        out.valuation.CopyFrom(encode_valuation(answer.valuation))


def encode_reply(header: SumHeader, body: Body) -> bytes:
    """Encode the reply to a step of a secure sum as a serialised `pb.DeviceMessage`."""
    reply = pb.SumReply(header=encode_sum_header(header, 0).header, body=bytes(body))
    encoded: bytes = pb.DeviceMessage(reply=reply).SerializeToString()
    return encoded


def decode_from_device(data: bytes) -> FromDevice:
    """Decode a serialised `pb.DeviceMessage`.

    A device may have at most one answer and one observation in it.
    """
    bodies, alone = split_bodies(data)
    message = _parsed(pb.DeviceMessage, alone)
    answers: list[tuple[Answer, Body]] = []
    updates = 0
    for answer in map(_decode_answer, message.answers):
        body: Body = b""
        if answer.update is not None and answer.update.held is None:
            body = bodies[updates] if updates < len(bodies) else b""
            updates += 1
        answers.append((answer, body))
    if updates != len(bodies):
        raise RemoteProtocolError(f"{updates} updates in a message with {len(bodies)} bodies")
    if len(answers) > 1:
        _check_once([answer.key.client for answer, _ in answers])
    return FromDevice(
        answers,
        _decode_heartbeat(message.heartbeat) if message.HasField("heartbeat") else [],
        _decode_reply(message.reply) if message.HasField("reply") else None,
    )


def _decode_heartbeat(heartbeat: pb.Heartbeat) -> Sequence[Observation]:
    seen = list(map(_decode_observation, heartbeat.devices))
    _check_once([observation.client for observation in seen])
    return seen


def _decode_reply(reply: pb.SumReply) -> tuple[SumHeader, bytes]:
    header, _ = _decode_sum_header(reply.header)
    return header, reply.body


def _decode_answer(answer: pb.Answer) -> Answer:
    key = Key(answer.client, answer.round, answer.attempt)
    decision = _DECISION_OF[answer.decision]
    update = decode_update(answer.update) if answer.HasField("update") else None
    if update is not None and (update.key != key or decision is not Decision.ACCEPT):
        raise RemoteProtocolError(
            f"an update of {_shown(update.key)} in the answer {decision.value!r} of {_shown(key)}; "
            f"expected an update in an answer that accepts, and for the same call"
        )
    valuation, fault = _judged_valuation(answer) if answer.HasField("valuation") else (None, "")
    return Answer(
        key,
        decision,
        _finite(answer.modelled_s, "modelled_s"),
        _REASON_OF.get(answer.reason),
        update,
        _decode_state(answer.state) if answer.HasField("state") else None,
        _decode_x(answer.x) if answer.x else (),
        answer.away_steps,
        valuation,
        fault,
        _decode_foreseen(answer) if answer.foreseen else (),
        answer.detail[:DETAIL],
    )


def _decode_foreseen(answer: pb.Answer) -> Sequence[Observation]:
    if len(answer.foreseen) != answer.away_steps or answer.away_steps > FORESEEN_STEPS:
        raise RemoteProtocolError(
            f"{len(answer.foreseen)} reports in advance for {answer.away_steps} steps; expected "
            f"one for each, and at most {FORESEEN_STEPS}"
        )
    return [
        Observation(
            answer.client,
            _decode_state(later.state) if later.HasField("state") else None,
            _decode_x(later.x),
        )
        for later in answer.foreseen
    ]


def _judged_valuation(answer: pb.Answer) -> tuple[Valuation | None, str]:
    """The valuation in an answer, and what is wrong with it. A wrong one is left out, and does not
    break the stream: the server treats the device as absent, and the run goes on."""
    try:
        return decode_valuation(answer.valuation), ""
    except RemoteProtocolError as error:
        return None, str(error)


def _shown(key: Key) -> str:
    return f"{key.client[:_LONGEST_NAME]!r} for round {key.round}, attempt {key.attempt}"


def _encode_observation(observation: Observation) -> pb.Observation:
    return pb.Observation(
        client=observation.client,
        state=_encode_state(observation.state) if observation.state else None,
        x=observation.x,
    )


def _decode_observation(observation: pb.Observation) -> Observation:
    state = _decode_state(observation.state) if observation.HasField("state") else None
    return Observation(observation.client, state, _decode_x(observation.x))


def _encode_state(state: DeviceState) -> pb.DeviceState:
    return pb.DeviceState(**state._asdict())


def _decode_state(state: pb.DeviceState) -> DeviceState:
    if not (0 <= state.battery <= 1 and 0 <= state.hour < 24):
        raise RemoteProtocolError(
            f"a battery of {state.battery} at hour {state.hour}; expected a share and an hour of "
            f"the day"
        )
    if state.network not in _NETWORKS:
        raise RemoteProtocolError(
            f"the network {state.network[:_LONGEST_NAME]!r}; expected one of "
            f"{', '.join(sorted(_NETWORKS))}"
        )
    return DeviceState(
        state.battery, state.charging, state.idle, state.network, state.unmetered, state.hour
    )


def _decode_x(x: Sequence[float]) -> tuple[float, ...]:
    return tuple(_covariates(x, "covariates X"))


def encode_identity(identity: Identity) -> pb.Identity:
    return pb.Identity(**identity._asdict())


def decode_identity(identity: pb.Identity) -> Identity:
    if not 0 < identity.capacity <= 1:
        raise RemoteProtocolError(f"capacity {identity.capacity}; expected a share of the model")
    _covariates(list(identity.z.values()), "covariates Z")
    _bounded(identity.examples, "examples")
    return Identity(identity.client, identity.examples, identity.capacity, dict(identity.z))


def encode_submit(update: Update, offset: int) -> pb.SubmitMessage:
    """Encode the header of Submit. The body follows from byte `offset` on."""
    out = pb.SubmitMessage()
    _fill_update(out.header.update, update)
    out.header.offset = offset
    return out


def decode_submit(message: pb.SubmitMessage) -> tuple[Update, int]:
    """Decode the header of Submit: the update, and the byte from which its body follows."""
    if message.WhichOneof("part") != "header":
        raise RemoteProtocolError("Submit begins with a header")
    header = message.header
    if header.update.HasField("held"):
        raise RemoteProtocolError("Submit of an update that its process holds; expected its body")
    # A device that does not know how much arrived sends an offset that is always wrong.
    return decode_update(header.update), _bounded(header.offset, "offset", (1 << 63) - 1)


class Fetch(NamedTuple):
    """A device's request for a model."""

    version: int
    offset: int
    chunk_bytes: int
    client: str
    round: int


def decode_fetch(request: pb.FetchRequest) -> Fetch:
    chunk_bytes = request.chunk_bytes or CHUNK_BYTES
    if not LEAST_CHUNK_BYTES <= chunk_bytes <= CHUNK_BYTES:
        raise RemoteProtocolError(
            f"chunk_bytes is {chunk_bytes}; expected {LEAST_CHUNK_BYTES} to {CHUNK_BYTES}, or 0 "
            f"for the largest"
        )
    offset = _bounded(request.offset, "offset")
    return Fetch(request.version, offset, chunk_bytes, request.client, request.round)


def _fill_update(out: pb.Update, update: Update) -> None:
    """Fill a message. This is written out because a loop of setattr takes three times as long."""
    (
        (out.client, out.round, out.attempt),
        out.examples,
        out.checksum,
        out.length,
        out.train_s,
        out.fetch_s,
        out.loss,
        out.modelled_s,
        out.fetch_wait_s,
        out.fetched_at,
        out.slot_wait_s,
        out.steps,
        facts,
        out.report,
        held,
    ) = update
    if facts is not NO_FACTS:
        for name, fact in zip(Facts._fields, facts, strict=True):
            if fact is not None:
                setattr(out, name, fact)
    if held is not None:
        out.held.largest, out.held.squared_norm = held


def decode_update(update: pb.Update) -> Update:
    decoded = Update._make(
        (
            Key(update.client, update.round, update.attempt),
            *_plain_of(update),
            _decode_facts(update),
            _short(update.report, "report") if update.report else b"",
            _decode_held(update.held) if update.HasField("held") else None,
        )
    )
    seconds = _seconds_of(decoded)
    # One comparison for all of them. If one is NaN, the sum is NaN too.
    if not (min(seconds) >= 0 and sum(seconds) <= LONGEST_S):
        for field in _SECONDS:
            _finite(getattr(decoded, field), field)
    if max(decoded.examples, decoded.length, decoded.steps) > LARGEST:
        _bounded(decoded.examples, "examples")
        _bounded(decoded.length, "length")
        _bounded(decoded.steps, "steps")
    if len(decoded.checksum) != _CHECKSUM_BYTES:
        raise RemoteProtocolError(
            f"a checksum of {len(decoded.checksum)} bytes; expected {_CHECKSUM_BYTES}"
        )
    return decoded


def _decode_facts(update: pb.Update) -> Facts:
    has: Callable[[str], bool] = update.HasField  # type: ignore[assignment]
    if not any(map(has, Facts._fields)):  # most updates: nothing is made
        return NO_FACTS
    return Facts(*[getattr(update, name) if has(name) else None for name in Facts._fields])


def _decode_held(held: pb.HeldUpdate) -> Held:
    decoded = Held(held.largest, held.squared_norm)
    if any(number < 0 for number in decoded):
        raise RemoteProtocolError(f"a held update has {decoded}; expected numbers >= 0")
    return decoded


def encode_sum_header(header: SumHeader, offset: int) -> pb.SumMessage:
    """Encode the header of SubmitSum. The sum follows from byte `offset` on."""
    number, length, body_checksum, missing = header
    return pb.SumMessage(
        header=pb.SumHeader(
            number=number,
            length=length,
            checksum=body_checksum,
            missing=list(missing),
            offset=offset,
        )
    )


def decode_sum_header(message: pb.SumMessage) -> tuple[SumHeader, int]:
    """Decode the header of SubmitSum, and the byte from which the sum follows."""
    if message.WhichOneof("part") != "header":
        raise RemoteProtocolError("SubmitSum begins with a header")
    return _decode_sum_header(message.header)


def _decode_sum_header(header: pb.SumHeader) -> tuple[SumHeader, int]:
    if header.length and len(header.checksum) != _CHECKSUM_BYTES:
        raise RemoteProtocolError(
            f"a checksum of {len(header.checksum)} bytes; expected {_CHECKSUM_BYTES}"
        )
    length = _bounded(header.length, "length")
    decoded = SumHeader(header.number, length, header.checksum, tuple(header.missing))
    # A process that does not know how much arrived sends an offset that is always wrong.
    return decoded, _bounded(header.offset, "offset", (1 << 63) - 1)


def encode_fingerprint(fingerprint: Fingerprint) -> pb.Fingerprint:
    return pb.Fingerprint(
        torch=fingerprint.torch,
        cpu_capability=fingerprint.cpu_capability,
        device=fingerprint.device,
        threads=fingerprint.threads,
    )


def decode_fingerprint(fingerprint: pb.Fingerprint) -> Fingerprint:
    decoded = Fingerprint(
        fingerprint.torch, fingerprint.cpu_capability, fingerprint.device, fingerprint.threads
    )
    for field in ("torch", "cpu_capability", "device"):
        _bounded(len(getattr(decoded, field)), f"length of {field}", _LONGEST_NAME)
    return decoded


def encode_refusal(reason: Reason, detail: str) -> pb.Refusal:
    return pb.Refusal(reason=_REASONS[reason], detail=detail)  # type: ignore[arg-type]


def decode_refusal(refusal: pb.Refusal) -> tuple[Reason | None, str]:
    return _REASON_OF.get(refusal.reason), refusal.detail
