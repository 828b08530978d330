"""The fleets of the study `feduca`: ten institutes in two groups without a common label.

The partition is that of appendix A.5 of the paper. Institutes can learn alone, and gain from the
others of their group; the other group makes the common model worse for them at first.

All methods but FedAvg-WS force everybody to accept in round 1 alone, because otherwise no baseline
would begin; FedAvg-WS forces five rounds. The server retains what institutes have sent last.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from muster.common.config import validate
from muster.emulator.scenario.scenario import Scenario

INSTITUTES = 10
STRATEGIES, CONCENTRATION = 5, 0.5
"""n_s and δ of the paper (appendix A.8)."""

FEDAVG, FEDPROX, WARM_START, INCFL, AAGGFF, FEDUCA, SOLVE_FIRST, NEAREST = (
    "fedavg", "fedprox", "fedavg-ws", "incfl", "aaggff-s", "feduca", "feduca solve-first",
    "feduca nearest",
)  # fmt: skip
"""`FEDUCA` solves the paper's problem 7, which has many solutions, so that the solver decides which
of them is taken. `SOLVE_FIRST` and `NEAREST` have the added term, and the one solution that is
nearest to equal weights; `NEAREST` is otherwise `FEDUCA`."""

SOLVING = (FEDUCA, SOLVE_FIRST, NEAREST)
"""The methods that solve problem 7."""

BASELINES = (FEDAVG, FEDPROX, INCFL, AAGGFF)
"""The baselines whose participation is not forced."""

EQUATION_1, PRINTED, COIN, ALWAYS = "eq. 1", "printed", "coin", "everybody"
"""The tests by which institutes decide. eq. 1: the received model is better than their own.
printed: u(α) ≥ γ with γ = u(old α), as in Algorithm 1. The other two are controls."""

WARM_ROUNDS = 5
BINDING = "binding"
"""The test of the sweep over δ, with thresholds that bind."""
_MARGIN = 0.05
_PROXIMAL_MU = 0.01

_TESTS: Mapping[str, Mapping[str, Any]] = {
    EQUATION_1: {"test": "measured", "threshold": "local"},
    PRINTED: {"test": "fitted", "threshold": "weight"},
    COIN: {"test": "coin", "threshold": "local"},
    ALWAYS: {"test": "always", "threshold": "local"},
    BINDING: {"test": "fitted", "threshold": "global", "margin": _MARGIN},
}

UPDATE, MODEL = "update", "model"
"""What the server retains of an institute that declines. Algorithm 1 (FedUCA) has its last update,
and algorithm 4 (the baselines) its last model."""


class UtilityData(NamedTuple):
    """The examples, and how institutes train on them.

    Attributes:
        task: the `[task]` table without the partition.
        examples: examples of an institute, with those for validation.
        training: the `[training]` table without what a method adds.
    """

    task: Mapping[str, Any]
    examples: int
    training: Mapping[str, Any]


class UtilitySetting(NamedTuple):
    """What a run changes, beside its method and test.

    Attributes:
        alpha: concentration of the training examples; that of validation is 1.
        strategies, concentration: n_s and δ.
        inflation: share by which institutes overstate their thresholds.
        retention: `UPDATE` or `MODEL`.
        dense: whether R² of the fit is measured.
    """

    alpha: float = 0.5
    strategies: int = STRATEGIES
    concentration: float = CONCENTRATION
    inflation: float = 0.0
    retention: str = UPDATE
    dense: bool = False


USUAL = UtilitySetting()

_LARGEST_WEIGHT = STRATEGIES / INSTITUTES
"""Institutes fit their utilities to weights from 0 to n_s/N = 0.5, above which no weight can lie.
The paper's equation 5 has weights from 0 to 1."""
_DENSE_POINTS = 41
_PICTURES = {"standardise": True}
"""Pixels of mean 0 and deviation 1, without which the baselines are far below the paper's."""
_SGD = {"learning_rate": 0.1, "local_epochs": 5, "batch_size": 32}


def clothes(data: str | None, examples: int, *, quick: bool) -> UtilityData:
    """Fashion-MNIST and the perceptron of the paper, or a smaller one if `quick`; scikit-learn's
    digits without data."""
    task = {"model": "mlp", "hidden": [64] if quick or data is None else [200, 100], **_PICTURES}
    if data is None:
        return UtilityData({**task, "name": "digits"}, 140, _SGD)
    found = {"name": "fashion-mnist", "data": {"directory": data}}
    return UtilityData({**task, **found}, examples, _SGD)


def animals(data: str, examples: int) -> UtilityData:
    """The subset of CIFAR-10, and a convolutional network that is smaller than the paper's."""
    task = {"name": "cifar10", "data": {"directory": data}, "model": "cnn", **_PICTURES}
    return UtilityData({**task, "channels": 4, "hidden": 32}, examples, _SGD)


def posts(data: str, examples: int) -> UtilityData:
    """20 Newsgroups, read from both ends by an LSTM."""
    task = {"name": "20news", "data": {"directory": data}, "model": "lstm", "pooling": "max"}
    return UtilityData(
        {**task, "embedding": 32, "hidden": 32, "tokens": 40, "vocabulary": 2000},
        examples,
        {**_SGD, "learning_rate": 1.0},
    )


def scenario(
    data: UtilityData,
    seed: int,
    rounds: int,
    method: str,
    test: str,
    setting: UtilitySetting = USUAL,
) -> Scenario:
    """The scenario of a run in which institutes decide by `test`."""
    partition = {
        "kind": "class-groups",
        "groups": 2,
        "alpha": setting.alpha,
        "validation_alpha": 1.0,
        "examples_per_client": data.examples,
    }
    utility = {
        **_TESTS[test],
        "largest_weight": _LARGEST_WEIGHT,
        "inflation": setting.inflation,
        "forced_rounds": forced_rounds(method),
        "dense_points": _DENSE_POINTS if setting.dense else 0,
    }
    table = {
        "name": "feduca",
        "seed": seed,
        "task": {**data.task, "validation_ratio": 0.3, "partition": partition},
        "training": {
            **data.training,
            **({"proximal_mu": _PROXIMAL_MU} if method == FEDPROX else {}),
        },
        "server": {"rounds": rounds, "aggregator": aggregator_of(method, setting)},
        "groups": [
            {
                "name": "institute",
                "count": INSTITUTES,
                "participation": {"kind": "rational", "utility": utility},
            }
        ],
    }
    return validate(Scenario, table, "feduca")


def forced_rounds(method: str) -> int:
    """The rounds in which institutes have to accept: the warm start of FedAvg, or the first."""
    return WARM_ROUNDS if method == WARM_START else 1


def aggregator_of(method: str, setting: UtilitySetting) -> Mapping[str, Any]:
    """The `[server.aggregator]` table of a method."""
    kept = {"retention": setting.retention}
    if method in SOLVING:
        return {
            "kind": "feduca",
            "strategies": setting.strategies,
            "concentration": setting.concentration,
            "order": "solve-first" if method == SOLVE_FIRST else "lagged",
            **({"regularization": 0.0} if method == FEDUCA else {}),
            **kept,
        }
    averages = method in (FEDAVG, FEDPROX, WARM_START)
    return {"kind": "rational-fedavg" if averages else method, **kept}
