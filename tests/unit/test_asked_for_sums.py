"""Devices send the kind of sum that their own configuration says, whatever the server asks."""

from types import SimpleNamespace
from typing import Any

import pytest

from muster.client.calls.worker import Worker
from muster.client.life.settings import ClockSettings
from muster.common.clock import WallClock
from muster.common.compression import Whole
from muster.common.errors import RemoteProtocolError
from muster.common.exchange import SumRequest
from muster.common.secure.grid import SumFormat


@pytest.mark.parametrize(
    ("secure", "step", "expected"),
    [
        (SumFormat(heaviest=1.0, neighbours=2), b"", "asked for a sum that is not secure"),
        (None, b"step", "asked for a step of a sum that is not secure"),
    ],
    ids=["no step", "a step"],
)
async def test_a_sum_of_another_kind_is_refused(
    secure: SumFormat | None, step: bytes, expected: str
) -> None:
    """A partial sum of one device would be its update."""
    nothing: Any = None
    codec, clock = Whole(kind="none"), WallClock()
    worker = Worker(
        {}, nothing, ClockSettings(), nothing, None, clock, nothing, nothing, codec, secure
    )
    request = SumRequest(1, [1.0], begins=True, ends=True, step=step)
    batch: Any = SimpleNamespace(sum_request=request)
    with pytest.raises(RemoteProtocolError, match=expected):
        await worker.handle_calls(batch)
