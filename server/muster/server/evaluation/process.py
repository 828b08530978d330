"""The evaluation process: evaluates models beside the server, so that the server need not import
torch.

It reads from standard input a line of JSON (`Setup`), and then for each model a line of JSON
(`Order`) and the model's body. It writes to standard output one line of JSON (`EvaluationResult`)
for each model. It ends when its input ends.

If it is not a child of the server, because it has its own container, it is started with host:port
and the file of its credentials as arguments. It then listens there and does the same over a
connection, for one server after the other. A nursery forks it with the task that it has opened
(`serve_forked`).
"""

import json
import logging
import sys
from contextlib import suppress
from pathlib import Path
from socket import socket

import numpy as np

from muster.common.causes import outer_cause
from muster.common.clock import Clock, WallClock
from muster.common.credentials import CredentialsFile, CredentialsSource
from muster.common.errors import MusterError, reason_of
from muster.common.garbage import rarely_collect
from muster.common.tensors import WIRE
from muster.server.evaluation.breakdown import Breakdown
from muster.server.evaluation.messages import FAILED, EvaluationResult, Order, Setup
from muster.server.evaluation.parts import by_group
from muster.server.evaluation.port import EvaluationPort
from muster.server.runtime.beside import Input, Output, results_pipe
from muster.tasks.opening import opened, plain_numbers
from muster.tasks.task import OpenTask
from muster.tasks.tasks import read_task

log = logging.getLogger("muster.evaluation")


class ModelEvaluation:
    """Evaluates the models of a run on the task's test set, and on the devices' data if asked to.

    Args:
        clock: measures how long an evaluation takes.
        task: the open task, if it has been opened.
    """

    def __init__(self, setup: Setup, clock: Clock, task: OpenTask | None = None) -> None:
        settings = read_task(setup.task)
        self._setup, self._clock = setup, clock
        self._task = opened(settings, setup.population, setup.seed) if task is None else task
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


def main(orders: Input, results: Output, task: OpenTask | None = None) -> None:
    """Evaluate models until the input ends, which can be anywhere if the server is killed.

    Args:
        task: the open task, if it has been opened.
    """
    import torch

    torch.set_num_threads(1)
    if not (line := orders.readline()).endswith(b"\n"):
        return
    rarely_collect()
    try:
        evaluation = ModelEvaluation(Setup.from_json(line), WallClock(), task)
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


def serve_forked(task: OpenTask, server: socket) -> None:
    """Evaluate for the server at the other end of a connection, until it is gone."""
    with suppress(ConnectionError), server.makefile("rb") as orders, server.makefile("wb") as out:
        main(orders, out, task)


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
