import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

import pytest

from muster.common.events import Event, Placed
from muster.common.testing import ManualClock
from muster.emulator.launch.placement import Load, Placement, apart, load, place, usable_cores

needs_linux = pytest.mark.skipif(not usable_cores(), reason="processes cannot be placed here")


@pytest.mark.parametrize(
    ("server", "others", "cores", "already", "wanted"),
    [
        (0.8, 0.9, 2, False, True),
        (0.8, 0.9, 1, False, False),  # there is no other core
        (0.5, 0.5, 2, False, False),  # nobody waits for the server
        (0.6, 1.3, 2, False, False),  # the devices need more than one core
        (0.7, 1.0, 2, False, False),  # too near
        (0.7, 1.0, 2, True, True),  # but no reason to change again
        (0.6, 1.0, 2, True, False),
        (0.9, 8.0, 16, False, True),
    ],
)
def test_the_server_has_a_core_for_itself_while_rounds_wait_for_it(
    server: float, others: float, cores: int, already: bool, wanted: bool
) -> None:
    assert apart(server, others, cores, already) is wanted


class Machine:
    """Processes that use what they are said to use."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.pids = {"server": 10, "a": 11, "b": 12}
        self.where: dict[int, Sequence[int]] = {}
        self.told: list[Event] = []
        self.used = Load(0.0, 0.0)
        self.placement = Placement(
            lambda: self.pids,
            [4, 2, 7],
            self.clock,
            self.told.append,
            lambda server, cores: self.used,
            self.where.__setitem__,
        )
        self.placement.look()

    def go_on(self, server: float, others: float) -> None:
        """A second in which so much was used."""
        self.clock.advance(1.0)
        self.used = Load(self.used.server_s + server, self.used.all_s + server + others)
        self.placement.look()


def test_processes_are_placed_when_that_changes_and_only_then() -> None:
    m = Machine()
    m.go_on(0.3, 2.0)
    assert (m.where, m.told) == ({}, []), "they are where they were"
    m.go_on(0.9, 2.0)
    assert m.where == {10: [2], 11: [4, 7], 12: [4, 7]}
    assert m.told == [Placed([2], [4, 7])]
    m.where.clear()
    m.go_on(0.9, 2.0)
    assert m.where == {}
    m.go_on(0.2, 2.0)
    assert m.where == {pid: [2, 4, 7] for pid in (10, 11, 12)}
    assert m.told[1:] == [Placed([2, 4, 7], [2, 4, 7])]


def test_who_comes_later_is_placed_too() -> None:
    m = Machine()
    m.go_on(0.9, 1.0)
    m.where.clear()
    m.pids = {"a": 11, "c": 13}
    m.placement.look()  # between the death of a server and its successor nothing is decided
    assert m.where == {}
    m.pids = {"server": 20, "a": 11, "c": 13}
    m.used = Load(0.0, 50.0)
    m.placement.look()
    assert m.where == {20: [2], 13: [4, 7]}


def test_who_comes_as_the_server_loses_its_core_may_run_everywhere() -> None:
    m = Machine()
    m.go_on(0.9, 1.0)
    m.where.clear()
    m.pids["c"] = 13  # forked by somebody who had the others' cores
    m.go_on(0.2, 1.0)
    assert m.where == {pid: [2, 4, 7] for pid in (10, 11, 12, 13)}


def test_a_server_that_is_gone_when_it_is_looked_at_is_none() -> None:
    def gone(server: int, cores: Sequence[int]) -> Load:
        raise ProcessLookupError

    def place(pid: int, cores: Sequence[int]) -> None:
        pytest.fail(f"{pid} is placed")

    def tell(event: Event) -> None:
        pytest.fail(f"{event} is told")

    m = Machine()
    Placement(lambda: m.pids, [0, 1], m.clock, tell, gone, place).look()


@pytest.fixture
def sleeper() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process.pid
    process.kill()
    process.communicate()


@needs_linux
def test_a_process_runs_where_it_was_placed(sleeper: int) -> None:
    last = usable_cores()[-1]
    place(sleeper, [last])
    assert os.sched_getaffinity(sleeper) == {last}
    place(sleeper, usable_cores())
    assert os.sched_getaffinity(sleeper) == set(usable_cores())


@needs_linux
def test_what_a_process_uses_is_seen(sleeper: int) -> None:
    cores = usable_cores()
    before = load(os.getpid(), cores)
    limit = time.process_time() + 0.1
    while time.process_time() < limit:
        pass
    after = load(os.getpid(), cores)
    assert after.server_s - before.server_s > 0.05
    assert after.all_s >= before.all_s
    assert load(sleeper, cores).server_s < after.server_s


@needs_linux
def test_a_process_that_has_ended_is_not_placed() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    place(process.pid, usable_cores())
    with pytest.raises(OSError, match="No such file"):
        load(process.pid, usable_cores())
