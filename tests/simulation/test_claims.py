"""A device that states anything that a message can hold may lose its own update, and nothing else:
the updates of all other devices count as they would have, when they would have, and with the same
weights, but for what `muster.common.claims` says of the field; and the run ends."""

from __future__ import annotations

import gc
import math
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
from tests.simulation.claims import Course, Liar, Place, can_state, course, places

from muster.common.claims import INFLUENCES, Moves
from muster.common.config import validate
from muster.emulator.scenario.scenario import Scenario
from muster.server.aggregators import BUILT_IN, Need, Strategy
from muster.server.aggregators.retaining import Retaining
from muster.simulation.drawn_fleets import LARGE
from muster.simulation.programs import programs_of

SOAK = os.environ.get("MUSTER_SOAK") == "1"
"""Whether to play every field in every fleet, and not a sample."""

CLOCKS = "rounds", "wall", "modelled", "scaled"

MODES: Mapping[str, Mapping[str, Any]] = {
    "synchronous": {"kind": "synchronous"},
    "opportunistic": {"kind": "opportunistic", "max_staleness": 2},
    "buffered": {"kind": "buffered", "k": 2, "concurrency": 3},
}

RULES = [kind for kind, rule in BUILT_IN.items() if not issubclass(rule, Strategy)]
"""The rules; the strategy of an app is in place of one."""

_SMALL = {"name": "linear", "dimension": 3, "examples_per_client": 8}
_LARGE = {"name": "linear", "dimension": LARGE, "examples_per_client": 4}
_DIGITS = {"name": "digits", "validation_ratio": 0.3}
_SPEED = {"profile": "tablet", "examples_per_s": 8}
_HELD = {"devices_per_process": 2, "partial_sums": True}
_RATIONAL = {"kind": "rational", "utility": {"test": "fitted", "threshold": "weight"}}
_COVARIATES = {
    "z": {"age": {"kind": "uniform", "low": 0.0, "high": 1.0}},
    "x": {"load": {"kind": "uniform", "low": 0.0, "high": 1.0}},
}
_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "feduca": {"strategies": 2},
    "weighted": {"p": [0.25] * 4},
    "weighted-normalised": {"p": [0.25] * 4},
    "calibrated": {"if_infeasible": "soft"},
    "krum": {"byzantine": 0},
    "multi-krum": {"byzantine": 0},
    "bulyan": {"byzantine": 0},
}
"""What rules need besides their name."""


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


def _fleet(
    name: str, mode: str, clock: str, group: Any = None, honest: int = 2, **sections: Any
) -> Scenario:
    """Some devices, of which one lies."""
    round_s = 600.0 if clock in ("rounds", "modelled") else 5.0
    group = _living(round_s) if group is None else group
    values: dict[str, Any] = {
        "seed": 2,
        "task": _SMALL,
        "training": {"learning_rate": 1e-4, "local_steps": 1, "batch_size": 4},
        "clock": {"kind": clock, "round_s": round_s},
        "groups": [
            {"name": "liar", "count": 1, **group},
            {"name": "dev", "count": honest, **group},
        ],
    }
    server = {
        "rounds": 10,
        "deadline_s": 20.0,
        "stall_s": 1000.0,
        "heartbeat_s": 2.0,
        "mode": MODES[mode],
    }
    server |= sections.pop("server", {})
    sections["training"] = values["training"] | sections.pop("training", {})
    return validate(Scenario, {"name": name, **values, "server": server, **sections}, name)


def _rule_fleet(kind: str) -> Scenario:
    """Four devices, whose updates a rule weighs; one lies."""
    rational = issubclass(BUILT_IN[kind], Retaining)
    server: dict[str, Any] = {"aggregator": {"kind": kind, **_SETTINGS.get(kind, {})}}
    if kind == "calibrated":
        server["information"] = "limited"
    training: dict[str, Any] = {"local_steps": 2}
    if kind == "weighted":
        training["projection_radius"] = 10.0
    sections: dict[str, Any] = {"server": server, "training": training}
    group: dict[str, Any] = {"device": _SPEED, "covariates": _COVARIATES}
    if rational:
        sections["task"] = _DIGITS
        group |= {"participation": _RATIONAL}
    return _fleet(kind, "synchronous", "rounds", group, honest=3, **sections)


