"""Whom the supervisor places on cores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muster.emulator import run
from muster.emulator.runs import supervisor

if TYPE_CHECKING:
    from tests.system.conftest import MakeScenario

LARGE = {"name": "digits", "model": "mlp", "hidden": [1000]}
"""A model that is not inline."""


@pytest.mark.parametrize(
    ("changed", "placed"),
    [
        ({}, True),
        ({"launch": {"own_core": False}}, False),
        ({"task": LARGE}, False),
    ],
)
def test_server_evaluation_and_devices_are_placed_where_models_are_small(
    scenario: MakeScenario,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, Any],
    placed: bool,
) -> None:
    found: list[set[str]] = []

    class Looks:
        def __init__(self, pids: Callable[[], Mapping[str, int]], *_: Any) -> None:
            self._pids = pids

        async def watch(self) -> None:
            while "evaluation" not in self._pids():  # the nursery says soon that it has begun
                await asyncio.sleep(0)
            found.append({name.split()[0] for name in self._pids()})

    monkeypatch.setattr(supervisor, "Placement", Looks)
    monkeypatch.setattr(supervisor, "usable_cores", lambda: [0, 1])
    run(scenario(server={"rounds": 2}, **changed), out=tmp_path / "run")
    assert [{"server", "evaluation", "nursery"} <= names for names in found] == [True] * placed
