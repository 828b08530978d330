"""Protobuf messages to domain objects and back.

Decoding raises `RemoteProtocolError` for what no correct peer sends: an enum without a meaning, a
number that is not finite where one is needed.
"""

import math
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import TypeVar

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
from muster.common.tensors import Schema, schema_of
from muster.v1 import fleet_pb2 as pb

E = TypeVar("E", bound=StrEnum)


def _numbers(enum: type[E], prefix: str, numbers: Iterable[tuple[str, int]]) -> dict[E, int]:
    """Domain value to wire number, by name; a value without a number cannot ship."""
    by_name = dict(numbers)
    return {value: by_name[f"{prefix}_{value.name}"] for value in enum}


_DECISIONS = _numbers(Decision, "DECISION", pb.Decision.items())
_REASONS = _numbers(Reason, "REASON", pb.Reason.items())
_OUTCOMES = _numbers(Outcome, "OUTCOME", pb.Outcome.items())
_DECISION_OF = {number: value for value, number in _DECISIONS.items()}
_REASON_OF: dict[int, Reason | None] = {0: None, **{n: value for value, n in _REASONS.items()}}
_OUTCOME_OF = {number: value for value, number in _OUTCOMES.items()}


def _meaning(table: dict[int, E], number: int, field: str) -> E:
    try:
        return table[number]
    except KeyError:
        raise RemoteProtocolError(f"{field} {number} has no meaning here") from None


def _finite(value: float, field: str) -> float:
    if not 0 <= value < math.inf:
        raise RemoteProtocolError(f"{field} is {value}; expected a finite number of seconds >= 0")
    return value


# --- fleet -> device ---------------------------------------------------------------------------


def encode_to_device(message: ToDevice) -> bytes:
    """A whole `pb.ServerMessage`, serialised: the model in it once for all devices."""
    alone: bytes = pb.ServerMessage(
        receipts=map(encode_receipt, message.receipts),
        committed=encode_commit(message.committed) if message.committed is not None else None,
        calls=map(_encode_call, message.calls),
        goodbye=pb.Goodbye(status=message.goodbye) if message.goodbye is not None else None,
        scenario_s=message.scenario_s,
    ).SerializeToString()
    # Serialised messages that are joined are one message with the fields of both.
    return alone if message.model is None else alone + _encoded_model(message.model)


def _encode_call(call: Call) -> pb.Call:
    return pb.Call(
        client=call.key.client,
        round=call.key.round,
        attempt=call.key.attempt,
        base_version=call.base_version,
        deadline_s=call.deadline_s,
        model_checksum=call.model_checksum,
        called_in_group=call.called_in_group,
    )


@lru_cache(maxsize=1)
def _encoded_model(model: tuple[int, bytes]) -> bytes:
    version, body = model
    encoded: bytes = pb.ServerMessage(
        model=pb.Model(version=version, body=body)
    ).SerializeToString()
    return encoded


def decode_to_device(message: pb.ServerMessage) -> ToDevice:
    return ToDevice(
        receipts=list(map(decode_receipt, message.receipts)),
        committed=decode_commit(message.committed) if message.HasField("committed") else None,
        model=(message.model.version, message.model.body) if message.HasField("model") else None,
        calls=list(map(_decode_call, message.calls)),
        goodbye=message.goodbye.status if message.HasField("goodbye") else None,
        scenario_s=message.scenario_s if message.HasField("scenario_s") else None,
    )


def _decode_call(call: pb.Call) -> Call:
    return Call(
        Key(call.client, call.round, call.attempt),
        call.base_version,
        _finite(call.deadline_s, "deadline_s"),
        call.model_checksum,
        call.called_in_group,
    )


def encode_receipt(receipt: Receipt) -> pb.Receipt:
    return pb.Receipt(
        client=receipt.key.client,
        round=receipt.key.round,
        attempt=receipt.key.attempt,
        outcome=_OUTCOMES[receipt.outcome],  # type: ignore[arg-type]
        reason=_REASONS[receipt.reason] if receipt.reason else 0,  # type: ignore[arg-type]
        detail=receipt.detail,
        offset=receipt.offset,
    )


def decode_receipt(receipt: pb.Receipt) -> Receipt:
    return Receipt(
        Key(receipt.client, receipt.round, receipt.attempt),
        _meaning(_OUTCOME_OF, receipt.outcome, "outcome"),
        _REASON_OF.get(receipt.reason),
        receipt.detail,
        receipt.offset,
    )


def encode_commit(commit: Commit) -> pb.Commit:
    return pb.Commit(round=commit.round, version=commit.version)


def decode_commit(commit: pb.Commit) -> Commit:
    return Commit(commit.round, commit.version)


