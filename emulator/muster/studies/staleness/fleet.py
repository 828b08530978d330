"""The fleets of the study `staleness`: fast devices, and fewer slow ones whose data may differ.

Devices minimise quadratic functions of curvature 1, f_i(θ) = ½‖θ − θ_i‖², with exact gradients.
Those of slow devices lie `apart` from the others. Therefore the limit of a method is Σ p_i θ_i,
where p_i is the share of the weight that device i has in the long run, and its gap is known.

The time of a quadratic's round is modelled: a fast device needs about one second.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from muster.common.config import validate
from muster.emulator.scenario.scenario import Scenario

FAST, SLOW = "fast", "slow"
DEVICES, SLOW_DEVICES = 40, 8
SHARE = SLOW_DEVICES / DEVICES
"""The slow devices' share of the population."""

AT_ONCE = 20
"""Devices that work at a time, in every method."""
EXTRA = 6
"""Devices that an over-selected round calls beyond its goal, which is `AT_ONCE`."""

SYNCHRONOUS, OVER_SELECTED, OPPORTUNISTIC, BUFFERED, FEDASYNC, FEDVARP, MIFA = (
    "synchronous", "over-selected", "opportunistic", "buffered", "fedasync", "fedvarp", "mifa",
)  # fmt: skip

APART, SLOWNESS = 5.0, 10.0
"""The distance of the slow devices' optimum from the others', and how much longer they work, unless
a part changes it."""

_DIMENSION = 8
_SCATTER = 0.3
_STEPS, _RATE, _WORK_SIGMA = 5, 0.04, 0.3
WINDOW_S = 1.5
"""Scenario seconds of a round in the opportunistic mode. Most fast devices finish within it."""


PROCESSORS, LINKS, LIVES = "processors", "links", "lives"
"""The worlds. processors: slow devices compute slowly, and nothing else happens. links: they
compute as fast as the others, but behind a slow link. lives: as processors, but a fast device works
for two minutes, and all are phones with a battery."""

# A model or update of 32 bytes takes 26 ms, and a fast device trains for 5 ms.
_SLOW_LINK = {"up": "10 kbit/s", "down": "10 kbit/s"}


class World(NamedTuple):
    """The seconds of a world.

    Attributes:
        work_s: median seconds for which a fast device trains.
        round_s: seconds of a step of device life, and of a round in the synchronous mode.
        deadline_s: the deadline of the synchronous mode.
    """

    work_s: float
    round_s: float
    deadline_s: float | None = None


_WORLDS = {
    PROCESSORS: World(1.0, WINDOW_S),
    LINKS: World(0.005, WINDOW_S),
    LIVES: World(120.0, 1800.0, 1800.0),
}


class StalenessSetting(NamedTuple):
    """The settings that differ between runs, apart from the method.

    Attributes:
        apart: the distance of the slow devices' optimum from that of the fast ones.
        slowness: how much longer a slow device works than a fast one.
        at_once: number of devices that work at a time.
        exponent: exponent of the staleness weight; 0 for a constant weight.
        max_staleness: the largest staleness with which an update counts.
        world: why slow devices are slow, and whether devices have lives.
        calls_at: when the buffered mode calls devices.
        k: updates that make a version; None: half as many as devices that work at a time.
        steps: local steps of a device in a round, which take as long as the usual ones.
    """

    apart: float = APART
    slowness: float = SLOWNESS
    at_once: int = AT_ONCE
    exponent: float = 0.0
    max_staleness: int = 1000
    world: str = PROCESSORS
    calls_at: str = "version"
    k: int | None = None
    steps: int = _STEPS


def fast_gap(apart: float = APART) -> float:
    """The gap of the fast devices' optimum: the loss over all devices there, above the least.

    The optimum of all lies `SHARE` of the way from that of the fast devices to that of the slow.
    """
    return (SHARE * apart) ** 2 / 2


def predicted_gap(weight: float) -> float:
    """The gap, as a share of `fast_gap`, of a model in which slow devices weigh `weight`."""
    return (1 - weight / SHARE) ** 2


def _stale(setting: StalenessSetting) -> dict[str, Any]:
    weight = (
        {"kind": "polynomial", "exponent": setting.exponent} if setting.exponent else "constant"
    )
    return {"max_staleness": setting.max_staleness, "staleness_weight": weight}


def _buffered(setting: StalenessSetting, k: int) -> dict[str, Any]:
    calls = {"concurrency": setting.at_once, "calls_at": setting.calls_at}
    return {"kind": "buffered", "k": k, **calls, **_stale(setting)}


