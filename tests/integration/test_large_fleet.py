"""Fleets of very many devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muster.client.processes.config import NurseryProcess
from muster.common.clock import WallClock
from muster.emulator.launch.processes import Processes

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.system
async def test_the_nursery_of_100_000_devices_says_how_many_examples_they_have(
    tmp_path: Path,
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "setup").mkdir()
    programs = Processes(tmp_path, WallClock(), lambda *_: None)
    config = NurseryProcess(
        task='{"name": "quadratic"}', population=100_000, seed=1, folder=str(tmp_path)
    )
    try:
        prepared = await programs.start_nursery(config)
    finally:
        await programs.close()
    assert len(prepared["examples"]) == 100_000
