"""Faults that the supervisor injects from outside: into processes and into links. One file has one
fault. Those that act inside devices are in `muster.client.faults`."""

from muster.common.faults import FaultKind

INJECTED: dict[str, type[FaultKind]] = {}
