"""A scenario with a number at one of its bounds is refused, or starts: what its processes are given
can be computed, sent and read, lives can be lived, and a round's learning can begin."""

import copy
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import numpy as np
import pytest
from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from muster.client.availability import AVAILABILITIES
from muster.client.life.device_settings import Battery, Charging, DeviceSettings, Use
from muster.client.life.participation import ParticipationSettings, UtilitySettings
from muster.client.life.settings import ClockSettings
from muster.client.processes.config import PackProcess
from muster.client.processes.nursery import prepare
from muster.client.training.local import train
from muster.client.training.optimizers import OPTIMIZERS
from muster.client.training.settings import Training
from muster.common.compression import CODECS
from muster.common.config import Section, validate
from muster.common.distributions import DISTRIBUTIONS
from muster.common.errors import ConfigError
from muster.common.plugins import Registry
from muster.common.schedules import SCHEDULES
from muster.emulator.fleet.packs import DeviceFolders
from muster.emulator.gateway.config import GatewayProcess
from muster.emulator.launch import doctor
from muster.emulator.launch.process_configs import ProcessConfigs
from muster.emulator.links.settings import LinkSettings
from muster.emulator.links.shared import SharedLink
from muster.emulator.planning import plan
from muster.emulator.planning.result import Learning
from muster.emulator.scenario.energy import EnergySettings
from muster.emulator.scenario.enrollment import ENROLLMENTS
from muster.emulator.scenario.scenario import Scenario
from muster.emulator.scenario.settings import Group, Launch
from muster.server.aggregators import AGGREGATORS
from muster.server.aggregators.estimation import ParticipationModel
from muster.server.knowledge.propensity import CLASSIFIERS
from muster.server.rounds.selection import SELECTIONS
from muster.server.settings.process import ServerProcess
from muster.server.settings.server import Guard, ServerSettings, Target
from muster.tasks.models import MODELS
from muster.tasks.partitions import PARTITIONS
from muster.tasks.parts import vector_of
from muster.tasks.sources import SOURCES
from muster.tasks.tasks import TASKS

BASE: dict[str, Any] = {
    "name": "ends",
    "task": {"name": "linear", "examples_per_client": 5},
    "training": {"local_steps": 1},
    "server": {"rounds": 2, "deadline_s": 5.0},
    "groups": [{
        "name": "a",
        "count": 2,
        "covariates": {"z": {"age": {"kind": "normal"}}, "x": {"load": {"kind": "uniform"}}},
    }],
}  # fmt: skip

PHONE = {"device": {"profile": "phone"}, "participation": {"require": ["charging", "idle"]}}
DIGITS = {"task": {"name": "digits", "model": "softmax", "partition": {"kind": "iid"}}}

RATIONAL: dict[str, Any] = {
    "task": {**DIGITS["task"], "validation_ratio": 0.5},
    "server": {"deadline_s": None},
    "groups": {"covariates": {}, "participation": {"kind": "rational"}},
}

REQUIRED: dict[tuple[str, str], dict[str, Any]] = {
    ("selection", "uniform"): {"k": 1},
    ("selection", "weighted"): {"k": 1},
    ("availability", "k-of-n"): {"k": 1},
    ("availability", "markov"): {"mean_up_s": 60.0, "mean_down_s": 60.0},
    ("availability", "bernoulli"): {"probability": 0.5},
    ("availability", "diurnal"): {"mean": 0.01},
    ("availability", "group-event"): {"probability": 0.5},
    ("availability", "logistic"): {"intercept": 0.0},
    ("distribution", "constant"): {"value": 1.0},
    ("distribution", "log-normal"): {"median": 1.0, "sigma": 0.5},
    ("distribution", "categorical"): {"values": ["a", "b"]},
    ("distribution", "uniform"): {"low": -1e12, "high": 1e12},
    ("enrollment", "bernoulli"): {"probability": 1.0},
    ("enrollment", "rule"): {"where": {"age": {"min": -1e12}}},
    ("learning-rate schedule", "constant"): {"initial": 0.1},
    ("learning-rate schedule", "exponential"): {"initial": 0.1},
    ("learning-rate schedule", "inverse"): {"initial": 0.1},
    ("learning-rate schedule", "inverse-sqrt"): {"initial": 0.1},
    ("partition", "assigned"): {"labels": [[0, 1], [2, 3]]},
    ("partition", "by-label"): {"labels_per_client": 10},
    ("aggregator", "weighted"): {"p": [0.5, 0.25, 0.25]},
    ("aggregator", "weighted-normalised"): {"p": [0.5, 0.25, 0.25]},
}
"""Settings of plug-ins, by noun and kind: all that have no default, and some that leave room for
the number under test. A plug-in that needs an entry and has none fails the first test."""