def server_of(method: str, setting: StalenessSetting) -> dict[str, Any]:
    """The `[server]` table of a method. Rules that remember updates get opportunistic rounds."""
    uniform = {"kind": "uniform", "k": setting.at_once}
    opportunistic = {
        "selection": uniform,
        "deadline_s": WINDOW_S,
        "mode": {"kind": "opportunistic", **_stale(setting)},
    }
    tables: dict[str, dict[str, Any]] = {
        SYNCHRONOUS: {"selection": uniform, "deadline_s": _WORLDS[setting.world].deadline_s},
        OVER_SELECTED: {
            "selection": {"kind": "uniform", "k": setting.at_once + EXTRA},
            "goal": setting.at_once,
        },
        OPPORTUNISTIC: opportunistic,
        FEDVARP: {**opportunistic, "aggregator": "fedvarp"},
        MIFA: {**opportunistic, "aggregator": {"kind": "mifa", "start": "zero"}},
        BUFFERED: {
            "mode": _buffered(setting, setting.k or setting.at_once // 2),
            "aggregator": "fedbuff",
        },
        FEDASYNC: {
            "mode": _buffered(setting, 1),
            "aggregator": {"kind": "fedasync", "alpha": 2 / setting.at_once},
        },
    }
    return tables[method]


METHODS = (SYNCHRONOUS, OVER_SELECTED, OPPORTUNISTIC, BUFFERED, FEDASYNC)
"""The methods that are compared with data alike."""

REMEMBERING = (FEDVARP, MIFA)
"""The methods that remember the last update of every device; compared with data apart."""


def scenario(
    seed: int, method: str, rounds: int, setting: StalenessSetting, evaluate_every: int = 1
) -> Scenario:
    effects = {"slow": [setting.apart, *[0.0] * (_DIMENSION - 1)]}
    world = _WORLDS[setting.world]
    server = {"evaluate_every": evaluate_every, "evaluate_groups": True}
    table = {
        "clock": {"kind": "rounds", "round_s": world.round_s, "starts_at_h": 20.0},
        "task": {
            "name": "quadratic",
            "dimension": _DIMENSION,
            "condition": 1.0,
            "heterogeneity": _SCATTER,
            "covariates": effects,
        },
        "training": {"local_steps": setting.steps, "batch_size": "full", "learning_rate": _RATE},
        "server": {"rounds": rounds, **server, **server_of(method, setting)},
        "groups": [
            _group(name, count, setting, setting.steps * _DIMENSION)
            for name, count in ((FAST, DEVICES - SLOW_DEVICES), (SLOW, SLOW_DEVICES))
        ],
    }
    return _validated(seed, table)


def pictures(seed: int, method: str, rounds: int, every: int, data: str | None) -> Scenario:
    """Softmax regression on digits, of which every device has its own mixture of classes.

    Args:
        data: the data directory, for MNIST; None for scikit-learn's digits.
    """
    examples = (60_000 if data else 1_437) / DEVICES
    server = {"rounds": rounds, "evaluate_every": every}
    return _pictures(seed, method, {"kind": "dirichlet", "alpha": 0.3}, examples, server, data)


def linked_pictures(seed: int, method: str, rounds: int, data: str | None) -> Scenario:
    """The same, but fast devices hold the digits 0 to 7, and slow ones 8 and 9."""
    examples = 500 if data else 24
    labels = [[*range(8)]] * (DEVICES - SLOW_DEVICES) + [[8, 9]] * SLOW_DEVICES
    partition = {"kind": "assigned", "labels": labels, "examples_per_client": examples}
    server = {"rounds": rounds, "evaluate_groups": True}
    return _pictures(seed, method, partition, examples, server, data)


def _pictures(
    seed: int,
    method: str,
    partition: Mapping[str, Any],
    examples: float,
    server: Mapping[str, Any],
    data: str | None,
) -> Scenario:
    """The speed is such that the mean fast device, which has so many examples, works a second."""
    task = {"name": "mnist", "data": {"directory": data}} if data else {"name": "digits"}
    setting = StalenessSetting()
    table = {
        "clock": {"kind": "rounds", "round_s": WINDOW_S},
        "task": {**task, "model": "softmax", "partition": dict(partition)},
        "training": {"local_epochs": 1, "batch_size": 32, "learning_rate": 0.05},
        "server": {**server, **server_of(method, setting)},
        "groups": [
            _group(name, count, setting, examples)
            for name, count in ((FAST, DEVICES - SLOW_DEVICES), (SLOW, SLOW_DEVICES))
        ],
    }
    return _validated(seed, table)


def _validated(seed: int, table: Mapping[str, Any]) -> Scenario:
    return validate(Scenario, {"name": "staleness", "seed": seed, **table}, "staleness")


def _group(name: str, count: int, setting: StalenessSetting, examples: float) -> Mapping[str, Any]:
    """A group whose fast devices see so many examples in a round of their work."""
    slow, by_link = name == SLOW, setting.world == LINKS
    slowness = setting.slowness if slow and not by_link else 1.0
    speed = examples / _WORLDS[setting.world].work_s / slowness
    return {
        "name": name,
        "count": count,
        # A pack would fetch the model once for all its devices.
        "devices_per_process": 1 if slow and by_link else count,
        "covariates": {"z": {"slow": float(slow)}},
        "device": {
            "profile": "phone" if setting.world == LIVES else "always-on",
            "examples_per_s": {"kind": "log-normal", "median": speed, "sigma": _WORK_SIGMA},
        },
        **({"link": _SLOW_LINK} if slow and by_link else {}),
    }
