"""The operator of a simulated run, and what it has done."""

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc

from muster.common.credentials import (
    OPERATOR,
    SECRETS,
    credentials_path,
    device_name,
    read_credentials,
)
from muster.server.rpc.revocations import REVOKED
from muster.simulation.programs import SERVER
from muster.v1 import operator_pb2 as pb
from muster.v1 import operator_pb2_grpc
from muster.wire import TOKEN
from muster.wire.transport import Transport


async def revoke(folder: Path, transport: Transport, client: str) -> None:
    """Revoke the credentials of the process of a device, as `muster revoke` does. If the server
    cannot be reached, nothing happens."""
    credentials = read_credentials(credentials_path(folder / SECRETS, OPERATOR))
    channel: Any = transport.channel(SERVER, [])
    asked, shown = pb.RevokeRequest(client=client), ((TOKEN, credentials.shown),)
    with suppress(grpc.aio.AioRpcError):
        await operator_pb2_grpc.OperatorStub(channel).Revoke(asked, metadata=shown)
    await channel.close()


def revoked_of(folder: Path, processes: Iterable[str]) -> set[str]:
    """Those of the processes of devices whose credentials have been revoked."""
    path = folder / REVOKED
    known = {tuple(each) for each in json.loads(path.read_bytes())} if path.exists() else set()
    found = set()
    for process in processes if known else ():
        name = device_name(process)
        caller = read_credentials(credentials_path(folder / SECRETS, name)).as_caller()
        if (name, caller.token_sha256) in known:
            found.add(process)
    return found
