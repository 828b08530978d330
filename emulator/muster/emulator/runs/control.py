"""Calls to a running server as its operator: status, events and stop of the run in a folder."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from muster.common.errors import ConfigError, RunFailed, Unreachable
from muster.emulator.runs.run_folder import read_setup, run_folder
from muster.v1 import operator_pb2 as pb
from muster.v1 import operator_pb2_grpc
from muster.wire import OPERATOR
from muster.wire.channels import client_options

_PATIENCE_S = 5.0

Metadata = tuple[tuple[str, bytes], ...]


@contextmanager
def _operator(folder: Path) -> Iterator[tuple[Any, Metadata]]:
    """Yield a stub for the server of a run folder, and the metadata with its credentials.

    Raises:
        Unreachable: no server is running there.
        ConfigError: the folder's files about the server cannot be read.
    """
    folder = run_folder(folder)
    anew = f"`muster run --resume {folder}` writes it anew"
    try:
        address = read_setup(folder, "address.json", {"host": str, "port": int}, anew)
        token = read_setup(folder, "server.json", {"operator_token": str}, anew)["operator_token"]
        metadata = ((OPERATOR, bytes.fromhex(token)),)
    except FileNotFoundError:
        raise Unreachable(f"no server has been started in {folder}") from None
    except ValueError:
        raise ConfigError(
            f"{folder}/setup/server.json: expected a hexadecimal operator_token; {anew}"
        ) from None
    channel = grpc.insecure_channel(f"{address['host']}:{address['port']}", client_options())
    try:
        yield operator_pb2_grpc.OperatorStub(channel), metadata
    except grpc.RpcError as error:
        call: Any = error
        if call.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAUTHENTICATED):
            raise Unreachable(
                f"no server of this run answers at {address['host']}:{address['port']}; it has "
                f"ended or was killed. Its files: {folder}"
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
