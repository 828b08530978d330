"""The process of a strategy: `python -m muster.server.strategy.process`, a child of the server.

It reads from standard input a line of JSON (`StrategySetup`), and then the replies of every round.
It writes to standard output what the strategy wants of a round (`Push`), waits for the replies, and
writes `StrategyEnd` when the strategy has ended. What the app prints goes to standard error.
"""

import sys
from collections.abc import Mapping

from muster.common.errors import ConfigError
from muster.common.tensors import Vector
from muster.server.runtime.beside import Input, Output, results_pipe
from muster.server.strategy.pipe import (
    LENGTHS,
    Push,
    StrategyEnd,
    StrategySetup,
    message_of,
    replies_in,
)
from muster.tasks.hosted import HostedTask
from muster.tasks.opening import open_task
from muster.tasks.replies import DeviceReply, Measured


class ServerRounds:
    """The rounds of the server, as the strategy uses them."""

    def __init__(self, replies: Input, pushes: Output) -> None:
        self._replies = replies
        self._pushes = pushes
        self._measured: Measured = {}

    def measured(self, metrics: Measured) -> None:
        """See `muster.tasks.hosted.StrategyRounds.measured`."""
        self._measured = metrics

    def train(
        self, model: Vector, instructions: Mapping[int, bytes], timeout_s: float | None
    ) -> Mapping[int, DeviceReply]:
        """See `muster.tasks.hosted.StrategyRounds.train`.

        Raises:
            ConfigError: the server has gone.
        """
        self.say(Push(model, instructions, timeout_s, self._measured))
        header, body = LENGTHS.unpack(self._read(LENGTHS.size))
        return replies_in(message_of(self._read(header), self._read(body)))

    def end(self, model: Vector | None) -> None:
        """Say that the strategy has ended, and with which model."""
        self.say(StrategyEnd(model, measured=self._measured))

    def say(self, said: Push | StrategyEnd) -> None:
        for part in said.parts():
            self._pushes.write(part)
        self._pushes.flush()

    def _read(self, size: int) -> bytes:
        data = self._replies.read(size)
        if len(data) < size:
            raise ConfigError("the server has gone")
        return data


def main(replies: Input, pushes: Output) -> None:
    """Run the strategy, once."""
    if not (line := replies.readline()).endswith(b"\n"):
        return
    setup, rounds = StrategySetup.from_json(line), ServerRounds(replies, pushes)
    try:
        task = open_task(setup.task, setup.population, setup.seed)
        if not isinstance(task, HostedTask):
            raise ConfigError("task: it has no strategy")
        rounds.end(task.run_strategy(rounds, setup.devices))
    except ConfigError as error:
        rounds.say(StrategyEnd(failure=str(error)))


if __name__ == "__main__":
    main(sys.stdin.buffer, results_pipe())
