"""Calls to a running server as its operator: status, events and stop of the run in a folder, and
revocation of its devices."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from muster.common.credentials import OPERATOR, SECRETS, credentials_path, read_credentials
from muster.common.errors import ConfigError, RunFailed, Unreachable
from muster.emulator.run_folder.folder import (
    ADDRESS,
    read_values,
    resume_command,
    run_folder,
    shown,
)
from muster.v1 import operator_pb2 as pb
from muster.v1 import operator_pb2_grpc
from muster.wire import TOKEN
from muster.wire.channels import client_options
from muster.wire.connections.calls import open_blocking_channel

_PATIENCE_S = 5.0

Metadata = tuple[tuple[str, bytes], ...]


@contextmanager
def _operator(folder: Path) -> Iterator[tuple[Any, Metadata]]:
    """Yield a stub for the server of a run folder, and the metadata with its credentials.

    Raises:
        Unreachable: no server is running there.
        ConfigError: the folder's files about the server, or the operator's credentials, cannot be
            read.
    """
    folder = run_folder(folder)
    anew = f"`{resume_command(folder)}` writes it anew"
    try:
        address = read_values(folder, ADDRESS, {"host": str, "port": int}, anew)
    except FileNotFoundError:
        raise Unreachable(f"no server has been started in {folder}") from None
    where = f"{address['host']}:{address['port']}"
    gone = Unreachable(
        f"no server of this run answers at {where}; it has ended or was killed. Its files: {folder}"
    )
    path = credentials_path(folder / SECRETS, OPERATOR)
    try:
        credentials = read_credentials(path)
    except ConfigError:
        if path.exists():
            raise
        raise gone from None  # it was removed when the run ended
    channel = open_blocking_channel(where, client_options(), credentials)
    try:
        yield operator_pb2_grpc.OperatorStub(channel), ((TOKEN, credentials.shown),)
    except grpc.RpcError as error:
        call: Any = error
        if call.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAUTHENTICATED):
            raise gone from None
        if call.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            raise RunFailed(
                f"the server of this run has not answered for {_PATIENCE_S:.0f} s; it may be busy, "
                f"or a fault may hold it. `muster heal {shown(folder)}` ends faults that act"
            ) from None
        raise RunFailed(f"{call.code().name}: {call.details()}") from None
    finally:
        channel.close()


def server_status(folder: Path) -> pb.StatusReply:
    """What the server of the run says of itself.

    Raises:
        Unreachable: no server is running there.
    """
    with _operator(folder) as (stub, metadata):
        reply: pb.StatusReply = stub.Status(
            pb.StatusRequest(), metadata=metadata, timeout=_PATIENCE_S
        )
    return reply


@contextmanager
def watching(folder: Path) -> Iterator[Iterator[str]]:
    """The journal's lines as the server writes them from now on, until the run is over."""
    with _operator(folder) as (stub, metadata):
        stream = stub.Watch(pb.WatchRequest(), metadata=metadata)
        stream.initial_metadata()  # the server has begun to collect
        yield _lines(stream)


def _lines(stream: Any) -> Iterator[str]:
    for event in stream:
        if event.missed:
            yield json.dumps({"event": "missed", "lines": event.missed})
        yield from event.lines


def stop(folder: Path) -> None:
    """Ask the server to end the run with the status `stopped`."""
    with _operator(folder) as (stub, metadata):
        stub.Stop(pb.StopRequest(), metadata=metadata, timeout=_PATIENCE_S)


def revoke(folder: Path, client: str) -> pb.RevokeReply:
    """Revoke the credentials of the process of a device.

    Raises:
        ConfigError: the run has no such device, or a restarted server would not know of it.
    """
    with _operator(folder) as (stub, metadata):
        try:
            reply: pb.RevokeReply = stub.Revoke(
                pb.RevokeRequest(client=client), metadata=metadata, timeout=_PATIENCE_S
            )
        except grpc.RpcError as error:
            call: Any = error
            if call.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT):
                raise ConfigError(call.details()) from None
            raise
    return reply
