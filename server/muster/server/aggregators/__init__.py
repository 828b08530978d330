"""The aggregators: one file per rule, and the table of those that are built in."""

from muster.common.plugins import Registry
from muster.server.aggregators.agnostic import Agnostic
from muster.server.aggregators.contract import (
    Aggregator,
    Cohort,
    Conditions,
    Contribution,
    Need,
    State,
    Weighing,
)
from muster.server.aggregators.fedavg import FedAvg

BUILT_IN: dict[str, type[Aggregator]] = {
    "fedavg": FedAvg,
    "agnostic": Agnostic,
}

AGGREGATORS = Registry("aggregator", "muster.aggregators", BUILT_IN)

__all__ = [
    "AGGREGATORS",
    "BUILT_IN",
    "Aggregator",
    "Cohort",
    "Conditions",
    "Contribution",
    "Need",
    "State",
    "Weighing",
]
