"""The rehearsal of an app: the beginning of its first round, played in a process of its own.

Nothing else says what an app's messages look like: which arrays its model has and with which values
it begins, what the app's `ServerApp` tells its nodes, and what they return. So the `ServerApp` runs
here until its first round has sent all kinds of messages, over a `Grid` that answers them:

- the first message of training is kept, and the `ClientApp` trains once, as the node that got it;
  the other nodes of the round answer the same, so that the strategy can go on;
- the first message of evaluation is kept, with the reply of the `ClientApp`, and ends the
  rehearsal; so does a second round of training, or the end of the `ServerApp`;
- the `ClientApp` answers every other message, for example that of a legacy strategy which asks a
  node for the initial parameters.

The process is a fork, because a `ServerApp` cannot be stopped otherwise, and because the threads
and caches that it leaves would be in every device.
"""

from __future__ import annotations

import json
import logging
import os
import select
import shutil
import signal
import struct
import sys
import tempfile
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import torch
from flwr.app import Context, Message, RecordDict

from muster.common.errors import ConfigError
from muster.common.processes import die_with_parent
from muster.tasks.flower import records
from muster.tasks.flower.grid import LocalGrid, Nodes
from muster.tasks.flower.hosting import (
    RUN_ID,
    SERVER_NODE,
    ClientHost,
    Instruction,
    load_server_app,
    seed_generators,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flwr.serverapp import ServerApp

    from muster.tasks.flower.project import FlowerProject

log = logging.getLogger("muster.flower")

_LENGTH = struct.Struct("<Q")


class Exchange(NamedTuple):
    """A message to the node of a device, by the device's index, and the content of the reply."""

    instruction: Instruction
    device: int
    reply: RecordDict


@dataclass
class Rehearsal:
    """What the rehearsal of an app has shown.

    Attributes:
        train: the first message of training.
        evaluate: the first message of evaluation; None if the app evaluates on no node.
        modules: names of the modules that the first round has imported.
    """

    train: Exchange
    evaluate: Exchange | None = None
    modules: list[str] = field(default_factory=list)

    def to_bytes(self) -> bytes:
        seen = [self.train, *filter(None, [self.evaluate])]
        contents = [
            records.to_bytes(c) for each in seen for c in (each.instruction.content, each.reply)
        ]
        header = {
            "instructions": [
                [each.instruction.message_type, each.instruction.group, each.device]
                for each in seen
            ],
            "modules": self.modules,
            "lengths": [len(content) for content in contents],
        }
        text = json.dumps(header).encode()
        return b"".join([_LENGTH.pack(len(text)), text, *contents])

    @classmethod
    def from_bytes(cls, data: bytes) -> Rehearsal:
        (length,) = _LENGTH.unpack_from(data)
        start = _LENGTH.size + length
        header = json.loads(data[_LENGTH.size : start])
        contents = []
        for size in header["lengths"]:
            contents.append(records.from_bytes(data[start : start + size]))
            start += size
        train, *evaluate = [
            Exchange(Instruction(kind, group, content), device, reply)
            for (kind, group, device), content, reply in zip(
                header["instructions"], contents[::2], contents[1::2], strict=True
            )
        ]
        return cls(train, evaluate[0] if evaluate else None, header["modules"])


def rehearse(
    project: FlowerProject,
    client: ClientHost,
    population: int,
    seed: int,
    inspect: Callable[[Instruction], object],
    limit_s: float,
) -> Rehearsal:
    """Play the beginning of the first round of an app in a forked process.

    Args:
        population: number of nodes.
        seed: the scenario's, from which the `ServerApp` and the one training draw.
        inspect: raises a `ConfigError` if the first message of training cannot be hosted. It is
            called before the `ClientApp` gets the message.
        limit_s: wall seconds after which the app is refused.

    Raises:
        ConfigError: the app cannot be hosted; the message says why.
    """
    server = load_server_app(project)
    sys.stdout.flush()
    reading, writing = os.pipe()
    scratch = tempfile.mkdtemp(prefix="muster-rehearsal-")  # for files that the app writes
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            die_with_parent(parent)
            os.close(reading)
            os.chdir(scratch)
            _Stage(project, server, client, population, seed, inspect, writing).play()
        finally:
            os._exit(1)  # it must not go on as the process from which it was forked
    os.close(writing)
    said = _read(reading, monotonic() + limit_s)
    os.close(reading)
    if said is None:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    shutil.rmtree(scratch, ignore_errors=True)
    if said is None:
        raise ConfigError(
            f"task.app: {project.server_app} of {project.folder} has not sent the messages of its "
            f"first round to {population} nodes within {limit_s:g} s; look for what it waits for, "
            f"for example min_available_nodes"
        )
    if said[:1] == b"+":
        return Rehearsal.from_bytes(said[1:])
    raise ConfigError(
        said[1:].decode(errors="replace")
        or f"task.app: the process that ran {project.server_app} of {project.folder} died"
    )


def _read(pipe: int, until: float) -> bytes | None:
    """All bytes from a pipe, or None if its other end is not closed in time."""
    chunks: list[bytes] = []
    while True:
        readable, _, _ = select.select([pipe], [], [], max(0.0, until - monotonic()))
        if not readable:
            return None
        if not (chunk := os.read(pipe, 1 << 20)):
            return b"".join(chunks)
        chunks.append(chunk)


class _Stage(Nodes):
    """The forked process, which plays an app until it has shown its messages."""

    def __init__(
        self,
        project: FlowerProject,
        server: ServerApp,
        client: ClientHost,
        population: int,
        seed: int,
        inspect: Callable[[Instruction], object],
        pipe: int,
    ) -> None:
        self._project, self._server, self._client = project, server, client
        self._population, self._seed = population, seed
        self._inspect, self._pipe = inspect, pipe
        self._known = set(sys.modules)
        self._lock = Lock()  # a legacy strategy sends from several threads
        self._seen: Rehearsal | None = None
        self._trained: set[int] = set()

    def play(self) -> NoReturn:
        # Devices train with one thread too; a fork does not have the threads of its parent.
        torch.set_num_threads(1)
        seed_generators(self._seed, "server")
        why = "it ended before that"
        try:
            context = Context(RUN_ID, SERVER_NODE, {}, RecordDict(), dict(self._project.run_config))
            self._server(LocalGrid(self), context)
        except BaseException as error:  # an app may raise anything
            why = f"{type(error).__name__}: {error}"
        with self._lock:
            if self._seen is None:
                self._end(
                    f"task.app: {self._project.server_app} of {self._project.folder} sent no "
                    f"message of training, from which muster learns the model: {why}"
                )
            log.warning("the app's ServerApp evaluates on no node: %s", why)
            self._end()

    def reply(self, messages: Sequence[Message], timeout_s: float | None) -> list[Message]:
        replies = [self._reply_to(message) for message in messages]
        return sorted(replies, key=lambda reply: int(reply.metadata.src_node_id))

    def nodes(self) -> list[int]:
        return list(range(1, self._population + 1))

    def _reply_to(self, message: Message) -> Message:
        """Answer a message of the `ServerApp` as the node to which it is addressed."""
        with self._lock:
            try:
                content = self._answer(message)
            except ConfigError as error:
                self._end(str(error))
        return Message(content, reply_to=message)

    def _answer(self, message: Message) -> RecordDict:
        instruction, index = Instruction.of(message), message.metadata.dst_node_id - 1
        category = instruction.category
        if category == "evaluate" and self._seen is not None:
            self._seen.evaluate = self._exchange(instruction, index)
            self._end()
        if category != "train":
            return self._client.call(instruction, index, RecordDict())
        if self._seen is None:
            self._inspect(instruction)
            self._seen = Rehearsal(self._exchange(instruction, index))
        elif index in self._trained:  # a second round has begun
            self._end()
        self._trained.add(index)
        return records.from_bytes(records.to_bytes(self._seen.train.reply))

    def _exchange(self, instruction: Instruction, index: int) -> Exchange:
        """Let the `ClientApp` answer, as the node of a device in its first round."""
        kept = records.to_bytes(instruction.content)  # the app may take records out of the message
        seed_generators(self._seed, "rehearsal", instruction.message_type)
        reply = self._client.call(instruction, index, RecordDict())
        return Exchange(instruction._replace(content=records.from_bytes(kept)), index, reply)

    def _end(self, refusal: str = "") -> NoReturn:
        """Send what was seen, or the reason of a refusal, and end the process."""
        said = b"-" + refusal.encode()
        if not refusal and self._seen is not None:
            self._seen.modules = sorted(set(sys.modules) - self._known)
            said = b"+" + self._seen.to_bytes()
        view = memoryview(said)
        while view:
            view = view[os.write(self._pipe, view) :]
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
