"""The calls, enums, transitions and limits of the protocol."""

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from generation.markdown import table
from muster.common.bounds import INSTRUCTION_BYTES
from muster.server.rpc import limits as call_limits
from muster.wire import (
    CHUNK_BYTES,
    INLINE_BYTES,
    LEAST_CHUNK_BYTES,
    PROTOCOL_VERSION,
    messages,
)
from muster.wire.channels import server_options

PROTO = Path(__file__).resolve().parents[2] / "proto/muster/v1"


def calls(file: str) -> Callable[[], list[str]]:
    """The calls of a .proto file, each with its comment."""

    def render() -> list[str]:
        text = (PROTO / file).read_text()
        rows = []
        for comment, name, request, reply in re.findall(
            r"((?:  //.*\n)+)  rpc (\w+)\((.*?)\) returns \((.*?)\);", text
        ):
            rows.append((f"`{name}`", f"`{request}`", f"`{reply}`", _comment(comment)))
        return table(("call", "up", "down", "what it is for"), rows)

    return render


Phase = TypeVar("Phase", bound=StrEnum)
Event = TypeVar("Event", bound=StrEnum)


def transitions(
    known: Mapping[tuple[Phase, Event], Phase], phases: Iterable[Phase]
) -> Callable[[], list[str]]:
    """A transition table, by phase."""

    def render() -> list[str]:
        rows = [
            (phase.value, event.value, after.value)
            for phase in phases
            for (before, event), after in known.items()
            if before is phase
        ]
        return table(("phase", "event", "next phase"), rows)

    return render


def numbers(wire: Any, prefix: str, words: type[StrEnum]) -> Callable[[], list[str]]:
    """An enum of fleet.proto with the word that the ledger and the journal use for each value.

    A comment in the file belongs to the values that follow it, up to the next; one that ends in a
    comma to the first of them alone.
    """

    def render() -> list[str]:
        text = (PROTO / "fleet.proto").read_text()
        body = re.search(rf"enum {prefix.title()} {{\n(.*?)\n}}", text, re.DOTALL)
        assert body is not None, prefix
        comment, rows, fresh = "", [], True
        for line in body[1].splitlines():
            if line.strip().startswith("//"):
                comment = f"{comment if not fresh else ''}\n{line}"
                fresh = False
                continue
            fresh = True
            name = line.split()[0]
            value = words.__members__.get(name.removeprefix(f"{prefix}_"))
            if value is not None:
                rows.append((str(wire.Value(name)), f"`{name}`", value.value, _comment(comment)))
            if comment.endswith(","):
                comment = ""
        return table(("number", "on the wire", "in ledger and journal", "meaning"), rows)

    return render


def _comment(text: str) -> str:
    return " ".join(line.strip().removeprefix("//").strip() for line in text.splitlines()).strip()


def limits() -> list[str]:
    """Sizes and times that both ends share."""
    options = dict(server_options())
    every_s = options["grpc.keepalive_time_ms"] / 1000
    dead_s = options["grpc.keepalive_timeout_ms"] / 1000
    ping = f"every {every_s:g} s; unanswered for {dead_s:g} s: the connection is dead"
    others = f"{call_limits.OTHER_CONNECTIONS:,}"
    connections = f"4 of every device process, and {others}; fewer if files must be few"
    rows = [
        ("protocol version", str(PROTOCOL_VERSION), "`muster.wire.PROTOCOL_VERSION`"),
        ("a chunk, at most", _bytes(CHUNK_BYTES), "`muster.wire.CHUNK_BYTES`"),
        (
            "a chunk of a download, at least",
            _bytes(LEAST_CHUNK_BYTES),
            "`muster.wire.LEAST_CHUNK_BYTES`",
        ),
        (
            "an instruction of a strategy, a report of an app, at most",
            _bytes(INSTRUCTION_BYTES),
            "`muster.common.bounds.INSTRUCTION_BYTES`",
        ),
        (
            "a length in bytes, an offset of Fetch, a number of examples, at most",
            f"{messages.LARGEST:,}",
            "`muster.wire.messages.LARGEST`",
        ),
        ("a model or update inline, at most", _bytes(INLINE_BYTES), "`muster.wire.INLINE_BYTES`"),
        (
            "a message, at most",
            _bytes(options["grpc.max_receive_message_length"]),
            "`muster.wire.channels`",
        ),
        (
            "streams of one connection, at most",
            str(options["grpc.max_concurrent_streams"]),
            "`muster.wire.channels`",
        ),
        (
            "metadata of a call, at most",
            _bytes(options["grpc.max_metadata_size"]),
            "`muster.wire.channels`",
        ),
        ("HTTP/2 ping when nothing else is sent", ping, "`muster.wire.channels`"),
        (
            "handshakes of a connection",
            f"{options['grpc.server_handshake_timeout_ms'] / 1000:g} s, longer over slow links",
            "`muster.wire.channels`",
        ),
        (
            "a connection without a call",
            f"{options['grpc.max_connection_idle_ms'] / 1000:g} s",
            "`muster.wire.channels`",
        ),
        ("connections, at most", connections, "`muster.server.rpc.limits`"),
        (
            "calls of a process at once, at most",
            str(call_limits.CALLS),
            "`muster.server.rpc.limits`",
        ),
        (
            f"further calls at once of processes that have {call_limits.OWN_CALLS}, at most",
            str(call_limits.SHARED_CALLS),
            "`muster.server.rpc.limits`",
        ),
        (
            "enrollments of a process",
            _rate(call_limits.ENROLLMENTS, call_limits.ENROLLMENT_S),
            "`muster.server.rpc.limits`",
        ),
        (
            "malformed calls of a process",
            _rate(call_limits.FAULTS, call_limits.FAULT_S),
            "`muster.server.rpc.limits`",
        ),
    ]
    return table(("limit", "value", "where"), rows)


def _rate(burst: int, every_s: float) -> str:
    return f"{burst}, then one every {every_s:g} s"


def _bytes(size: int) -> str:
    return f"{size:,} bytes"