def encode_schema(schema: Schema) -> pb.Schema:
    return pb.Schema(tensors=[pb.Tensor(name=t.name, shape=t.shape) for t in schema.tensors])


def decode_schema(schema: pb.Schema) -> Schema:
    return schema_of({tensor.name: tensor.shape for tensor in schema.tensors})


# --- device -> fleet ---------------------------------------------------------------------------


def encode_answer(answer: Answer) -> pb.Answer:
    out = pb.Answer(
        client=answer.key.client,
        round=answer.key.round,
        attempt=answer.key.attempt,
        decision=_DECISIONS[answer.decision],  # type: ignore[arg-type]
        reason=_REASONS[answer.reason] if answer.reason else 0,  # type: ignore[arg-type]
        modelled_s=answer.modelled_s,
        update=encode_update(answer.update, answer.body) if answer.update else None,
        away_rounds=answer.away_rounds,
    )
    if answer.state is not None:
        out.state.CopyFrom(_encode_state(answer.state))
    if answer.x:
        out.x.extend(answer.x)
    return out


def decode_answer(answer: pb.Answer) -> Answer:
    inline = answer.HasField("update")
    return Answer(
        Key(answer.client, answer.round, answer.attempt),
        _meaning(_DECISION_OF, answer.decision, "decision"),
        _finite(answer.modelled_s, "modelled_s"),
        _REASON_OF.get(answer.reason),
        decode_update(answer.update) if inline else None,
        answer.update.body if inline else b"",
        _decode_state(answer.state) if answer.HasField("state") else None,
        _decode_x(answer.x) if answer.x else (),
        answer.away_rounds,
    )


def encode_observation(observation: Observation) -> pb.Observation:
    return pb.Observation(
        client=observation.client,
        state=_encode_state(observation.state) if observation.state else None,
        x=observation.x,
    )


def decode_observation(observation: pb.Observation) -> Observation:
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
    return DeviceState(
        state.battery, state.charging, state.idle, state.network, state.unmetered, state.hour
    )


def _decode_x(x: Sequence[float]) -> tuple[float, ...]:
    if not all(map(math.isfinite, x)):
        raise RemoteProtocolError(f"covariates X {list(x)}; expected finite numbers")
    return tuple(x)


def encode_identity(identity: Identity) -> pb.Identity:
    return pb.Identity(**identity._asdict())


def decode_identity(identity: pb.Identity) -> Identity:
    if not 0 < identity.capacity <= 1:
        raise RemoteProtocolError(f"capacity {identity.capacity}; expected a share of the model")
    if not all(map(math.isfinite, identity.z.values())):
        raise RemoteProtocolError(f"covariates Z {dict(identity.z)}; expected finite numbers")
    return Identity(identity.client, identity.examples, identity.capacity, dict(identity.z))


def encode_update(update: Update, body: bytes = b"") -> pb.Update:
    return pb.Update(
        client=update.key.client,
        round=update.key.round,
        attempt=update.key.attempt,
        examples=update.examples,
        checksum=update.checksum,
        length=update.length,
        train_s=update.train_s,
        fetch_s=update.fetch_s,
        loss=update.loss,
        body=body,
        modelled_s=update.modelled_s,
        fetch_wait_s=update.fetch_wait_s,
        fetched_at=update.fetched_at,
        slot_wait_s=update.slot_wait_s,
    )


def decode_update(update: pb.Update) -> Update:
    return Update(
        Key(update.client, update.round, update.attempt),
        update.examples,
        update.checksum,
        update.length,
        _finite(update.train_s, "train_s"),
        _finite(update.fetch_s, "fetch_s"),
        update.loss,
        _finite(update.modelled_s, "modelled_s"),
        _finite(update.fetch_wait_s, "fetch_wait_s"),
        _finite(update.fetched_at, "fetched_at"),
        _finite(update.slot_wait_s, "slot_wait_s"),
    )


def encode_fingerprint(fingerprint: Fingerprint) -> pb.Fingerprint:
    return pb.Fingerprint(
        torch=fingerprint.torch,
        cpu_capability=fingerprint.cpu_capability,
        device=fingerprint.device,
        threads=fingerprint.threads,
    )


def decode_fingerprint(fingerprint: pb.Fingerprint) -> Fingerprint:
    return Fingerprint(
        fingerprint.torch, fingerprint.cpu_capability, fingerprint.device, fingerprint.threads
    )


def encode_refusal(reason: Reason, detail: str) -> pb.Refusal:
    return pb.Refusal(reason=_REASONS[reason], detail=detail)  # type: ignore[arg-type]


def decode_refusal(refusal: pb.Refusal) -> tuple[Reason | None, str]:
    return _REASON_OF.get(refusal.reason), refusal.detail
