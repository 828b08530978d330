"""Faults that the supervisor injects from outside: into processes and into links. One file has one
fault. Those that act inside devices are in `muster.client.faults`."""

from muster.common.faults import FaultKind
from muster.emulator.faults.catalogue.blackhole import Blackhole
from muster.emulator.faults.catalogue.churn import Churn
from muster.emulator.faults.catalogue.cpu_limit import CpuLimit
from muster.emulator.faults.catalogue.crash import Crash
from muster.emulator.faults.catalogue.degrade import Degrade
from muster.emulator.faults.catalogue.degrade_shared import DegradeShared
from muster.emulator.faults.catalogue.delay import AddedDelay
from muster.emulator.faults.catalogue.disconnect import Disconnect
from muster.emulator.faults.catalogue.disk_full import FullDisk
from muster.emulator.faults.catalogue.flap import Flap
from muster.emulator.faults.catalogue.jitter import Jitter
from muster.emulator.faults.catalogue.limit_bytes import LimitBytes
from muster.emulator.faults.catalogue.loss import PacketLoss
from muster.emulator.faults.catalogue.memory_limit import MemoryLimit
from muster.emulator.faults.catalogue.partition import NetworkPartition
from muster.emulator.faults.catalogue.pause import PauseProgram
from muster.emulator.faults.catalogue.reset import Reset
from muster.emulator.faults.catalogue.restart import Restart
from muster.emulator.faults.catalogue.stop import Stop

INJECTED: dict[str, type[FaultKind]] = {
    "crash": Crash,
    "stop": Stop,
    "restart": Restart,
    "pause": PauseProgram,
    "churn": Churn,
    "cpu-limit": CpuLimit,
    "memory-limit": MemoryLimit,
    "disk-full": FullDisk,
    "blackhole": Blackhole,
    "disconnect": Disconnect,
    "degrade": Degrade,
    "degrade-shared": DegradeShared,
    "delay": AddedDelay,
    "flap": Flap,
    "jitter": Jitter,
    "limit-bytes": LimitBytes,
    "loss": PacketLoss,
    "partition": NetworkPartition,
    "reset": Reset,
}
