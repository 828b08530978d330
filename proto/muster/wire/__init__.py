"""The only code that converts between protobuf messages and domain objects.

Nothing here decides: a message is decoded, or refused with what is wrong with it.
"""

PROTOCOL_VERSION = 1
"""Both ends of a run speak the same version; a server refuses another."""

CHUNK_BYTES = 1 << 20
"""Measured on loopback, two cores: 1 MiB streams at 1.1-1.5 GB/s, 64 KiB at 0.4, 16 MiB at 0.5."""

LEAST_CHUNK_BYTES = 4 << 10
"""The smallest chunk of a model that a device may ask for: each costs the server a call of
gRPC."""

UPLOAD_BYTES = 256 << 10
"""Chunks on the way up are smaller: gRPC keeps buffers of one message for each connection that ever
uploaded. With 1 MiB 100 devices took a quarter more of the server's memory than 10, with this
nothing, and uploads are as fast."""

INLINE_BYTES = 64 << 10
"""Models and updates up to this length travel inside Attend, and stay in the ledger's rows."""

SESSION = "muster-session-bin"
TOKEN = "muster-token-bin"
OPERATOR = "muster-operator-bin"
"""Metadata keys; a key that ends in -bin carries bytes."""