@cache
def fleets() -> Mapping[str, Scenario]:
    """Fleets that together send every message, in every mode, on every clock, and with every rule
    in lockstep."""
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
            (
                "rational",
                {"participation": _RATIONAL},
                {"task": _DIGITS, "server": {"aggregator": {"kind": "feduca", "strategies": 2}}},
            ),
        )
    ]
    found += [_rule_fleet(kind) for kind in RULES]
    return {scenario.name: scenario for scenario in found}


class Stage:
    """Plays runs of one fleet.

    Attributes:
        places: the fields that the liar could state otherwise in a run without lies.
        sample: how many of them are played in `make test`.
    """

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self._scenario = scenario
        self._programs = programs_of(scenario, folder / "programs")
        self._folders = (folder / str(number) for number in count())
        listening = _Listener()
        self.truth = self.play(listening)
        assert not self.truth.wrong, self.truth
        assert self.truth.status == "completed", self.truth
        self.places = [place for place in places() if place in listening.heard]
        self.sample = 1 if self._is_rational() else 2

    def play(self, liar: Liar) -> Course:
        """Play a run."""
        folder = next(self._folders)
        folder.mkdir()
        played = course(self._programs, folder, liar)
        shutil.rmtree(folder)
        return played

    def wrong(self, liar: Liar) -> list[str]:
        """Play a run; return what is wrong with it."""
        stated = list(liar.left)
        played = self.play(liar)
        found = list(played.wrong)
        if played.status != "completed" and not played.silent:
            found.append(f"the run {played.status}")
        if self._is_exact():
            allowed = {
                move
                for place in stated
                if place.name in INFLUENCES
                for move in INFLUENCES[place.name].moves
            }
            found += self.differences(played, allowed)
        else:
            kinds = set(played.honest.values()) - set(self.truth.honest.values()) - _OF_ITSELF
            found += [f"a device came to {kind}" for kind in kinds]
        said = f"told {liar.told}" if len(liar.told) < 40 else f"told {liar.told[-40:]}"
        return [f"{self._scenario.name}: {each}; {said}" for each in found]

    def differences(self, played: Course, allowed: set[Moves]) -> Iterator[str]:
        """Yield what the others got otherwise than in the run without lies."""
        truth = self.truth
        # In lockstep a round waits for every device that was called, also for a silent one.
        last = max(played.opened, default=0) if played.silent else max(truth.opened)
        yield from _unequal("update", truth.honest, played.honest, last)
        yield from _unequal("opening", truth.opened, played.opened, last)
        calls = dict.fromkeys(truth.called), dict.fromkeys(played.called)
        yield from _unequal("call", *calls, last)
        # What follows from the liar's part in the model, or from its absence, is for it to decide.
        until: float = last
        moves = set(allowed)
        if self._depends_on_others():
            until = min(until, min(truth.liar ^ played.liar, default=math.inf) - 1)
            moves |= {Moves.WEIGHTS} if Moves.SHARE in allowed else set()
        if Moves.WEIGHTS not in moves:
            yield from _unequal("weight", truth.weights, played.weights, until)
        if Moves.SHARE not in moves:
            both = truth.liar & played.liar
            shares = _only(truth.shares, both), _only(played.shares, both)
            yield from _unequal("share", *shares, until)

    def _depends_on_others(self) -> bool:
        """Whether weights depend on earlier rounds: on who took part, or on the model."""
        return not self._scenario.server.aggregator.needs().isdisjoint(
            {Need.PARTICIPATION, Need.VALUATIONS, Need.SHARES, Need.LOSS, Need.NORM}
        )

    def _is_exact(self) -> bool:
        """Whether nothing but its own facts can change what an honest device's update comes to:
        neither the length of rounds nor who is called depends on the updates of others."""
        scenario = self._scenario
        return (
            scenario.clock.kind == "rounds"
            and not scenario.server.mode.counts_versions
            and not self._is_rational()
        )

    def _is_rational(self) -> bool:
        return any(pack.utility is not None for pack in self._programs.packs)


