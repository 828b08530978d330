"""Calls to a running server as its operator: status, events and stop of the run in a folder."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from muster.common.errors import ConfigError, RunFailed, Unreachable
from muster.emulator.runs.run_folder import read_setup, run_folder
from muster.emulator.launch import COMPOSE
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


def standing(folder: Path) -> list[str]:
    """The status of the run in a folder, as lines for a person. The last lines name containers
    that should run but do not.

    Raises:
        Unreachable: no server is running there. The message also names the missing containers.
    """
    missing = _missing(run_folder(folder))
    try:
        return [*_server_status(folder), *missing]
    except Unreachable as error:
        raise Unreachable("\n".join([str(error), *missing])) from None


def _missing(folder: Path) -> list[str]:
    if not (folder / COMPOSE).is_file():
        return []
    from muster.emulator.launch.docker.missing import missing  # Docker's API takes 0.2 s to import

    return missing(folder)


def _server_status(folder: Path) -> list[str]:
    """The status of the run as the server reports it."""
    with _operator(folder) as (stub, metadata):
        reply = stub.Status(pb.StatusRequest(), metadata=metadata, timeout=_PATIENCE_S)
    lines = [
        f"run {reply.run}, server incarnation {reply.incarnation}",
        f"committed: round {reply.committed_round} of {reply.rounds}, version {reply.version}",
        f"devices: {reply.present} of {reply.population} present",
    ]
    if reply.round:
        lines.append(
            f"round {reply.round} is {reply.phase}: {reply.called} called, "
            f"{reply.answered} answered, {reply.updates} updates"
        )
    return lines


def events(folder: Path) -> Iterator[str]:
    """Yield the journal's lines as they are written, until the run is over."""
    with _operator(folder) as (stub, metadata):
        for event in stub.Watch(pb.WatchRequest(), metadata=metadata):
            if event.missed:
                yield json.dumps({"event": "missed", "lines": event.missed})
            yield from event.lines


def stop(folder: Path) -> None:
    """Ask the server to end the run with the status `stopped`."""
    with _operator(folder) as (stub, metadata):
        stub.Stop(pb.StopRequest(), metadata=metadata, timeout=_PATIENCE_S)
