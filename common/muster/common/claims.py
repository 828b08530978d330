"""What a device can move for the others by what it states about itself.

Everything that a device states has bounds, which the server checks when it arrives. Within them a
few fields move more than the device's own update, because a rule weighs updates by them or because
modelled durations are stated. These fields are listed here, and no other field may: a test changes
every field of every message that a device sends, and compares what the other devices get.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from muster.common.exchange import LARGEST_UTILITY
from muster.common.facts import LARGEST_FLOAT32


class Moves(StrEnum):
    """What a statement of one device may move for the others."""

    SHARE = "its share"
    """How much its update counts beside those of the others."""

    WEIGHTS = "weights of others"
    """How the updates of the others are weighed among each other."""

    COUNTED = "which updates count"
    TIME = "when rounds begin"


class Influence(NamedTuple):
    """The influence of a field on other devices.

    Attributes:
        when: the features with which it has one.
        limit: what limits it.
    """

    moves: frozenset[Moves]
    when: str
    limit: str


def _moving(when: str, limit: str, *moves: Moves) -> Influence:
    return Influence(frozenset(moves), when, limit)


_X = _moving(
    "`participation-ipw`, `fedipw`, `calibrated`, `oracle-ipw`",
    "the range of the scenario's distribution, or of the device's quantity",
    Moves.SHARE,
    Moves.WEIGHTS,
)
_WORK_S = _moving(
    "a goal or a deadline in lockstep, the clock `modelled`",
    "the shortest and the longest duration of the device's work",
    Moves.COUNTED,
    Moves.TIME,
)
_CURVE = _moving(
    "`feduca`, `max-participation`",
    f"±{LARGEST_UTILITY:g}, a > 0",
    Moves.SHARE,
    Moves.WEIGHTS,
    Moves.COUNTED,
)
_LOSS = _moving(
    "`incfl`, `aaggff-s`",
    f"±`server.guard.max_loss`; without it ±{LARGEST_UTILITY:g}",
    Moves.SHARE,
    Moves.WEIGHTS,
    Moves.COUNTED,
)
_HELD = _moving(
    "`groups.partial_sums`", "`server.guard.max_norm`; the range of an exact sum", Moves.SHARE
)

INFLUENCES: Final[Mapping[str, Influence]] = MappingProxyType(
    {
        "DeviceMessage.bodies": _moving(
            "all rules; robust ones choose by them",
            "`server.guard.max_norm`; the range of an exact sum",
            Moves.SHARE,
            Moves.WEIGHTS,
        ),
        "Update.examples": _moving(
            "rules that weigh by examples", "1 to the device's number in the scenario", Moves.SHARE
        ),
        "Update.steps": _moving(
            "`fednova`", "1 to the most steps of the device's training", Moves.SHARE
        ),
        "Update.initial_loss": _moving(
            "`q-fedavg`",
            f"0 to `server.guard.max_loss`; without it {LARGEST_FLOAT32:.2g}",
            Moves.SHARE,
        ),
        "HeldUpdate.largest": _HELD,
        "HeldUpdate.squared_norm": _HELD,
        "Answer.modelled_s": _WORK_S,
        "Update.modelled_s": _WORK_S,
        "Identity.z": _moving(
            "`calibrated`",
            "the range in the population; what was known or told first stays",
            Moves.SHARE,
            Moves.WEIGHTS,
        ),
        "Answer.x": _X,
        "Observation.x": _X,
        "Foreseen.x": _X,
        "Valuation.received_loss": _LOSS,
        "Valuation.own_loss": _LOSS,
        "Valuation.curve": _CURVE,
        "UtilityCurve.a": _CURVE,
        "UtilityCurve.b": _CURVE,
        "UtilityCurve.c": _CURVE,
        "UtilityCurve.threshold": _CURVE,
    }
)
"""The fields that move something for other devices, by message and field."""
