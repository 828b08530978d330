"""The `ServerApp` of an app, with its strategy, over the rounds of muster's fleet.

One push of training messages is one round: its nodes are the devices that the round calls, and its
arrays are the version from which they train. The app is answered when the round has closed. A
device without an update that counts becomes an error reply. Other messages do not reach devices:
the `ClientApp` answers them in this process, with an empty context, as in muster's evaluations.

Replies are ordered by node, and every draw depends on the scenario's seed. So the app does the same
again if the rounds give the same replies.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from threading import RLock
from typing import TYPE_CHECKING, Any

import flwr.server.server as legacy
import torch
from flwr.app import ArrayRecord, Context, Error, Message, RecordDict
from flwr.common import parameters_to_ndarrays
from flwr.serverapp.strategy import Strategy

from muster.common.bounds import INSTRUCTION_BYTES
from muster.common.errors import ConfigError
from muster.tasks.flower import records
from muster.tasks.flower.arrays import ArrayFormat
from muster.tasks.flower.grid import LocalGrid, Nodes
from muster.tasks.flower.hosting import (
    RUN_ID,
    SERVER_NODE,
    ClientHost,
    Instruction,
    load_server_app,
    other_draws,
    seed_generators,
)
from muster.tasks.flower.measured import NotedMetrics
from muster.tasks.flower.messages import (
    copied,
    model_record,
    with_examples,
    with_model,
    without_model,
)
from muster.tasks.flower.project import read_project

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from muster.common.tensors import Vector
    from muster.tasks.flower.settings import FlowerSettings
    from muster.tasks.hosted import StrategyRounds
    from muster.tasks.replies import DeviceReply

_CLIENT_APP_FAILED = 2
_NODE_UNAVAILABLE = 5
"""Codes of errors, as in Flower's `ErrorCode`, which has no public name."""


