"""Draws fleets: a rule with what it needs, and then one feature after the other that still fits.

What fits together is not repeated here: a feature is kept if the scenario with it is accepted.
"""

import copy
from collections.abc import Callable, Mapping
from random import Random
from types import MappingProxyType
from typing import Any

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.emulator.fleet.scenario_faults import ScenarioFaults
from muster.emulator.planning import server_view
from muster.emulator.scenario.population import population
from muster.emulator.scenario.scenario import Scenario
from muster.server.aggregators import BUILT_IN

Values = dict[str, Any]
"""Values of a scenario, or of one of its tables."""

LARGE = 17_000
"""Number of parameters of a model that does not fit into a message of Attend."""

LEFT_OUT: Mapping[str, str] = MappingProxyType(
    {"flower": "its strategy is an app of its own, and a process that the simulation does not have"}
)
"""The rules that are never drawn, each with the reason."""

RULES = tuple(rule for rule in BUILT_IN if rule not in LEFT_OUT)

_OFTEN = ("fedavg", "fedavg", "fedbuff", "fedbuff", "fedplt", "fedplt", "fedplt", "scaffold")
"""The rules that alone or best go with buffers, masks, and partial sums are drawn more often."""

_ATTEMPTS = 400
_SHARE = 0.3
"""The share of fleets in which a feature is tried."""

_OWN_SHARES: Mapping[str, float] = MappingProxyType(
    {"summed": 0.25, "slices": 0.15, "secure sums": 0.6, "noise in sums": 0.8}
)
"""The same of those that most fleets refuse."""

_SETTINGS: Mapping[str, Values] = MappingProxyType(
    {
        "krum": {"byzantine": 0},
        "multi-krum": {"byzantine": 0},
        "bulyan": {"byzantine": 0},
        "feduca": {"strategies": 2},
    }
)
"""Settings of rules in tiny fleets."""

_TRAINING: Mapping[str, Values] = MappingProxyType({"weighted": {"projection_radius": 10.0}})
"""Settings of local training that a rule needs."""

_DIGITS = {"name": "digits", "validation_ratio": 0.3}
_USUAL = {"learning_rate": 0.05, "local_steps": 1, "batch_size": 4}
_TASKS: list[tuple[Values, Values]] = [
    ({"name": "linear", "dimension": 3, "heterogeneity": 1.0, "examples_per_client": 8}, _USUAL),
    ({"name": "linear", "dimension": 3, "model": "mlp", "hidden": [6]}, _USUAL),
    (
        {"name": "linear", "dimension": LARGE, "examples_per_client": 4},
        {**_USUAL, "learning_rate": 1e-6},
    ),
    ({**_DIGITS, "partition": {"kind": "dirichlet", "alpha": 0.3}}, _USUAL),
    ({**_DIGITS, "model": "mlp", "hidden": [230]}, _USUAL),
]
"""Tasks, and the local training of each; the models of the third and the last are large."""


def drawn_fleet(number: int) -> Scenario:
    """The fleet of a number; the same number always gives the same fleet."""
    random = Random(f"fleet {number}")
    rule = (*RULES, *_OFTEN)[number % (len(RULES) + len(_OFTEN))]
    for _ in range(_ATTEMPTS):
        values = _backbone(random, rule)
        values |= {"name": f"fleet-{number}", "seed": number}
        if (scenario := _accepted(values)) is not None:
            break
    else:
        raise ConfigError(f"fleet {number}: all of {_ATTEMPTS} fleets with {rule} were refused")
    # From streams of their own, so that fleets without them stay as they were.
    for name, feature in _RARE.items():
        if (own := Random(f"{name} {number}")).random() < _OWN_SHARES[name]:
            more = copy.deepcopy(values)
            feature(own, more)
            if (accepted := _accepted(more)) is not None:
                values, scenario = more, accepted
    for feature in random.sample(FEATURES, len(FEATURES)):
        if random.random() < _SHARE:
            more = copy.deepcopy(values)
            feature(random, more)
            if (accepted := _accepted(more)) is not None:
                values, scenario = more, accepted
    return scenario


