"""Warnings that come at any rate."""

import logging

import pytest

from muster.common.sparse_log import SparseLog
from muster.common.testing import ManualClock


def test_one_warning_in_ten_seconds_is_written_and_the_others_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    sparse = SparseLog(logging.getLogger("test"), clock)
    for number in range(3):
        sparse.warning(f"refused {number}")
    clock.advance(9.0)
    sparse.warning("refused 3")
    clock.advance(1.0)
    sparse.warning("refused 4")
    clock.advance(10.0)
    sparse.warning("refused 5")
    assert caplog.messages == [
        "refused 0",
        "refused 4 (3 warnings before it are left out)",
        "refused 5",
    ]
