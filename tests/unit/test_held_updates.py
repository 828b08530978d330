"""The sum that a process makes of the updates that its devices hold back."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from muster.client.calls.partial_sums import HeldUpdates
from muster.client.calls.training_runner import TrainingRunner
from muster.client.device.memory import StoredUpdate
from muster.client.life.settings import ClockSettings
from muster.common.clock import WallClock
from muster.common.compression import Whole
from muster.common.compression.contract import Pread
from muster.common.exact_sum import BLOCK, ExactSum
from muster.common.exchange import Key, Update
from muster.common.partial_sums import encode_partial_sum
from muster.common.tensors import Vector

PARAMETERS = 4 * BLOCK


class Stopping(Whole):
    """A codec that stops in the middle of a vector, when the test wants it."""

    reached: ClassVar[threading.Event] = threading.Event()
    goes_on: ClassVar[threading.Event] = threading.Event()
    stops: ClassVar[bool] = False

    def read(self, pread: Pread, start: int, stop: int, parameters: int) -> Vector:
        if Stopping.stops and start == 2 * BLOCK:
            Stopping.reached.set()
            Stopping.goes_on.wait()
        return super().read(pread, start, stop, parameters)


def device(memory: Any = None) -> Any:
    """A device that trains the whole model."""
    return SimpleNamespace(memory=memory, trained_entries=lambda round, entries: entries)


async def test_a_sum_that_is_begun_again_has_nothing_of_the_one_before() -> None:
    """The connection breaks while a thread adds up; the next session asks for the same sum."""
    vector = np.full(PARAMETERS, 1.2345e-9, np.float32)
    update = Update(Key("a", 1, 1), 1, bytes(16), vector.nbytes, 0.0, 0.0, 0.0)
    memory = SimpleNamespace(update_for=lambda call: StoredUpdate(update, vector.tobytes()))
    devices: Any = {"a": device(memory)}
    calls = [SimpleNamespace(key=update.key)]
    batch: Any = SimpleNamespace(calls=calls, work=SimpleNamespace(entries=PARAMETERS))
    held = HeldUpdates(
        devices, Stopping(kind="none"), TrainingRunner(ClockSettings(), None, WallClock())
    )
    held.begin(1, PARAMETERS)
    held.announced(memory.update_for(calls[0]), PARAMETERS)
    Stopping.stops = True
    first = asyncio.create_task(held.add(batch, [0.1]))
    await asyncio.to_thread(Stopping.reached.wait)
    first.cancel()
    Stopping.stops = False
    held.begin(1, PARAMETERS)
    second = asyncio.create_task(held.add(batch, [0.1]))
    await asyncio.sleep(0)  # it waits for the thread, which still adds to the first sum
    Stopping.goes_on.set()
    await second
    right = ExactSum(PARAMETERS)
    right.add(vector, 0.1)
    assert held.complete()[1] == encode_partial_sum(right)


@pytest.mark.parametrize("secret", [False, True])
def test_a_server_that_may_not_know_an_update_is_not_told_its_checksum(secret: bool) -> None:
    vector = np.ones(PARAMETERS, np.float32)
    update = Update(Key("a", 1, 1), 1, b"c" * 16, vector.nbytes, 0.0, 0.0, 0.0)
    runner = TrainingRunner(ClockSettings(), None, WallClock())
    devices: Any = {"a": device()}
    held = HeldUpdates(devices, Whole(kind="none"), runner, secret)
    announced, body = held.announced(StoredUpdate(update, vector.tobytes()), PARAMETERS)
    assert announced.checksum == (bytes(16) if secret else b"c" * 16)
    assert (announced.held is not None, body) == (True, b"")
