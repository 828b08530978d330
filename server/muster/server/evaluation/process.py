"""The evaluation process: evaluates models beside the server, so that the server need not import
torch.

It reads from standard input a line of JSON (`Setup`), and then for each model a line of JSON
(`Order`) and the model's body. It writes to standard output one line of JSON (`EvaluationResult`)
for each model. It ends when its input ends.

If it is not a child of the server, because it has its own container, it is started with host:port
and the file of its credentials as arguments. It then listens there and does the same over a
connection, for one server after the other.
"""

import json
import logging
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from pydantic import Field

from muster.common.causes import outer_cause
from muster.common.clock import Clock, WallClock
from muster.common.config import Section
from muster.common.credentials import CredentialsFile, CredentialsSource
from muster.common.errors import MusterError, RunFailed, reason_of
from muster.common.garbage import rarely_collect
from muster.common.tensors import WIRE
from muster.server.evaluation.breakdown import Breakdown, Part, by_group
from muster.server.evaluation.port import EvaluationPort
from muster.server.runtime.beside import Input, Output, results_pipe
from muster.tasks.opening import opened, plain_numbers
from muster.tasks.tasks import read_task

log = logging.getLogger("muster.evaluation")

FAILED = "failed"
"""The key of the reason, in the last line of an evaluation that cannot go on."""


class Setup(Section):
    """The configuration of the evaluation process, with which it opens the task as devices do."""

    task: str
    """JSON of the scenario's [task]."""

    population: int
    seed: int

    groups: list[str] = Field(default=[])
    """The group of every device, by position; empty if groups are not measured."""

    clients: list[str] = Field(default=[])
    """The name of every device, by position; empty if devices are not measured."""


class Order(Section):
    """The header of a model, whose body follows."""

    version: int
    round: int
    length: int
    """Bytes of the body."""


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """The result of evaluating a model. A loss may be infinite or NaN, which Python's JSON allows.

    Attributes:
        metrics: the task's other metrics, by name.
        seconds: wall seconds that the evaluation took.
        groups: by name; empty if groups are not measured.
        devices: by name; empty if devices are not measured.
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
        """Return the result of which `to_json` wrote the line.

        Raises:
            RunFailed: the evaluation says that it cannot go on, and why.
        """
        values = json.loads(line)
        if FAILED in values:
            raise RunFailed(f"the evaluation failed: {values[FAILED]}")
        for parts in ("groups", "devices"):
            values[parts] = {name: Part(*part) for name, part in values[parts].items()}
        return cls(**values)

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()


class ModelEvaluation:
    """Evaluates the models of a run on the task's test set, and on the devices' data if asked to.

    Args:
        clock: measures how long an evaluation takes.
    """

    def __init__(self, setup: Setup, clock: Clock) -> None:
        settings = read_task(setup.task)
        self._setup, self._clock = setup, clock
        self._task = opened(settings, setup.population, setup.seed)
        self._module = self._task.module()
        self._breakdown = Breakdown(self._task, setup.population, settings.validation_ratio)

    def evaluate(self, order: Order, body: bytes) -> EvaluationResult:
        from muster.tasks.parts import load_vector

        setup, began = self._setup, self._clock.monotonic()
        load_vector(self._module, np.frombuffer(body, WIRE).astype(np.float32))
        metrics = plain_numbers(self._task.metrics(self._module))
        loss, accuracy = metrics.pop("loss"), metrics.pop("accuracy", None)
        parts = self._breakdown.measure(self._module) if setup.groups or setup.clients else {}
        groups = by_group(parts, setup.groups) if setup.groups else {}
        devices = {setup.clients[i]: parts[i] for i in parts} if setup.clients else {}
        seconds = self._clock.monotonic() - began
        return EvaluationResult(
            order.version, order.round, loss, accuracy, metrics, seconds, groups, devices
        )


def main(orders: Input, results: Output) -> None:
    """Evaluate models until the input ends, which can be anywhere if the server is killed."""
    import torch

    torch.set_num_threads(1)
    if not (line := orders.readline()).endswith(b"\n"):
        return
    rarely_collect()
    try:
        evaluation = ModelEvaluation(Setup.from_json(line), WallClock())
        while (line := orders.readline()).endswith(b"\n"):
            order = Order.from_json(line)
            body = orders.read(order.length)
            if len(body) < order.length:
                return
            results.write(evaluation.evaluate(order, body).to_json() + b"\n")
            results.flush()
    except Exception as error:
        if not isinstance(error, MusterError) and not outer_cause(error):
            raise
        log.error("%s", reason_of(error))
        results.write(json.dumps({FAILED: reason_of(error)}).encode() + b"\n")
        results.flush()


def serve(address: str, source: CredentialsSource) -> None:
    """Listen at `address` and evaluate for one server after the other, without end.

    Raises:
        ConfigError: there is no TLS.
    """
    host, _, port = address.rpartition(":")
    listening = EvaluationPort(host, int(port), source, WallClock())
    listening.serve(lambda server: main(server, server))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        logging.basicConfig(stream=sys.stderr, level=logging.INFO)
        try:
            serve(sys.argv[1], CredentialsFile(Path(sys.argv[2])))
        except MusterError as error:
            log.error("%s", error)
            sys.exit(1)
    else:
        main(sys.stdin.buffer, results_pipe())
