"""The events of a run as they happen, from both programs that write its journal."""

import threading
from collections.abc import Iterator
from queue import Empty, SimpleQueue
from typing import Any

import orjson

from muster.emulator.run_folder.journal_tail import Tail

_LOOK_S = 0.2
"""Seconds after which the journal is looked at if the server says nothing, as when a round waits
for a program that is paused."""


def live_events(lines: Iterator[str], tail: Tail) -> Iterator[dict[str, Any]]:
    """Yield the events that a server sends, until it sends no more, and those of the run's
    supervisor: deaths, faults and traffic. The server does not know these, but they are in the
    journal.

    Args:
        lines: what the server sends; another thread reads it.
        tail: reads the journal.

    Raises:
        Exception: what `lines` raised.
    """
    received = SimpleQueue[str | Exception | None]()
    threading.Thread(target=_read, args=(lines, received), daemon=True).start()
    over = False
    while not over:
        batch = _batch(received)
        for event in tail.new():
            if event.get("role") == "supervisor":
                yield event
        for line in batch:
            if isinstance(line, Exception):
                raise line
            if line is None:
                over = True
            else:
                yield orjson.loads(line)


def _read(lines: Iterator[str], received: "SimpleQueue[str | Exception | None]") -> None:
    try:
        for line in lines:
            received.put(line)
        received.put(None)
    except Exception as error:
        received.put(error)


def _batch(received: "SimpleQueue[str | Exception | None]") -> list[str | Exception | None]:
    """What was received; empty if this is nothing for a while."""
    batch = []
    try:
        batch.append(received.get(timeout=_LOOK_S))
        while True:
            batch.append(received.get_nowait())
    except Empty:
        return batch
