"""The fleet of the study `selection-by-network`: a town, and a valley behind one slow link.

Both are alike in everything that a server usually records: the number of devices, the distribution
of z1, z2 and load, and the speed. The valley's data differ, by `behind`, and its devices share a
link on which few of them are in time. Link, model and deadline are all small, so that a round takes
a tenth of a second. What matters is the duration of all transfers together as a share of the
deadline.

What the study does not ask about is the same with every seed, or varies little, so that few seeds
suffice: the effects of the covariates on the data are given, a device's data have no other noise,
and nine of ten devices are enrolled. If fewer were, the number of devices that share the link would
differ from seed to seed, and with it the share of late updates.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from muster.common.config import validate
from muster.emulator.scenario.scenario import Scenario
from muster.studies.fedipw.fleet import intercept

TOWN, VALLEY = "town", "valley"
EACH = 32
"""Number of devices in the town, and in the valley."""
DEADLINE_S = 0.08

_SHAPES = ["z1", "z2"]
_LINK = "behind"

_BY_LIFE = {"z": _SHAPES}
FEDIPW, IMPORTANCE, WITH_LINK = "fedipw", "importance", "fedipw + link"
RULES: Mapping[str, Mapping[str, Any]] = {
    "fedavg": {"kind": "fedavg"},
    "participation-ipw": {"kind": "participation-ipw", "participation": _BY_LIFE},
    FEDIPW: {"kind": "fedipw", "enrollment": _BY_LIFE, "participation": _BY_LIFE},
    "oracle-ipw": {"kind": "oracle-ipw"},
    IMPORTANCE: {"kind": "importance"},
    WITH_LINK: {
        "kind": "fedipw",
        "enrollment": _BY_LIFE,
        "participation": {"z": [*_SHAPES, _LINK]},
    },
}
"""The aggregation rules; only the last one knows which devices are behind the link."""

_DIMENSION = 64  # 256 bytes, which the valley's link carries there and back in 5.1 ms
_EFFECTS = {"z1": 4.0, "z2": 4.0, _LINK: 3.0}
"""Length of each covariate's effect on a device's θ_i; the effects are orthogonal."""
_STEPS, _RATE = 5, 0.04
_WORK_S, _WORK_SIGMA = 0.025, 0.5
ENROLLED, _TAKING_PART, _STRENGTH = 0.9, 0.42, 0.5

TOWN_GAP = _EFFECTS[_LINK] ** 2 / 2
"""The gap of the town's optimum if town and valley have the same z1 and z2 in the mean.

With f_i = ½‖θ − θ_i‖² it is half the squared distance to the middle between the optima of town and
valley, which are `behind` = -1 and 1 times the effect away from it.
"""


class Setting(NamedTuple):
    """The settings that differ between runs, apart from the rule.

    Attributes:
        deadline_s: the deadline; with None, the server waits for all devices.
        int8: whether the valley compresses its updates.
        called: number of devices that a round calls; None for all enrolled devices.
    """

    deadline_s: float | None = DEADLINE_S
    int8: bool = False
    called: int | None = None


DEADLINES_S = (0.064, 0.08, 0.096, 0.12)
"""The deadlines, of which `DEADLINE_S` is the one with which rules are compared."""


def deadline_name(deadline_s: float) -> str:
    return f"deadline {deadline_s:g} s"


INT8, HALF, LONGEST = "int8", "half called", deadline_name(DEADLINES_S[-1])
CHANGES: Mapping[str, Setting] = {
    INT8: Setting(int8=True),
    HALF: Setting(called=round(ENROLLED * EACH)),
    **{deadline_name(s): Setting(s) for s in reversed(DEADLINES_S) if s != DEADLINE_S},
}


def scenario(seed: int, rounds: int, rule: str, setting: Setting) -> Scenario:
    server: dict[str, Any] = {
        "rounds": rounds,
        "aggregator": dict(RULES[rule]),
        "deadline_s": setting.deadline_s,
    }
    if setting.called is not None:
        server["selection"] = {"kind": "uniform", "k": setting.called}
    valley: dict[str, Any] = {"shared_link": {"up": "500 kbit/s", "down": "2 Mbit/s"}}
    if setting.int8:
        valley["link"] = {"compression": {"kind": "int8"}}
    return validate(
        Scenario,
        {
            "name": "selection-by-network",
            "seed": seed,
            "task": {
                "name": "quadratic",
                "dimension": _DIMENSION,
                "condition": 1.0,
                "heterogeneity": 0.0,
                "covariates": _effects(),
            },
            "training": {
                "local_steps": _STEPS,
                "batch_size": "full",
                "learning_rate": _RATE,
            },
            "server": server,
            "groups": [
                _group(TOWN, -1.0, devices_per_process=EACH // 2),
                _group(VALLEY, 1.0, **valley),
            ],
        },
        "selection-by-network",
    )


def _effects() -> dict[str, list[float]]:
    """The effects of the covariates, each in a coordinate of its own."""
    return {
        name: [length if place == coordinate else 0.0 for place in range(_DIMENSION)]
        for coordinate, (name, length) in enumerate(_EFFECTS.items())
    }


def _group(name: str, behind: float, **more: Any) -> dict[str, Any]:
    each = _STRENGTH / math.sqrt(len(_SHAPES))
    slopes = dict.fromkeys(_SHAPES, each)
    return {
        "name": name,
        "count": EACH,
        "covariates": {
            "z": {**{z: {"kind": "normal"} for z in _SHAPES}, _LINK: behind},
            "x": {"load": {"kind": "normal"}},
        },
        "enrollment": {
            "kind": "logistic",
            "intercept": intercept(ENROLLED, _STRENGTH),
            "z": slopes,
        },
        "participation": {
            "willing": {
                "intercept": intercept(_TAKING_PART, _STRENGTH * math.sqrt(2)),
                "z": slopes,
                "x": {"load": _STRENGTH},
            }
        },
        "device": {
            "profile": "always-on",
            "examples_per_s": {
                "kind": "log-normal",
                "median": _STEPS * _DIMENSION / _WORK_S,
                "sigma": _WORK_SIGMA,
            },
        },
        **more,
    }