def _accepted(values: Values) -> Scenario | None:
    """The scenario of these values; None if it is refused."""
    try:
        scenario = validate(Scenario, values, "drawn")
        ScenarioFaults.of(scenario, population(scenario))
        server_view.require(scenario)
    except ConfigError:
        return None
    if scenario.server.secure is not None and any(group.mask for group in scenario.groups):
        # Every group trains a part of its own, which needs devices enough.
        if min(group.count for group in scenario.groups) < scenario.server.minimum:
            return None
    return scenario


# --- the rule and what it needs ------------------------------------------------------------------


def _backbone(random: Random, rule: str) -> Values:
    """Clock, mode, task, groups and who takes part. It may contain a contradiction."""
    task, training = random.choice(_TASKS)
    clock = random.choice(["rounds", "rounds", "modelled", "wall"])
    mode = random.choice(["synchronous", "opportunistic", "buffered", "buffered"])
    server: Values = {
        "rounds": random.randint(3, 6),
        "aggregator": {"kind": rule, **_SETTINGS.get(rule, {})},
        "mode": _mode(random, mode),
    }
    if clock == "wall":
        server |= {"deadline_s": random.choice([4.0, 5.0]), "heartbeat_s": 2.0}
    elif mode == "buffered":  # whose rounds never end if all updates are late
        server |= random.choice([{}, {}, {"deadline_s": 100.0}])
    elif mode == "opportunistic" or random.random() < 0.3:
        server["deadline_s"] = random.choice([1.5, 4.0, 10.0])
    rational, covariates = random.random() < 0.3, random.random() < 0.5
    masked = random.random() < 0.2
    groups = [_group(random, name) for name in ["near", "far"][: random.choice([1, 2, 2])]]
    for group in groups:
        if masked:
            _mask(random, group, task)
        if rational:
            group["participation"] = {"kind": "rational", "utility": _utility(random)}
        if covariates:
            group["covariates"] = {
                "z": {"age": {"kind": "uniform", "low": 0.0, "high": 1.0}},
                "x": {"load": {"kind": "uniform", "low": 0.0, "high": 1.0}},
            }
    if rule in ("weighted", "weighted-normalised"):
        devices = sum(group["count"] for group in groups)
        server["aggregator"]["p"] = [1 / devices] * devices
    return {
        "clock": {"kind": clock, "round_s": random.choice([1.0, 2.0])},
        "task": dict(task),
        "training": {**training, **_TRAINING.get(rule, {})},
        "server": server,
        "groups": groups,
    }


def _mode(random: Random, kind: str) -> Values:
    mode: Values = {"kind": kind}
    if kind != "synchronous":
        mode["max_staleness"] = random.choice([1, 2, 3, 20])
    if kind == "buffered":
        k = random.choice([1, 2, 3])
        mode |= {"k": k, "concurrency": k + random.choice([0, 1, 2])}
        mode["calls_at"] = random.choice(["version", "finish"])
    return mode


def _group(random: Random, name: str) -> Values:
    group: Values = {"name": name, "count": random.randint(1, 4), "device": {}, "link": {}}
    if random.random() < 0.7:
        group["device"]["examples_per_s"] = random.choice([0.5, 1, 4, 10])
    return group


def _utility(random: Random) -> Values:
    return random.choice(
        [{}, {"tolerance": 0.1, "forced_rounds": 3}, {"test": "fitted", "threshold": "weight"}]
    )


# --- features ------------------------------------------------------------------------------------


Feature = Callable[[Random, Values], None]
"""Adds a feature to the values of a scenario."""


def _of_group(table: str, *choices: Values) -> Feature:
    """A feature of one group: the choice goes into this table of it."""

    def feature(random: Random, values: Values) -> None:
        group = random.choice(values["groups"])
        group[table] = {**group.get(table, {}), **random.choice(choices)}

    return feature


