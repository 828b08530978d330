"""The registry of studies; installed packages add theirs through the entry-point group."""

from muster.common.plugins import Registry
from muster.emulator.studies.agnostic.study import AgnosticStudy
from muster.emulator.studies.correlated.study import CorrelatedStudy
from muster.emulator.studies.fedipw.study import FedIpwStudy
from muster.emulator.studies.fedplt.study import FedPltStudy
from muster.emulator.studies.feduca.study import FedUcaStudy
from muster.emulator.studies.selection_by_network.study import SelectionByNetworkStudy
from muster.emulator.studies.staleness.study import StalenessStudy
from muster.emulator.studies.study import Study

BUILT_IN: dict[str, type[Study]] = {
    "correlated": CorrelatedStudy,
    "agnostic": AgnosticStudy,
    "fedipw": FedIpwStudy,
    "feduca": FedUcaStudy,
    "fedplt": FedPltStudy,
    "selection-by-network": SelectionByNetworkStudy,
    "staleness": StalenessStudy,
}

STUDIES: Registry[Study] = Registry("study", "muster.studies", BUILT_IN)
