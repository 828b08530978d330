"""Evaluation: a process of its own beside the server, so that torch stays out of the server.

On standard input: a line of JSON (`Setup`), then for each model a line of JSON (`Order`) and the
model's body. On standard output: one line of JSON (`EvaluationResult`) per model. The process ends
with its input.

Where it is no child of the server (in a container of its own), it is started with host:port, and
does the same over a connection there, for one server after the other.
"""

import json
import socket
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import BinaryIO

import numpy as np
from pydantic import Field

from muster.common.clock import WallClock
from muster.common.config import Section
from muster.common.tensors import WIRE
from muster.server.evaluation.breakdown import Breakdown, Part, by_group
from muster.tasks.tasks import read_task


class Setup(Section):
    """What is evaluated: the scenario's [task] as JSON, opened as the devices open it."""

    task: str
    population: int
    seed: int

    groups: list[str] = Field(default=[])
    """The group of every device, by position, when groups are to be measured."""

    clients: list[str] = Field(default=[])
    """The name of every device, by position, when devices are to be measured."""


class Order(Section):
    """A model follows."""

    version: int
    round: int
    length: int


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """What came of it; a loss may be infinite or NaN, which Python's JSON can say.

    Attributes:
        groups: by name; empty unless they were to be measured.
        devices: likewise.
    """

    version: int
    round: int
    loss: float
    accuracy: float | None
    metrics: dict[str, float]
    seconds: float
    groups: dict[str, Part] = field(default_factory=dict)
    devices: dict[str, Part] = field(default_factory=dict)

    @classmethod
    def from_json(cls, line: bytes) -> "EvaluationResult":
        """Read what `to_json` wrote."""
        values = json.loads(line)
        for parts in ("groups", "devices"):
            values[parts] = {name: Part(*part) for name, part in values[parts].items()}
        return cls(**values)

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def main(orders: BinaryIO, results: BinaryIO) -> None:
    """Evaluate until the input ends, wherever that is: whoever sends it may be killed."""
    import torch

    from muster.tasks.models import load_vector

    torch.set_num_threads(1)
    clock = WallClock()
    if not (line := orders.readline()).endswith(b"\n"):
        return
    setup = Setup.from_json(line)
    settings = read_task(setup.task)
    task = settings.open(setup.population, setup.seed)
    module = task.module()
    breakdown = Breakdown(task, setup.population, settings.validation_ratio)
    while (line := orders.readline()).endswith(b"\n"):
        order = Order.from_json(line)
        body = orders.read(order.length)
        if len(body) < order.length:
            return
        began = clock.monotonic()
        load_vector(module, np.frombuffer(body, WIRE).astype(np.float32))
        metrics = task.metrics(module)
        loss, accuracy = metrics.pop("loss"), metrics.pop("accuracy", None)
        parts = breakdown.measure(module) if setup.groups or setup.clients else {}
        groups = by_group(parts, setup.groups) if setup.groups else {}
        devices = {setup.clients[i]: parts[i] for i in parts} if setup.clients else {}
        seconds = clock.monotonic() - began
        measured = EvaluationResult(
            order.version, order.round, loss, accuracy, metrics, seconds, groups, devices
        )
        results.write(measured.to_json() + b"\n")
        results.flush()


def serve(address: str) -> None:
    """Evaluate for whoever connects, one after the other, without end."""
    host, _, port = address.rpartition(":")
    with socket.create_server((host, int(port))) as listening:
        while True:
            connection, _ = listening.accept()
            with (
                connection,
                connection.makefile("rb") as orders,
                connection.makefile("wb") as results,
                suppress(ConnectionError),
            ):
                main(orders, results)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        serve(sys.argv[1])
    else:
        main(sys.stdin.buffer, sys.stdout.buffer)
