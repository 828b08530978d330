"""The fault `stop`."""

import signal
from typing import ClassVar

from muster.emulator.faults.catalogue.killing import KillingFault


class Stop(KillingFault):
    """A device is asked to end (SIGTERM), as when its user closes the app, and is started again
    when the fault is healed."""

    number: ClassVar[int] = signal.SIGTERM
