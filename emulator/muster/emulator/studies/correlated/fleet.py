"""The fleet of the study `correlated`: three places, and devices that see the same things there.

Ten devices in groups of 3, 4 and 3. Something happens in a group or not, and only where it does are
its devices there, nearly all of them at once. Devices return gradients (FedSGD).
"""

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from muster.common.config import validate
from muster.emulator.fleet.closed_forms import EventGroup, shares_of_groups
from muster.emulator.scenario.scenario import Scenario

SIZES = (3, 4, 3)
EVENTS = (0.3, 0.6, 0.3)
"""Pr(E_g = 1) by group."""
DEVICE_PROBABILITY = 0.95
"""Pr(X_m = 1 | E_g = 1)."""
DELTA = 0.01
"""δ, below which no ĉ is believed."""
GROUPS = tuple(f"group-{number}" for number in range(len(SIZES)))
SCHEMES: Mapping[str, Mapping[str, Any]] = {
    "unbiased": {"kind": "fedavg"},
    "biased": {"kind": "fedavg"},
    "debiased": {"kind": "importance", "delta": DELTA},
    "exact": {"kind": "importance", "delta": DELTA, "shares": "exact"},
}
"""The rule of each; `fedavg` is the plain mean here, where all hold equally many examples.
Unbiased: everybody is always there."""

EVALUATE_EVERY = 10
_MNIST, _DIGITS = 500, 34
"""Examples of a device; of scikit-learn's digits there are no more."""


class Limit(NamedTuple):
    """M_max, how many devices of a group can transfer in a round.

    Attributes:
        overflow: what becomes of more: collide, and nobody gets through; subset, and `slots` of
            them do.
    """

    overflow: Literal["collide", "subset"]
    slots: int

    def __str__(self) -> str:
        return f"{self.overflow}-{self.slots}"


class Exact(NamedTuple):
    """What is known in closed form.

    Attributes:
        shares: c_m of a device of each group.
        empty: probability that nobody gets through.
    """

    shares: tuple[float, ...]
    empty: float

    @property
    def biased(self) -> tuple[float, ...]:
        """What a plain mean over whoever came weighs each group by, where somebody came."""
        return tuple(
            share * size / (1 - self.empty)
            for share, size in zip(self.shares, SIZES, strict=True)
        )  # fmt: skip


FAIR = tuple(size / sum(SIZES) for size in SIZES)
"""What every device weighing the same weighs each group by."""


def exact(limit: Limit | None = None) -> Exact:
    limits = () if limit is None else (limit.slots, limit.overflow)
    groups = [
        EventGroup(size, event, DEVICE_PROBABILITY, *limits)
        for size, event in zip(SIZES, EVENTS, strict=True)
    ]
    shares, empty = shares_of_groups(groups)
    return Exact(tuple(shares.tolist()), empty)


def classifier(
    scheme: str, seed: int, rounds: int, data: str | None, limit: Limit | None = None
) -> Scenario:
    """A classifier of the digits 0, 1 and 2, of which the devices of group g see only digit g.

    Args:
        data: the data directory, for MNIST; None: scikit-learn's digits.
    """
    labels = [[group] for group, size in enumerate(SIZES) for _ in range(size)]
    task = {
        "name": "digits" if data is None else "mnist",
        "labels": [0, 1, 2],
        "evaluate_on": "training",
        "model": {"kind": "mlp", "hidden": [4], "activation": "tanh"},
        "partition": {
            "kind": "assigned",
            "labels": labels,
            "examples_per_client": _DIGITS if data is None else _MNIST,
        },
        "data": {} if data is None else {"directory": data},
    }
    training = {"gradient": True, "batch_size": 32, "learning_rate": 1 / math.sqrt(rounds)}
    return _scenario(scheme, seed, rounds, task, training, limit)


def surrogate(scheme: str, seed: int, rounds: int, limit: Limit | None = None) -> Scenario:
    """F_m = ½‖θ − θ₀ − e_g‖² for every device of group g, with exact gradients.

    The rate falls as 1/(t + 1): θ becomes a mean over the rounds, and ends at the minimiser of what
    a rule minimises instead of wandering about it.
    """
    corners = {f"corner_{g}": [float(g == axis) for axis in range(3)] for g in range(3)}
    task = {"name": "quadratic", "dimension": 3, "condition": 1.0, "heterogeneity": 0.0,
            "covariates": corners}  # fmt: skip
    training = {"gradient": True, "batch_size": "full",
                "learning_rate": {"kind": "inverse", "initial": 1.0, "shift": 1.0}}  # fmt: skip
    return _scenario(scheme, seed, rounds, task, training, limit)


def _scenario(
    scheme: str,
    seed: int,
    rounds: int,
    task: Mapping[str, Any],
    training: Mapping[str, Any],
    limit: Limit | None,
) -> Scenario:
    return validate(
        Scenario,
        {
            "name": "correlated",
            "seed": seed,
            "task": task,
            "training": training,
            "server": {
                "rounds": rounds,
                "aggregator": dict(SCHEMES[scheme]),
                "evaluate_every": EVALUATE_EVERY,
                "evaluate_groups": task["name"] != "quadratic",
            },
            "groups": [
                {
                    "name": name,
                    "count": size,
                    # Who lacks a covariate counts as 0 there: each group is at its own corner.
                    "covariates": {"z": {f"corner_{number}": 1.0}},
                    "availability": _availability(scheme, event),
                    "shared_link": {} if limit is None else limit._asdict(),
                }
                for number, (name, size, event) in enumerate(
                    zip(GROUPS, SIZES, EVENTS, strict=True)
                )
            ],
        },
        "correlated",
    )


def _availability(scheme: str, event: float) -> dict[str, Any]:
    if scheme == "unbiased":
        return {"kind": "always"}
    return {
        "kind": "group-event",
        "probability": event,
        "device_probability": DEVICE_PROBABILITY,
    }
