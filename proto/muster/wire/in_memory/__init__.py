"""A transport in memory with the semantics of gRPC over TCP, for deterministic simulations.

Streams are ordered, and all streams of a connection share one ordered pipe in each direction.
A message is lost only if its connection is lost. Writers wait if nobody reads (flow control).
Half-close, cancellation, deadlines, status codes, metadata and `wait_for_ready` behave as in
`grpc.aio`; `tests/conformance` compares the two.

An `InMemoryNetwork` decides how long every frame travels and where connections break. It works on
any event loop; a simulation passes one with virtual time.
"""

from muster.wire.in_memory.host import Host
from muster.wire.in_memory.network import FrameFate, InMemoryNetwork

__all__ = ["FrameFate", "Host", "InMemoryNetwork"]