BESIDE: dict[tuple[str, str], dict[str, Any]] = {
    ("clock", "scale"): {"kind": "scaled", "round_s": 604_800.0},
    ("groups.0.availability", "beta"): {"form": "latent"},
    ("groups.0.availability", "tau_s"): {"form": "latent"},
    ("groups.0.availability", "weights"): {"k": 1},
    ("groups.0.device.battery", "taper"): {"taper_from": 0.0},
}
"""What stands beside a number so that it means something, by its table and its name."""

Place = tuple[str, dict[str, Any]]
"""Where a table stands in a scenario, dotted, and what else the scenario then has."""

TABLES: dict[type[Section], Place] = {
    Scenario: ("", {}),
    ClockSettings: ("clock", {"clock": {"kind": "wall"}}),
    Training: ("training", {"training": {}}),
    ServerSettings: ("server", {}),
    Target: ("server.target", {}),
    Guard: ("server.guard", {}),
    ParticipationModel: (
        "server.aggregator.participation",
        {"server": {"aggregator": {"kind": "fedipw"}}},
    ),
    Launch: ("launch", {}),
    Group: ("groups.0", {}),
    DeviceSettings: ("groups.0.device", {"groups": PHONE}),
    Battery: ("groups.0.device.battery", {"groups": PHONE}),
    EnergySettings: ("energy", {"groups": PHONE}),
    Charging: ("groups.0.device.charging", {"groups": PHONE}),
    Use: ("groups.0.device.use", {"groups": PHONE}),
    ParticipationSettings: ("groups.0.participation", {"groups": PHONE}),
    UtilitySettings: ("groups.0.participation.utility", RATIONAL),
    LinkSettings: ("groups.0.link", {}),
    SharedLink: ("groups.0.shared_link", {}),
}
PLUG_INS: list[tuple[Registry[Any], Place]] = [
    (TASKS, ("task", {})),
    (MODELS, ("task.model", DIGITS)),
    (PARTITIONS, ("task.partition", DIGITS)),
    (SOURCES, ("task.source", DIGITS)),
    (OPTIMIZERS, ("training.optimizer", {})),
    (SCHEDULES, ("training.learning_rate", {})),
    (SELECTIONS, ("server.selection", {})),
    (AGGREGATORS, (
        "server.aggregator",
        # Three devices, because krum and bulyan need as many updates.
        {"training": {"projection_radius": 100.0}, "groups": {"count": 3}},
    )),
    (CLASSIFIERS, (
        "server.aggregator.participation.classifier", {"server": {"aggregator": {"kind": "fedipw"}}}
    )),
    (DISTRIBUTIONS, ("groups.0.covariates.z.more", {})),
    (DISTRIBUTIONS, ("groups.0.covariates.x.more", {})),
    (DISTRIBUTIONS, ("groups.0.device.examples_per_s", {"groups": PHONE})),
    (DISTRIBUTIONS, ("groups.0.device.time_zone", {"groups": PHONE})),
    (DISTRIBUTIONS, ("groups.0.device.battery.initial", {"groups": PHONE})),
    (ENROLLMENTS, ("groups.0.enrollment", {})),
    (AVAILABILITIES, ("groups.0.availability", {"groups": PHONE})),
    (CODECS, ("groups.0.link.compression", {})),
]  # fmt: skip

FILES = {
    "file", "trace", "20news", "cifar10", "fashion-mnist", "mnist", "shakespeare", "uci-har",
    "lstm", "flower", "own", "own-regression", "csv", "datasets", "folder", "npz",
    "parquet", "pickled",
}  # fmt: skip
"""Kinds that need files. An app of Flower is a folder. An lstm reads texts, and all texts are
files."""

TOO_LONG = {
    ("groups.0", "count"): "tests/unit/population computes a population of so many",
    ("server", "rounds"): "no run and no plan is so long",
    ("training", "local_steps"): "so many steps take minutes",
    ("training", "local_epochs"): "so many epochs take minutes",
}
"""Upper bounds that are only read here."""


