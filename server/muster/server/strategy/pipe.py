"""The messages between the server and the process of a strategy, as bytes.

A message is the lengths of a header and of a body, the header as JSON, and the body: vectors, one
after the other.
"""

import base64
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from muster.common.config import Section
from muster.common.exchange import Body
from muster.common.tensors import WIRE, Vector
from muster.tasks.replies import DeviceReply, Measured
from muster.wire.bodies import body_view

LENGTHS = struct.Struct("<QQ")
"""A message begins with the lengths of its header and of its body."""


class PipeMessage(NamedTuple):
    """A message that was read."""

    header: Mapping[str, Any]
    body: bytes


class StrategySetup(Section):
    """The configuration of the process, with which it opens the task as devices do."""

    task: str
    """JSON of the scenario's [task]."""

    population: int
    seed: int

    devices: list[int] = Field(default=[])
    """Indices of the devices that may train."""


@dataclass(frozen=True)
class Push:
    """What a strategy wants of a round.

    Attributes:
        model: from which devices train, float32, shape (parameters,).
        instructions: what each device is told, by its index in the population.
        timeout_s: seconds after which the strategy no longer waits; None: no limit.
        measured: what the app has measured since the last round.
    """

    model: Vector
    instructions: Mapping[int, bytes]
    timeout_s: float | None
    measured: Measured = field(default_factory=dict)

    def parts(self) -> list[Body]:
        told = told_to_json(self.instructions)
        push = {"timeout_s": self.timeout_s, "instructions": told, "measured": self.measured}
        return parts({"push": push}, [body_view(self.model)])

    @classmethod
    def of(cls, message: PipeMessage) -> "Push":
        told = message.header["push"]
        instructions = told_from_json(told["instructions"])
        return cls(_vector(message.body), instructions, told["timeout_s"], told["measured"])


@dataclass(frozen=True)
class StrategyEnd:
    """The end of a strategy.

    Attributes:
        model: the model that its last round has made; None if it is not known.
        failure: why it cannot go on; empty if it has ended by itself.
        measured: what the app has measured since the last round.
    """

    model: Vector | None = None
    failure: str = ""
    measured: Measured = field(default_factory=dict)

    def parts(self) -> list[Body]:
        bodies = [] if self.model is None else [body_view(self.model)]
        return parts({"end": {"failure": self.failure, "measured": self.measured}}, bodies)

    @classmethod
    def of(cls, message: PipeMessage) -> "StrategyEnd":
        model = _vector(message.body) if message.body else None
        end = message.header["end"]
        return cls(model, end["failure"], end["measured"])


def said_in(message: PipeMessage) -> Push | StrategyEnd:
    """Return what the process of a strategy has said."""
    return Push.of(message) if "push" in message.header else StrategyEnd.of(message)


def replies_parts(replies: Mapping[int, DeviceReply], **more: Any) -> list[Body]:
    """Return the parts of a message with replies, whose deltas are its body.

    Args:
        more: what else the header has.
    """
    facts = [
        [index, reply.examples, _text(reply.report), reply.absence, reply.delta is not None]
        for index, reply in replies.items()
    ]
    deltas = [body_view(reply.delta) for reply in replies.values() if reply.delta is not None]
    return parts({"replies": facts, **more}, deltas)


def replies_in(message: PipeMessage) -> dict[int, DeviceReply]:
    """Return the replies of devices, by their index in the population."""
    facts = message.header["replies"]
    count = sum(1 for *_, has_update in facts if has_update)
    deltas = iter(_vector(message.body).reshape(count, -1) if count else ())
    return {
        index: DeviceReply(next(deltas) if has_update else None, examples, _bytes(report), absence)
        for index, examples, report, absence, has_update in facts
    }


def told_to_json(instructions: Mapping[int, bytes]) -> list[Any]:
    """Return what devices are told, by index, as it is in a header."""
    return [[index, _text(each)] for index, each in instructions.items()]


def told_from_json(told: Sequence[Any]) -> dict[int, bytes]:
    """Return what devices are told, by index, from a header."""
    return {index: _bytes(each) for index, each in told}


def parts(header: Mapping[str, Any], bodies: Sequence[Body]) -> list[Body]:
    """Return the parts of a message, which are written one after the other."""
    text = json.dumps(header).encode()
    return [LENGTHS.pack(len(text), sum(map(len, bodies))), text, *bodies]


def message_of(header: bytes, body: bytes) -> PipeMessage:
    """Return a message of which both parts were read."""
    return PipeMessage(json.loads(header), body)


def _vector(body: bytes) -> Vector:
    return np.frombuffer(body, WIRE).astype(np.float32)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)
