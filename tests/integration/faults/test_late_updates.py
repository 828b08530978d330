"""Faults whose effects are entered in the ledger long after the round in which they acted."""

from typing import Any

import pytest
from tests.integration.faults.playing import Play

SLOW = "slow-0000"
GROUPS = [
    {"name": "fast", "count": 4, "device": {"examples_per_s": 40}},
    {"name": "slow", "count": 1, "device": {"examples_per_s": 4}},
]
MODE = {"kind": "buffered", "k": 4, "max_staleness": 200}


def asynchronous(play: Play, *faults: dict[str, Any]) -> Any:
    # 16 examples take a fast device 0.4 s, and the slow one 4 s: 10 versions.
    clock = {"kind": "rounds", "round_s": 0.1}
    return play(*faults, groups=GROUPS, server={"rounds": 36, "mode": MODE}, clock=clock)


def on_slow(do: str, **more: Any) -> dict[str, Any]:
    target = {"names": [SLOW]}
    return {"do": do, "target": target, "when": {"round": 2}, "for_rounds": 15, **more}


@pytest.mark.parametrize("do", ["sign-flip", "nan", "duplicate"])
def test_the_update_of_a_slow_device_is_observed_when_it_arrives(play: Play, do: str) -> None:
    done = asynchronous(play, on_slow(do))
    rows = done.contributions[done.contributions["client"] == SLOW]
    struck = rows[(rows["call_round"] >= 2) & (rows["call_round"] < 17)]
    healthy = rows[rows["call_round"] >= 17]
    assert len(struck) > 0
    if do != "nan":  # a refused update has no staleness
        assert struck["staleness"].max() >= 5
    assert len(healthy) > 0
    states = dict(done.states(f"{do}-1"))
    assert states["observed"] == struck["call_round"].min()
    assert states["verified"] == healthy["call_round"].min()
    assert done.summary["vacuous"] == []


def test_a_fault_between_two_calls_of_a_slow_device_is_vacuous(play: Play) -> None:
    done = asynchronous(play, {**on_slow("sign-flip"), "when": {"round": 5}, "for_rounds": 5})
    assert done.summary["vacuous"] == ["sign-flip-1"]
