"""The fleets of the study `fedplt` with the paper's own scheme, static masks, and with damping.

`static` and `path` are linear regressions in both regimes of step sizes, with data that are alike
at all devices or skewed. `network` is a perceptron with blocks of hidden units or whole tensors,
and `boundary` a softmax regression (convex) with more and more local steps and smaller parts.
"""

from collections.abc import Mapping
from typing import Any

from muster.studies.fedplt.fleet import DRAWN, ROTATING, STATIC, Masks, PartFleet

ALIKE, SKEWED = "alike", "skewed"
DATA = (ALIKE, SKEWED)
"""Data that are alike at all devices, or differ."""

HALF = Masks(STATIC, 0.5)
_HETEROGENEITY = {ALIKE: 0.0, SKEWED: 1.0}


def linear(data: str, rate: float | Mapping[str, Any], *, full: bool = False) -> PartFleet:
    """Linear regression with 50 coordinates; minibatches of 8 examples, or `full` batches."""
    task = {
        "name": "linear",
        "dimension": 50,
        "heterogeneity": _HETEROGENEITY[data],
        "noise": 1.0,
        "examples_per_client": 400,
    }
    return PartFleet(task, devices=10, rate=rate, steps=10, batch_size="full" if full else 8)


PATH_RATE = 0.04

# --- networks -------------------------------------------------------------------------------------

QUARTER = 0.25
MIXED = (1.0, 0.5, 0.25)
"""Capacities of the paper's devices: the same number of devices has each."""
DAMPED, UNDAMPED = 0.5, 1.0
"""Rates of the server."""
BLOCKS, TENSORS = "blocks", "tensors"
SCHEDULES = (STATIC, ROTATING, DRAWN)


def quarter(schedule: str, rate: float) -> Masks:
    """A quarter of the hidden units for every device."""
    return Masks(schedule, QUARTER, BLOCKS, rate=rate)


def mixed(kind: str, schedule: str) -> Masks:
    """Blocks or tensors for devices of three capacities, as in the paper."""
    return Masks(schedule, MIXED, kind)


def network(data: str) -> PartFleet:
    """The usual perceptron on digits that are spread evenly over twelve devices, or of which most
    devices hold two kinds."""
    task: dict[str, Any] = {"name": "digits", "model": "mlp"}
    if data == SKEWED:
        task["partition"] = {"kind": "shards"}
    return PartFleet(task, 12, rate=0.1, steps=10, batch_size=16)


# --- the boundary of overshooting -----------------------------------------------------------------

SHARES = (0.5, 0.25, 0.1)
BOUNDARY_STEPS = (2, 10, 50)
BOUNDARY_RATE = 0.5
"""The learning rate of `boundary`, at which devices that train the whole model are stable."""


def share_of(share: float, rate: float = UNDAMPED) -> Masks:
    """Static masks of single coordinates, so that the round's step is the same in all rounds."""
    return Masks(STATIC, share, rate=rate)


def evenly(steps: int) -> PartFleet:
    """Softmax regression on digits that are spread evenly over twenty devices."""
    return PartFleet({"name": "digits", "model": "softmax"}, 20, rate=BOUNDARY_RATE, steps=steps)
