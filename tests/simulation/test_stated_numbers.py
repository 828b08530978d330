"""A device that states any number that a message can hold may lose its own update, and nothing
else: the updates of all other devices count as they would have, and the run ends."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from google.protobuf.message import Message
from tests.simulation.stated_numbers import Course, Liar, Place, course, places, state

from muster.common.config import validate
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.drawn_fleets import LARGE
from muster.simulation.programs import programs_of

SHARE = 1 if os.environ.get("MUSTER_SOAK") == "1" else 2
"""A fleet plays every so many-th place, and a fleet with the next clock the others."""

CLOCKS = "rounds", "wall", "modelled", "scaled"

MODES: Mapping[str, Mapping[str, Any]] = {
    "synchronous": {"kind": "synchronous"},
    "opportunistic": {"kind": "opportunistic", "max_staleness": 2},
    "buffered": {"kind": "buffered", "k": 2, "concurrency": 3},
}

_SMALL = {"name": "linear", "dimension": 3, "examples_per_client": 8}
_LARGE = {"name": "linear", "dimension": LARGE, "examples_per_client": 4}
_DIGITS = {"name": "digits", "validation_ratio": 0.3}
_SPEED = {"profile": "tablet", "examples_per_s": 8}
_HELD = {"devices_per_process": 2, "partial_sums": True}
_FEDUCA = {"aggregator": {"kind": "feduca", "strategies": 2}}
_RATIONAL = {"kind": "rational", "utility": {"test": "fitted", "threshold": "weight"}}


def _living(round_s: float) -> Mapping[str, Any]:
    """A group whose devices come and go, and report what they are like."""
    return {
        "device": _SPEED,
        "availability": {
            "kind": "markov",
            "mean_up_s": 4 * round_s,
            "mean_down_s": 2 * round_s,
        },
        "covariates": {"z": {"age": 3.0}, "x": {"battery": "battery"}},
    }


def _fleet(name: str, mode: str, clock: str, group: Any = None, **sections: Any) -> Scenario:
    """Three devices, of which one lies."""
    round_s = 600.0 if clock in ("rounds", "modelled") else 5.0
    group = _living(round_s) if group is None else group
    values: dict[str, Any] = {
        "seed": 2,
        "task": _SMALL,
        "training": {"learning_rate": 1e-4, "local_steps": 1, "batch_size": 4},
        "clock": {"kind": clock, "round_s": round_s},
        "groups": [{"name": "liar", "count": 1, **group}, {"name": "dev", "count": 2, **group}],
    }
    server = {
        "rounds": 10,
        "deadline_s": 20.0,
        "stall_s": 1000.0,
        "heartbeat_s": 2.0,
        "mode": MODES[mode],
    }
    server |= sections.pop("server", {})
    return validate(Scenario, {"name": name, **values, "server": server, **sections}, name)


@cache
def fleets() -> Mapping[str, Scenario]:
    """Fleets that together send every message, in every mode and on every clock."""
    found = [
        _fleet(f"{mode}-{clock}", mode, clock, server={"aggregator": "q-fedavg"})
        for mode in MODES
        for clock in CLOCKS
    ]
    found += [
        _fleet(f"{name}-{clock}", "synchronous", clock, group, **sections)
        for clock in ("rounds", "wall")
        for name, group, sections in (
            ("chunks", {}, {"task": _LARGE}),
            ("held", _HELD, {}),
            ("steps", {}, {"server": {"aggregator": "fednova"}}),
            ("rational", {"participation": _RATIONAL}, {"task": _DIGITS, "server": _FEDUCA}),
        )
    ]
    return {scenario.name: scenario for scenario in found}


class Stage:
    """Plays runs of one fleet.

    Attributes:
        places: the numbers that the liar states in a run without lies.
    """

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self._scenario = scenario
        self._programs = programs_of(scenario, folder / "programs")
        self._folders = (folder / str(number) for number in count())
        listening = _Listener()
        self._truth = self._play(listening)
        assert not self._truth.wrong, self._truth
        assert self._truth.status == "completed", self._truth
        self.places = [place for place in places() if place in listening.heard]

    def _play(self, liar: Liar) -> Course:
        folder = next(self._folders)
        folder.mkdir()
        played = course(self._programs, folder, liar)
        shutil.rmtree(folder)
        return played

    def wrong(self, liar: Liar) -> list[str]:
        """Play a run; return what is wrong with it."""
        played = self._play(liar)
        found, known = list(played.wrong), self._truth.honest
        if played.status != "completed" and not played.silent:
            found.append(f"the run {played.status}")
        if self._is_exact():
            # In lockstep a round waits for every device that was called, also for a silent one.
            keys = played.honest.keys() if played.silent else {**known, **played.honest}
            differ = [key for key in keys if known.get(key) != played.honest.get(key)]
            found += [f"{key}: {known.get(key)}, now {played.honest.get(key)}" for key in differ]
        else:
            kinds = set(played.honest.values()) - set(known.values()) - _OF_ITSELF
            found += [f"a device came to {kind}" for kind in kinds]
        return [f"{self._scenario.name}: {each}; told {liar.told}" for each in found]

    def _is_exact(self) -> bool:
        """Whether nothing but its own numbers can change what an honest device's update comes to:
        neither the length of rounds nor who is called depends on the updates of others."""
        scenario = self._scenario
        rational = any(pack.utility is not None for pack in self._programs.packs)
        return (
            scenario.clock.kind == "rounds"
            and not scenario.server.mode.counts_versions
            and not rational
        )


_OF_ITSELF = {
    ("folded", None),
    ("dropped", "round closed"),
    ("dropped", "interrupted"),
    ("dropped", "drop-out"),
}
"""What may become of an honest update because the times of others differ."""


class _Listener(Liar):
    """Tells the truth, and notes where it could have lied."""

    def __init__(self) -> None:
        super().__init__({})
        self.heard = set[Place]()

    def change(self, method: str, message: Message) -> bool:
        for place in places():
            if place.method == method and place not in self.heard:
                copy = type(message).FromString(message.SerializeToString())
                if state(copy, place.path, 1):
                    self.heard.add(place)
        return False


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Stage]]:
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # histories are closed with a collection

    @cache
    def of(name: str) -> Stage:
        return Stage(fleets()[name], tmp_path_factory.mktemp(name))

    yield of
    gc.unfreeze()


@pytest.mark.parametrize("name", fleets())
def test_a_number_costs_nobody_else_anything(stage: Callable[[str], Stage], name: str) -> None:
    """Numbers of messages at their limits, one number after the other; every one in `make soak`. A
    run has room for some limits of a number, which are others in each fleet."""
    played, wrong = stage(name), []
    first = CLOCKS.index(fleets()[name].clock.kind) % SHARE
    for place in played.places[first::SHARE]:
        values = place.values()
        Random(f"{name} {place}").shuffle(values)
        wrong += played.wrong(Liar({place: values}))
    assert not wrong


@pytest.mark.parametrize("name", fleets())
def test_numbers_together_cost_nobody_else_anything(
    stage: Callable[[str], Stage], name: str
) -> None:
    """Numbers of different units at their limits, in the same message."""
    played, wrong, random = stage(name), [], Random(name)
    for _ in range(4):
        chosen = random.sample(played.places, min(6, len(played.places)))
        left = {place: random.sample(place.values(), 8) for place in chosen}
        wrong += played.wrong(Liar(left))
    assert not wrong


@pytest.mark.parametrize("name", ["held-rounds", "held-wall"])
@pytest.mark.parametrize("largest", [2.0**31, 1e20, 3.4e38])
def test_an_update_that_no_sum_could_hold_costs_nobody_else_anything(
    stage: Callable[[str], Stage], name: str, largest: float
) -> None:
    """Its numbers fit each other: it has one entry that is not 0."""
    played = stage(name)
    stated = {"largest": largest, "squared_norm": largest**2}
    left = {p: 4 * [stated[p.path[-1]]] for p in played.places if "held" in p.path}
    assert len(left) == 2
    assert not played.wrong(Liar(left))


def test_every_number_that_a_device_may_send_is_walked(stage: Callable[[str], Stage]) -> None:
    """A field that is added to a message needs a fleet that sends it."""
    walked = {str(place) for name in fleets() for place in stage(name).places}
    unsent = {
        "Probe.wanted_bytes",  # of muster verify, not of a run
        # These updates do not travel in chunks; the server refuses the message.
        "Submit.header.update.held.largest",
        "Submit.header.update.held.squared_norm",
    }
    assert {str(place) for place in places()} - walked == unsent
