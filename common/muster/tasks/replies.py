"""What passes between a server and the strategy of an app. The server imports it without what opens
tasks."""

from collections.abc import Mapping
from dataclasses import dataclass

from muster.common.tensors import Vector


@dataclass(frozen=True, slots=True)
class DeviceReply:
    """The reply of a device to an instruction of a strategy.

    Attributes:
        delta: trained − received parameters, float32, shape (parameters,); None if there is no
            update that counts.
        examples: number of examples that the device states; 0 without an update.
        report: see `HostedUpdate.report`.
        absence: why there is no update; empty if there is one.
    """

    delta: Vector | None = None
    examples: int = 0
    report: bytes = b""
    absence: str = ""


Measured = Mapping[str, float | str]
"""Metrics of the server side of an app, by name; of a number that is not finite, its word."""
