"""The fleet of the study `correlated`: three groups of devices that take part together.

There are ten devices in groups of 3, 4 and 3. In each round, an event happens in a group or not. If
it does, nearly all devices of the group are available; otherwise none is. Devices return gradients
(FedSGD).
"""

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from muster.common.config import validate
from muster.emulator.fleet.group_shares import EventGroup, shares_of_groups
from muster.emulator.scenario.scenario import Scenario

SIZES = (3, 4, 3)
EVENTS = (0.3, 0.6, 0.3)
"""Pr(E_g = 1) by group."""
DEVICE_PROBABILITY = 0.95
"""Pr(X_m = 1 | E_g = 1)."""
DELTA = 0.01
"""δ, the floor of ĉ in weights."""
GROUPS = tuple(f"group-{number}" for number in range(len(SIZES)))
SCHEMES: Mapping[str, Mapping[str, Any]] = {
    "unbiased": {"kind": "fedavg"},
    "biased": {"kind": "fedavg"},
    "debiased": {"kind": "importance", "delta": DELTA},
    "exact": {"kind": "importance", "delta": DELTA, "shares": "exact"},
}
"""Scheme to its aggregation rule. `fedavg` is the plain mean here, because all devices hold equally
many examples. In `unbiased`, all devices are always available."""

_MNIST, _DIGITS = 500, 34
"""Examples of a device; scikit-learn's digits have no more."""


class TransferLimit(NamedTuple):
    """M_max, the number of devices of a group that can transfer in a round.

    Attributes:
        overflow: what happens if more devices take part: with "collide", none gets through; with
            "subset", `slots` of them do.
        slots: M_max.
    """

    overflow: Literal["collide", "subset"]
    slots: int

    def __str__(self) -> str:
        return f"{self.overflow}-{self.slots}"


LITERAL = TransferLimit("collide", 3)
"""The limit that follows the paper's wording, and that binds but lets enough devices through. With
at most two devices, c of the large group is below δ."""
FEWER = TransferLimit("collide", 2)
FEWER_SUBSET = TransferLimit("subset", 2)
LIMITS = (LITERAL, FEWER, TransferLimit("subset", 3), FEWER_SUBSET)
AVERAGED = ("unbiased", "biased", "debiased")
"""The schemes that are also run with `LOCAL_STEPS` steps of a device in a round (FedAvg)."""
LOCAL_STEPS = 5
NEVER_BINDS = TransferLimit("collide", 4)
"""As many slots as the largest group has devices."""


class Exact(NamedTuple):
    """Values that are known in closed form.

    Attributes:
        shares: c_m of a device of each group.
        empty: probability that no device gets through.
    """

    shares: tuple[float, ...]
    empty: float

    @property
    def biased(self) -> tuple[float, ...]:
        """The weight of each group in a plain mean over the participants of non-empty rounds."""
        return tuple(
            share * size / (1 - self.empty)
            for share, size in zip(self.shares, SIZES, strict=True)
        )  # fmt: skip

    @property
    def gap(self) -> float:
        """The distance between the weights of a plain mean and `FAIR`."""
        return math.dist(self.biased, FAIR)


FAIR = tuple(size / sum(SIZES) for size in SIZES)
"""The weight of each group if every device weighs the same."""


def event_groups(limit: TransferLimit | None = None) -> list[EventGroup]:
    limits = () if limit is None else (limit.slots, limit.overflow)
    return [
        EventGroup(size, event, DEVICE_PROBABILITY, *limits)
        for size, event in zip(SIZES, EVENTS, strict=True)
    ]


def exact(limit: TransferLimit | None = None) -> Exact:
    shares, empty = shares_of_groups(event_groups(limit))
    return Exact(tuple(shares.tolist()), empty)


def ends_at(scheme: str, limit: TransferLimit | None = None) -> tuple[float, ...]:
    """The weight of each group in the objective that a scheme minimises."""
    return exact(limit).biased if scheme == "biased" else FAIR


def classifier(
    scheme: str,
    seed: int,
    rounds: int,
    data: str | None,
    limit: TransferLimit | None = None,
    local_steps: int = 0,
) -> Scenario:
    """The scenario of a classifier of the digits 0, 1 and 2; devices of group g have only digit g.

    Args:
        data: the data directory, for MNIST; None for scikit-learn's digits.
        local_steps: steps of a device in a round (FedAvg); 0: it returns a gradient (FedSGD).
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
    work = {"local_steps": local_steps} if local_steps else {"gradient": True}
    training = {**work, "batch_size": 32, "learning_rate": 1 / math.sqrt(rounds)}
    return _scenario(scheme, seed, rounds, task, training, limit)


def surrogate(scheme: str, seed: int, rounds: int, limit: TransferLimit | None = None) -> Scenario:
    """The scenario of F_m = ½‖θ − θ₀ − e_g‖² for every device of group g, with exact gradients.

    The learning rate falls as 1/(t + 1). Therefore θ becomes a mean over the rounds, and converges
    to the minimiser of the rule's objective instead of fluctuating around it.
    """
    inverse = {"kind": "inverse", "initial": 1.0, "shift": 1.0}
    return _quadratic(scheme, seed, rounds, np.eye(3), inverse, limit)


def corners() -> npt.NDArray[np.float64]:
    """The minimisers b_g − θ₀ of the groups in `theorems`, shape (groups, 3).

    Their mean over all devices is 0. They are so far apart that the bias term is 1: a plain mean
    ends where ‖∇F‖² = 1.
    """
    return (np.eye(3) - FAIR) / exact().gap


def theorems(scheme: str, seed: int, rounds: int) -> Scenario:
    """The scenario of F_m = ½‖θ − b_g‖², with exact gradients and the theorems' step 1/√T."""
    return _quadratic(scheme, seed, rounds, corners(), 1 / math.sqrt(rounds), None)


def _quadratic(
    scheme: str,
    seed: int,
    rounds: int,
    minimisers: npt.NDArray[np.float64],
    learning_rate: float | Mapping[str, Any],
    limit: TransferLimit | None,
) -> Scenario:
    covariates = {f"corner_{g}": row.tolist() for g, row in enumerate(minimisers)}
    task = {"name": "quadratic", "dimension": 3, "condition": 1.0, "heterogeneity": 0.0,
            "covariates": covariates}  # fmt: skip
    training = {"gradient": True, "batch_size": "full", "learning_rate": learning_rate}
    return _scenario(scheme, seed, rounds, task, training, limit)


def _scenario(
    scheme: str,
    seed: int,
    rounds: int,
    task: Mapping[str, Any],
    training: Mapping[str, Any],
    limit: TransferLimit | None,
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
                # The loss must be known after every round: the value of an evaluation that falls
                # on an empty round is missing, although the model has changed since the one before.
                "evaluate_every": 1,
                "evaluate_groups": task["name"] != "quadratic",
            },
            "groups": [
                {
                    "name": name,
                    "count": size,
                    # Devices that share a link have a gateway, and so a process each.
                    "devices_per_process": size if limit is None else 1,
                    # A missing covariate counts as 0, so each group is at its own corner.
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
