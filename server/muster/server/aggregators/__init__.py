"""The aggregators: one file per rule, and the table of the built-in rules.

`contract` defines the interface that a rule implements, `bases` the ways in which it changes the
model, `facts` what it may know, `values` what goes in and comes out, and
`combinations` what cannot be combined with what it requires. `averaging`, `inverse`, `estimation`,
`robust` and `retaining` hold what several rules share; `blocks` and `coverage` are arithmetic. Of
the other folders of the server only knowledge is imported.
"""

from muster.common.plugins import Registry
from muster.common.requirements import Requirement
from muster.common.withholders import Withholder
from muster.server.aggregators.aaggff_s import AaggffS
from muster.server.aggregators.agnostic import Agnostic
from muster.server.aggregators.bases import Combining, Recalling, Remembering, Stepping, Strategy
from muster.server.aggregators.bulyan import Bulyan
from muster.server.aggregators.calibrated import Calibrated
from muster.server.aggregators.contract import Aggregator
from muster.server.aggregators.facts import OF_UPDATES, Cohort, Conditions, Contribution, Need
from muster.server.aggregators.fedadagrad import FedAdagrad
from muster.server.aggregators.fedadam import FedAdam
from muster.server.aggregators.fedasync import FedAsync
from muster.server.aggregators.fedavg import FedAvg
from muster.server.aggregators.fedavgm import FedAvgM
from muster.server.aggregators.fedbuff import FedBuff
from muster.server.aggregators.fedipw import FedIpw
from muster.server.aggregators.fednova import FedNova
from muster.server.aggregators.fedplt import FedPlt
from muster.server.aggregators.feduca import FedUca
from muster.server.aggregators.fedvarp import FedVarp
from muster.server.aggregators.fedyogi import FedYogi
from muster.server.aggregators.flower import FlowerStrategy
from muster.server.aggregators.importance import Importance
from muster.server.aggregators.incfl import IncFl
from muster.server.aggregators.krum import Krum, MultiKrum
from muster.server.aggregators.max_participation import MaxParticipation
from muster.server.aggregators.median import Median
from muster.server.aggregators.mifa import Mifa
from muster.server.aggregators.oracle_ipw import OracleIpw
from muster.server.aggregators.participation_ipw import ParticipationIpw
from muster.server.aggregators.q_fedavg import QFedAvg
from muster.server.aggregators.rational_fedavg import RationalFedAvg
from muster.server.aggregators.scaffold import Scaffold
from muster.server.aggregators.trimmed_mean import TrimmedMean
from muster.server.aggregators.values import State, Weighing
from muster.server.aggregators.weighted import Weighted, WeightedNormalised

BUILT_IN: dict[str, type[Aggregator]] = {
    "fedavg": FedAvg,
    "agnostic": Agnostic,
    "weighted": Weighted,
    "weighted-normalised": WeightedNormalised,
    "participation-ipw": ParticipationIpw,
    "fedipw": FedIpw,
    "oracle-ipw": OracleIpw,
    "calibrated": Calibrated,
    "importance": Importance,
    "fedplt": FedPlt,
    "fedbuff": FedBuff,
    "fedasync": FedAsync,
    "fedavgm": FedAvgM,
    "fedadagrad": FedAdagrad,
    "fedadam": FedAdam,
    "fedyogi": FedYogi,
    "fedvarp": FedVarp,
    "mifa": Mifa,
    "median": Median,
    "trimmed-mean": TrimmedMean,
    "krum": Krum,
    "multi-krum": MultiKrum,
    "bulyan": Bulyan,
    "fednova": FedNova,
    "q-fedavg": QFedAvg,
    "scaffold": Scaffold,
    "feduca": FedUca,
    "max-participation": MaxParticipation,
    "rational-fedavg": RationalFedAvg,
    "incfl": IncFl,
    "aaggff-s": AaggffS,
    "flower": FlowerStrategy,
}

AGGREGATORS = Registry("aggregator", "muster.aggregators", BUILT_IN)

__all__ = [
    "AGGREGATORS",
    "BUILT_IN",
    "OF_UPDATES",
    "Aggregator",
    "Cohort",
    "Combining",
    "Conditions",
    "Contribution",
    "Need",
    "Recalling",
    "Remembering",
    "Requirement",
    "State",
    "Stepping",
    "Strategy",
    "Weighing",
    "Withholder",
]
