"""The catalogue of faults: those that act inside devices, and those that the supervisor injects."""

from typing import Annotated

from pydantic import BeforeValidator, SerializeAsAny

from muster.client.faults import BUILT_IN as OF_DEVICES
from muster.client.faults import GROUP
from muster.common.faults import FaultKind
from muster.common.plugins import Registry
from muster.emulator.faults.catalogue import INJECTED

BUILT_IN: dict[str, type[FaultKind]] = {**OF_DEVICES, **INJECTED}
FAULTS = Registry("fault", GROUP, BUILT_IN)
AnyFault = Annotated[SerializeAsAny[FaultKind], BeforeValidator(FAULTS.parse)]
"""A fault as a setting."""