def _only(
    shares: Mapping[tuple[int, str], float], rounds: frozenset[int]
) -> Mapping[tuple[int, str], float]:
    return {key: share for key, share in shares.items() if key[0] in rounds}


def _unequal(
    what: str, truth: Mapping[Any, Any], played: Mapping[Any, Any], last: float
) -> Iterator[str]:
    """Yield the rounds up to `last` in which two runs differ."""
    for key in sorted(truth.keys() | played.keys()):
        round = key if isinstance(key, int) else key[0]
        old, new = truth.get(key, "none"), played.get(key, "none")
        if round <= last and old != (pytest.approx(new, rel=1e-9) if _is_number(new) else new):
            yield f"{what} {key}: {old}, now {new}"


def _is_number(value: object) -> bool:
    return isinstance(value, float)


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
                if any(
                    can_state(copy, place, value)
                    for value in place.values()[:1] + place.values()[-1:]
                ):
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


@pytest.mark.sampled(25)
@pytest.mark.parametrize("name", fleets())
def test_a_field_costs_nobody_else_anything(stage: Callable[[str], Stage], name: str) -> None:
    """Values of a field at their limits, one after the other; every field in `make soak`. A run has
    room for some values of a field, which are others in each fleet."""
    played, wrong, random = stage(name), [], Random(name)
    for place in played.places if SOAK else random.sample(played.places, played.sample):
        values = place.values()
        random.shuffle(values)
        wrong += played.wrong(Liar({place: values}))
    assert not wrong


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", fleets() if SOAK else sorted(fleets().keys() - {*RULES}))
def test_fields_together_cost_nobody_else_anything(
    stage: Callable[[str], Stage], name: str
) -> None:
    """Several fields at their limits, in the same message."""
    played, wrong, random = stage(name), [], Random(name)
    for _ in range(8 if SOAK else 1):
        chosen = random.sample(played.places, 6)
        left = {place: random.choices(place.values(), k=8) for place in chosen}
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
    left = {p: 4 * [stated[p.path[-1]]] for p in played.places if p.path[-1] in stated}
    assert len(left) == 2
    assert not played.wrong(Liar(left))


def test_every_field_that_a_device_may_send_is_walked(stage: Callable[[str], Stage]) -> None:
    """A field that is added to a message needs a fleet that sends it."""
    walked = {str(place) for name in fleets() for place in stage(name).places}
    unsent = {
        place
        for place in map(str, places())
        # Of muster verify, not of a run; updates that do not travel in chunks; and secure sums, of
        # which the server sees a lie only in the sum (docs/secure-aggregation.md).
        if place.startswith(("Probe.", "Submit.header.update.held.", "Attend.reply."))
    }
    assert {str(place) for place in places()} - walked == unsent


def test_every_influence_is_that_of_a_field() -> None:
    assert INFLUENCES.keys() <= {place.name for place in places()}


NEEDED = {
    "Update.examples": ("fedavg", 1),
    "Update.steps": ("fednova", 1),
    "Update.initial_loss": ("q-fedavg", 1e6),
    "Identity.z": ("calibrated", 0.7),
    "Answer.x": ("participation-ipw", 0.5),
}
"""Influences that show in lockstep: a fleet, and a possible value that is not the true one."""


@pytest.mark.parametrize("field", NEEDED)
def test_an_influence_that_is_listed_is_there(stage: Callable[[str], Stage], field: str) -> None:
    """And nothing is refused for it."""
    name, value = NEEDED[field]
    played = stage(name)
    ends = field.partition(".")[2], "value"
    named = [p for p in played.places if p.name == field and p.path[-1] in ends]
    left = {p: 99 * [value] for p in named if p.field.message_type is None}
    found = played.play(Liar(left))
    assert not found.warned
    moved = "\n".join(played.differences(found, set()))
    assert moved
    assert "update (" not in moved
    assert not list(played.differences(found, set(INFLUENCES[field].moves)))
