"""The catalogue of faults: those that act inside devices, and those that the supervisor injects."""

from typing import Annotated

from pydantic import BeforeValidator, SerializeAsAny

from muster.client.faults import BUILT_IN as OF_DEVICES
from muster.client.faults import GROUP, LifeFault, UpdateFault
from muster.common.faults import FaultKind
from muster.common.plugins import Registry
from muster.emulator.faults.catalogue import INJECTED
from muster.emulator.faults.injection import InjectedFault

BUILT_IN: dict[str, type[FaultKind]] = {**OF_DEVICES, **INJECTED}

BASES = (UpdateFault, LifeFault, InjectedFault)
"""The classes from which faults derive."""

FAULTS = Registry("fault", GROUP, BUILT_IN, BASES)
AnyFault = Annotated[SerializeAsAny[FaultKind], BeforeValidator(FAULTS.parse)]
"""A fault as a setting."""
