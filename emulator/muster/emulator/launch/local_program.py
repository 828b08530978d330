"""The handle of a program that is a process of this machine."""

import os
import resource
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.emulator.launch.backend import ProgramUse

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class LocalProgram:
    """A process of this machine."""

    pid: int

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    @property
    def identity(self) -> Mapping[str, Any]:
        return {"pid": self.pid}

    def is_paused(self) -> bool:
        """Whether the kernel says that the process is stopped."""
        try:
            facts = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return False
        return facts.rpartition(")")[2].split()[0] == "T"

    def use(self) -> ProgramUse | None:
        try:
            facts = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            status = Path(f"/proc/{self.pid}/status").read_text()
            limit, _ = resource.prlimit(self.pid, resource.RLIMIT_DATA)
        except OSError:
            return None
        lines = (line for line in status.splitlines() if line.startswith("VmData:"))
        data = next(lines, "VmData: 0")  # a process that has ended has none
        ticks = int(facts[11]) + int(facts[12])
        return ProgramUse(ticks / _TICKS_PER_S, 0, int(data.split()[1]) * 1024, limit)
