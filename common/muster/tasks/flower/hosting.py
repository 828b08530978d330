"""Calls of an app's `ClientApp`, as a node of Flower makes them."""

from __future__ import annotations

import json
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from muster.common.errors import ConfigError
from muster.common.seeds import integer
from muster.tasks.flower import records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from muster.tasks.flower.project import FlowerProject

RUN_ID = 1
"""The number of the run that apps see. A run folder has one run."""

SERVER_NODE = 0
"""The number of the node of the `ServerApp`. Device i is node i + 1."""


class Instruction(NamedTuple):
    """A message of the `ServerApp` to a node.

    Attributes:
        message_type: "train", "evaluate", or with an action, for example "train.warm_up".
        group: Flower's id of the group of messages, which legacy strategies set to the round.
    """

    message_type: str
    group: str
    content: RecordDict

    @classmethod
    def of(cls, message: Message) -> Instruction:
        """Return the instruction in a message."""
        metadata = message.metadata
        return cls(metadata.message_type, metadata.group_id, message.content)

    @property
    def category(self) -> str:
        """The type without an action."""
        return self.message_type.partition(".")[0]

    def to_bytes(self) -> bytes:
        """Return the bytes of which `from_bytes` makes an equal instruction."""
        kind = json.dumps([self.message_type, self.group]).encode()
        return kind + b"\n" + records.to_bytes(self.content)

    @classmethod
    def from_bytes(cls, data: bytes) -> Instruction:
        first, _, content = data.partition(b"\n")
        kind, group = json.loads(first)
        return cls(kind, group, records.from_bytes(content))


class ClientHost:
    """The `ClientApp` of a project, for the nodes of a population.

    Raises:
        ConfigError: the project has no `ClientApp`.
    """

    def __init__(self, project: FlowerProject, population: int) -> None:
        identify_process()
        self._project = project
        self._population = population
        self._app = project.load(project.client_app)
        if not isinstance(self._app, ClientApp):
            raise ConfigError(
                f"task.app: {project.client_app} of {project.folder} is "
                f"{type(self._app).__name__}, expected a flwr.clientapp.ClientApp"
            )

    def call(self, instruction: Instruction, index: int, state: RecordDict) -> RecordDict:
        """Call the app on the node of the device at `index`; return the content of its reply.

        Args:
            state: that of the node's context, which the app may change.

        Raises:
            ConfigError: the app failed, or changed its run config.
        """
        config = self._project.run_config
        node = {"partition-id": index, "num-partitions": self._population}
        context = Context(RUN_ID, index + 1, node, state, dict(config))
        kind, group = instruction.message_type, instruction.group
        message = Message(instruction.content, index + 1, kind, group_id=group)
        try:
            reply = self._app(message, context)
        except Exception as error:  # an app may raise anything
            raise self.failure(kind, index, f"{type(error).__name__}: {error}") from error
        if not isinstance(reply, Message):
            raise self.failure(kind, index, f"it returned {reply!r:.200}, expected a Message")
        if reply.has_error():
            raise self.failure(kind, index, f"it replied with {reply.error.reason!r}")
        if context.run_config != config:
            raise self.failure(kind, index, "it changed context.run_config, which Flower forbids")
        if context.state is not state:
            state.clear()
            state.update(context.state)
        return reply.content

    def failure(self, kind: str, index: int, why: str) -> ConfigError:
        """The error of a call of this app that cannot be used."""
        return ConfigError(
            f"task.app: {self._project.client_app} of {self._project.folder} failed when it was "
            f"called for {kind!r} as partition {index} of {self._population}: {why}"
        )


def load_server_app(project: FlowerProject) -> ServerApp:
    """Import the `ServerApp` of a project.

    Raises:
        ConfigError: the project has none.
    """
    server = project.load(project.server_app)
    if not isinstance(server, ServerApp):
        raise ConfigError(
            f"task.app: {project.server_app} of {project.folder} is {type(server).__name__}, "
            f"expected a flwr.serverapp.ServerApp"
        )
    return server


def identify_process() -> None:
    """Say which run and node this process is, as every runner of Flower does since 1.40: without it
    no message can be made. Flower has no public name for this."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:  # an older Flower does not ask
        return
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, RUN_ID, SERVER_NODE


def seed_generators(seed: int, *name: str | int) -> None:
    """Let Python's, NumPy's and torch's global generators draw from the stream called `name` from
    now on."""
    import torch

    number = integer(seed, "flower", *name)
    random.seed(number)
    np.random.seed(number % 2**32)
    torch.manual_seed(number)  # those of accelerators too


@contextmanager
def other_draws(seed: int, *name: str | int) -> Iterator[None]:
    """Let the global generators draw from the stream called `name` for a while, and then go on from
    where they were."""
    import torch

    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    seed_generators(seed, *name)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
