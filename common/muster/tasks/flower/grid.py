"""The connection of a `ServerApp` to nodes that are no nodes of Flower."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from flwr.app import Message
from flwr.serverapp import Grid

from muster.tasks.flower.hosting import RUN_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flwr.app import RecordDict


class Nodes(ABC):
    """The nodes to which a `ServerApp` sends messages, from any of its threads."""

    @abstractmethod
    def nodes(self) -> list[int]:
        """Return the numbers of the nodes."""

    @abstractmethod
    def reply(self, messages: Sequence[Message], timeout_s: float | None) -> list[Message]:
        """Return the replies to messages that the app has sent together, ordered by node, and those
        of one node as its messages.

        Args:
            timeout_s: seconds after which the app no longer waits; None: no limit.
        """


class LocalGrid(Grid):
    """A `Grid` over nodes that reply while the app waits.

    Messages that the app pushes are answered before it goes on, and then wait for it to pull them.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._replies: dict[str, Message] = {}
        self._numbers = count(1)

    def set_run(self, *given: Any, **named: Any) -> None:
        """There is one run."""

    @property
    def run(self) -> Any:
        return SimpleNamespace(run_id=RUN_ID)

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        return self._nodes.nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        pushed = list(messages)
        # Replies are ordered by node, and those of one node as its messages.
        ordered = sorted(pushed, key=lambda message: int(message.metadata.dst_node_id))
        names = {id(message): str(next(self._numbers)) for message in pushed}
        replies = self._nodes.reply(pushed, None)
        for message, reply in zip(ordered, replies, strict=True):
            self._replies[names[id(message)]] = reply
        return [names[id(message)] for message in pushed]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._replies.pop(each) for each in message_ids if each in self._replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return self._nodes.reply(list(messages), timeout)