class FleetNodes(Nodes):
    """The devices of a fleet as the nodes of a `ServerApp`.

    Attributes:
        model: the newest model that the app has shown since its last round; None if it has not.
        failure: why no message is answered any more; None as long as all were.
        noted: the metrics of the app.

    Args:
        local: patterns of the names of arrays that stay on each device.
        devices: the indices of the devices that may be called.
        seed: the scenario's.
    """

    def __init__(
        self,
        rounds: StrategyRounds,
        host: ClientHost,
        local: Sequence[str],
        devices: Sequence[int],
        seed: int,
    ) -> None:
        self.model: Vector | None = None
        self.failure: ConfigError | None = None
        self.noted = NotedMetrics()
        self._rounds, self._host, self._local = rounds, host, local
        self._format: ArrayFormat | None = None  # that of the first message of training
        self._nodes, self._seed = sorted(index + 1 for index in devices), seed
        self._lock = RLock()  # an app may send from several threads
        self._push: _Push | None = None

    def nodes(self) -> list[int]:
        return list(self._nodes)

    def show(self, arrays: ArrayRecord) -> None:
        """Take arrays that the app has shown as its newest model, if they are those of a model."""
        if self._format is not None and self._format.fits(arrays):
            self.model = self._format.vector(arrays)

    def reply(self, messages: Sequence[Message], timeout_s: float | None) -> list[Message]:
        with self._lock:
            if self._push is not None:
                return self._push.take(messages)
            try:
                return self._answer(messages, timeout_s)
            except ConfigError as error:
                self.failure = error
                raise

    @contextmanager
    def one_push(self) -> Iterator[_Push]:
        """Take the messages that a legacy strategy sends one by one as one push."""
        with self._lock:
            self._push = push = _Push(self._answer)
        try:
            yield push
        except ConfigError as error:
            self.failure = error
            raise
        finally:
            self._push = None

    def _answer(self, messages: Sequence[Message], timeout_s: float | None) -> list[Message]:
        """The replies to the messages of one push, ordered by node, and those of one node as its
        messages."""
        if self.failure is not None:
            raise self.failure
        if unknown := sorted({m.metadata.dst_node_id for m in messages} - set(self._nodes)):
            raise ConfigError(
                f"task.app: the ServerApp sent messages to the nodes {unknown}, which are none of "
                f"those that Grid.get_node_ids returns"
            )
        instructed = [(Instruction.of(message), message) for message in messages]
        training = {
            message.metadata.dst_node_id: (told, message)
            for told, message in instructed
            if told.category == "train"
        }
        if len(training) < sum(told.category == "train" for told, _ in instructed):
            raise ConfigError(
                "task.app: the ServerApp sent two messages of training to one node in one push; "
                "a device has one call in a round"
            )
        trained = self._train(training, timeout_s) if training else {}
        replies = [
            trained[message.metadata.dst_node_id]
            if told.category == "train"
            else self._answer_beside(told, message)
            for told, message in instructed
        ]
        return sorted(replies, key=lambda reply: int(reply.metadata.src_node_id))

    def _train(
        self, training: Mapping[int, tuple[Instruction, Message]], timeout_s: float | None
    ) -> dict[int, Message]:
        """Let devices train in a round of the fleet; return the replies, by node."""
        model, format = self._model_of({node: told for node, (told, _) in training.items()})
        instructions = {}
        for node, (told, _) in sorted(training.items()):
            told = told._replace(content=without_model(told.content))
            instructions[node - 1] = told.to_bytes()
            if (size := len(instructions[node - 1])) > INSTRUCTION_BYTES:
                raise ConfigError(
                    f"task.app: the ServerApp tells node {node} {size:,} bytes beside the model, "
                    f"expected at most {INSTRUCTION_BYTES:,}"
                )
        limits = [timeout_s, *(message.metadata.ttl for _, message in training.values())]
        self.model = None
        self._rounds.measured(self.noted.new())
        replies = self._rounds.train(
            model, instructions, min(limit for limit in limits if limit is not None)
        )
        return {
            node: _reply_of(replies[node - 1], message, model, format)
            for node, (_, message) in training.items()
        }

    def _model_of(self, training: Mapping[int, Instruction]) -> tuple[Vector, ArrayFormat]:
        """The model that all nodes of a push shall train, and the format of its arrays."""
        sent = {
            node: told.content[model_record(told.content, f"a message to node {node}")]
            for node, told in training.items()
        }
        (first, arrays), *others = sent.items()
        if self._format is None:
            self._format = ArrayFormat(arrays, self._local)
        model = self._format.vector(arrays)
        for node, other in others:
            if other is not arrays and self._format.vector(other).tobytes() != model.tobytes():
                raise ConfigError(
                    f"task.app: the ServerApp sends different models to the nodes {first} and "
                    f"{node} in one push; all devices of a round train from one version, so send "
                    f"them in pushes of their own"
                )
        return model, self._format

    def _answer_beside(self, told: Instruction, message: Message) -> Message:
        """Answer a message as a node whose context is empty."""
        index = message.metadata.dst_node_id - 1
        told = told._replace(content=copied(told.content))
        if told.category != "evaluate":  # the draws are those of the rehearsal
            return Message(self._host.call(told, index, RecordDict()), reply_to=message)
        for arrays in told.content.array_records.values():
            self.show(arrays)
        try:
            with other_draws(self._seed, "evaluation", index):
                return Message(self._host.call(told, index, RecordDict()), reply_to=message)
        except ConfigError as error:
            return Message(Error(_CLIENT_APP_FAILED, str(error)), reply_to=message)


def _reply_of(reply: DeviceReply, message: Message, model: Vector, format: ArrayFormat) -> Message:
    """The reply of a device as the app gets it.

    Args:
        model: that from which the device has trained.
    """
    if reply.delta is None:
        return Message(Error(_NODE_UNAVAILABLE, reply.absence), reply_to=message)
    try:
        content = records.from_bytes(reply.report)
        model_record(content, "the reply")
    except Exception as error:  # a device may send anything
        why = f"its report cannot be read: {error}"
        return Message(Error(_CLIENT_APP_FAILED, why), reply_to=message)
    arrays = format.record(model + reply.delta, format.local)
    content = with_examples(with_model(content, arrays), reply.examples)
    return Message(content, reply_to=message)


