"""The fleets of the study `fedplt`.

Every device trains a part of the model, which its mask gives. In `floor`, `decay` and `psi` the
devices have data of the same distribution; masks then only add noise. `overshoot`, `curvature` and
`labels` show the instabilities of masks, and `limit` shows where static masks lead if the devices
disagree.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from muster.common.config import validate
from muster.emulator.scenario.scenario import Scenario

NO_MASK = "none"
STATIC, ROTATING, DRAWN = "static", "rotating", "drawn"


class Masks(NamedTuple):
    """The masks of all devices of a run.

    Attributes:
        schedule: static, rotating or drawn; `NO_MASK` for devices that train the whole model.
        capacity: share of the parameters that a device trains; several for as many groups, of equal
            sizes.
        kind: blocks for hidden units, random for coordinates.
        psi: whether the server multiplies by ψ.
        rate: the server's rate, by which it multiplies the step.
    """

    schedule: str
    capacity: float | Sequence[float] = 1.0
    kind: str = "random"
    psi: bool = True
    rate: float = 1.0


WHOLE = Masks(NO_MASK)


class PartFleet(NamedTuple):
    """The task, the training and the number of devices of a part of the study.

    Attributes:
        rate: the learning rate η, or a schedule.
        steps: local steps τ.
    """

    task: Mapping[str, Any]
    devices: int
    rate: float | Mapping[str, Any]
    steps: int
    batch_size: int | str = "full"

    def scenario(
        self, seed: int, rounds: int, masks: Masks, evaluate_every: int | None = None
    ) -> Scenario:
        """The scenario of a run.

        Args:
            evaluate_every: rounds between evaluations; None for 20 evaluations in all.
        """
        return validate(
            Scenario,
            {
                "name": "fedplt",
                "seed": seed,
                "task": dict(self.task),
                "training": {
                    "learning_rate": self.rate,
                    "local_steps": self.steps,
                    "batch_size": self.batch_size,
                },
                "server": {
                    "rounds": rounds,
                    "aggregator": {"kind": "fedplt", "psi": masks.psi, "rate": masks.rate},
                    "evaluate_every": evaluate_every or max(1, rounds // 20),
                },
                "groups": list(self._groups(masks)),
            },
            "fedplt",
        )

    def _groups(self, masks: Masks) -> Iterator[Mapping[str, Any]]:
        several = not isinstance(masks.capacity, float)
        capacities = [masks.capacity] if isinstance(masks.capacity, float) else masks.capacity
        for capacity in capacities:
            count = self.devices // len(capacities)
            group: dict[str, Any] = {
                "name": f"capacity-{capacity:.0%}".rstrip("%") if several else "device",
                "count": count,
                "devices_per_process": count,
            }
            if masks.schedule != NO_MASK:
                group["mask"] = {"kind": masks.kind, "schedule": masks.schedule}
                group["device"] = {"capacity": capacity}
            yield group


# --- convergence: floor and decay ----------------------------------------------------------------

STEPS = 5
RATES = (0.01, 0.02, 0.04)
"""The constant rates of `floor`; each is twice the one before."""
HALF = Masks(DRAWN, 0.5)

_REGRESSION = {
    "name": "linear",
    "dimension": 50,
    "heterogeneity": 0.0,
    "noise": 1.0,
    "examples_per_client": 400,
}


def noisy(rate: float | Mapping[str, Any]) -> PartFleet:
    """Linear regression with minibatches of 8 examples, and the same θ at all devices."""
    return PartFleet(_REGRESSION, devices=10, rate=rate, steps=10, batch_size=8)


# τ·c = 20, where c = initial · shift: more than the ½ that D = O(1/t) needs if the curvature is 1.
DECAYING = {"kind": "inverse", "initial": 0.1, "shift": 20.0}


# --- ψ, and capacity against bytes ---------------------------------------------------------------

CAPACITIES = (0.5, 0.25)


def perceptron(data: str | None, scaled_by: float = 1.0) -> PartFleet:
    """A perceptron on digits that are spread evenly over the devices.

    Args:
        data: the data directory, for MNIST; None for scikit-learn's digits.
        scaled_by: factor of the learning rate.
    """
    if data is None:
        digits = {"name": "digits", "model": "mlp", "hidden": [32]}
        return PartFleet(digits, 12, rate=0.1 * scaled_by, steps=STEPS, batch_size=16)
    task: dict[str, Any] = {
        "name": "mnist",
        "model": "mlp",
        "hidden": [64],
        "data": {"directory": data},
    }
    return PartFleet(task, 12, rate=0.03 * scaled_by, steps=STEPS, batch_size=32)


def blocks(capacity: float, *, psi: bool) -> Masks:
    """Masks of hidden units that move on in every round."""
    return Masks(ROTATING, capacity, "blocks", psi)


# --- instabilities -------------------------------------------------------------------------------

TENTH = Masks(ROTATING, 0.1)
FEW, MANY = 5, 50
"""Local steps of `overshoot`."""


def softmax(steps: int) -> PartFleet:
    """Softmax regression on digits that are spread evenly over the devices, with a rate at which
    few steps are harmless."""
    return PartFleet({"name": "digits", "model": "softmax"}, 12, rate=0.5, steps=steps)


ONE = 0.05
"""The capacity of `curvature`: one of twenty coordinates for each of twenty devices."""
LARGE, SMALL = 0.3, 0.1
"""The learning rates of `curvature`."""


def curved(rate: float) -> PartFleet:
    """Quadratics with one minimiser, which all devices have in common, and with curvatures of
    which each device has its own."""
    task = {"name": "quadratic", "dimension": 20, "condition": 1e4, "heterogeneity": 0.0}
    return PartFleet(task, 20, rate=rate, steps=STEPS)


LABEL_RATES = (0.1, 0.05)


def two_classes(rate: float) -> PartFleet:
    """Softmax regression on digits of which most devices hold two classes."""
    task = {"name": "digits", "model": "softmax", "partition": {"kind": "shards"}}
    return PartFleet(task, 20, rate=rate, steps=STEPS)


# --- where static masks lead ---------------------------------------------------------------------

DISAGREEING = PartFleet(
    {"name": "quadratic", "dimension": 10, "condition": 10.0, "heterogeneity": 1.0},
    devices=20,
    rate=0.3,
    steps=1,
)
"""Quadratics with a minimiser of its own at each device, one exact step in a round."""
LIMIT_MASKS = {schedule: Masks(schedule, 0.5) for schedule in (STATIC, ROTATING)}
