"""The registry of studies; installed packages add theirs through the entry-point group."""

from muster.common.plugins import Registry
from muster.studies.agnostic.study import AgnosticStudy
from muster.studies.correlated.study import CorrelatedStudy
from muster.studies.fedipw.study import FedIpwStudy
from muster.studies.fedplt.study import FedPltStudy
from muster.studies.feduca.study import FedUcaStudy
from muster.studies.selection_by_network.study import SelectionByNetworkStudy
from muster.studies.staleness.study import StalenessStudy
from muster.studies.study import Study
from muster.studies.usual_rules.study import UsualRulesStudy

BUILT_IN: dict[str, type[Study]] = {
    "correlated": CorrelatedStudy,
    "agnostic": AgnosticStudy,
    "fedipw": FedIpwStudy,
    "feduca": FedUcaStudy,
    "fedplt": FedPltStudy,
    "selection-by-network": SelectionByNetworkStudy,
    "staleness": StalenessStudy,
    "usual-rules": UsualRulesStudy,
}

STUDIES: Registry[Study] = Registry("study", "muster.studies", BUILT_IN)