def _of_part(part: str, *choices: Values) -> Feature:
    """A feature of the server or of training."""

    def feature(random: Random, values: Values) -> None:
        values[part] |= random.choice(choices)

    return feature


def _packs(random: Random, values: Values) -> None:
    random.choice(values["groups"])["devices_per_process"] = random.choice([2, 3])


def _partial_sums(random: Random, values: Values) -> None:
    random.choice(values["groups"]).update(devices_per_process=2, partial_sums=True, count=4)


def _summed(random: Random, values: Values) -> None:
    """Partial sums in rounds that they need, half of them on a clock on which processes may be
    lost."""
    group = random.choice(values["groups"])
    group.update(devices_per_process=random.choice([2, 4]), partial_sums=True, count=4)
    if random.random() < 0.5:
        speed = {"kind": "log-normal", "median": random.choice([1.0, 4.0]), "sigma": 1.0}
        group["device"]["examples_per_s"] = speed
    values["server"]["mode"] = {"kind": "synchronous"}
    if random.random() < 0.5:
        values["clock"]["kind"] = "wall"
        values["server"] |= {"deadline_s": random.choice([4.0, 5.0]), "heartbeat_s": 2.0}


def _slices(random: Random, values: Values) -> None:
    """Devices that download only the part of a model that they train."""
    values["task"], training = random.choice([task for task in _TASKS if "hidden" in task[0]])
    values["training"] |= training
    group = random.choice(values["groups"])
    group["device"]["capacity"] = random.choice([0.3, 0.5])
    schedule = random.choice(["rotating", "drawn"])
    group["mask"] = {"kind": "width", "schedule": schedule, "download": "slice"}


def _secure_sums(random: Random, values: Values) -> None:
    grids: list[Values] = [
        {},
        {"range": 1.0},
        {"range": 0.02, "bits": 9, "rounding": "stochastic"},
        {"range": 1.0, "plain": True},
    ]
    values["groups"][0]["count"] += 2
    for group in values["groups"]:
        if "mask" in group:  # one that all devices of the group have in common
            kind = "width" if "hidden" in values["task"] else "random"
            capacity = group["device"]["capacity"] if kind == "width" else 1.0
            group["device"]["capacity"] = capacity
            group["mask"] = {"kind": kind, "schedule": "rotating"}
            group["count"] += 2
    secure = {"drop_out": random.choice([0.1, 0.3]), **random.choice(grids)}
    values["server"] |= {"minimum": 3, "secure": secure}


def _noise_in_sums(random: Random, values: Values) -> None:
    """Noise of devices in the secure sums of a fleet that has some, on a grid that has room."""
    if "secure" not in values["server"]:
        return
    grids: list[Values] = [
        {"range": 1.0},
        {"range": 0.5, "bits": 12, "rounding": "stochastic"},
        {"range": 0.02, "bits": 9},
        {"range": 1.0, "plain": True},
    ]
    devices = sum(group["count"] for group in values["groups"])
    most = max(3, devices - 1)
    whom: list[Values] = [
        {},
        {"selection": {"kind": "uniform", "k": most}},
        {"goal": most, "deadline_s": 10.0},
    ]
    drop_out = values["server"]["secure"]["drop_out"]
    collusion = random.choice([0.0, 0.05, 0.3])
    values["server"] |= {
        "minimum": random.choice([3, 3, most]),
        "secure": {"drop_out": drop_out, "collusion": collusion, **random.choice(grids)},
        "privacy": {"clip": 0.1, "noise": random.choice([1.0, 0.3]), "where": "sum"},
        **random.choice(whom),
    }


_RARE: Mapping[str, Feature] = MappingProxyType(
    {
        "summed": _summed,
        "slices": _slices,
        "secure sums": _secure_sums,
        "noise in sums": _noise_in_sums,
    }
)


def _mask(random: Random, group: Values, task: Values) -> None:
    units = ["blocks", "width"] if "hidden" in task else []
    group["device"]["capacity"] = random.choice([0.3, 0.5])
    group["mask"] = {
        "kind": random.choice(["random", "random", "tensors", *units]),
        "schedule": random.choice(["rotating", "drawn"]),
    }


