"""The fleets of the study `agnostic`.

In most parts there are a hundred devices, of which ten take part in a round. They are drawn without
replacement with weights exp(−i / decay). Therefore p_i, the share of device i in a mean over the
participants, falls with i; it falls faster if the decay is smaller. In `random size`, every device
tosses a coin of its own, so the number of participants is random.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from muster.common.config import validate
from muster.emulator.fleet.group_shares import EventGroup
from muster.emulator.scenario.scenario import Scenario

DEVICES, PARTICIPANTS, STEPS = 100, 10, 5
"""N, M and H; the paper does not state H."""
DECAY = 10
AGNOSTIC, NORMALISED, WEIGHTED = RULES = ("agnostic", "weighted-normalised", "weighted")

LAST_PLACE = 4.0
"""The covariate `place` grows evenly from 0 at device 0 to this at the last device. It moves the
devices' minimisers, so that devices that come more often differ from those that come seldom."""

OFTEN, SELDOM = EventGroup(1, 1.0, 0.9), EventGroup(9, 1.0, 0.1)
"""The two groups of `random size`: their sizes, and how probable it is that a device comes."""


class Problem(NamedTuple):
    """A task and its training settings.

    Attributes:
        step: c of the learning rate η = c/√(TH), which is the same in all T rounds.
        radius: radius of the ball C in which training stays.
        small: radius of a ball that binds; 0 if the study does not use one.
        constant: whether η = c for every T.
    """

    task: Mapping[str, Any]
    step: float
    radius: float
    batch_size: int | str
    small: float = 0.0
    constant: bool = False

    def rate(self, rounds: int) -> float:
        """The learning rate η."""
        return self.step if self.constant else self.step / math.sqrt(rounds * STEPS)


# Rates and radii were chosen on the seeds 1 to 20: rates with which agnostic averaging is quick and
# stable, and radii two to four times as large as the distance that it covers.
LINEAR = Problem(
    {"name": "linear", "dimension": 10, "heterogeneity": 0.5, "covariates": ["place"]},
    step=2.0,
    radius=10.0,
    batch_size=10,
)


Loss = Literal["squared", "absolute"]
LOSSES: tuple[Loss, ...] = ("squared", "absolute")
"""The losses of the part `rate`."""


def sharp(loss: Loss) -> Problem:
    """Linear regression whose devices nearly agree and have little noise.

    Therefore the absolute loss has its kink wherever the iterates go: it is nearly ‖θ − θ*‖.
    """
    task = {"name": "linear", "dimension": 10, "heterogeneity": 0.01, "noise": 0.01, "loss": loss}
    return Problem(task, step=0.5, radius=10.0, batch_size=10)


# One curvature, 1, and exact gradients. The rate is large: a round leaves (1 − η)^H = .17 of the
# way to the participants' mean, so the starting point is soon forgotten.
QUADRATICS = Problem(
    {
        "name": "quadratic",
        "dimension": 2,
        "condition": 1.0,
        "heterogeneity": 0.1,
        "covariates": {"place": [1.0, 0.0]},
    },
    step=0.3,
    radius=10.0,
    batch_size="full",
    constant=True,
)
QUADRATICS_DECAY = 5
"""The decay of `quadratics`, with which p differs clearly from the raw weights."""


def pictures(data: str | None) -> Problem:
    """Softmax regression on digits, of which most devices hold two classes.

    Args:
        data: the data directory, for MNIST; None for scikit-learn's digits.
    """
    task = {"model": "softmax", "partition": {"kind": "shards"}}
    if data is None:
        return Problem({"name": "digits", **task}, 10.0, radius=50.0, batch_size=32, small=5.0)
    there = {"name": "mnist", "data": {"directory": data}, **task}
    return Problem(there, 5.0, radius=20.0, batch_size=32, small=2.0)


def scenario(
    problem: Problem,
    seed: int,
    rounds: int,
    rule: str = AGNOSTIC,
    decay: float = DECAY,
    evaluate_every: int | None = None,
) -> Scenario:
    """The scenario of a run with ten participants in every round.

    Args:
        evaluate_every: rounds between evaluations; None for one evaluation at the end.
    """
    group = {
        "name": "device",
        "count": DEVICES,
        "devices_per_process": DEVICES // 2,
        "availability": {"kind": "k-of-n", "k": PARTICIPANTS, "decay": decay},
    }
    if "covariates" in problem.task:
        step = LAST_PLACE / (DEVICES - 1)
        group["covariates"] = {"z": {"place": {"kind": "position", "step": step}}}
    return _scenario(problem, seed, rounds, rule, [group], evaluate_every or rounds)


def random_size(seed: int, rounds: int) -> Scenario:
    """The scenario of `random size`: quadratics of one device that comes often and is alone at its
    place, and of others that come seldom."""
    groups = [
        {
            "name": name,
            "count": group.size,
            "devices_per_process": group.size,
            "availability": {"kind": "bernoulli", "probability": group.device_probability},
            "covariates": {"z": {"place": place}},
        }
        for name, group, place in (("often", OFTEN, LAST_PLACE), ("seldom", SELDOM, 0.0))
    ]
    return _scenario(QUADRATICS, seed, rounds, AGNOSTIC, groups, rounds)


def _scenario(
    problem: Problem,
    seed: int,
    rounds: int,
    rule: str,
    groups: Sequence[Mapping[str, Any]],
    evaluate_every: int,
) -> Scenario:
    """The scenario of a run: the rule offers the average of its iterates, which is evaluated on
    every device."""
    return validate(
        Scenario,
        {
            "name": "agnostic",
            "seed": seed,
            "task": dict(problem.task),
            "training": {
                "learning_rate": problem.rate(rounds),
                "local_steps": STEPS,
                "batch_size": problem.batch_size,
                "projection_radius": problem.radius,
            },
            "server": {
                "rounds": rounds,
                "aggregator": rule,
                "evaluate_every": evaluate_every,
                "evaluate_devices": True,
            },
            "groups": groups,
        },
        "agnostic",
    )
