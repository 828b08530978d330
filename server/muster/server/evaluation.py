"""Evaluation: a process of its own beside the server, so that torch stays out of the server.

On standard input: a line of JSON (`Setup`), then for each model a line of JSON (`Order`) and the
model's body. On standard output: one line of JSON (`Measured`) per model. It ends with its input.
"""

import json
import sys
from dataclasses import asdict, dataclass
from typing import BinaryIO

import numpy as np

from muster.common.clock import WallClock
from muster.common.config import Section
from muster.common.processes import die_with_parent
from muster.common.tensors import WIRE
from muster.tasks.tasks import read_task


class Setup(Section):
    """What is evaluated: the scenario's [task] as JSON, opened as the devices open it."""

    task: str
    population: int
    seed: int


class Order(Section):
    """A model follows."""

    version: int
    round: int
    length: int


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of it; a loss may be infinite or NaN, which Python's JSON can say."""

    version: int
    round: int
    loss: float
    accuracy: float | None
    metrics: dict[str, float]
    seconds: float


def main(orders: BinaryIO, results: BinaryIO) -> None:
    """Evaluate until the input ends."""
    import torch

    from muster.tasks.models import load_vector

    torch.set_num_threads(1)
    clock = WallClock()
    setup = Setup.from_json(orders.readline())
    task = read_task(setup.task).open(setup.population, setup.seed)
    module = task.module()
    while line := orders.readline():
        order = Order.from_json(line)
        body = orders.read(order.length)
        began = clock.monotonic()
        load_vector(module, np.frombuffer(body, WIRE).astype(np.float32))
        metrics = task.metrics(module)
        loss, accuracy = metrics.pop("loss"), metrics.pop("accuracy", None)
        seconds = clock.monotonic() - began
        measured = Measured(order.version, order.round, loss, accuracy, metrics, seconds)
        results.write(json.dumps(asdict(measured)).encode() + b"\n")
        results.flush()


if __name__ == "__main__":
    die_with_parent()
    main(sys.stdin.buffer, sys.stdout.buffer)
