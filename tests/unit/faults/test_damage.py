"""Damage to the bodies of updates on their way."""

import numpy as np
import pytest

from muster.client.faults import DEVICE_FAULTS, UpdateFault
from muster.common.seeds import stream

BODY = np.arange(1, 41, dtype=np.float32).tobytes()


def damaged(body: bytes, kind: str, **settings: int) -> list[bytes]:
    fault = DEVICE_FAULTS.parse({"kind": kind, **settings})
    assert isinstance(fault, UpdateFault)
    return [bytes(each) for each in fault.damage(body, stream(1, "damage"))]


@pytest.mark.parametrize(("flipped", "changed"), [(1, 1), (7, 7), (1_000, 160)])
def test_corrupt_changes_as_many_bytes_as_stated(flipped: int, changed: int) -> None:
    for found in damaged(BODY, "corrupt", flipped_bytes=flipped, times=3):
        assert len(found) == len(BODY)
        assert sum(a != b for a, b in zip(found, BODY, strict=True)) == changed


def test_each_copy_is_corrupted_elsewhere() -> None:
    assert len(set(damaged(BODY, "corrupt", times=4))) == 4


@pytest.mark.parametrize("pieces", [2, 3, 40, 1_000])
def test_reordered_moves_every_number_and_changes_none(pieces: int) -> None:
    before = np.frombuffer(BODY, np.float32)
    [found] = damaged(BODY, "reordered", pieces=pieces)
    after = np.frombuffer(found, np.float32)
    assert (after != before).all()
    assert sorted(after) == list(before)
    # Pieces stay whole: at most as many numbers as pieces do not follow the one before them.
    assert (np.diff(after) != 1).sum() <= 1


def test_an_update_that_is_the_same_in_every_order_is_not_damaged() -> None:
    assert damaged(bytes(40), "reordered", times=3) == []
    assert damaged(BODY[:4], "reordered") == []
