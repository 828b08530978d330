"""The limits of calls, and the most connections of the port."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from muster.common.errors import Overloaded
from muster.common.testing import ManualClock
from muster.server.rpc.authentication import ENROLL
from muster.server.rpc.limits import (
    CALLS,
    ENROLLMENT_S,
    ENROLLMENTS,
    FAULT_S,
    FAULTS,
    OTHER_CONNECTIONS,
    OWN_CALLS,
    SHARED_CALLS,
    CallLimits,
    TokenBucket,
    most_connections,
)

FETCH = "/muster.v1.Fleet/Fetch"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def limits(clock: ManualClock) -> CallLimits:
    return CallLimits(clock)


@pytest.fixture
def begin(limits: CallLimits) -> Callable[..., ExitStack]:
    """Begin a number of calls of one caller. Closing what it returns ends them."""

    def begin(name: str, number: int) -> ExitStack:
        calls = ExitStack()
        for _ in range(number):
            calls.enter_context(limits.admitted(name, FETCH))
        return calls

    return begin


Begin = Callable[[str, int], ExitStack]


def refused(limits: CallLimits, name: str, method: str = FETCH) -> Overloaded:
    with pytest.raises(Overloaded) as error, limits.admitted(name, method):
        pass
    return error.value


def test_a_caller_has_so_many_calls_and_not_one_more(limits: CallLimits, begin: Begin) -> None:
    calls = begin("device/a", CALLS)
    error = refused(limits, "device/a")
    assert str(error) == f"device/a has {CALLS} calls open; expected fewer"
    assert error.retry_after_s > 0
    calls.close()
    begin("device/a", CALLS).close()


def test_callers_that_use_up_the_shared_calls_leave_to_others_their_own(
    limits: CallLimits, begin: Begin
) -> None:
    hostile = [f"device/{number}" for number in range(SHARED_CALLS // (CALLS - OWN_CALLS) + 1)]
    left = SHARED_CALLS
    held = {}
    for name in hostile:
        shared = min(left, CALLS - OWN_CALLS)
        held[name] = begin(name, OWN_CALLS + shared)
        left -= shared
    held["device/honest"] = begin("device/honest", OWN_CALLS)
    assert "256 calls beyond the 4" in str(refused(limits, "device/honest"))
    held[hostile[0]].close()
    begin("device/honest", 1).close()


def test_shared_calls_become_own_ones_when_own_ones_end(limits: CallLimits, begin: Begin) -> None:
    names = [f"device/{number}" for number in range(SHARED_CALLS)]
    own = [begin(name, OWN_CALLS) for name in names]
    shared = [begin(name, 1) for name in names]
    refused(limits, names[0])
    for calls in own:
        calls.close()
    more = begin("device/other", CALLS)  # no call is beyond the own ones of its caller any more
    for calls in (more, *shared):
        calls.close()


def test_a_refused_call_is_not_counted(limits: CallLimits, begin: Begin) -> None:
    calls = begin("device/a", CALLS)
    for _ in range(3 * CALLS):
        refused(limits, "device/a")
    calls.close()
    begin("device/a", CALLS).close()


def test_enrolling_too_often_is_refused_until_some_time_has_passed(
    limits: CallLimits, clock: ManualClock
) -> None:
    def enroll() -> None:
        with limits.admitted("device/a", ENROLL):
            pass

    for _ in range(ENROLLMENTS):
        enroll()
    error = refused(limits, "device/a", ENROLL)
    assert error.retry_after_s == pytest.approx(ENROLLMENT_S)
    with limits.admitted("device/a", FETCH), limits.admitted("device/b", ENROLL):
        pass  # other methods and other callers are not concerned
    clock.advance(error.retry_after_s)
    enroll()
    refused(limits, "device/a", ENROLL)


def test_a_caller_of_malformed_calls_waits_with_all_of_them(
    limits: CallLimits, clock: ManualClock
) -> None:
    for _ in range(FAULTS):
        with limits.admitted("device/a", FETCH):
            limits.faulty("device/a")
    error = refused(limits, "device/a")
    assert "too many malformed calls" in str(error)
    with limits.admitted("device/b", FETCH):
        pass
    clock.advance(error.retry_after_s)
    with limits.admitted("device/a", FETCH):
        limits.faulty("device/a")
    assert refused(limits, "device/a").retry_after_s == pytest.approx(FAULT_S)


def test_a_bucket_never_holds_more_than_its_burst(clock: ManualClock) -> None:
    bucket = TokenBucket(2, 10.0, clock)
    clock.advance(1e9)
    for _ in range(2):
        assert bucket.wait_s() == 0.0
        bucket.take()
    assert bucket.wait_s() == pytest.approx(10.0)
    clock.advance(4.0)
    assert bucket.wait_s() == pytest.approx(6.0)
    bucket.take()  # there is none to take
    clock.advance(6.0)
    assert bucket.wait_s() == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("processes", "descriptors", "most"),
    [
        (100, 1 << 20, 400 + OTHER_CONNECTIONS),
        (100, 1024, 512),  # half of the descriptors stay for files
        (1000, 4200, 2100),
        (1000, 1024, 2064),  # what the fleet needs, whatever is left
    ],
)
def test_the_port_takes_connections_for_the_fleet_and_as_descriptors_allow(
    processes: int, descriptors: int, most: int
) -> None:
    assert most_connections(processes, descriptors) == most