def _battery(random: Random, values: Values) -> None:
    """A battery, whose life takes hours: in lockstep, where they cost nothing."""
    if values["clock"]["kind"] == "wall":
        return
    group = random.choice(values["groups"])
    group["device"] = {**group["device"], "profile": random.choice(["phone", "tablet"])}
    values["clock"]["round_s"] = 1800.0


def _guard(random: Random, values: Values) -> None:
    """A limit that refuses some updates, perhaps all; versions that are counted need some."""
    if values["server"]["mode"]["kind"] != "buffered":
        values["server"]["guard"] = {"max_norm": random.choice([0.05, 1.0])}


def _enrollment(random: Random, values: Values) -> None:
    rule = {"kind": "logistic", "intercept": 1.0, "z": {"age": 1.0}}
    random.choice(values["groups"])["enrollment"] = rule


def _fault(random: Random, values: Values) -> None:
    """A fault inside devices, which is part of the undisturbed run."""
    what = random.choice(
        [
            {"do": kind}
            for kind in ("nan", "corrupt", "reordered", "duplicate", "replay", "offline", "unplug")
        ]
        + [{"do": "wrong-shape", "extra_bytes": 4}, {"do": "slow", "factor": 4.0}]
    )
    values["faults"] = [
        {
            **what,
            "name": "fault",
            "target": random.choice([{"count": 1}, {"percent": 50}]),
            "when": {"round": random.randint(1, 3)},
            "for_rounds": random.randint(1, 2),
        }
    ]


FEATURES: tuple[Feature, ...] = (
    _packs,
    _partial_sums,
    _battery,
    _enrollment,
    _fault,
    _of_group(
        "link",
        *(
            {"compression": codec}
            for codec in ({"kind": "top-k", "ratio": 0.4}, {"kind": "int8"}, {"kind": "float16"})
        ),
    ),
    _of_group("link", {"rtt": "20 ms"}, {"up": "64 kbit/s", "down": "64 kbit/s"}),
    _of_group(
        "shared_link",
        {"up": "16 kbit/s", "down": "32 kbit/s"},
        {"slots": 1, "overflow": "subset"},
        {"slots": 2, "overflow": "collide"},
    ),
    _of_group(
        "availability",
        {"kind": "bernoulli", "probability": 0.7},
        {"kind": "markov", "mean_up_s": 6.0, "mean_down_s": 3.0},
        {"kind": "markov", "mean_up_s": 6.0, "mean_down_s": 3.0, "absence": "close"},
        {"kind": "markov", "mean_up_s": 6.0, "mean_down_s": 3.0, "absence": "silent"},
    ),
    _of_group("participation", {"drop_out": 0.3}, {"willing": 0.7}),
    _of_group("training", {"local_steps": 4}),
    _of_group("covariates", {"x": {"lately": "recent"}}),
    _of_part("training", {"optimizer": {"kind": "sgd", "momentum": 0.9}}, {"proximal_mu": 0.1}),
    _of_part(
        "server",
        {"selection": {"kind": "uniform", "k": 2}},
        {"selection": {"kind": "uniform", "k": 2, "over_selection": 1.5}, "deadline_s": 10.0},
    ),
    _of_part("server", {"goal": 1}, {"goal": 2, "deadline_s": 10.0}, {"minimum": 2}),
    _of_part(
        "server",
        {"privacy": {"clip": 0.1, "noise": 1.0}},
        {"privacy": {"clip": 0.1, "noise": 1.0, "where": "device"}},
    ),
    _of_part("server", {"evaluate_every": 2}, {"evaluate_every": 3}),
    _of_part("server", {"transfers": 1}, {"transfers": 2}),
    _of_part("server", {"keep_updates": True}),
    _guard,
    _of_part("server", {"heartbeat_s": 2.0}, {"information": "limited"}),
)
"""Tried in an order that is drawn, so that none of them is always refused because of another."""
