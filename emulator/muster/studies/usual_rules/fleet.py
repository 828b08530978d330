"""The fleet of the study `usual-rules`: a group that always comes, and one that is seldom there.

The optima of the second group lie `APART` from those of the first, so whether a device can be
reached depends on its data. Its devices also take fewer local steps. Devices minimise quadratic
functions with exact gradients and curvatures of their own, so the mean over many local steps is
not a step towards the optimum of all.

Few seeds suffice, because exactly one device of the second group comes to a round: the numbers of
updates are the same in every round, and so are the weights of the groups. The seed decides which
device it is, the optima and the curvatures.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from muster.common.config import validate
from muster.emulator.scenario.scenario import Scenario

OFTEN, SELDOM = "often", "seldom"


class UsualGroup(NamedTuple):
    """A group of the fleet.

    Attributes:
        size: number of devices.
        steps: local steps of a device in a round.
        place: the value of the covariate that moves the devices' optima.
    """

    size: int
    steps: int
    place: float


GROUPS: Mapping[str, UsualGroup] = {OFTEN: UsualGroup(14, 4, 0.0), SELDOM: UsualGroup(6, 2, 1.0)}

ALL_COME, ONE_COMES, NONE_COME = "all come", "one of six comes", "none of six comes"
"""The parts: how many devices of the second group can be reached in a round."""
COME: Mapping[str, int] = {ALL_COME: 6, ONE_COMES: 1, NONE_COME: 0}
"""Part to the number of devices of the second group that come to each round."""

RATE = 0.2
"""The learning rate of the devices."""

# Chosen on the seeds 1 to 20. A curvature is from 1/2.5 to 1.
_DIMENSION, _CONDITION, _SCATTER, _APART = 8, 2.5, 0.3, 4.0

_LOOSE, _TIGHT = 20.0, 0.3
"""Bounds of the norm of an update: one that no update exceeds, and one that binds."""

FEDAVG, FEDNOVA, SCAFFOLD, ORACLE = "fedavg", "fednova", "scaffold", "oracle-ipw"
Q1, Q5, FEDADAM, FEDYOGI = "q-fedavg, q = 1", "q-fedavg, q = 5", "fedadam", "fedyogi"
MEDIAN, TRIMMED, KRUM, MULTI_KRUM, BULYAN = (
    "median", "trimmed-mean", "krum", "multi-krum", "bulyan",
)  # fmt: skip
NOISE, CLIPPING = "noise", "clipping"

_ADAPTIVE = {"rate": 0.5, "tau": 0.5}
"""The settings of `fedadam` and `fedyogi`."""

RULES: Mapping[str, Mapping[str, Any]] = {
    FEDAVG: {"aggregator": FEDAVG},
    FEDNOVA: {"aggregator": FEDNOVA},
    SCAFFOLD: {"aggregator": SCAFFOLD},
    Q1: {"aggregator": {"kind": "q-fedavg", "q": 1.0}},
    Q5: {"aggregator": {"kind": "q-fedavg", "q": 5.0}},
    FEDADAM: {"aggregator": {"kind": FEDADAM, **_ADAPTIVE}},
    FEDYOGI: {"aggregator": {"kind": FEDYOGI, **_ADAPTIVE}},
    MEDIAN: {"aggregator": MEDIAN},
    TRIMMED: {"aggregator": TRIMMED},
    KRUM: {"aggregator": KRUM},
    MULTI_KRUM: {"aggregator": MULTI_KRUM},
    BULYAN: {"aggregator": BULYAN},
    NOISE: {"aggregator": FEDAVG, "privacy": {"clip": _LOOSE, "noise": 0.025}},
    CLIPPING: {"aggregator": FEDAVG, "privacy": {"clip": _TIGHT, "noise": 0.0}},
    ORACLE: {"aggregator": ORACLE},
}
"""What is compared: the settings of the server. `noise` and `clipping` are the two halves of
privacy. The oracle knows how probable it is that a device comes."""


def scenario(seed: int, rounds: int, rule: str, part: str) -> Scenario:
    return validate(
        Scenario,
        {
            "name": "usual-rules",
            "seed": seed,
            "task": {
                "name": "quadratic",
                "dimension": _DIMENSION,
                "condition": _CONDITION,
                "heterogeneity": _SCATTER,
                "covariates": {"place": [_APART] + [0.0] * (_DIMENSION - 1)},
            },
            "training": {
                "learning_rate": RATE,
                "local_steps": GROUPS[OFTEN].steps,
                "batch_size": "full",
            },
            "server": {"rounds": rounds, **RULES[rule]},
            "groups": [_group(OFTEN), _group(SELDOM, **_coming(COME[part]))],
        },
        "usual-rules",
    )


def _group(name: str, **more: Any) -> dict[str, Any]:
    size, steps, place = GROUPS[name]
    return {
        "name": name,
        "count": size,
        "devices_per_process": size,
        "training": {"local_steps": steps},
        "covariates": {"z": {"place": place}},
        **more,
    }


def _coming(come: int) -> dict[str, Any]:
    """The settings with which so many devices of a group come; without any, all decline."""
    if come == 0:
        return {"participation": {"willing": 0.0}}
    return {"availability": {"kind": "k-of-n", "k": come}}