class _Push:
    """Messages that a legacy strategy sends one by one.

    Args:
        answer: gives the replies to all of them.
    """

    def __init__(self, answer: Callable[[Sequence[Message], float | None], list[Message]]) -> None:
        self._answer = answer
        self._messages: list[Message] = []
        self._replies: dict[int, Message] | None = None

    def take(self, messages: Sequence[Message]) -> list[Message]:
        """Collect messages, or return their replies if they were sent."""
        if self._replies is None:
            self._messages += messages
            raise _CollectedError
        return [self._replies[message.metadata.dst_node_id] for message in messages]

    def send(self) -> None:
        """Send the messages that were collected."""
        replies = self._answer(self._messages, None)
        self._replies = {reply.metadata.src_node_id: reply for reply in replies}


class _CollectedError(Exception):
    """A message was collected, and its reply is not there yet."""


def run_server_app(
    settings: FlowerSettings,
    population: int,
    seed: int,
    rounds: StrategyRounds,
    devices: Sequence[int],
) -> Vector | None:
    """Run the `ServerApp` of an app; return the model that its last round has made, if the app has
    shown it.

    Args:
        population: number of nodes.
        seed: the scenario's, from which the app draws.
        devices: the indices of the devices that may be called.

    Raises:
        ConfigError: the app failed, or cannot be hosted.
    """
    project = read_project(settings.app, settings.run_config)
    host = ClientHost(project, population)
    fleet = FleetNodes(rounds, host, settings.local_arrays, devices, seed)
    server = load_server_app(project)
    torch.set_num_threads(1)  # as in the rehearsal
    seed_generators(seed, "server")
    context = Context(RUN_ID, SERVER_NODE, {}, RecordDict(), dict(project.run_config))
    try:
        with _strategies_of(fleet), fleet.noted.watching():
            server(LocalGrid(fleet), context)
    except (Exception, SystemExit) as error:  # an app may raise anything
        raise fleet.failure or ConfigError(
            f"task.app: {project.server_app} of {project.folder} failed: "
            f"{type(error).__name__}: {error}"
        ) from error
    if fleet.failure is not None:  # the app has caught it
        raise fleet.failure
    rounds.measured(fleet.noted.new())
    return fleet.model


@contextmanager
def _strategies_of(fleet: FleetNodes) -> Iterator[None]:
    """Let Flower's strategies show the models that they have made, and the legacy ones send all
    messages of a round in one push.

    A strategy shows its last model to nobody but its caller. A legacy server sends the messages of
    a round from several threads, each of which waits for its reply, and takes the results in the
    order in which they come.
    """
    start, fit = Strategy.start, legacy.Server.fit
    fit_clients, evaluate_clients = legacy.fit_clients, legacy.evaluate_clients

    def start_and_show(strategy: Strategy, *given: Any, **named: Any) -> Any:
        result = start(strategy, *given, **named)
        fleet.show(result.arrays)
        return result

    def fit_and_show(server: legacy.Server, *given: Any, **named: Any) -> Any:
        result = fit(server, *given, **named)
        fleet.show(ArrayRecord(parameters_to_ndarrays(server.parameters)))
        return result

    Strategy.start, legacy.Server.fit = start_and_show, fit_and_show
    legacy.fit_clients = _in_one_push(fleet, legacy.fit_client, fit_clients)
    legacy.evaluate_clients = _in_one_push(fleet, legacy.evaluate_client, evaluate_clients)
    try:
        yield
    finally:
        Strategy.start, legacy.Server.fit = start, fit
        legacy.fit_clients, legacy.evaluate_clients = fit_clients, evaluate_clients


def _in_one_push(
    fleet: FleetNodes, one: Callable[..., Any], all: Callable[..., Any]
) -> Callable[..., Any]:
    """The function with which a legacy server calls its clients, in one push, and with results
    ordered by node.

    Args:
        one: calls one client.
        all: calls all clients, in threads.
    """

    def call(
        client_instructions: Sequence[tuple[Any, Any]],
        max_workers: int | None,
        timeout: float | None,
        group_id: int,
    ) -> Any:
        with fleet.one_push() as push:
            for client, told in client_instructions:
                with suppress(Exception):  # what cannot be sent fails again below
                    one(client, told, timeout, group_id)
            push.send()
            results, failures = all(client_instructions, 1, timeout, group_id)
        return sorted(results, key=_node_of), sorted(failures, key=_node_of)

    return call


def _node_of(ended: Any) -> tuple[int, str]:
    """Orders what the calls of a legacy server end with: the node and its result, or an error."""
    return (int(ended[0].cid), "") if isinstance(ended, tuple) else (0, str(ended))
