"""The modes: one file per mode, and the table of the built-in modes.

A mode decides who is called now, and what completes the current version of the model. `contract`
defines the interface, and `staleness` the weights of updates that come late.
"""

from muster.common.plugins import Registry
from muster.server.rounds.modes.buffered import Buffered
from muster.server.rounds.modes.contract import Completion, Mode
from muster.server.rounds.modes.opportunistic import Opportunistic
from muster.server.rounds.modes.synchronous import Synchronous

BUILT_IN: dict[str, type[Mode]] = {
    "synchronous": Synchronous,
    "opportunistic": Opportunistic,
    "buffered": Buffered,
}

MODES: Registry[Mode] = Registry("mode", "muster.modes", BUILT_IN)

__all__ = ["BUILT_IN", "MODES", "Completion", "Mode"]
