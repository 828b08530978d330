"""Scenarios that combine features, each on a tiny fleet."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.emulator.scenario.combinations import combination_refusals
from muster.emulator.scenario.contradictions import mode_refusals
from muster.emulator.scenario.fault_refusals import fault_refusals
from muster.emulator.scenario.scenario import Scenario
from muster.emulator.scenario.settings import ScenarioSettings
from muster.server.aggregators import BUILT_IN
from muster.tasks.classification import Digits

_BUFFERED = {"kind": "buffered", "k": 2, "concurrency": 4}

_TOP_K = {"kind": "top-k", "ratio": 0.1}

_PRIVACY = {"clip": 0.5, "noise": 0.1}

_DIGITS = {"name": "digits", "model": "softmax", "validation_ratio": 0.25}

_FAULT = {"name": "fault", "when": {"round": 1}}

AXES: Mapping[str, Mapping[str, Any]] = {
    "rule": {kind: kind for kind in BUILT_IN},
    "mode": {
        "synchronous": "synchronous",
        "opportunistic": "opportunistic",
        "buffered": _BUFFERED,
        "alike": {**_BUFFERED, "staleness_weight": "constant"},
    },
    "mask": {"none": None, "random": {"kind": "random"}},
    "codec": {"none": "none", "quantised": "int8", "top-k": _TOP_K},
    "sums": {"no": False, "sums": True},
    "privacy": {
        "none": None,
        "server": {**_PRIVACY, "where": "server"},
        "device": {**_PRIVACY, "where": "device"},
    },
    "participation": {"compliant": "compliant", "rational": "rational"},
}
"""What the walk combines: the choices of every axis, by name."""

MORE: Mapping[str, Mapping[str, Any]] = {
    **AXES,
    "optimizer": {
        "sgd": "sgd",
        "momentum": {"kind": "sgd", "momentum": 0.9},
        "adam": "adam",
    },
    "gradient": {"no": False, "gradient": True},
    "proximal": {"no": 0.0, "proximal": 0.1},
    "keep": {"no": False, "keep": True},
    "together": {"one": 1, "two": 2},
    "selection": {"all": "all", "uniform": {"kind": "uniform", "k": 3}},
    "clock": {"rounds": "rounds", "modelled": "modelled"},
    "task": {
        "digits": _DIGITS,
        "linear": {
            "name": "linear",
            "dimension": 3,
            "model": {"kind": "linear", "bias": True},
        },
        "app": {"name": f"{__name__}:HostedDigits"},
    },
    "parts": {
        "none": None,
        "frozen": {"frozen": ["output.bias"]},
        "local": {"local": ["output.bias"]},
    },
    "link": {
        "none": {},
        "rates": {"link": {"up": "1 Mbit/s", "down": "1 Mbit/s"}},
        "shared": {"shared_link": {"up": "1 Mbit/s"}},
        "slots": {"shared_link": {"slots": 2, "overflow": "collide"}},
    },
    "availability": {"always": "always", "half": {"kind": "bernoulli", "probability": 0.5}},
    "training": {
        "plain": {},
        "clipped": {"clip_update": 1.0},
        "noisy": {"clip_update": 1.0, "update_noise": 0.1},
        "projected": {"projection_radius": 10.0},
        "control": {"control_variates": True},
    },
    "server": {
        "plain": {},
        "limited": {"information": "limited"},
        "minimum": {"minimum": 2},
        "deadline": {"deadline_s": 30.0},
        "goal": {"goal": 2},
        "guarded": {"guard": {"max_norm": 0.5}},
        "groups": {"evaluate_groups": True},
        "devices": {"evaluate_devices": True},
        "on devices": {"evaluate_on": "devices"},
        "both": {"evaluate_on": "both"},
    },
    "faults": {
        "none": [],
        "slow": [_FAULT | {"do": {"kind": "slow", "factor": 2.0}}],
        "corrupt": [_FAULT | {"do": "corrupt"}],
        "label-flip": [_FAULT | {"do": "label-flip"}],
    },
}
"""Also the axes of which the walk tries only a drawn part."""

Choice = Mapping[str, str]
"""A choice on every axis, by names; an axis that is absent has its first choice."""


class HostedDigits(Digits):
    """Stands for an app, whose combinations are refused or not. It cannot be played."""

    hosted: ClassVar[bool] = True


class Combined(NamedTuple):
    """A combination, and what is said of it before anything starts.

    Attributes:
        refusals: the sentences of the table, of the rule, of the mode, of faults, or of a single
            section.
        others: what the scenario is refused for and these sentences do not say, and what the table
            says and it is not refused for; nothing should be.
        scenario: None if it is refused.
    """

    refusals: list[str]
    others: list[str]
    scenario: Scenario | None


def every_choice() -> Iterator[Choice]:
    """Yield all combinations of `AXES`."""
    for names in itertools.product(*AXES.values()):
        yield dict(zip(AXES, names, strict=True))


def combined(choice: Choice) -> Combined:
    """The scenario of a combination, as far as it exists."""
    table = _table(choice)
    try:
        settings = validate(ScenarioSettings, table, "combined")
    except ConfigError as error:  # a table that contradicts itself
        return Combined([str(error)], [], None)
    rule = settings.server.aggregator
    of_table = list(combination_refusals(settings))
    refusals = [
        *of_table,
        *(f"server.aggregator: {why}" for why in rule.refusals(settings.conditions)),
        *mode_refusals(settings, settings.devices),
        *fault_refusals(settings),
    ]
    try:
        return Combined(refusals, [], validate(Scenario, table, "combined"))
    except ConfigError as error:
        said = {line.strip() for line in str(error).splitlines()[1:]}
    unknown, unsaid = said.difference(refusals), set(of_table).difference(said)
    return Combined(refusals, sorted(unknown | unsaid), None)


def _table(choice: Choice) -> dict[str, Any]:
    chosen = {axis: named[choice.get(axis, next(iter(named)))] for axis, named in MORE.items()}
    rule = {"kind": chosen["rule"]}
    weighted = chosen["rule"] in ("weighted", "weighted-normalised")
    server = {
        "rounds": 2,
        "aggregator": {**rule, "p": [0.25] * 4} if weighted else rule,
        "mode": chosen["mode"],
        "selection": chosen["selection"] if "buffered" not in str(chosen["mode"]) else "all",
        "keep_updates": chosen["keep"],
        "evaluate_every": 2,
        **chosen["server"],
    }
    task = chosen["task"]
    if chosen["parts"] is not None:
        task = {**task, "parts": chosen["parts"]}
        if "local" in chosen["parts"]:
            server = {"evaluate_on": "both", **server}
    if chosen["privacy"] is not None:
        server["privacy"] = chosen["privacy"]
    steps = {} if chosen["task"] == MORE["task"]["app"] else {"local_steps": 2, "batch_size": 4}
    training = {
        **steps,
        "gradient": chosen["gradient"],
        "optimizer": chosen["optimizer"],
        "proximal_mu": chosen["proximal"],
        "together": chosen["together"],
        **chosen["training"],
    }
    if chosen["rule"] == "weighted":
        training["projection_radius"] = 10.0
    return {
        "name": "combined",
        "seed": 3,
        "clock": {"kind": chosen["clock"]},
        "task": task,
        "training": training,
        "server": server,
        "groups": [_group(chosen)],
        "faults": chosen["faults"],
    }


def _group(chosen: Mapping[str, Any]) -> dict[str, Any]:
    links = dict(chosen["link"])
    group = {
        "name": "dev",
        "count": 4,
        "devices_per_process": 1 if links else 2,
        "availability": chosen["availability"],
        "partial_sums": chosen["sums"],
        "participation": {"kind": chosen["participation"]},
        "device": {"capacity": 0.5, "examples_per_s": 10.0},
        "link": {"compression": chosen["codec"], **links.pop("link", {})},
        **links,
        "covariates": {
            "z": {"age": {"kind": "uniform", "low": 0.0, "high": 1.0}},
            "x": {"load": {"kind": "uniform", "low": 0.0, "high": 1.0}},
        },
    }
    if chosen["mask"] is not None:
        group["mask"] = chosen["mask"]
    return group