def bounds_of(annotation: Any, metadata: list[Any], wrap: Callable[[Any], Any]) -> Iterator[Any]:
    """The values at both ends of every number of an annotation, in the lists it stands in."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        spread = [m for e in args[1:] for m in (e.metadata if isinstance(e, FieldInfo) else [e])]
        yield from bounds_of(args[0], metadata + spread, wrap)
    elif origin in (Union, UnionType):
        for part in args:
            yield from bounds_of(part, metadata, wrap)
    elif origin is list:
        yield from bounds_of(args[0], [], lambda value: wrap([value]))
    elif origin is dict:
        yield from bounds_of(args[1], [], lambda value: wrap({"age": value}))
    elif annotation is int or annotation is float:
        for mark in metadata:
            value = _end(mark, annotation)
            if value is not None:
                yield wrap(value)


def _end(mark: Any, kind: type) -> Any:
    bound: Any
    step = 1 if kind is int else None
    if isinstance(mark, Ge):
        return mark.ge
    if isinstance(mark, Le):
        return mark.le
    if isinstance(mark, Gt):
        bound = mark.gt
        return bound + step if step else float(np.nextafter(bound, np.inf))
    if isinstance(mark, Lt):
        bound = mark.lt
        return bound - step if step else float(np.nextafter(bound, -np.inf))
    return None


def places() -> Iterator[tuple[type[Section], str, dict[str, Any], dict[str, Any]]]:
    """Every table: its class, where it is, what stands in it, and what else the scenario has."""
    for table, (path, more) in TABLES.items():
        yield table, path, {}, more
    for registry, (path, more) in PLUG_INS:
        key = "name" if registry is TASKS else "kind"
        for kind, plug_in in registry.built_in.items():
            # Only a covariate Z may be a word, or looked up by position.
            fits = kind not in ("categorical", "position") or path == "groups.0.covariates.z.more"
            if kind not in FILES and fits:
                needed = REQUIRED.get((registry.noun, kind), {})
                # These refuse what the other aggregators share.
                refusing = kind in ("fednova", "scaffold")
                for_rational = getattr(plug_in, "announces", False)
                beside = RATIONAL if for_rational else {} if refusing else more
                yield plug_in, path, {key: kind, **needed}, beside


def cases() -> Iterator[Any]:
    for table, path, inside, more in places():
        for name, field in table.model_fields.items():
            key = field.alias or name
            ends = bounds_of(field.annotation, field.metadata, partial(_shaped, key))
            for value in {repr(value): value for value in ends}.values():
                kind = inside.get("kind") or inside.get("name") or ""
                full = {**inside, **BESIDE.get((path, key), {}), key: value}
                yield pytest.param(path, full, more, id=f"{path}-{kind}-{key}={value!r}")


def _shaped(key: str, value: Any) -> Any:
    """A value in a list or a table as long as the base scenario needs it."""
    match key, value:
        case "covariates", {"age": [number]}:
            return {"age": [number] * 10}
        case "x", {"age": number}:
            return {"load": number}
        case "weights" | "labels", [value]:
            return [value, value]
        case "p", [value]:
            return [value, 1 - value, 0]
        case (("down" | "up"), _):
            return f"{value} bit/s"
        case (("rtt" | "jitter" | "fading_time" | "fading_step"), _):
            return f"{value} s"
    return value


def scenario_with(path: str, table: dict[str, Any], more: dict[str, Any]) -> Scenario:
    """The base scenario with other sections, and a table somewhere in it."""
    place: Any
    values = copy.deepcopy(BASE)
    for key, section in copy.deepcopy(more).items():
        place = values["groups"][0] if key == "groups" else values.setdefault(key, {})
        if key == "task":
            place.clear()
        place.update(section)
    place = values
    *above, last = path.split(".") if path else [""]
    for part in above:
        place = place[0] if part == "0" else place.setdefault(part, {})
    if path.endswith(".0") or not path:
        place = place[0] if path else place
        place.update(table)
    elif isinstance(place.get(last), dict) and not {"kind", "name"} & table.keys():
        place[last].update(table)
    else:
        place[last] = table
    return validate(Scenario, values, "ends")


def start(scenario: Scenario, folder: Path) -> None:
    """What a run does before its first round, and the learning of one device, in this process."""
    doctor.require(scenario)
    blueprint = ProcessConfigs(scenario, folder)
    task = blueprint.task.open(scenario.devices, scenario.seed)
    prepared = prepare(task, folder, {})
    server = ServerProcess.from_json(blueprint.server(prepared).to_json())
    for gateway in blueprint.gateways(everywhere=False):
        GatewayProcess.from_json(gateway.to_json())
    for pack in blueprint.packs(
        server, "127.0.0.1:1", lambda group: None, DeviceFolders(str(folder), "")
    ):
        PackProcess.from_json(pack.to_json())
    module = task.module()
    plan(scenario, Learning(task.examples, len(vector_of(module))))
    training: Training = scenario.training
    with np.errstate(all="ignore"):  # a rate of a million makes no number
        train(
            task,
            module,
            vector_of(module),
            task.client(0),
            training,
            seed=scenario.seed,
            client="a-0000",
            round=1,
            base_version=0,
        )


@pytest.mark.parametrize(
    ("path", "table", "more"),
    [
        pytest.param(path, inside, more, id=f"{path}-{kind.__name__}")
        for kind, path, inside, more in places()
    ],
)
def test_a_table_without_a_number_at_its_bound_is_accepted(
    path: str, table: dict[str, Any], more: dict[str, Any]
) -> None:
    # Otherwise the next test would pass for every number of the table, because all are refused.
    doctor.require(scenario_with(path, table, more))


@pytest.mark.slow
@pytest.mark.parametrize(("path", "table", "more"), list(cases()))
def test_a_scenario_with_a_number_at_its_bound_is_refused_or_starts(
    path: str, table: dict[str, Any], more: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "setup").mkdir()
    with suppress(ConfigError):
        scenario = scenario_with(path, table, more)
        if not any(key in table and table[key] != 1 for place, key in TOO_LONG if place == path):
            start(scenario, tmp_path)
